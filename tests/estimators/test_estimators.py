"""The estimators keep scikit-learn's promises, and are as good as the simple models they compete
with: logistic regression, lifelines' Cox regression, a random order."""

import pickle
import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.datasets import load_digits, make_classification
from sklearn.exceptions import NotFittedError
from sklearn.metrics import ndcg_score
from sklearn.model_selection import GridSearchCV
from sklearn.utils.validation import check_is_fitted

from fcco.estimators import APClassifier, AUCClassifier, CoxRegressor, PartialAUCClassifier, Ranker
from fcco.estimators.target import balanced_folds

GROUP = np.full(30, 10)


def binary():
    return make_classification(400, 6, n_informative=4, random_state=0)


def three():
    X, y = load_digits(return_X_y=True)
    return X[:300, :20], y[:300] // 4


def survival(n=300, seed=0, round_to=None):
    random = np.random.RandomState(seed)
    X = random.normal(size=(n, 3)) * [1.0, 10.0, 0.1]
    times = random.exponential(np.exp(-X[:, 0] + 0.05 * X[:, 1]))
    ends = random.exponential(2.0, size=n)
    if round_to is not None:
        times, ends = np.ceil(times / round_to), np.ceil(ends / round_to)
    return X, np.stack([np.minimum(times, ends), times <= ends], axis=1)


def lists():
    random = np.random.RandomState(0)
    X = random.normal(size=(300, 5))
    return X, np.digitize(X[:, 0] + 0.5 * random.normal(size=300), [0.5, 1.0, 1.5])


CASES = {
    "auc": (AUCClassifier, binary, {}),
    "auc by moments": (lambda **a: AUCClassifier(form="moments", **a), binary, {}),
    "auc of three": (AUCClassifier, three, {}),
    "ap": (APClassifier, binary, {}),
    "ap of three": (APClassifier, three, {}),
    "partial auc": (lambda **a: PartialAUCClassifier(max_fpr=0.5, **a), binary, {}),
    "cox": (CoxRegressor, survival, {}),
    "cox, breslow": (lambda **a: CoxRegressor(ties="breslow", **a), survival, {}),
    "listnet": (lambda **a: Ranker(objective="listnet", **a), lists, {"group": GROUP}),
    "ndcg": (lambda **a: Ranker(top_k=5, **a), lists, {"group": GROUP}),
}


@pytest.fixture(params=CASES)
def case(request):
    make, data, extra = CASES[request.param]
    return make, *data(), extra


def output(model, X):
    return model.decision_function(X) if hasattr(model, "decision_function") else model.predict(X)


def partial(model, X, y, extra):
    if hasattr(model, "decision_function"):
        extra = {"classes": np.unique(y)}
    return model.partial_fit(X, y, **extra)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("hidden", [(), (8,)])
def test_a_seed_decides_everything_and_the_global_one_is_left_alone(case, hidden):
    make, X, y, extra = case
    fits = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
        model = make(hidden=hidden, max_steps=15, random_state=0).fit(X, y, **extra)
        assert torch.equal(torch.get_rng_state(), before[0])
        assert_array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002
        fits.append(output(model, X))
    assert_array_equal(*fits)
    if hidden:
        other = make(hidden=hidden, max_steps=15, random_state=1).fit(X, y, **extra)
        assert (output(other, X) != fits[0]).any()


@pytest.mark.sweep(3)
@pytest.mark.parametrize("hidden", [(), (8,)])
def test_two_partial_fits_are_one_longer_one_also_through_a_pickle(case, hidden):
    make, X, y, extra = case
    whole = partial(make(hidden=hidden, partial_steps=14, random_state=0), X, y, extra)
    model = partial(make(hidden=hidden, partial_steps=7, random_state=0), X, y, extra)
    copy = pickle.loads(pickle.dumps(model))
    for each in (model, copy):
        partial(each, X, y, extra)
        assert each.n_steps_ == 14
        assert [record.step for record in each.history_] == [7, 14]
        assert_array_equal(output(each, X), output(whole, X))


