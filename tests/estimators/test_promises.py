"""Estimators are never below logistic regression or Cox regression, and mean what they say."""

import tracemalloc
from functools import partial

import numpy as np
import pytest
import sklearn
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_matrix, random_array
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.model_selection import GroupKFold, cross_validate, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fcco.estimators import (
    APClassifier,
    AUCClassifier,
    CoxRegressor,
    PartialAUCClassifier,
    Ranker,
)
from fcco.estimators.class_target import ClassTarget
from fcco.objectives import AUC, AveragePrecision, MultiTaskAUC, PartialAUC

LOADERS = [load_iris, load_wine, load_breast_cancer, load_digits]
CLASSIFIERS = {
    AUCClassifier: roc_auc_score,
    APClassifier: average_precision_score,
    PartialAUCClassifier: lambda y, s: roc_auc_score(y, s, max_fpr=0.1),
}


def classes(n=300, seed=0):
    """Two classes, on features of different scales."""
    random = np.random.RandomState(seed)
    X = random.normal(size=(n, 4)) * [1.0, 5.0, 0.2, 1.0] + [0.0, 3.0, 0.0, 1.0]
    return X, (X[:, 0] + 0.1 * X[:, 1] + 0.5 * random.normal(size=n) > 0.3).astype(int)


@pytest.mark.parametrize("make", CLASSIFIERS)
@pytest.mark.parametrize("load", LOADERS)
def test_no_metric_is_below_that_of_logistic_regression(make, load):
    """Exactly its value where the second phase is not taken, on these splits everywhere."""
    X, X_test, y, y_test = train_test_split(*load(return_X_y=True), random_state=0)
    rival = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(X, y)
    chances, metric = rival.predict_proba(X_test), CLASSIFIERS[make]
    if chances.shape[1] == 2:
        theirs = metric(y_test, chances[:, 1])
    else:
        theirs = np.mean([metric(y_test == c, chances[:, c]) for c in range(chances.shape[1])])
    model = make(random_state=0).fit(X, y)
    assert model.score(X_test, y_test) > theirs - 1e-3
    assert (model.predict(X_test) == y_test).mean() > 0.9


def test_the_second_phase_is_taken_where_it_helps():
    """A tenth of the positives is far on the wrong side, which bends the likelihood."""
    random = np.random.RandomState(0)
    X = random.normal(size=(3000, 2))
    y = X[:, 0] + 0.3 * X[:, 1] + 0.3 * random.normal(size=3000) > 1.0
    X[np.flatnonzero(y)[::10], 0] -= 8.0
    model = APClassifier(random_state=0).fit(X[:1500], y[:1500])
    rival = make_pipeline(StandardScaler(), LogisticRegression()).fit(X[:1500], y[:1500])
    theirs = average_precision_score(y[1500:], rival.decision_function(X[1500:]))
    assert len(model.history_) == 2
    assert model.score(X[1500:], y[1500:]) > theirs + 0.02


def auc_of_one_task(h, y, w):
    pairs = [(w[i] * w[j], h[j] - h[i]) for i in np.flatnonzero(y) for j in np.flatnonzero(~y)]
    mean = sum(p * np.exp(s / 0.5) for p, s in pairs) / sum(p for p, _ in pairs)
    return 0.5 * np.log1p(mean)


def moments_of_one_task(h, y, w):
    z = 1 / (1 + np.exp(-h))
    a, b = (np.average(z[side], weights=w[side]) for side in (y, ~y))
    variances = [np.average((z[k] - m) ** 2, weights=w[k]) for k, m in ((y, a), (~y, b))]
    return sum(variances) + max(1 + b - a, 0) ** 2 / 2


def ap_of_one_task(h, y, w):
    total = 0.0
    for i in np.flatnonzero(y):
        terms = w / (1 + np.exp(h[i] - h))
        terms[i] = w[i]  # a sample counts itself as 1
        total -= w[i] * terms[y].sum() / terms.sum()
    return total / w[y].sum()


def partial_auc_of_one_task(h, y, w):
    total = 0.0
    for i in np.flatnonzero(y):
        terms = np.exp(np.maximum(1 + h[~y] - h[i], 0) ** 2 / 0.5)
        total += w[i] * 0.5 * np.log(np.average(terms, weights=w[~y]))
    return total / w[y].sum()


DEFINITIONS = {
    "auc": (partial(AUC, temperature=0.5), auc_of_one_task),
    "moments": (MultiTaskAUC, moments_of_one_task),
    "ap": (AveragePrecision, ap_of_one_task),
    "partial auc": (partial(PartialAUC, temperature=0.5), partial_auc_of_one_task),
}


