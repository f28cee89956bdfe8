"""A whole weight is a repetition: of a subject for Cox regression, of a list for ranking."""

import numpy as np
import pytest
import sklearn
import torch
from numpy.testing import assert_allclose
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.model_selection import GroupKFold, cross_validate

from fcco.estimators import CoxRegressor, Ranker
from fcco.estimators.calibration import platt
from fcco.losses import CoxLoss, ListNetLoss, NDCGLoss, ScoreLoss
from fcco.objectives import NDCG, Cox


def survival(n=300, seed=0):
    """Times have ties."""
    random = np.random.RandomState(seed)
    X = random.normal(size=(n, 3)) * [1.0, 10.0, 0.1] + [0.0, 5.0, 0.0]
    times = np.ceil(10 * random.exponential(np.exp(-X[:, 0] + 0.05 * X[:, 1])))
    ends = np.ceil(10 * random.exponential(2.0, size=n))
    return X, np.stack([np.minimum(times, ends), times <= ends], axis=1)


COUNTS = np.random.RandomState(1).randint(0, 4, size=300)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_efron_s_ties_are_weighted_as_in_lifelines():
    pd = pytest.importorskip("pandas")
    lifelines = pytest.importorskip("lifelines")
    X, y = survival()
    weight = np.random.RandomState(2).uniform(0.2, 3.0, size=300)
    frame = pd.DataFrame(X, columns=list("abc")).assign(t=y[:, 0], e=y[:, 1], w=weight)
    rival = lifelines.CoxPHFitter().fit(frame, "t", "e", weights_col="w", robust=True)
    model = CoxRegressor(C=np.inf).fit(X, y, weight)
    assert_allclose(model.coef_[0], rival.params_, rtol=1e-3, atol=1e-3)
    # and the likelihood itself, at their solution
    scores = torch.from_numpy(X @ rival.params_.to_numpy()[:, None])
    exact = Cox(y[:, 0], y[:, 1] == 1).exact(scores, weight)
    ours = -exact.item() * weight[y[:, 1] == 1].sum()
    assert ours == pytest.approx(rival.log_likelihood_, rel=1e-9)
    plain = CoxRegressor(C=np.inf).fit(X, y)
    assert np.abs(plain.coef_ / model.coef_ - 1).max() > 0.01
    thrice = CoxRegressor(C=np.inf).fit(X, y, np.full(300, 3.0))
    assert_allclose(thrice.coef_, plain.coef_, rtol=1e-6)


def test_a_weighted_subject_is_a_repeated_one():
    X, y = survival()
    weighted = CoxRegressor(ties="breslow").fit(X, y, COUNTS)
    repeated = CoxRegressor(ties="breslow").fit(np.repeat(X, COUNTS, 0), np.repeat(y, COUNTS, 0))
    assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-9)
    curves = [m.predict_survival_function(X[:5], return_array=True) for m in (weighted, repeated)]
    assert_allclose(*curves, rtol=1e-9)
    found = weighted.score(X, y, COUNTS)
    assert found == pytest.approx(weighted.score(np.repeat(X, COUNTS, 0), np.repeat(y, COUNTS, 0)))
    assert found != pytest.approx(weighted.score(X, y), abs=1e-4)


def test_a_weighted_score_is_a_repeated_one_when_it_is_calibrated():
    """The ridge of Platt scaling is that of scores which are standardized with the weights."""
    random = np.random.RandomState(0)
    scores = random.normal(size=200)
    positive = scores + random.normal(size=200) > 0.5
    counts = np.where(scores > 0, 5, 1)
    weighted = platt(scores, positive, counts.astype(float))
    repeated = platt(np.repeat(scores, counts), np.repeat(positive, counts))
    assert_allclose(weighted, repeated, rtol=1e-6)
    assert np.abs(np.subtract(weighted, platt(scores, positive))).min() > 0.01


@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_batches_of_weighted_subjects(ties):
    """Weights of 1 are ``CoxLoss``, before all are seen too; fresh batches add up to the exact."""
    _, y = survival(60)
    times, events = y[:, 0], y[:, 1] == 1
    scores = torch.from_numpy(np.random.RandomState(0).normal(size=(60, 1)))
    batches = torch.randperm(60, generator=torch.Generator().manual_seed(0)).split([1, 4, 25, 30])
    plain = CoxLoss(times, events, ties=ties).double()
    objective = Cox(times, events, ties=ties)
    ones = ScoreLoss(objective, sample_weight=np.ones(60)).double()
    weight = np.random.RandomState(2).uniform(0.2, 3.0, size=60)
    phase = ScoreLoss(objective, sample_weight=weight).double()

    def step(criterion, index):
        h = scores[index].requires_grad_()
        loss = criterion(h, index)
        return loss.detach(), torch.autograd.grad(loss, h)[0]

    for index in batches:
        for found, expected in zip(step(ones, index), step(plain, index), strict=True):
            torch.testing.assert_close(found, expected)
        step(phase, index)
    whole = scores.clone().requires_grad_()
    exact = phase.exact(whole)
    slope = torch.autograd.grad(exact, whole)[0]
    for index in batches:
        value, found = step(phase, index)
        torch.testing.assert_close(value, exact.detach())
        torch.testing.assert_close(found * len(index) / 60, slope[index])


