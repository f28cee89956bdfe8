"""Weights of samples: 0 is absent, whole numbers are repetitions where that is the definition."""

import math

import numpy as np
import pytest
import torch
from objectives.zoo import CASES, mean, sigmoid

from fcco import losses as L
from fcco import objectives as O

N = 40
GENERATOR = torch.Generator().manual_seed(3)


def whole(high, *shape):
    return torch.randint(high, shape, generator=GENERATOR)


def normal(*shape):
    return torch.randn(shape, generator=GENERATOR, dtype=torch.float64)


LABELS = whole(2, N, 3) - (torch.rand((N, 3), generator=GENERATOR) < 0.2).long()
LABELS[:, 2].masked_fill_(LABELS[:, 2] == 1, 0)
LABELS[5, 2] = 1  # a task that may lose its only positive
TIMES, EVENTS = whole(8, N), torch.rand(N, generator=GENERATOR) < 0.6
GRADES, LENGTHS = whole(3, N), torch.tensor([1, 12, 9, 3, 15])
GRADES[0], GRADES[-15:] = 2, 0  # no item of the last list is relevant
HINGE = O.SquaredHinge()

OBJECTIVES = {
    "auc": O.AUC(LABELS, temperature=0.5),
    "auc with cross-entropy": O.AUC(LABELS, cross_entropy=0.5),
    "unbounded auc": O.AUC(LABELS, bounded=False),
    "multi-task auc": O.MultiTaskAUC(LABELS),
    "multi-task gap": O.MultiTaskGap(LABELS),
    "ap": O.AveragePrecision(LABELS),
    "ap, hinge": O.AveragePrecision(LABELS, surrogate=HINGE),
    "partial auc": O.PartialAUC(LABELS, temperature=0.3),
    "two-way partial auc": O.PartialAUC(LABELS, temperature=0.3, two_way=1.0),
    "sensitive partial auc": O.PartialAUC(LABELS, temperature=0.3, min_tpr=0.5),
    "push": O.PNormPush(LABELS),
    "efron": O.Cox(TIMES, EVENTS),
    "breslow": O.Cox(TIMES, EVENTS, ties="breslow"),
    "ndcg": O.NDCG(GRADES, LENGTHS),
    "ndcg at 3": O.NDCG(GRADES, LENGTHS, top_k=3),
    "list-net": O.ListNet(GRADES, LENGTHS),
    "dro": O.DRO(N, temperature=0.4),
    "cvar": O.CVaR(N, fraction=0.3),
}
REPEATED = [
    name
    for name in OBJECTIVES
    if name not in ("ap", "efron", "ndcg", "ndcg at 3", "list-net")  # see below
]
every = pytest.mark.parametrize("name", OBJECTIVES)


def of_rows(objective, rows):
    """The same objective of some of the samples, in their order, repeated or not."""
    if isinstance(objective, O.Cox):
        return objective.on(TIMES[rows], EVENTS[rows])
    if isinstance(objective, O.NDCG | O.ListNet):
        owner = torch.arange(len(LENGTHS)).repeat_interleave(LENGTHS)[rows]
        return objective.on(GRADES[rows], owner.unique_consecutive(return_counts=True)[1])
    if isinstance(objective, O.DRO | O.CVaR):
        return objective.on(len(rows))
    return objective.on(LABELS[rows])


def scores_of(objective):
    return normal(N, objective.num_tasks)


def value_and_gradient(objective, h, weight=None):
    leaf = h.clone().requires_grad_()
    value = objective.exact(leaf, weight)
    (gradient,) = torch.autograd.grad(value, leaf)
    return value.detach(), gradient


def close(one, other):
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-13)


@every
def test_a_weight_of_zero_is_absence(name):
    """From counts, ties, ideal DCGs, tasks and lists; whatever the score."""
    objective = OBJECTIVES[name]
    for seed in range(4):
        h, weight = scores_of(objective), (torch.rand(N, generator=GENERATOR) < 0.6).double()
        if seed == 0:
            weight[0], weight[5] = 0.0, 0.0  # all of the first list, all positives of the last task
        kept = weight.nonzero().flatten()
        value, gradient = value_and_gradient(objective, h, weight)
        assert not gradient[weight == 0].any()
        close((value, gradient[kept]), value_and_gradient(of_rows(objective, kept), h[kept]))
        h[weight == 0] = 1e4 * normal(len(h), objective.num_tasks)[weight == 0]
        close((value, gradient), value_and_gradient(objective, h, weight))
        if not isinstance(objective, O.DRO | O.CVaR):
            expected = of_rows(objective, kept).metric(h[kept])
            assert objective.metric(h, weight) == pytest.approx(expected, abs=1e-12)