def test_partial_fit_goes_on_after_fit_and_with_other_data(case):
    make, X, y, extra = case
    model = make(hidden=4, max_steps=10, early_stopping=False, partial_steps=5, random_state=0)
    before = output(model.fit(X, y, **extra), X)
    partial(model, X, y, extra)
    half = {"group": GROUP[:15]} if extra else {}
    model.partial_fit(X[:150], y[:150], **half)
    assert model.n_steps_ == 20
    assert (output(model, X) != before).any()
    assert np.isfinite(output(model, X)).all()


@pytest.mark.sweep(3)
def test_partial_fits_learn(case):
    make, X, y, extra = case
    model = make(partial_steps=40, random_state=0)
    scores = [partial(model, X, y, extra).score(X, y, **extra) for _ in range(3)]
    assert scores[-1] > 0.6


def test_clone_and_pickle(case):
    make, X, y, extra = case
    model = make(hidden=(4,), max_steps=5, random_state=0).fit(X, y, **extra)
    copy = pickle.loads(pickle.dumps(model))
    assert_array_equal(output(copy, X), output(model, X))
    assert_array_equal(output(clone(model).fit(X, y, **extra), X), output(model, X))


def interrupt(*_):
    raise KeyboardInterrupt


FAILURES = {
    "divergence": (FloatingPointError, {"learning_rate": 1e30}, lambda X: 1e45 * X, lambda y: y),
    "labels": (ValueError, {}, lambda X: X, lambda y: 0 * y),
    "interrupt": (KeyboardInterrupt, {"verbose": True}, lambda X: 3 * X + 20, lambda y: y),
}
"""Each with an error, settings, and features and labels that are other ones than before."""


@contextmanager
def failing(name, model, X, y):
    """Give features and labels with which training fails; Ctrl-C comes while progress is printed.

    Afterwards, the settings and every attribute must be as before.
    """
    error, settings, other_features, other_labels = FAILURES[name]
    usual = {key: model.get_params()[key] for key in settings}
    before = dict(vars(model))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("builtins.print", interrupt)
        model.set_params(**settings)
        with pytest.raises(error):
            yield other_features(X), other_labels(y)
    model.set_params(**usual)
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[key] is before[key] for key in before.keys() - settings.keys())


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    ("name", "hidden"),
    # The fit of a linear model has no learning rate, and does not diverge.
    [(name, hidden) for name in FAILURES for hidden in ((), (8,))][1:],
)
def test_a_fit_that_fails_changes_nothing(case, hidden, name):
    make, X, y, extra = case
    model = make(hidden=hidden, max_steps=20, random_state=0)
    with failing(name, model, X, y) as (other, wrong):
        model.fit(other[:, :2], wrong, **extra)
    with pytest.raises(NotFittedError):
        check_is_fitted(model)
    expected = output(model.fit(X, y, **extra), X)
    with failing(name, model, X, y) as (other, wrong):
        model.fit(other[:, :2], wrong, **extra)
    assert_array_equal(output(model, X), expected)


@pytest.mark.sweep(5)
@pytest.mark.parametrize("name", FAILURES)
@pytest.mark.parametrize("hidden", [(), (8,)])
def test_a_partial_fit_that_fails_changes_nothing(case, hidden, name):
    """So the next ones give what they would have given, bit for bit."""
    make, X, y, extra = case
    model, twin = (
        make(hidden=hidden, partial_steps=7, random_state=np.random.RandomState(0))
        for _ in range(2)
    )
    if name != "divergence":  # the first features set the scales, and one step may stay finite
        with failing(name, model, X, y) as (other, wrong):
            partial(model, other, wrong, extra)
        with pytest.raises(NotFittedError):
            check_is_fitted(model)
    for _ in range(2):
        partial(model, X, y, extra)
        partial(twin, X, y, extra)
        assert model.n_steps_ == twin.n_steps_
        assert model.history_ == twin.history_
        assert_array_equal(output(model, X), output(twin, X))
        with failing(name, model, X, y) as (other, wrong):
            model.partial_fit(other, wrong, **extra)
        assert_array_equal(output(model, X), output(twin, X))


