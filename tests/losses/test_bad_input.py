"""A call that is wrong raises an error that says what is, and changes nothing."""

import copy

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from losses.criteria import CASES, labels, ranking, survival

from fcco import losses as L
from fcco import objectives as O
from fcco.data import WithIndex

ONE = {case.name: case for case in CASES}
PLAIN, TASKS = ONE["ap"], ONE["ap, 3 tasks"]


def state(criterion):
    return {name: tensor.clone() for name, tensor in criterion.state_dict().items()}


def same(criterion, before):
    now = criterion.state_dict()
    return now.keys() == before.keys() and all(now[name].equal(before[name]) for name in now)


def filled(case):
    criterion = case.criterion()
    criterion(case.scores(), torch.arange(case.size))
    return criterion


FILLED = {case.name: filled(case) for case in CASES}


@st.composite
def malformed(draw):
    """A criterion, a call that is wrong in one way, and what the error says."""
    case = draw(st.sampled_from(CASES))
    size = draw(st.integers(1, 6))
    index = draw(st.permutations(range(case.size)))[:size]
    scores = torch.randn(size, case.tasks, dtype=torch.float64)
    kind = draw(st.sampled_from(["range", "shape", "tasks", "finite", "index", "dtype", "weight"]))
    place, weight = draw(st.integers(0, size - 1)), None
    sample = str(index[place])
    if kind == "range":
        index[place] = draw(st.sampled_from([-1, case.size, 10**9]))
        return case, scores, torch.tensor(index), weight, ValueError, str(index[place])
    if kind == "finite":
        scores[place, draw(st.integers(0, case.tasks - 1))] = draw(
            st.sampled_from([torch.nan, torch.inf, -torch.inf])
        )
        return case, scores, torch.tensor(index), weight, FloatingPointError, sample
    if kind == "shape":
        return case, scores, torch.tensor([*index, index[0]]), weight, ValueError, "shape"
    if kind == "tasks":
        wide = scores[:, :1].expand(size, case.tasks + 1)
        return case, wide, torch.tensor(index), weight, ValueError, "shape"
    if kind == "index":
        wrong = draw(st.sampled_from([torch.float32, torch.bool]))
        return case, scores, torch.tensor(index).to(wrong), weight, ValueError, "index"
    if kind == "dtype":
        wrong = draw(st.sampled_from([scores.long(), scores.tolist(), None]))
        return case, wrong, torch.tensor(index), weight, ValueError, "scores"
    weight = torch.ones(size)
    weight[place] = draw(st.sampled_from([-1.0, torch.nan, torch.inf]))
    return case, scores, torch.tensor(index), weight, ValueError, sample


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_malformed_calls(count):
    @settings(max_examples=count, deadline=None, derandomize=True)
    @given(malformed())
    def each(call):
        case, scores, index, weight, error, said = call
        criterion = FILLED[case.name]
        before = state(criterion)
        with pytest.raises(error, match=said.replace("-", r"\-")):
            criterion(scores, index, weight)
        assert same(criterion, before)

    each()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_error_inside_takes_everything_back(case, monkeypatch):
    criterion = filled(case)
    before, twin = state(criterion), copy.deepcopy(criterion)
    inner = criterion._updated

    def fails(change):
        inner(change)
        raise KeyboardInterrupt

    monkeypatch.setattr(criterion, "_updated", fails)
    with pytest.raises(KeyboardInterrupt):
        criterion(case.scores(seed=1)[:5], torch.arange(5))
    assert same(criterion, before)
    monkeypatch.undo()
    # The next batch is of other samples, and must not see the scores that were taken back.
    values = [c(case.scores(seed=2)[5:9], torch.arange(5, 9)).item() for c in (criterion, twin)]
    assert values[0] == pytest.approx(values[1], rel=1e-12, abs=1e-14)


def test_an_overflow_names_the_sample():
    criterion = filled(ONE["push"])
    before = state(criterion)
    one, other = (labels() == 0).nonzero().flatten()[:2].tolist()
    with pytest.raises(FloatingPointError, match=f"sample {other}"):
        criterion(torch.tensor([0.0, 1e300], dtype=torch.float64), torch.tensor([one, other]))
    assert same(criterion, before)