@pytest.mark.parametrize("name", DEFINITIONS)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_second_phase_is_the_objective_of_the_metric(name, weighted):
    """Of each task by its definition, times 2 p (1 - p), and a tenth of cross-entropy."""
    objective, definition = DEFINITIONS[name]
    random = np.random.RandomState(0)
    labels = random.randint(-1, 2, size=(40, 3)).astype(np.int8)
    labels[:, 2] = 0  # a task that has no positive does not count
    scores = random.normal(size=(40, 3))
    w = random.uniform(0.2, 3.0, size=40) if weighted else np.ones(40)
    target = ClassTarget(labels, objective, roc_auc_score, weight=w if weighted else None)
    expected = 0.0
    for h, y in zip(scores.T, labels.T, strict=True):
        known = y >= 0
        costs = np.log1p(np.exp(np.where(y == 1, -h, h)))
        expected += 0.1 * (w * costs * known).sum() / w.sum()
        if (y == 1).any():
            p = w[y == 1].sum() / w.sum()
            expected += 2 * p * (1 - p) * definition(h[known], y[known] == 1, w[known])
    found = target.phases()[1].exact(torch.from_numpy(scores))
    assert found.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", ["ap", "partial auc"])
def test_of_many_pairs_every_kth_sample_is_taken(name):
    objective, _ = DEFINITIONS[name]
    random = np.random.RandomState(0)
    y, h = (random.uniform(size=3000) < 0.1).astype(np.int8), random.normal(size=3000)
    every = round((y.sum() * 3000 / 2**18) ** 0.5)
    assert every == 2
    rows = np.sort(np.concatenate([np.flatnonzero(y == label)[::2] for label in (0, 1)]))
    phases = ClassTarget(y[:, None], objective, roc_auc_score).phases()
    scores = torch.from_numpy(h[:, None])
    found = phases[1].exact(scores) - 0.1 * phases[0].exact(scores)
    few = objective(y[rows]).exact(torch.from_numpy(h[rows]))
    expected = 2 * y.mean() * (1 - y.mean()) * few
    assert found.item() == pytest.approx(expected.item(), rel=1e-12)


def test_the_form_of_the_paper_is_learned_by_linear_models_and_networks():
    X, y = classes()
    for hidden in ((), (8,)):
        model = AUCClassifier(
            hidden, form="moments", early_stopping=False, max_steps=100, random_state=0
        )
        assert model.fit(X, y).score(X, y) > 0.9


def test_a_task_of_one_label_and_few_positives_of_another():
    """Early stopping needs enough of the rarest label of the tasks that count."""
    X, _ = classes()
    y = np.zeros((300, 2))
    y[[1, 50, 100], 1] = 1
    for seed in range(3):
        model = AUCClassifier(4, max_steps=20, random_state=seed).fit(X, y)
        assert {record.metric for record in model.history_} == {None}


@pytest.mark.parametrize("make", [AUCClassifier, PartialAUCClassifier])
def test_weights_are_repetitions_in_both_phases(make):
    X, y = classes(150)
    counts = np.random.RandomState(1).randint(0, 4, size=150)
    weighted = make(early_stopping=False).fit(X, y, counts)
    repeated = make(early_stopping=False).fit(np.repeat(X, counts, 0), np.repeat(y, counts))
    assert len(weighted.history_) == len(repeated.history_) == 2
    # L-BFGS ends at a gradient of 1e-4
    assert_allclose(weighted.coef_, repeated.coef_, rtol=5e-3, atol=1e-3)
    plain = make(early_stopping=False).fit(X, y)
    assert np.abs(weighted.decision_function(X) - plain.decision_function(X)).max() > 0.05


def test_class_weights_are_sample_weights():
    X, y = classes()
    by_class = AUCClassifier(class_weight={0: 1.0, 1: 3.0}).fit(X, y)
    by_sample = AUCClassifier().fit(X, y, np.where(y == 1, 3.0, 1.0))
    assert_allclose(by_class.coef_, by_sample.coef_)
    assert by_class.predict(X).mean() > AUCClassifier().fit(X, y).predict(X).mean()