def test_a_network_follows_the_heavy_subjects():
    """In half of the subjects the first feature has the opposite effect."""
    random = np.random.RandomState(0)
    X = random.normal(size=(400, 2))
    sign = np.where(np.arange(400) % 2, 1.0, -1.0)
    y = np.stack([random.exponential(np.exp(-2 * sign * X[:, 0])), np.ones(400)], axis=1)
    for heavy in (1.0, -1.0):
        weight = np.where(sign == heavy, 1.0, 0.05)
        model = CoxRegressor(8, max_steps=150, random_state=0).fit(X, y, weight)
        mine = sign == heavy
        assert model.score(X[mine], y[mine]) > 0.7
        again = CoxRegressor(8, partial_steps=150, random_state=0).partial_fit(X, y, weight)
        assert again.score(X, y, weight) > 0.7


def lists(seed=0):
    """The second feature says more in the second half."""
    random = np.random.RandomState(seed)
    X = random.normal(size=(300, 4))
    own = np.where(np.arange(300) < 150, X[:, 0], X[:, 1])
    return X, np.digitize(own + 0.5 * random.normal(size=300), [0.5, 1.0]), np.arange(300) // 10


def repeated(X, y, qid, counts):
    """Whole lists, each as often as its count, under new names."""
    rows = [np.flatnonzero(qid == q) for q in range(30) for _ in range(counts[q])]
    names = np.repeat(np.arange(len(rows)), [len(each) for each in rows])
    rows = np.concatenate(rows)
    return X[rows], y[rows], names


@pytest.mark.parametrize("objective", ["listnet", "ndcg"])
def test_a_weighted_list_is_a_repeated_one(objective):
    X, y, qid = lists()
    counts = np.where(np.arange(30) < 15, 1, COUNTS[:30])
    settings = {"objective": objective, "top_k": 5, "early_stopping": False}
    weight = counts[qid].astype(float)
    weighted = Ranker(**settings).fit(X, y, qid=qid, sample_weight=weight)
    X_more, y_more, names = repeated(X, y, qid, counts)
    more = Ranker(**settings).fit(X_more, y_more, qid=names)
    assert len(weighted.history_) == (1 if objective == "listnet" else 2)
    assert_allclose(weighted.coef_, more.coef_, rtol=1e-6)
    plain = Ranker(**settings).fit(X, y, qid=qid)
    assert np.abs(plain.coef_ - weighted.coef_).max() > 0.01
    order = np.random.RandomState(0).permutation(300)
    found = weighted.score(X[order], y[order], qid=qid[order], sample_weight=weight[order])
    assert found == pytest.approx(weighted.score(X_more, y_more, qid=names))
    assert found != pytest.approx(weighted.score(X, y, qid=qid), abs=1e-4)


@pytest.mark.parametrize("make", [ListNetLoss, NDCGLoss])
def test_losses_of_weighted_lists(make):
    """Of all items as of repeated lists, and by fresh batches the same."""
    X, y, qid = lists()
    counts = 1 + COUNTS[:30] % 3
    scores = torch.from_numpy(X[:, 0])
    criterion = make(y, np.full(30, 10), weights=counts).double()
    h, y_more, names = repeated(scores, y, qid, counts)
    more = make(y_more, np.bincount(names)).double().exact(h)
    whole = scores.clone().requires_grad_()
    exact = criterion.exact(whole)
    assert exact.item() == pytest.approx(more.item(), rel=1e-12)
    slope = torch.autograd.grad(exact, whole)[0]
    criterion.refresh(scores)
    for index in torch.randperm(300, generator=torch.Generator().manual_seed(0)).split(
        [1, 99, 200]
    ):
        part = scores[index].requires_grad_()
        value = criterion(part, index)
        torch.testing.assert_close(value.detach(), exact.detach())
        found = torch.autograd.grad(value, part)[0] * len(index) / 300
        torch.testing.assert_close(found, slope[index])
    half = make(y, np.full(30, 10), weights=counts).double()  # the lists seen so far
    found = half(scores[:150].requires_grad_(), torch.arange(150))
    expected = make(y[:150], np.full(15, 10), weights=counts[:15]).double().exact(scores[:150])
    assert found.item() == pytest.approx(expected.item())
    with pytest.raises(ValueError, match="weights must be finite numbers above 0, got 0"):
        make(y, np.full(30, 10), weights=0 * counts)