@pytest.mark.parametrize("build", [
    L.PushLoss,
    lambda y: L.PartialAUCLoss(y, temperature=0.1),
    lambda y: L.PartialAUCLoss(y, temperature=1.0, two_way=0.5),
])  # fmt: skip
def test_a_loss_that_float32_cannot_hold(build):
    """Sums are float64, the result is not: it is no inf or NaN that the table keeps."""
    criterion = build(labels())
    before = state(criterion)
    scores = (1e30 * PLAIN.scores()).float().requires_grad_()
    with pytest.raises(FloatingPointError, match=rf"sample {scores.abs().argmax()}\b"):
        criterion(scores, torch.arange(45))
    assert same(criterion, before)


def test_scores_that_the_table_cannot_hold():
    criterion = L.APLoss([1, 0, -1])
    with pytest.raises(FloatingPointError, match="sample 2"):
        criterion(torch.tensor([1e300], dtype=torch.float64), torch.tensor([2]))
    assert not criterion.seen.any()


@pytest.mark.parametrize(("build", "said"), [
    (lambda: L.CoxLoss([1.0, 2.0], [0, 0]), "no event"),
    (lambda: L.CoxLoss([1.0, 2.0], [0, 2]), "events must be 0 or 1"),
    (lambda: L.CoxLoss([1.0, torch.nan], [0, 1]), "times"),
    (lambda: L.CoxLoss([1.0, 2.0], [1, 1, 1]), "events"),
    (lambda: L.CoxLoss([1.0], [1], ties="exact"), "ties"),
    (lambda: L.CoxLoss(3.0, 1), "times"),
    (lambda: L.CoxLoss(None, [1]), "times"),
    (lambda: L.AUCLoss([1, 1]), "both"),
    (lambda: L.AUCLoss([1, -1]), "negatives are 0, and -1 is a missing label"),
    (lambda: L.AUCLoss(["cat", "dog"]), "labels"),
    (lambda: L.AUCLoss(None), "labels"),
    (lambda: L.AUCLoss([1, 0])(torch.zeros(1), None), "index"),
    (lambda: L.AUCLoss([1, 0])(torch.zeros(1), ["a"]), "index"),
    (lambda: L.AUCLoss([1, 0])(torch.zeros(1), 0), "index"),
    (lambda: L.AUCLoss([1, 0])(torch.zeros(1), [0], weight="x"), "weight"),
    (lambda: L.AUCLoss([1, 0])(torch.zeros(1, 1).squeeze(), [0]), r"squeeze\(1\)"),
    (lambda: L.AUCLoss([1, 0], temperature=0.0), "temperature"),
    (lambda: L.APLoss([0, 2]), "sample 1, task 0 has 2"),
    (lambda: L.APLoss(torch.zeros(2, 2, 2)), "shape"),
    (lambda: L.APLoss([]), "shape"),
    (lambda: L.PartialAUCLoss(labels(), temperature=-1.0), "temperature"),
    (lambda: L.PartialAUCLoss(labels(), temperature=1.0, two_way=0.0), "two_way"),
    (lambda: L.PushLoss(labels(), power=0.5), "power"),
    (lambda: L.PushLoss(labels(), power=float("nan")), "power"),
    (lambda: L.NDCGLoss([0, 0], [2]), "relevant"),
    (lambda: L.NDCGLoss([0, 2000], [2]), "grades"),
    (lambda: L.NDCGLoss([0, 1], [3]), "lengths"),
    (lambda: L.NDCGLoss([0, 1], [2.0]), "lengths"),
    (lambda: L.ListNetLoss(["a", 1], [2]), "grades"),
    (lambda: L.NDCGLoss([0, 1], [2], top_k=0), "top_k"),
    (lambda: L.ListNetLoss([0, -1], [2]), "grades"),
    (lambda: L.ListNetLoss([0, 1], [2, 0]), "empty"),
    (lambda: WithIndex(iter([1])), "len"),
    (lambda: WithIndex(torch.utils.data.ChainDataset([])), "positions"),
])  # fmt: skip
def test_bad_construction(build, said):
    with pytest.raises(ValueError, match=said):
        build()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_exact_wants_all_scores(case):
    with pytest.raises(ValueError, match="shape"):
        case.criterion().exact(case.scores()[1:])
    broken = case.scores()
    broken[7] = torch.nan
    with pytest.raises(FloatingPointError, match="7"):
        case.criterion().exact(broken)