@pytest.mark.parametrize("zeros", [0.5, 3.0])  # of dense features with many, products are sparse
@pytest.mark.parametrize("hidden", [(), (8,)])
def test_sparse_features_are_dense_ones(hidden, zeros):
    X, y = classes()
    X[np.abs(X) < zeros] = 0.0
    weight = 1.0 + (np.arange(len(y)) % 3)
    settings = {"hidden": hidden, "max_steps": 20, "random_state": 0}
    dense, sparse = (AUCClassifier(**settings).fit(x, y, weight) for x in (X, csr_matrix(X)))
    for model in (dense, sparse):
        scores = [model.decision_function(x) for x in (X, csr_matrix(X))]
        assert_allclose(*scores, rtol=1e-10, atol=1e-10)
    assert_allclose(sparse.decision_function(X), dense.decision_function(X), rtol=1e-3, atol=1e-4)
    if not hidden:
        rival = make_pipeline(StandardScaler(), LogisticRegression())
        rival.fit(
            X, y, standardscaler__sample_weight=weight, logisticregression__sample_weight=weight
        )
        assert_allclose(
            dense.decision_function(X), rival.decision_function(X), rtol=1e-2, atol=1e-2
        )


def test_sparse_features_are_never_written_out_whole():
    """Dense, all of them would take 160 MB."""
    X = random_array((2000, 10_000), density=1e-4, format="csr", rng=np.random.default_rng(0))
    y = np.arange(2000) % 2
    AUCClassifier(2, max_steps=2).fit(
        X[:100, :5], y[:100]
    )  # what torch imports late is not counted
    for hidden in ((), (2,)):
        tracemalloc.start()
        model = AUCClassifier(hidden, max_steps=2, batch_size=16, random_state=0).fit(X, y)
        assert model.predict(X).shape == (2000,)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 8e7


@pytest.mark.sweep(3)
@pytest.mark.parametrize("make", [AUCClassifier, APClassifier])
@pytest.mark.parametrize("pos_label", [None, "no", "yes"])
@pytest.mark.parametrize("more", [{}, {"early_stopping": False}])
def test_a_linear_model_has_coefficients(make, pos_label, more):
    X, y = classes()
    named = np.where(y == 1, "yes", "no")
    model = make(pos_label=pos_label, **more).fit(X, named)
    rival = LogisticRegression(max_iter=1000).fit(X, named)
    assert model.coef_.shape == rival.coef_.shape
    assert np.sign(model.coef_[0, 0]) == np.sign(rival.coef_[0, 0]), "of the second class"
    assert_allclose(X @ model.coef_[0] + model.intercept_, model.decision_function(X))
    model.partial_fit(X, named)
    assert_allclose(X @ model.coef_[0] + model.intercept_, model.decision_function(X))


def test_a_network_has_no_coefficients():
    X, y = classes()
    with pytest.raises(AttributeError, match="hidden layers"):
        _ = AUCClassifier(4, max_steps=3).fit(X, y).coef_


def test_the_positive_class_can_be_chosen():
    X, y = classes()
    model = APClassifier(pos_label=0).fit(X, y)
    other = APClassifier().fit(X, y)
    ours = average_precision_score(y == 0, -model.decision_function(X))
    assert model.score(X, y) == pytest.approx(ours)
    assert model.score(X, y) != pytest.approx(other.score(X, y))
    assert (model.predict(X) == y).mean() > 0.85


@pytest.mark.parametrize("make", [AUCClassifier, APClassifier])
def test_tasks_are_fitted_as_if_alone_and_labels_may_be_missing(make):
    X, first = classes()
    second = (X[:, 3] > 1.3).astype(float)
    second[::3] = np.nan
    y = np.stack([first, second], axis=1)
    model, known = make(random_state=0).fit(X, y), ~np.isnan(second)
    # the same scale and strength of the ridge: weights of 0 keep all rows in the scaler
    alone = make(C=1.0, random_state=0).fit(X, first)
    assert_allclose(model.decision_function(X)[:, 0], alone.decision_function(X), atol=1e-2)
    found = CLASSIFIERS[make](second[known], model.decision_function(X)[known, 1])
    assert model.score(X, y) == pytest.approx((alone.score(X, first) + found) / 2, abs=1e-3)
    assert found > 0.95
    assert model.predict(X).shape == model.predict_proba(X).shape == (300, 2)
    whole = np.stack([first, X[:, 3] > 1.3], axis=1)
    twins = [make(random_state=0).fit(X, form) for form in (whole, csr_matrix(whole))]
    assert_array_equal(*(twin.decision_function(X) for twin in twins))
    pandas = pytest.importorskip("pandas")
    twin = make(random_state=0).fit(X, pandas.DataFrame(y).astype("Int64"))
    assert_array_equal(twin.decision_function(X), model.decision_function(X))
    network = make(8, max_steps=60, random_state=0).fit(X, y)
    assert network.score(X, y) > 0.8


