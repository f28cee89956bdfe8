"""What users name and order stays what it is: nothing is negated, rounded or parsed on the way.

Times, labels, classes, groups, queries and positions come in every dtype, with the extreme values
of each. The truth is what Python's own numbers and texts say of them: which are equal, and which
comes first.
"""

import itertools
import tempfile
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fcco import losses as L
from fcco import objectives as O
from fcco.estimators import APClassifier, AUCClassifier, CoxRegressor, Ranker
from fcco.estimators.cox_regressor import read_outcomes
from fcco_lab.datasets import load_own

N = 8
RANDOM = torch.Generator().manual_seed(0)
SCORES = torch.randn(N, generator=RANDOM, dtype=torch.float64)
INTEGERS = ["uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
FLOATS = ["float16", "float32", "float64"]


def sweep(strategy, examples=40, slow=3000):
    """A test for each drawn example, few of them or many."""

    def decorate(check):
        @pytest.mark.parametrize("examples", [examples, pytest.param(slow, marks=pytest.mark.slow)])
        def test(examples):
            options = {"suppress_health_check": list(HealthCheck), "phases": [Phase.generate]}
            run = settings(max_examples=examples, deadline=None, derandomize=True, **options)
            run(given(strategy)(check))()

        test.__doc__ = check.__doc__
        return test

    return decorate


@st.composite
def ordered_numbers(draw, least=None):
    """An array of any dtype, with neighbours and extremes of the type, and many of them equal."""
    dtype = np.dtype(draw(st.sampled_from([*INTEGERS, *FLOATS, "bool"])))
    if dtype.kind == "b":
        few = [False, True]
    elif dtype.kind in "iu":
        info = np.iinfo(dtype)
        low, high = max(info.min, -(2**63)), min(info.max, 2**63 - 1)
        ends = [low, low + 1, high - 1, high, 0, 1, 2**53, 2**53 + 1, 2**53 + 2]
        few = [x for x in ends if low <= x <= high]
    else:
        one, far = dtype.type(1), np.finfo(dtype).max
        few = [one, np.nextafter(one, dtype.type(2)), far, -far, np.nextafter(far, dtype.type(0)),
               np.finfo(dtype).smallest_subnormal, dtype.type(0), dtype.type(-0.0)]  # fmt: skip
    if least is not None:
        few = [x for x in few if x >= least]
    values = draw(st.lists(st.sampled_from(few), min_size=N, max_size=N))
    return np.array(values, dtype=dtype)


def ranks(values):
    """Of Python's own numbers, which are exact."""
    numbers = values.tolist()
    order = sorted(set(numbers))
    return [order.index(x) for x in numbers]


EVENTS = st.lists(st.booleans(), min_size=N - 1, max_size=N - 1).map(lambda e: [True, *e])
AS_GIVEN = {
    "array": lambda x: x,
    "tensor": lambda x: torch.from_numpy(x.copy()),
    "list": lambda x: x.tolist(),
    "series": pandas.Series,
    "big endian": lambda x: x.astype(x.dtype.newbyteorder(">")),
    "reversed": lambda x: x[::-1].copy()[::-1],
}


@sweep(st.tuples(ordered_numbers(), EVENTS, st.sampled_from(sorted(AS_GIVEN)), st.booleans()), 80)
def test_times(drawn):
    """Risk sets, ties and concordance depend on the order of the times alone."""
    times, events, kind, efron = drawn
    ties = "efron" if efron else "breslow"
    given = AS_GIVEN[kind](times)
    criterion = L.CoxLoss(given, events, ties=ties).double()
    truth = O.Cox(ranks(times), events, ties=ties)
    assert criterion.exact(SCORES) == truth.exact(SCORES)
    loss = criterion(SCORES, torch.arange(N))
    assert loss.item() == pytest.approx(truth.exact(SCORES).item(), rel=1e-13)
    outcomes = []
    for objective in (criterion.objective, truth):
        try:
            outcomes.append(objective.metric(SCORES))
        except ValueError as error:  # no pair has a known order
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]


@sweep(st.tuples(ordered_numbers(least=0), EVENTS, st.booleans()))
def test_times_of_the_regressor(drawn):
    """Both forms of y, and the hazard."""
    times, events, structured = drawn
    if times.dtype.kind == "b":
        times = times.astype(float)
    if structured:
        y = np.array(list(zip(events, times, strict=True)), dtype=[("e", bool), ("t", times.dtype)])
    else:
        y = np.stack([times, np.array(events, dtype=times.dtype)], axis=1)
    found, flags = read_outcomes(y)
    assert ranks(found) == ranks(times)
    assert flags.tolist() == events
    hazards = [O.Cox(x, flags).baseline_hazard(SCORES) for x in (found, ranks(times))]
    assert hazards[0][1].equal(hazards[1][1])
    assert hazards[0][0].tolist() == sorted(set(times.tolist()))