@every
def test_equal_weights_are_none_and_only_ratios_count(name):
    objective = OBJECTIVES[name]
    h, weight = scores_of(objective), torch.rand(N, generator=GENERATOR, dtype=torch.float64)
    plain = value_and_gradient(objective, h)
    close(value_and_gradient(objective, h, torch.ones(N)), plain)
    # Twice as many patients in a risk set are twice the sum, of which Cox takes the logarithm.
    cox = isinstance(objective, O.Cox)
    value, gradient = value_and_gradient(objective, h, [0.3] * N)
    close((value - cox * math.log(0.3), gradient), plain)
    found = value_and_gradient(objective, h, weight)
    value, gradient = value_and_gradient(objective, h, 1e6 * weight)
    close((value - cox * math.log(1e6), gradient), found)
    assert abs(found[0] - plain[0]) > 1e-6
    torch.testing.assert_close(objective.exact(h), plain[0], rtol=1e-12, atol=1e-14)
    if not isinstance(objective, O.DRO | O.CVaR):
        assert objective.metric(h, torch.ones(N)) == pytest.approx(objective.metric(h), abs=1e-12)


@pytest.mark.parametrize("name", REPEATED)
def test_whole_weights_are_repetitions(name):
    objective = OBJECTIVES[name]
    for _ in range(3):
        h, weight = scores_of(objective), whole(4, N)
        if name != "cvar":  # with ties it has several subgradients
            h = h.round(decimals=1)
        rows = torch.arange(N).repeat_interleave(weight)
        value, gradient = value_and_gradient(objective, h, weight)
        expected, of_each = value_and_gradient(of_rows(objective, rows), h[rows])
        close((value, gradient), (expected, torch.zeros_like(h).index_add(0, rows, of_each)))
        if not isinstance(objective, O.DRO | O.CVaR):
            repeated = of_rows(objective, rows).metric(h[rows])
            assert objective.metric(h, weight) == pytest.approx(repeated, abs=1e-12)


@pytest.mark.parametrize("name", ["efron", "ap", "ap, hinge"])
def test_metrics_of_whole_weights_are_those_of_repetitions(name):
    objective, weight = OBJECTIVES[name], whole(4, N)
    h, rows = scores_of(objective).round(decimals=1), torch.arange(N).repeat_interleave(weight)
    expected = of_rows(objective, rows).metric(h[rows])
    assert objective.metric(h, weight) == pytest.approx(expected, abs=1e-12)


def test_average_precision_of_any_surrogate_counts_a_sample_by_its_weight():
    """A positive counts itself as 1, by its weight; its repetitions would count l(0) each."""
    objective, weight = OBJECTIVES["ap"], torch.rand(N, generator=GENERATOR, dtype=torch.float64)
    h, w = scores_of(objective), weight.tolist()
    tasks = []
    for task in range(3):
        x, y = h[:, task].tolist(), LABELS[:, task].tolist()

        def rank(i, others, x=x):
            return w[i] + sum(w[j] * sigmoid(x[j] - x[i]) for j in others if j != i)

        positives = [i for i in range(N) if y[i] == 1]
        known = [i for i in range(N) if y[i] >= 0]
        precisions = [w[i] * rank(i, positives) / rank(i, known) for i in positives]
        tasks.append(-sum(precisions) / sum(w[i] for i in positives))
    assert objective.exact(h, weight).item() == pytest.approx(mean(tasks), abs=1e-12)


