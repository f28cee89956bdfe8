"""``metric`` against scikit-learn, lifelines and plain loops; ties are the rule."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lifelines.utils import concordance_index
from objectives.zoo import CASES, N, X
from sklearn.metrics import average_precision_score, ndcg_score, roc_auc_score

from fcco import objectives as O

coarse = st.integers(-2, 2).map(float)  # few distinct values
profile = settings(deadline=None, max_examples=60)
AREAS = {
    O.AUC: roc_auc_score,
    O.MultiTaskAUC: roc_auc_score,
    O.MultiTaskGap: roc_auc_score,
    O.PNormPush: roc_auc_score,
    O.AveragePrecision: average_precision_score,
}
every_area = pytest.mark.parametrize("kind", AREAS)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@st.composite
def binary(draw, most=12):
    """Scores, labels with both classes, and weights."""
    labels = draw(st.lists(st.booleans(), min_size=2, max_size=most))
    labels[:2] = [True, False]
    size = len(labels)
    scores = draw(st.lists(coarse, min_size=size, max_size=size))
    weights = draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=size, max_size=size))
    weights[:2] = [1.0, 0.5]
    return torch.tensor(scores), torch.tensor(labels), torch.tensor(weights)


@every_area
@profile
@given(case=binary())
def test_areas_are_scikit_learns(kind, case):
    scores, labels, weights = case
    objective, score = kind(labels), AREAS[kind]
    found = objective.metric(scores)
    assert isinstance(found, float)
    assert found == pytest.approx(score(labels, scores), abs=1e-12)
    expected = score(labels, scores, sample_weight=weights)
    assert objective.metric(scores, weights) == pytest.approx(expected, abs=1e-12)


@every_area
@pytest.mark.parametrize("weighted", [False, True])
def test_areas_are_means_over_the_tasks_that_have_both_classes(kind, weighted):
    scores = torch.randn(60, 5, generator=generator()).mul(2).round()
    labels = (torch.rand(60, 5, generator=generator(1)) < 0.4).float()
    labels[torch.rand(60, 5, generator=generator(2)) < 0.3] = torch.nan
    labels[:, 1] = torch.where(labels[:, 1] == 1, torch.nan, labels[:, 1])  # no positive
    labels[:, 3] = torch.where(labels[:, 3] == 0, -1.0, labels[:, 3])  # no negative
    weight = torch.rand(60, generator=generator(3)) if weighted else None
    expected = []
    for task in (0, 2, 4):
        known = labels[:, task] >= 0
        own = None if weight is None else weight[known]
        expected.append(AREAS[kind](labels[known, task], scores[known, task], sample_weight=own))
    assert kind(labels).metric(scores, weight) == pytest.approx(np.mean(expected), abs=1e-12)


@every_area
def test_areas_depend_on_order_alone(kind):
    labels = torch.tensor([False, True, False, True, True, False])
    order = torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    objective = kind(labels)
    value = objective.metric(order)
    for scores in (
        order.bfloat16(),
        order.half(),
        order.clone().requires_grad_(),
        order.unsqueeze(1),
        order + 700.0,  # a sigmoid of these is 1
        1e-30 * order,
        1e4 * (order - 2.5),
        1 + order.double() * 1e-15,
    ):
        assert objective.metric(scores) == value
    assert kind(labels[:2]).metric(torch.tensor([0.0, -0.0])) == 0.5  # the two zeros are equal


# Partial areas ------------------------------------------------------------------------------------


def polyline_area(scores, labels, max_fpr, min_tpr):
    """The definition in rational numbers: the ROC polyline, cut at both rates."""
    positives, negatives = int(labels.sum()), int((~labels).sum())
    points = [(Fraction(0), Fraction(0))]
    for threshold in sorted(set(scores.tolist()), reverse=True):
        chosen = scores >= threshold
        points.append(
            (
                Fraction(int((chosen & ~labels).sum()), negatives),
                Fraction(int((chosen & labels).sum()), positives),
            )
        )
    far, low, total = Fraction(max_fpr), Fraction(min_tpr), Fraction(0)
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        if x0 >= far or x1 == x0:
            continue
        slope, x1 = (y1 - y0) / (x1 - x0), min(x1, far)
        y1 = y0 + slope * (x1 - x0)
        if y1 <= low:
            continue
        if y0 < low:
            x0, y0 = x0 + (low - y0) / slope, low
        total += (x1 - x0) * ((y0 + y1) / 2 - low)
    return float(total / (far * (1 - low)))


rates = st.floats(0.05, 1.0)


@profile
@given(case=binary(most=20), max_fpr=rates, min_tpr=st.floats(0.0, 0.9))
def test_partial_areas_are_integrals_of_the_polyline(case, max_fpr, min_tpr):
    scores, labels, _ = case
    objective = O.PartialAUC(labels, temperature=1.0)
    for one_way in ({"max_fpr": max_fpr}, {"min_tpr": min_tpr}):
        bounds = {"max_fpr": 1.0, "min_tpr": 0.0} | one_way
        expected = polyline_area(scores, labels, **bounds)
        assert objective.metric(scores, **one_way) == pytest.approx(expected, abs=1e-11)
        built = O.PartialAUC(labels, temperature=1.0, **one_way)
        assert built.metric(scores) == objective.metric(scores, **one_way)
        assert built.metric(scores, max_fpr=0.5) == objective.metric(scores, max_fpr=0.5)
    both = {"max_fpr": max_fpr, "min_tpr": min_tpr}
    found = objective.metric(scores, **both)
    assert found == pytest.approx(polyline_area(scores, labels, **both), abs=1e-11)
    assert O.PartialAUC(labels, temperature=1.0, two_way=1.0, **both).metric(scores) == found


@profile
@given(case=binary(most=20), max_fpr=rates)
def test_one_way_partial_areas_are_scikit_learns(case, max_fpr):
    """Which standardizes them; at high sensitivity with the roles swapped, as ISIC 2024 does."""
    scores, labels, weights = case

    def plain(labels, scores, weights):
        standard = roc_auc_score(labels, scores, max_fpr=max_fpr, sample_weight=weights)
        low, high = max_fpr**2 / 2, max_fpr
        return (standard if max_fpr == 1 else (2 * standard - 1) * (high - low) + low) / max_fpr

    objective = O.PartialAUC(labels, temperature=1.0)
    for weight in (None, weights):
        expected = plain(labels, scores, weight)
        assert objective.metric(scores, weight, max_fpr=max_fpr) == pytest.approx(
            expected, abs=1e-9
        )
        if max_fpr < 1:
            expected = plain(~labels, -scores, weight)
            found = objective.metric(scores, weight, min_tpr=1 - max_fpr)
            assert found == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("top", "bottom"), [(2, 3), (5, 4), (8, 6), (1, 1)])
def test_two_way_area_compares_hardest_samples(top, bottom):
    """Without ties: the ``top`` highest negatives against the ``bottom`` lowest positives."""
    scores, labels = torch.randn(14, generator=generator(top)), torch.arange(14) < 6
    positives, negatives = scores[labels].sort().values, scores[~labels].sort().values
    wins = positives[:bottom, None] > negatives[-top:]
    objective = O.PartialAUC(labels, temperature=1.0)
    value = objective.metric(scores, max_fpr=top / 8, min_tpr=1 - bottom / 6)
    assert value == pytest.approx(float(wins.double().mean()), abs=1e-12)


def test_partial_areas_lie_between_zero_and_one():
    labels = torch.arange(40) % 3 == 0
    objective = O.PartialAUC(labels, temperature=1.0, two_way=1.0, max_fpr=0.3, min_tpr=0.7)
    assert objective.metric(labels.float()) == 1
    assert objective.metric(-labels.float()) == 0
    assert objective.metric(torch.zeros(40), max_fpr=0.3) == pytest.approx(0.15)
    scores = torch.randn(40, generator=generator()).mul(2).round()
    assert objective.metric(scores, max_fpr=1.0) == pytest.approx(roc_auc_score(labels, scores))


def test_bad_rates_are_named():
    labels = torch.tensor([True, False])
    objective = O.PartialAUC(labels, temperature=1.0)
    for name, bad in (
        ("max_fpr", (0.0, -0.1, 1.1, torch.nan)),
        ("min_tpr", (1.0, -0.1, torch.nan)),
    ):
        for rate in bad:
            with pytest.raises(ValueError, match=f"{name} must lie in"):
                objective.metric(torch.zeros(2), **{name: rate})
            with pytest.raises(ValueError, match=f"{name} must lie in"):
                O.PartialAUC(labels, temperature=1.0, **{name: rate})


# Survival and lists -------------------------------------------------------------------------------


@profile
@given(
    rows=st.lists(st.tuples(st.integers(0, 4), st.booleans(), coarse), min_size=2, max_size=20),
    kind=st.sampled_from([torch.uint8, torch.int8, torch.int64, torch.float64]),
)
def test_concordance_is_lifelines(rows, kind):
    times, events, scores = (torch.tensor(column) for column in zip(*rows, strict=True))
    if not events.any():
        return
    objective = O.Cox(times.to(kind), events)
    try:
        expected = concordance_index(times, -scores, events)
    except ZeroDivisionError:
        with pytest.raises(ValueError, match="events: no pair has a known order"):
            objective.metric(scores)
        return
    assert objective.metric(scores) == pytest.approx(expected, abs=1e-12)


def test_concordance_of_many_samples_is_formed_in_parts():
    """2^24 pairs at a time: here two parts."""
    generated = generator(4)
    times = torch.randint(2000, (8000,), generator=generated)
    events = torch.rand(8000, generator=generated) < 0.5
    scores = torch.randn(8000, generator=generated).round(decimals=1)
    expected = concordance_index(times, -scores, events)
    assert O.Cox(times, events).metric(scores) == pytest.approx(expected, abs=1e-12)


item = st.tuples(coarse, st.integers(0, 4))


@profile
@given(
    queries=st.lists(st.lists(item, min_size=2, max_size=7), min_size=1, max_size=5),
    k=st.none() | st.integers(1, 9),
    importance=st.booleans(),
)
def test_ndcg_is_scikit_learns_list_by_list(queries, k, importance):
    scores, grades = torch.tensor([pair for query in queries for pair in query]).unbind(1)
    lengths = torch.tensor([len(query) for query in queries])
    weights = torch.arange(1.0, len(queries) + 1) if importance else None
    plain = O.ListNet(grades, lengths, weights=weights)
    if not grades.any():
        with pytest.raises(ValueError, match="grades: no list has a relevant item"):
            plain.metric(scores)
        with pytest.raises(ValueError, match="grades: no item is relevant"):
            O.NDCG(grades, lengths)
        return
    each = weights.tolist() if importance else [1.0] * len(queries)
    values = [
        (ndcg_score([[2.0**y - 1 for _, y in query]], [[s for s, _ in query]], k=k), weight)
        for query, weight in zip(queries, each, strict=True)
        if any(y for _, y in query)
    ]
    expected = sum(w * value for value, w in values) / sum(w for _, w in values)
    found = O.NDCG(grades, lengths, top_k=k, weights=weights).metric(scores)
    assert found == pytest.approx(expected, abs=1e-12)
    if k is None:
        assert plain.metric(scores) == found


def test_ties_in_ndcg_are_the_mean_over_orders():
    grades = [2, 0, 1, 3]
    orders = [
        [grades[0], *(grades[j] for j in middle)] for middle in itertools.permutations((1, 2, 3))
    ]

    def dcg(order):
        return sum((2**y - 1) / np.log2(r + 2) for r, y in enumerate(order[:3]))

    mean = np.mean([dcg(order) for order in orders]) / dcg(sorted(grades, reverse=True))
    objective = O.NDCG(torch.tensor(grades), torch.tensor([4]), top_k=3)
    found = objective.metric(torch.tensor([2.0, 1.0, 1.0, 1.0]))
    assert found == pytest.approx(mean, abs=1e-12)


# All of them --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [O.DRO(3, temperature=1.0), O.CVaR(3, fraction=0.5)])
def test_risks_of_samples_stand_for_no_metric(kind):
    with pytest.raises(TypeError, match=r"stands for no metric: use exact\(scores\)"):
        kind.metric(torch.zeros(3))


@pytest.mark.parametrize("case", [case for case in CASES if hasattr(case.objective, "metric")],
                         ids=lambda case: case.name)  # fmt: skip
def test_metric_and_exact_name_bad_scores(case):
    objective, tasks = case.objective, case.outputs
    calls = [objective.exact]
    if not isinstance(objective, O.DRO | O.CVaR):
        calls.append(objective.metric)
        assert 0 <= objective.metric(case.model()(X)) <= 1
    wanted = rf"\({N}, {tasks}\)" if tasks > 1 else rf"\({N},\) or \({N}, 1\)"
    lost = torch.zeros(N, tasks)
    lost[4] = torch.inf
    for call in calls:
        for shape in ((N - 1, tasks), (N, tasks + 1), (N, tasks, 1), ()):
            with pytest.raises(ValueError, match=f"scores must have shape {wanted}, got"):
                call(torch.zeros(shape))
        with pytest.raises(
            ValueError, match=r"scores must be a tensor of floats, got torch\.int64"
        ):
            call(torch.zeros(N, tasks).long())
        with pytest.raises(ValueError, match="scores must be a tensor of floats, got list"):
            call(np.zeros((N, tasks)).tolist())
        with pytest.raises(FloatingPointError, match=r"scores of samples \[4\] are not finite"):
            call(lost)