def test_labels_come_in_many_kinds():
    y = labels()
    scores = PLAIN.scores()
    values = {
        L.APLoss(given).exact(scores).item()
        for given in (y, y.bool(), y.double(), y.numpy(), y.tolist(), y[:, None], y.numpy() > 0)
    }
    assert len(values) == 1
    missing = y.double()
    missing[3] = torch.nan
    with_minus = y.clone()
    with_minus[3] = -1
    assert L.APLoss(missing).exact(scores) == L.APLoss(with_minus).exact(scores)
    shuffled = pd.Series(y.numpy())[y.argsort(stable=True).numpy()]
    for series in (shuffled, shuffled.set_axis([f"patient {k}" for k in range(45)])):
        assert L.APLoss(series).exact(scores) == L.APLoss(y.sort().values).exact(scores)
    table, two = torch.stack([y, 1 - y], 1), torch.stack([scores, -scores], 1)
    for kind in (pd.DataFrame(table.numpy()), table.T.contiguous().T):
        assert L.APLoss(kind).exact(two) == L.APLoss(table).exact(two)
    frozen = np.arange(9)
    frozen.flags.writeable = False
    assert L.APLoss(y)(scores[:9], frozen) == L.APLoss(y)(scores[:9], torch.arange(9))
    with pytest.raises(ValueError, match=r"labels .* some of its entries are masked"):
        L.APLoss(np.ma.array(y.numpy(), mask=np.arange(45) == 3))
    assert L.APLoss(np.ma.array(y.numpy())).exact(scores) == L.APLoss(y).exact(scores)
    grades, lengths = (np.asarray(part) for part in ranking())
    assert L.ListNetLoss(grades, lengths).exact(scores).isfinite()
    assert copy.deepcopy(L.CoxLoss(*map(np.asarray, survival()))).exact(scores).isfinite()


def test_times_come_in_many_kinds():
    times, events = survival()
    scores = PLAIN.scores()
    values = {
        L.CoxLoss(given, events).exact(scores).item()
        for given in (times, times.byte(), times.half(), times.tolist(), pd.Series(times.numpy()))
    }
    assert len(values) == 1
    two = times > times.median()
    assert L.CoxLoss(two, events).exact(scores) == L.CoxLoss(two.int(), events).exact(scores)


def test_times_of_a_list_are_as_precise_as_it_is():
    """Seconds since 1970 are too long for float32, in which these would be tied."""
    given = [1.7e9, 1.7e9 + 1, 1.7e9 + 2]
    scores = torch.tensor([1.0, 2.0, 3.0])
    assert L.CoxLoss(given, [1, 1, 1]).exact(scores) == L.CoxLoss([0, 1, 2], [1] * 3).exact(scores)


def test_targets_in_the_place_of_the_index_are_recognized():
    """The order of another library: scores, targets, index."""
    criterion = L.APLoss(torch.arange(9) % 3 == 0)
    with pytest.raises(ValueError, match="the loss has the labels"):
        criterion(torch.zeros(4), torch.tensor([1, 0, 0, 1]), torch.tensor([0, 1, 2, 3]))
    assert not criterion.seen.any()
    criterion(
        torch.zeros(3), torch.tensor([0, 1, 2]), torch.tensor([1, 2, 1])
    )  # counts are weights


def test_whole_weights_of_the_first_samples_are_weights():
    """Drawn with replacement from an index of 0 and 1; all count alike."""
    criterion, scores = L.AUCLoss([1, 0, 1, 0]), torch.randn(3)
    index = torch.tensor([0, 1, 1])
    whole = criterion(scores, index, torch.tensor([1, 1, 1]))
    assert whole == L.AUCLoss([1, 0, 1, 0])(scores, index, torch.ones(3))


def test_arrays_are_scores_of_exact_and_metric():
    criterion = L.APLoss(torch.arange(9) % 3 == 0)
    scores = torch.linspace(0, 1, 9)
    assert criterion.exact(scores.numpy()) == criterion.exact(scores)
    assert criterion.objective.metric(scores.numpy()) == criterion.objective.metric(scores)