def test_efron_counts_tied_events_by_their_mean_weight():
    """As R's survival package and lifelines do: a plain loop."""
    objective, weight = OBJECTIVES["efron"], torch.rand(N, generator=GENERATOR, dtype=torch.float64)
    weight[::7] = 0
    h = scores_of(objective)
    x, w = h[:, 0].tolist(), weight.tolist()
    total = 0.0
    for time in TIMES.unique().tolist():
        dead = [i for i in range(N) if EVENTS[i] and TIMES[i] == time and w[i] > 0]
        risk = sum(w[j] * math.exp(x[j]) for j in range(N) if TIMES[j] >= time)
        tied = sum(w[j] * math.exp(x[j]) for j in dead)
        share = mean(w[j] for j in dead) if dead else 0.0
        for place, i in enumerate(dead):
            total += share * math.log(risk - place / len(dead) * tied) - w[i] * x[i]
    expected = total / sum(w[i] for i in range(N) if EVENTS[i])
    assert objective.exact(h, weight).item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("kind", [O.NDCG, O.ListNet])
def test_a_list_counts_by_the_mean_weight_of_its_items(kind):
    objective, importance = kind(GRADES, LENGTHS), torch.tensor([0.5, 2.0, 0.1, 3.0, 1.0])
    h = scores_of(objective)
    weighted = kind(GRADES, LENGTHS, weights=importance)
    by_items = importance.double().repeat_interleave(LENGTHS)
    close(value_and_gradient(objective, h, by_items), value_and_gradient(weighted, h))
    assert objective.metric(h, by_items) == pytest.approx(weighted.metric(h), abs=1e-12)
    # Within a list weights change its share alone; both kinds of weights multiply.
    uneven = by_items * torch.where(torch.arange(N) % 2 == 0, 0.5, 1.5)
    sums = torch.zeros(5, dtype=torch.float64).index_add(
        0, torch.arange(5).repeat_interleave(LENGTHS), uneven
    )
    both = kind(GRADES, LENGTHS, weights=importance.double() * sums / LENGTHS)
    close(value_and_gradient(weighted, h, uneven), value_and_gradient(both, h))


@pytest.mark.parametrize("kind", [O.NDCG, O.ListNet])
def test_weights_of_lists_stay_with_their_lists(kind):
    h, weights = torch.tensor([0.3, 0.1, 0.2, 0.9]), torch.tensor([100.0, 1.0])
    grades, lengths = [1, 0, 1, 0], [2, 2]
    training = kind(grades, lengths, weights=weights)
    before = training.exact(h)
    assert training.on(grades, lengths).exact(h) == kind(grades, lengths).exact(h)
    assert training.on(grades, lengths, weights=weights).exact(h) == before
    weights.fill_(1)  # of the caller
    assert training.exact(h) == before
    with pytest.raises(ValueError, match=r"weights must have shape \(2,\), got \(1,\)"):
        training.on(grades, lengths, weights=[1.0])


@pytest.mark.parametrize("kind", [L.NDCGLoss, L.ListNetLoss])
def test_weights_of_lists_are_numbers_in_any_form(kind):
    states = [
        kind([1, 0, 1], [2, 1], weights=form([2, 1])).state_dict()
        for form in (list, np.array, np.float32, torch.tensor, torch.HalfTensor)
    ]
    for state in states:
        kind([1, 0, 1], [2, 1], weights=(2.0, 1.0)).load_state_dict(state)
    with pytest.raises(RuntimeError, match="belongs to other labels"):
        kind([1, 0, 1], [2, 1], weights=(1.0, 2.0)).load_state_dict(states[0])


@every
def test_without_any_sample_the_value_is_zero(name):
    objective = OBJECTIVES[name]
    value, gradient = value_and_gradient(objective, scores_of(objective), torch.zeros(N))
    assert value == 0
    assert not gradient.any()


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (torch.ones(3), r"weight must have shape \(9,\), got \(3,\)"),
        (torch.ones(9, 1), r"weight must have shape \(9,\), got \(9, 1\)"),
        (-torch.ones(9), "weight must be finite and not negative, got -1.0 at 0"),
        (torch.full((9,), torch.nan), "weight must be finite and not negative, got nan at 0"),
        (["a"] * 9, "weight must be a tensor or an array of numbers"),
    ],
)
@pytest.mark.parametrize("case", [case for case in CASES if hasattr(case.objective, "metric")],
                         ids=lambda case: case.name)  # fmt: skip
def test_bad_weights_are_named(case, weight, message):
    h = torch.zeros(9, case.objective.num_tasks)
    with pytest.raises(ValueError, match=message):
        case.objective.exact(h, weight)
    if not isinstance(case.objective, O.DRO | O.CVaR):
        with pytest.raises(ValueError, match=message):
            case.objective.metric(h, weight)