@pytest.mark.parametrize("early_stopping", [False, True])
def test_a_learning_rate_that_is_too_large_is_named(case, early_stopping):
    """The scores of a batch, those of held-out samples, or the objective are not finite first."""
    make, X, y, extra = case
    settings = {"max_steps": 40, "early_stopping": early_stopping, "random_state": 0}
    for rate in (1e12, 1e30):
        with pytest.raises(FloatingPointError, match="learning_rate is too large"):
            make(hidden=(8, 8), learning_rate=rate, **settings).fit(X, y, **extra)


def test_the_weights_of_the_last_step_are_finite_too():
    """The decay of large weights leaves the range of float32 after the objective was computed."""
    X, y = binary()
    model = AUCClassifier(partial_steps=1, learning_rate=1e30, weight_decay=1e3, random_state=0)
    with pytest.raises(FloatingPointError, match=r"in step 2 the objective is \d.*, or a weight"):
        model.partial_fit(X, y, classes=[0, 1]).partial_fit(X, y)


def test_one_class_of_a_chunk_is_missing():
    X, y = load_digits(return_X_y=True)
    X, y = X[y < 4], y[y < 4]
    model = AUCClassifier(partial_steps=30, random_state=0)
    for left_out in range(4):
        model.partial_fit(X[y != left_out], y[y != left_out], classes=range(4))
    assert model.score(X, y) > 0.98
    assert (model.predict(X) == y).mean() > 0.9


def test_early_stopping_keeps_the_best_weights():
    X, y = binary()
    model = AUCClassifier(hidden=(16,), random_state=0, patience=2).fit(X, y)
    metrics = [record.metric for record in model.history_]
    assert model.n_steps_ < model.max_steps
    best = int(np.argmax(metrics))
    assert len(metrics) >= best + 3
    random = np.random.RandomState(0)
    random.randint(np.iinfo(np.int32).max)  # the seed of network and batches is drawn first
    rows = balanced_folds(y, 5, random) == 0
    assert model.score(X[rows], y[rows]) == pytest.approx(max(metrics), abs=1e-6)


def test_few_samples_are_all_trained_on():
    X, y = binary()
    for more in ({}, {"early_stopping": False}):
        model = AUCClassifier(8, max_steps=20, **more).fit(X[:80], y[:80])
        assert {record.metric for record in model.history_} == {None}
        assert model.n_steps_ == 20


def test_both_forms_of_an_outcome_are_one():
    X, y = survival()
    fields = np.array(
        list(zip(y[:, 1] == 1, y[:, 0], strict=True)), dtype=[("e", bool), ("t", float)]
    )
    first, second = (CoxRegressor().fit(X, form) for form in (y, fields))
    assert_array_equal(first.predict(X), second.predict(X))
    assert first.score(X, y) == second.score(X, fields)


@pytest.mark.parametrize("objective", ["listnet", "ndcg"])
@pytest.mark.parametrize("hidden", [(), (8,)])
def test_the_ranker_beats_a_random_order(objective, hidden):
    X, y = lists()
    model = Ranker(hidden, objective=objective, max_steps=100, top_k=5, random_state=0)
    model.fit(X[:200], y[:200], group=GROUP[:20])
    ours = model.score(X[200:], y[200:], group=GROUP[20:])
    gains = 2.0 ** y[200:].reshape(10, 10) - 1
    relevant = gains.any(1)  # scikit-learn counts the other lists as 0

    def ndcg(scores):
        return ndcg_score(gains[relevant], scores.reshape(10, 10)[relevant], k=5)

    assert ours == pytest.approx(ndcg(model.predict(X[200:])))
    chance = np.mean([ndcg(row) for row in np.random.RandomState(0).normal(size=(30, 100))])
    assert ours > 0.75
    assert ours > chance + 0.15


def test_arguments_are_those_of_all_base_classes():
    model = PartialAUCClassifier(8, max_fpr=0.3, pos_label=0, C=2.0)
    assert clone(model).get_params() == model.get_params()
    assert set(model.get_params()) == {
        "hidden", "max_fpr", "temperature", "class_weight", "pos_label", "C", "max_steps",
        "learning_rate", "weight_decay", "batch_size", "early_stopping", "validation_fraction",
        "patience", "partial_steps", "verbose", "random_state",
    }  # fmt: skip
    with pytest.raises(TypeError, match="positional"):
        CoxRegressor(8, "efron")
    with pytest.raises(TypeError, match="unexpected keyword"):
        CoxRegressor(top_k=3)