@pytest.mark.parametrize(("exact", "said"), [
    (lambda x: L.CorrelationLoss().exact(x, torch.arange(3.0)), r"samples \[1\]"),
    (lambda x: L.CorrelationLoss(concordance=True).exact(torch.arange(3.0), x), r"samples \[1\]"),
    (lambda x: L.CorrelationLoss().exact(x.double().nan_to_num(1e200, 1e200), torch.arange(3.0)),
     r"samples \[0, 1, 2\]"),
    (lambda x: L.ParityLoss(2).exact(x, torch.tensor([0, 1, 1])), r"samples \[1\]"),
    (lambda x: O.Means(lambda u: u[..., 0].nan_to_num(1.0), 1).exact(x[:, None]), r"samples \[1\]"),
], ids=["correlation", "concordance", "overflow", "parity", "own"])  # fmt: skip
@pytest.mark.parametrize("worst", [torch.nan, torch.inf])
def test_exact_means_that_are_not_finite(exact, said, worst):
    """A function that masks empty classes would mask NaN too, and report a harmless 1."""
    with pytest.raises(FloatingPointError, match=said):
        exact(torch.tensor([1.0, worst, 2.0]))


def test_exact_means_of_no_sample():
    none = torch.zeros(0)
    for criterion in (L.F1Loss(), L.CorrelationLoss(), L.ParityLoss(2)):
        with pytest.raises(ValueError, match="statistics are empty"):
            criterion.exact(none, none.long() if isinstance(criterion, L.ParityLoss) else none)


def test_exact_means_ignore_autocast():
    matrix, lines = torch.randn(3, 3), torch.randn(9, 3)
    criterion = L.MeansLoss(lambda u: (u @ matrix).sum(-1), 3)
    value = criterion.exact(lines)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert criterion.exact(lines).equal(value)


def test_the_risk_of_a_value_that_rounds_to_its_bound():
    """In float32, T (exp(-30) - 1) is -T, whose logarithm is none."""
    criterion = L.GroupDROLoss(2, temperature=0.1)
    value = criterion(torch.tensor([-3.0, -2.0]), torch.tensor([0, 1])).item()
    with pytest.raises(ValueError, match=r"value must be above -temperature, -0\.1"):
        criterion.objective.risk(value)
    value = criterion.exact(torch.tensor([-3.0, -2.0]).double(), torch.tensor([0, 1])).item()
    assert -3 < criterion.objective.risk(value) < -2


def test_exact_groups_that_overflow():
    with pytest.raises(FloatingPointError, match=r"mean losses of up to 1e[+]36"):
        L.GroupDROLoss(2, temperature=0.1).exact(torch.full((2,), 1e36), torch.tensor([0, 1]))


@pytest.mark.parametrize("weight", [[0, 0, 0], [0, 0, 1]])
def test_a_ranking_metric_without_weight(weight):
    with pytest.raises(ValueError, match="no list has a relevant item"):
        O.NDCG([0, 1, 0], [2, 1]).metric(torch.zeros(3), weight)


def test_an_empty_batch_after_scores_that_only_float64_holds():
    criterion = L.DROLoss(2, temperature=1.0).double()
    criterion(torch.tensor([1e39, 1e39], dtype=torch.float64), torch.arange(2))
    with pytest.raises(FloatingPointError, match="scores of earlier batches are too large"):
        criterion(torch.zeros(0), torch.zeros(0, dtype=torch.long))


def test_views_of_two_widths():
    objective = L.ContrastiveLoss(2, temperature=0.5)
    with pytest.raises(ValueError, match=r"second must have the shape of first, \(2, 3\)"):
        objective.exact(torch.ones(2, 3), torch.ones(2, 4))


@pytest.mark.parametrize("build", [
    lambda: O.AUC([1, 0, 1]), lambda: O.Cox([1, 2, 3], [1, 1, 0]),
    lambda: O.DRO(3, temperature=1.0), lambda: O.GroupDRO([0, 1, 1], temperature=1.0),
    lambda: O.GlobalContrastive(3, temperature=0.5), lambda: O.IWAE(3),
], ids=["auc", "cox", "dro", "group dro", "contrastive", "iwae"])  # fmt: skip
@pytest.mark.parametrize("count", [1, 3])
def test_inputs_are_those_of_the_index(build, count):
    """Inputs that were not filtered as the index was would get the labels of others."""
    objective, x = build(), torch.randn(count, 2)
    inputs = (x[:2].repeat(2, 1)[:2], x) if isinstance(objective, O.GlobalContrastive) else x
    with pytest.raises(ValueError, match="inputs must be those of the 2 samples of index"):
        objective.batch(inputs, [1, 2])


@pytest.mark.parametrize("samples", [0, -1, 2.5])
def test_latent_samples_are_a_positive_number(samples):
    with pytest.raises(ValueError, match="samples"):
        O.IWAE(3).batch(torch.zeros(2, 1), [0, 1], samples)