def test_progress_is_printed(capsys):
    X, y = classes()
    AUCClassifier(4, max_steps=40, verbose=True, random_state=0).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("[AUCClassifier] step 2: objective")
    assert "held-out metric" in lines[-1]


def survival(n=400, seed=0):
    random = np.random.RandomState(seed)
    X = random.normal(size=(n, 3)) * [1.0, 10.0, 0.1]
    times = np.ceil(10 * random.exponential(np.exp(-X[:, 0] + 0.05 * X[:, 1])))
    ends = np.ceil(10 * random.exponential(2.0, size=n))
    return X, np.stack([np.minimum(times, ends), times <= ends], axis=1)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_cox_is_that_of_lifelines_and_so_are_its_curves(ties):
    pd = pytest.importorskip("pandas")
    lifelines = pytest.importorskip("lifelines")
    X, y = survival()
    model = CoxRegressor(C=np.inf, ties=ties).fit(X, y)
    if ties == "efron":
        frame = pd.DataFrame(X, columns=list("abc")).assign(t=y[:, 0], e=y[:, 1])
        rival = lifelines.CoxPHFitter().fit(frame, "t", "e")
        assert_allclose(model.coef_[0], rival.params_, rtol=1e-2, atol=1e-3)
        assert model.score(X, y) == pytest.approx(rival.concordance_index_, abs=2e-3)
        times = rival.baseline_cumulative_hazard_.index.to_numpy()
        theirs = rival.predict_cumulative_hazard(frame.iloc[:5]).to_numpy().T
        ours = model.predict_cumulative_hazard_function(X[:5])
        assert_allclose([curve(times) for curve in ours], theirs, rtol=3e-2)
    # Breslow's definition, by loops
    risk = np.exp(model.predict(X))
    time = 5.0
    hazard = sum(1 / risk[y[:, 0] >= t].sum() for t, event in y if event and t <= time)
    expected = np.exp(-hazard * risk[:2])
    assert_allclose([f(time) for f in model.predict_survival_function(X[:2])], expected)
    array = model.predict_survival_function(X[:2], return_array=True)
    assert_allclose(array[:, model.unique_times_ == time][:, 0], expected)


@pytest.mark.parametrize("shift", [800.0, -800.0])
def test_curves_of_extreme_risks(shift):
    """No hazard before the first event, for the largest risk too; later the event is certain."""
    X, y = survival()
    y[y[:, 0] == y[:, 0].min(), 1] = 0
    model = CoxRegressor().fit(X, y)
    extreme = X[:1] + (shift - model.predict(X[:1])) / model.coef_[0, 0] * np.eye(1, 3)
    assert_allclose(model.predict(extreme), shift)
    hazard = model.predict_cumulative_hazard_function(extreme, return_array=True)[0]
    before = model.unique_times_ < y[y[:, 1] == 1, 0].min()
    assert before.any()
    assert_array_equal(hazard, np.where(before | (shift < 0), 0.0, np.inf))
    curve = model.predict_survival_function(extreme)[0]
    assert_array_equal(curve(model.unique_times_), np.exp(-hazard))


def lists(seed=0):
    random = np.random.RandomState(seed)
    X = random.normal(size=(400, 5))
    grades = np.digitize(X[:, 0] + 0.5 * random.normal(size=400), [0.5, 1.0, 1.5])
    return X, grades, np.repeat(np.arange(40), 10)


def test_lists_may_come_in_any_order():
    X, y, qid = lists()
    order = np.random.RandomState(0).permutation(400)
    model = Ranker(random_state=0).fit(X, y, qid=qid)
    mixed = Ranker(random_state=0).fit(X[order], y[order], qid=qid[order] * 7)
    lengths = Ranker(random_state=0).fit(X, y, group=[10] * 40)
    assert_array_equal(model.predict(X), lengths.predict(X))
    assert_allclose(model.predict(X), mixed.predict(X), atol=1e-2)
    scores = [model.score(X, y, qid=qid), model.score(X[order], y[order], qid=qid[order])]
    assert scores[0] == pytest.approx(scores[1])


def test_a_ranker_can_be_cross_validated():
    X, y, qid = lists()
    with sklearn.config_context(enable_metadata_routing=True):
        found = cross_validate(
            Ranker(top_k=5, random_state=0), X, y, cv=GroupKFold(4),
            params={"qid": qid, "groups": qid}, error_score="raise",
        )  # fmt: skip
    assert len(found["test_score"]) == 4
    assert found["test_score"].min() > 0.75