def test_a_search_over_arguments():
    X, y = binary()
    search = GridSearchCV(AUCClassifier(max_steps=20, random_state=0), {"hidden": [(), (4,)]}, cv=2)
    search.fit(X, y)
    assert search.best_score_ > 0.7


def test_one_width_is_one_hidden_layer():
    X, y = binary()
    one, many = (AUCClassifier(hidden, max_steps=9, random_state=0) for hidden in (8, (8,)))
    assert_array_equal(output(one.fit(X, y), X), output(many.fit(X, y), X))


@pytest.mark.sweep(3)
def test_a_data_frame_keeps_its_names_and_others_are_refused(case):
    """All of it without a warning, which would be an error here."""
    pandas = pytest.importorskip("pandas")
    make, X, y, extra = case
    names = [f"feature {k}" for k in range(X.shape[1])]
    table = pandas.DataFrame(X, columns=names)
    model, plain = (make(max_steps=9, random_state=0).fit(x, y, **extra) for x in (table, X))
    assert list(model.feature_names_in_) == names
    assert_array_equal(output(model, table), output(plain, X))
    assert_array_equal(model.predict(table), plain.predict(X))
    assert model.score(table, y, **extra) == plain.score(X, y, **extra)
    partial(model, table, y, extra)
    for act in (model.predict, lambda other: model.score(other, y, **extra)):
        with pytest.raises(ValueError, match="feature names should match"):
            act(table.rename(columns={names[0]: "another"}))
        with pytest.warns(UserWarning, match="does not have valid feature names"):
            act(X)
    table.loc[5, names[1]] = np.nan
    with pytest.raises(ValueError, match="NaN in row 5, column 'feature 1'"):
        model.predict(table)


X, Y = np.random.RandomState(0).normal(size=(20, 2)), np.arange(20) % 2
SURVIVAL = np.stack([np.arange(20.0), Y], axis=1)
HOLED = np.where(np.arange(40).reshape(20, 2) == 7, np.nan, X)
UNSIGNED = np.where(Y > 0, np.uint64(2**64 - 1), np.uint64(0))