def test_metrics_of_weighted_samples():
    """A pair of subjects counts by both weights, by the definition of concordance; lists count as
    often as they are repeated."""
    _, y = survival(80)
    risk, weight = np.arange(80) * 7 % 13, COUNTS[:80]
    known = right = 0.0
    for (t, e), h, w in zip(y, risk, weight, strict=True):
        for (t2, e2), h2, w2 in zip(y, risk, weight, strict=True):
            if e and (t < t2 or (t == t2 and not e2)):
                known += w * w2
                right += w * w2 * (1.0 if h > h2 else 0.5 * (h == h2))
    found = Cox(y[:, 0], y[:, 1] == 1).metric(torch.from_numpy(risk).double(), weight)
    assert found == pytest.approx(right / known)
    X, y, qid = lists()
    h, y_more, names = repeated(X[:, 0], y, qid, COUNTS[:30])
    found = NDCG(y, np.full(30, 10), top_k=5).metric(torch.from_numpy(X[:, 0]), COUNTS[qid])
    more = NDCG(y_more, np.bincount(names), top_k=5).metric(torch.from_numpy(h))
    assert found == pytest.approx(more)


class _NotAnArray:
    """Converts to an array, and takes part in no function of numpy."""

    def __init__(self, values):
        self.values = np.asarray(values)

    def __array__(self, dtype=None, copy=None):
        return self.values

    def __array_function__(self, function, types, args, kwargs):
        raise TypeError(f"{function.__name__} of weights that were not converted")


def test_weights_of_lists_are_converted_first():
    X, y, qid = lists()
    weight = np.where(qid < 15, 1.0, 5.0)
    models = [Ranker().fit(X, y, qid=qid, sample_weight=w) for w in (weight, _NotAnArray(weight))]
    assert_allclose(models[0].coef_, models[1].coef_, rtol=0)


def test_a_network_ranks_by_the_heavy_lists():
    X, y, qid = lists()
    for heavy in (qid < 15, qid >= 15):
        weight = np.where(heavy, 1.0, 0.02)
        model = Ranker(8, max_steps=200, random_state=0)
        model.fit(X, y, qid=qid, sample_weight=weight)
        assert model.score(X[heavy], y[heavy], qid=qid[heavy]) > 0.85


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.arange(300) % 7, "sample_weight must be the same for all items of a list, not so in 0"),
        (np.arange(300) != 25, "same for all items of a list, not so in 2"),
        (np.ones(30), "sample_weight.shape"),
        (-np.ones(300), "Negative values in data"),
    ],
)
def test_bad_weights_of_lists_are_named(weight, message):
    X, y, qid = lists()
    with pytest.raises(ValueError, match=message):
        Ranker().fit(X, y, qid=qid, sample_weight=weight)


def test_an_event_needs_a_weight():
    X, y = survival()
    with pytest.raises(ValueError, match="no event"):
        CoxRegressor().fit(X, y, 1 - y[:, 1])


def test_weights_are_routed():
    X, y, qid = lists()
    weight = np.where(qid < 15, 1.0, 5.0)
    model = Ranker(objective="listnet")
    with sklearn.config_context(enable_metadata_routing=True):
        given = {"cv": GroupKFold(3), "error_score": "raise"}
        more = {"qid": qid, "groups": qid, "sample_weight": weight}
        with pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
            cross_validate(model, X, y, params=more, **given)
        asked = model.set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        found = cross_validate(asked, X, y, params=more, **given)["test_score"]
        part, rest = next(GroupKFold(3).split(X, y, qid))
        one = Ranker(objective="listnet")
        one.fit(X[part], y[part], qid=qid[part], sample_weight=weight[part])
        expected = one.score(X[rest], y[rest], qid=qid[rest], sample_weight=weight[rest])
        assert found[0] == pytest.approx(expected)
        X, y = survival()
        cox = CoxRegressor().set_fit_request(sample_weight=True)
        cox.set_score_request(sample_weight=True)
        more = {"sample_weight": COUNTS.astype(float)}
        scores = cross_validate(cox, X, y, params=more, cv=3, error_score="raise")["test_score"]
        assert scores.min() > 0.6