def test_the_regressor_sees_nanoseconds():
    """Times that differ by one, beyond 2^53: as floats nearly all of them would be tied."""
    order = np.random.RandomState(0).permutation(60)
    X = np.random.RandomState(1).normal(size=(60, 2))
    events = np.ones(60, dtype=np.int64)
    y = np.stack([1_600_000_000_000_000_000 + order, events], axis=1)
    plain = np.stack([order, events], axis=1)
    models = [CoxRegressor().fit(X, part) for part in (y, plain)]
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)
    assert models[0].score(X, y) == models[1].score(X, plain)
    assert models[0].score(X, plain) == models[1].score(X, y)


@sweep(st.tuples(st.permutations([1, 0, 1, 0, -1, 1, 0, 0]), st.sampled_from(INTEGERS + FLOATS)))
def test_labels(drawn):
    """1, 0 and missing, in any dtype that holds them; NaN where it does not hold -1."""
    labels, dtype = drawn
    truth = O.AUC(labels)
    given = np.array(labels, dtype=np.float64)
    if dtype in FLOATS:
        given[given < 0] = np.nan
    elif dtype.startswith("u"):
        with pytest.raises(ValueError, match=r"labels must be 0 or 1.* has \d+"):
            O.AUC(np.array(labels).astype(dtype))  # the largest number, not a missing label
        return
    found = O.AUC(given.astype(dtype))
    for mine, other in zip(found.labels, truth.labels, strict=True):
        assert mine.equal(other)


@sweep(ordered_numbers(least=0).filter(lambda x: x.dtype.kind in "iu" and len(set(x.tolist())) > 1))
def test_classes_of_neighbours(classes):
    """Classes are compared, not counted: any whole numbers."""
    embeddings = torch.stack([SCORES, SCORES.flip(0)], 1)
    found = O.NCA(classes).exact(embeddings)
    assert found == O.NCA(ranks(classes)).exact(embeddings)


@sweep(st.tuples(st.sampled_from(INTEGERS), st.permutations(range(N)), st.integers(1, N)))
def test_positions_and_groups(drawn):
    """Every integer type may name samples and groups."""
    dtype, order, size = drawn
    index = np.array(order[:size])
    torch_type = getattr(torch, dtype)
    times, groups = torch.arange(N), torch.from_numpy(index) % 3
    results = []
    for convert in (lambda x: x, lambda x: x.to(torch_type), lambda x: x.numpy().astype(dtype)):
        cox, dro = L.CoxLoss(times, torch.ones(N)), L.GroupDROLoss(3, temperature=1.0)
        parity = L.ParityLoss(3)
        part = SCORES[:size].float()
        values = (
            cox(part, convert(torch.from_numpy(index))),
            dro(part, convert(groups)),
            parity(part, convert(groups)),
        )
        results.append([value.item() for value in values] + cox.scores[:, 0].tolist())
    assert results[0] == results[1] == results[2]


EXTREME = [0.0, -0.0, 5e-324, 1.0, 1 + 2**-52, 1 - 2**-53, 1e308, -1e308, 1e-308, 16777217.0]


@sweep(st.tuples(st.lists(st.sampled_from(EXTREME), min_size=N, max_size=N),
                 st.permutations([1, 1, 1, 0, 0, 0, 0, 0])))  # fmt: skip
def test_metrics_compare_scores_as_they_are(drawn):
    """Pairs are counted by Python; a sum or a difference of scores would round or overflow."""
    scores, labels = drawn
    h = torch.tensor(scores, dtype=torch.float64)
    sides = [[s for s, y in zip(scores, labels, strict=True) if y == kind] for kind in (1, 0)]
    pairs = [(a > b) + (a == b) / 2 for a, b in itertools.product(*sides)]
    assert O.AUC(labels).metric(h) == pytest.approx(sum(pairs) / len(pairs), rel=1e-14)
    concordance = O.Cox([1 - y for y in labels], [True] * N).metric(h)  # positives die first
    assert concordance == pytest.approx(sum(pairs) / len(pairs), rel=1e-14)


NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1)
LOOKALIKES = ["007", "7", "7.0", "1e1", "10", "1_0", "nan", "NA", "inf", "-0", "0", "٣", "3", "²"]
IDS = st.one_of(
    st.lists(st.one_of(NAMES, st.sampled_from(LOOKALIKES)), min_size=2, max_size=6),
    st.lists(st.integers(2**62, 2**62 + 9), min_size=2, max_size=6),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=2, max_size=6),
).map(lambda names: list(dict.fromkeys(names)))


@sweep(IDS.filter(lambda ids: len(ids) > 1))
def test_queries_of_the_ranker(ids):
    """A list is all items of one id, whatever the id is; ids of one type, as in an array."""
    qid = np.array(ids * 3)
    X, y = np.arange(len(qid), dtype=float)[:, None], np.arange(len(qid)) % 3
    _, target = Ranker()._read(X, y, qid, None, None, reset=True)
    lengths, _ = target._lists()
    assert len(lengths) == len(set(qid.tolist()))
    features, _ = Ranker()._read(X, y, qid, None, None, reset=True)
    rows = np.split(features[:, 0].astype(int), np.cumsum(lengths)[:-1])
    assert all(len({qid.tolist()[row] for row in part}) == 1 for part in rows)


@pytest.mark.parametrize("names", [[2**53 - 2, 2**53 - 1], ["007", "7", "07"], [-(2**40), 5, 7]])
@pytest.mark.parametrize("kind", [AUCClassifier, APClassifier])
def test_classes_of_a_classifier(kind, names):
    X = np.random.RandomState(0).normal(size=(60, 2))
    place = np.arange(60) % len(names)
    X[:, 0] += 20 * place
    y = np.array(names)[place]
    model = kind(C=np.inf).fit(X, y)
    assert model.classes_.tolist() == sorted(names)
    assert (model.predict(X) == y).mean() > 0.9
    if not isinstance(names[0], str):
        with pytest.raises(ValueError, match="below 2"):
            kind().fit(X, y + 2**54)


@pytest.mark.parametrize("value", [256, 257, 255, 2, -2, 2**40, 1.5])
def test_labels_of_tasks_are_not_cut_to_bytes(value):
    """256 would be 0 in int8, and 257 would be 1."""
    X = np.random.RandomState(0).normal(size=(6, 2))
    y = np.array([[0, 1], [1, 0], [value, 1], [0, 0], [1, 1], [0, 1]])
    with pytest.raises(ValueError, match="y"):
        AUCClassifier().fit(X, y)


def stripped(names):
    """The reader takes spaces away; a name that is nothing else is an error of its own."""
    return list(dict.fromkeys(name.strip() for name in names if name.strip()))


@sweep(st.tuples(st.lists(st.one_of(NAMES, st.sampled_from(LOOKALIKES)), min_size=2, max_size=8),
                 st.sampled_from(["csv", "parquet"])), 30, 1000)  # fmt: skip
def test_names_in_a_file(drawn):
    """No two texts become one class or one query."""
    names, end = drawn
    names = stripped(names)
    if len(names) < 2:
        return
    rows = [(name, part) for name in names for part in ("train", "test")]
    label, split = map(list, zip(*rows, strict=True))
    frame = pandas.DataFrame({"x": range(len(rows)), "label": label, "split": split})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"names.{end}"
        save = frame.to_csv if end == "csv" else frame.to_parquet
        save(path, index=False)
        train, test = load_own(path)
        queries = frame.rename(columns={"label": "query"}).assign(grade=1)
        save = queries.to_csv if end == "csv" else queries.to_parquet
        save(path, index=False)
        lists = load_own(path, kind="ranking")
    assert len(set(train.classes.tolist())) == len(names)
    assert train.classes.tolist() == test.classes.tolist()
    assert [part.lengths.tolist() for part in lists] == [[1] * len(names)] * 2


@sweep(st.tuples(st.lists(st.integers(0, 2**63 - 1) | st.integers(2**62, 2**62 + 20),
                          min_size=8, max_size=12),
                 st.sampled_from(["csv", "parquet", "npz"])), 30, 1000)  # fmt: skip
def test_times_in_a_file(drawn):
    """Also beyond 2^53, where float64 would make ties of them."""
    times, end = drawn
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"times.{end}"
        if end == "npz":
            events = np.ones(len(times), dtype=int)
            np.savez(path, x=np.zeros((len(times), 1)), t=np.array(times), e=events)
        else:
            frame = pandas.DataFrame({"x": range(len(times)), "time": times, "event": 1})
            (frame.to_csv if end == "csv" else frame.to_parquet)(path, index=False)
        parts = load_own(path)
    assert sorted(t for part in parts for t in part.times.tolist()) == sorted(times)