def with_na(dtype):
    pandas = pytest.importorskip("pandas")
    return pandas.Series(Y).astype(dtype).where(np.arange(20) != 5)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: AUCClassifier().fit(np.where(X > 1, np.nan, X), Y), "contains NaN"),
        (lambda: CoxRegressor().fit(HOLED, SURVIVAL), "contains NaN in row 3, column 1"),
        (lambda: Ranker().fit(HOLED, Y, group=[20]), "contains NaN in row 3, column 1"),
        (lambda: APClassifier().fit(X * [1, 1e300], Y), r"contains .*e\+\d+ in row 0, column 1"),
        (lambda: AUCClassifier(max_steps=2).fit(X, Y).predict(X / 0), "contains -?inf in row 0"),
        (lambda: AUCClassifier().fit(X.astype("M8[s]"), Y), "X must hold numbers, got dates"),
        (lambda: AUCClassifier().fit(X, Y * 1e300), r"y holds 1e\+300, which is not a class"),
        (lambda: APClassifier().fit(X, UNSIGNED), "y holds 18446744073709551615, which is no"),
        (lambda: AUCClassifier().fit(X, Y.astype("M8[s]")), "whole numbers, booleans or strings"),
        (lambda: AUCClassifier().partial_fit(X, Y, classes=[0, 1, np.nan]), "classes holds nan"),
        (lambda: AUCClassifier().partial_fit(X, UNSIGNED, classes=[0, 1]), "y holds 184467"),
        (lambda: AUCClassifier(max_steps=2).fit(X, Y).score(X, Y + 1), r"y holds \[2\], which"),
        (lambda: APClassifier(max_steps=2).fit(X, Y).score(X, Y * 5), r"y holds \[5\], which"),
        (lambda: AUCClassifier(hidden=8.5).fit(X, Y), "hidden must be a width or a sequence"),
        (lambda: AUCClassifier(hidden=None).fit(X, Y), "hidden must be a width or a sequence"),
        (lambda: AUCClassifier(hidden="64").fit(X, Y), "hidden must be a width or a sequence"),
        (lambda: AUCClassifier(hidden=(True,)).fit(X, Y), r"hidden\[0\] must"),
        (lambda: AUCClassifier(max_steps=True).fit(X, Y), "max_steps must"),
        (lambda: AUCClassifier(learning_rate=np.inf).fit(X, Y), "learning_rate must"),
        (lambda: AUCClassifier(learning_rate="fast").fit(X, Y), "learning_rate must"),
        (lambda: AUCClassifier(2, learning_rate=1e38).fit(X, Y), "learning_rate must"),
        (lambda: AUCClassifier(weight_decay=None).fit(X, Y), "weight_decay must"),
        (lambda: AUCClassifier(validation_fraction="x").fit(X, Y), "validation_fraction must"),
        (lambda: AUCClassifier(early_stopping="no").fit(X, Y), "early_stopping must"),
        (lambda: AUCClassifier().fit(X, np.zeros(20)), "only one class"),
        (lambda: AUCClassifier().partial_fit(X, Y), "classes must be given"),
        (lambda: AUCClassifier().partial_fit(X, Y, classes=[0, 2]), r"y holds \[1\]"),
        (lambda: AUCClassifier().partial_fit(X, 0 * Y, classes=[0, 1]), "only one class"),
        (lambda: AUCClassifier(max_steps=2).fit(X, Y).score(X, 0 * Y), "only one class"),
        (
            lambda: AUCClassifier(max_steps=2).fit(X, Y).partial_fit(X, Y, classes=[0, 3]),
            "not those of the first call",
        ),
        (lambda: AUCClassifier(max_steps=0).fit(X, Y), "max_steps must"),
        (lambda: AUCClassifier((8, 0)).fit(X, Y), r"hidden\[1\] must"),
        (lambda: AUCClassifier(learning_rate=0.0).fit(X, Y), "learning_rate must"),
        (lambda: AUCClassifier(weight_decay=-1.0).fit(X, Y), "weight_decay must"),
        (lambda: AUCClassifier(batch_size=0).fit(X, Y), "batch_size must"),
        (lambda: AUCClassifier(form="paper").fit(X, Y), "form must be"),
        (lambda: AUCClassifier(C=0.0).fit(X, Y), "C must be positive"),
        (lambda: AUCClassifier(pos_label=7).fit(X, Y), "pos_label 7 is not among"),
        (lambda: AUCClassifier().fit(X, Y, np.zeros(20)), "at least one non-zero number"),
        (lambda: AUCClassifier().fit(X, np.stack([Y, Y + 1], 1)), "only 1, 0, and -1"),
        (lambda: AUCClassifier().fit(X, np.full((20, 2), "yes")), "only 1, 0, and -1"),
        (lambda: AUCClassifier().fit(X, np.where(Y > 0, "yes", None)), "y holds None, which is no"),
        (lambda: AUCClassifier().fit(X, with_na("string")), "y holds <NA>, which is not a class"),
        (lambda: APClassifier().fit(X, with_na("boolean")), "y holds <NA>, which is not a class"),
        (
            lambda: AUCClassifier().partial_fit(X, Y, classes=with_na("string")),
            "classes holds <NA>, which is not a class",
        ),
        (lambda: APClassifier(class_weight={0: 0, 1: 5}).fit(X, Y), "class_weight must be above 0"),
        (lambda: APClassifier(class_weight={0: 1, 1: -1}).fit(X, Y), "class_weight must be above"),
        (
            lambda: APClassifier(class_weight="balanced").fit(X, np.stack([Y, 1 - Y], 1)),
            "class_weight is not for several tasks",
        ),
        (lambda: AUCClassifier().fit(X, Y).score(X, np.stack([Y, Y], 1)), "form of the first fit"),
        (lambda: PartialAUCClassifier(max_fpr=0.0).fit(X, Y), "max_fpr must"),
        (lambda: PartialAUCClassifier(temperature=0.0).fit(X, Y), "temperature must"),
        (lambda: AUCClassifier().fit(csr_array(HOLED), Y), "contains NaN in row 3, column 1"),
        (lambda: AUCClassifier(validation_fraction=1.0).fit(X, Y), "validation_fraction must"),
        (lambda: APClassifier(max_steps=2).fit(X, Y).score(X, 0 * Y), "only one class"),
        (lambda: CoxRegressor().fit(X, SURVIVAL * [1, 0]), "no event"),
        (lambda: CoxRegressor().fit(X, SURVIVAL * [1, 2]), "only 0 and 1"),
        (lambda: CoxRegressor().fit(X, SURVIVAL / [[0, 1]]), "NaN"),
        (lambda: CoxRegressor().fit(X, SURVIVAL * [-1, 1]), "not negative, got -1.0 in row 1"),
        (lambda: CoxRegressor().fit(X, SURVIVAL + 0j), "real numbers, got complex128"),
        (lambda: CoxRegressor().fit(X, SURVIVAL.astype(str)), "real numbers, got <U"),
        (lambda: CoxRegressor().predict_survival_function(X), "not fitted yet"),
        (lambda: CoxRegressor().fit(X, Y), "shape"),
        (lambda: CoxRegressor().fit(X[1:], SURVIVAL), "inconsistent numbers of samples"),
        (lambda: CoxRegressor(ties="none").fit(X, SURVIVAL), "ties must"),
        (
            lambda: CoxRegressor().fit(X, SURVIVAL.view([("t", float), ("e", float)])[:, 0]),
            "boolean",
        ),
        (lambda: CoxRegressor().fit(X, None), "requires y to be passed, but the target y is None"),
        (lambda: Ranker().fit(X, None, group=[20]), "requires y to be passed, but the target y"),
        (lambda: Ranker().fit(X, Y), "qid must be given"),
        (lambda: Ranker().fit(X, Y, qid=Y[1:]), "inconsistent numbers of samples"),
        (lambda: Ranker().fit(X, Y, qid=np.where(Y > 0, np.nan, 1)), "qid holds NaN in row 1"),
        (lambda: Ranker().fit(X, Y, qid=np.where(Y > 0, None, 1)), "qid holds None in row 1"),
        (lambda: Ranker().fit(X, Y, qid=np.where(Y > 0, None, "a")), "qid holds None in row 1"),
        (lambda: Ranker().fit(X, Y, qid=with_na("string")), "qid holds <NA> in row 5"),
        (lambda: Ranker().fit(X, Y, qid=np.array([1, "a"] * 10, dtype=object)), "qid must hold"),
        (lambda: Ranker().fit(X, Y, group=[10, 9]), "group adds up to 19, but X has 20 items"),
        (lambda: Ranker().fit(X, Y, group=[20, 0]), "group must be whole numbers of at least 1"),
        (lambda: Ranker().fit(X, -Y, group=[20]), "grades of at least 0"),
        (lambda: Ranker().fit(X, 0 * Y, group=[20]), "one above 0"),
        (lambda: Ranker(objective="map").fit(X, Y, group=[20]), "objective must"),
        (lambda: Ranker(top_k=0).fit(X, Y, group=[20]), "top_k must"),
        (lambda: Ranker(top_k="3").fit(X, Y, group=[20]), "top_k must"),
        (lambda: Ranker().fit(X, 2000 * Y, group=[20]), r"grades: 2\^y overflows at y = 2000"),
        (
            lambda: Ranker().fit(X, Y, group=np.array([2**64 - 20, 40], dtype=np.uint64)),
            "group adds up to 18446744073709551636",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:(invalid value|divide by zero):RuntimeWarning")
def test_bad_input_is_named(act, message):
    with pytest.raises(ValueError, match=message):
        act()


def test_fcco_itself_needs_no_scikit_learn():
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import fcco\n"
        "assert 'fcco.estimators' not in sys.modules\n"
        "try: fcco.estimators\n"
        "except ImportError as error: assert 'fcco[sklearn]' in str(error)\n"
        "else: raise AssertionError\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    code = "import fcco; fcco.estimators.CoxRegressor()"
    subprocess.run([sys.executable, "-c", code], check=True)
