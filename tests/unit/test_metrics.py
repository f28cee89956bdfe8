"""Metrics against other libraries, double loops and enumerations."""

import itertools
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fcco import metrics
from fcco.metrics import embedding, survival

INF = float("inf")
# few distinct values, so that ties are the rule
coarse = st.integers(-2, 2).map(float)
profile = settings(deadline=None, max_examples=60)


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


@st.composite
def binary(draw, most=12, values=coarse):
    """Scores and labels with both classes."""
    labels = draw(st.lists(st.booleans(), min_size=2, max_size=most))
    labels[:2] = [True, False]
    size = len(labels)
    scores = draw(st.lists(values, min_size=size, max_size=size))
    return torch.tensor(scores), torch.tensor(labels)


def pair_auroc(scores, labels):
    """The definition: a positive beats a negative, ties one half."""
    wins = [
        1.0 if p > n else 0.5 if p == n else 0.0 for p in scores[labels] for n in scores[~labels]
    ]
    return sum(wins) / len(wins)


def threshold_precision(scores, labels):
    """The definition: precision at each threshold times the recall that it adds."""
    total, recall = 0.0, 0.0
    for threshold in sorted(set(scores.tolist()), reverse=True):
        chosen = scores >= threshold
        hits = int((chosen & labels).sum())
        total += (hits / int(labels.sum()) - recall) * hits / int(chosen.sum())
        recall = hits / int(labels.sum())
    return total


# areas under curves

MACRO = [
    (metrics.macro_auroc, pair_auroc, "multilabel_auroc"),
    (metrics.macro_average_precision, threshold_precision, "multilabel_average_precision"),
]


@pytest.mark.parametrize(("metric", "truth", "_"), MACRO)
@profile
@given(case=binary())
def test_binary_areas_are_their_definitions(metric, truth, _, case):
    assert metric(*case) == pytest.approx(truth(*case), abs=1e-12)


@pytest.mark.parametrize(("metric", "truth", "name"), MACRO)
def test_macro_areas_are_means_over_the_known(metric, truth, name):
    from torchmetrics.functional import classification

    scores = torch.randn(60, 4, generator=rng()).mul(4).round()
    labels = torch.rand(60, 4, generator=rng(1)) < 0.4
    known = torch.rand(60, 4, generator=rng(2)) < 0.7
    for keep in (None, known):
        believed = torch.ones_like(known) if keep is None else keep
        columns = zip(scores.T, labels.T, believed.T, strict=True)
        loop = [truth(s[b], y[b]) for s, y, b in columns]
        value = metric(scores, labels, keep)
        assert isinstance(value, float)
        assert value == pytest.approx(sum(loop) / 4, abs=1e-12)
        other = getattr(classification, name)(
            torch.sigmoid(scores.double()),
            labels.long().where(believed, -1),
            num_labels=4,
            ignore_index=-1,
        )
        assert value == pytest.approx(float(other), abs=1e-6)


@pytest.mark.parametrize(("metric", "_", "__"), MACRO)
def test_areas_depend_on_order_alone(metric, _, __):
    labels = torch.tensor([False, True, False, True, True, False])
    order = torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    value = metric(order, labels)
    for scores in (
        order.bfloat16(),
        order.long(),
        order.clone().requires_grad_(),
        order + 700.0,  # a sigmoid of these is 1
        torch.tensor([-INF, 1.0, 2.0, 3.0, 4.0, INF]),
        1 + order.double() * 1e-15,
    ):
        assert metric(scores, labels) == value
    # the two zeros are equal
    tied = torch.tensor([0.0, -0.0])
    assert metric(tied, torch.tensor([True, False])) == 0.5


@pytest.mark.parametrize(("metric", "_", "__"), MACRO)
def test_areas_refuse_what_they_cannot_rank(metric, _, __):
    scores, labels = torch.randn(5, 3, generator=rng()), torch.zeros(5, 3, dtype=torch.bool)
    labels[0] = True
    metric(scores, labels)
    with pytest.raises(ValueError, match=r"labels must have shape \(5, 3\), got \(5, 2\)"):
        metric(scores, labels[:, :2])
    with pytest.raises(ValueError, match=r"labels must have shape \(5,\), got \(5, 3\)"):
        metric(scores[:, 0], labels)
    with pytest.raises(ValueError, match="labels must be booleans"):
        metric(scores, labels.long())
    with pytest.raises(ValueError, match="known must have shape"):
        metric(scores, labels, torch.ones(5, dtype=torch.bool))
    with pytest.raises(ValueError, match="known must be booleans"):
        metric(scores, labels, torch.ones(5, 3))
    for shape in ((), (0,), (0, 3), (5, 0), (5, 3, 1)):
        with pytest.raises(ValueError, match="scores must have shape"):
            metric(torch.zeros(shape), torch.zeros(shape, dtype=torch.bool))
    with pytest.raises(ValueError, match="scores holds 1 NaN"):
        metric(scores.where(scores != scores[0, 1], torch.nan), labels)
    known = torch.ones_like(labels)
    known[0, [0, 2]] = False
    with pytest.raises(ValueError, match=r"tasks \[0, 2\] have no positive"):
        metric(scores, labels, known)
    with pytest.raises(ValueError, match=r"tasks \[1\] have no negative"):
        metric(scores, labels | torch.tensor([False, True, False]))
    with pytest.raises(ValueError, match=r"tasks \[0\] have no negative"):
        metric(scores[:, 0], torch.ones(5, dtype=torch.bool))


# partial areas


def roc_polyline(scores, labels):
    """Vertices by counting at every threshold."""
    points = [(0.0, 0.0)]
    for threshold in sorted(set(scores.tolist()), reverse=True):
        chosen = scores >= threshold
        points.append(
            (
                int((chosen & ~labels).sum()) / int((~labels).sum()),
                int((chosen & labels).sum()) / int(labels.sum()),
            )
        )
    return points


def integrated(scores, labels, max_fpr, min_tpr, cells=4000):
    """Midpoint rule over the polyline, walked piece by piece."""
    points, total = roc_polyline(scores, labels), 0.0
    for x in (np.arange(cells) + 0.5) * max_fpr / cells:
        for (x0, y0), (x1, y1) in itertools.pairwise(points):
            if x0 <= x < x1:
                total += max(y0 + (y1 - y0) * (x - x0) / (x1 - x0) - min_tpr, 0.0)
                break
    return total / cells / (1 - min_tpr)


rates = st.floats(0.05, 1.0)


@profile
@given(case=binary(most=20), max_fpr=rates)
def test_one_way_partial_area_is_scikit_learns(case, max_fpr):
    from sklearn.metrics import roc_auc_score

    scores, labels = case
    standard = roc_auc_score(labels.numpy(), scores.numpy(), max_fpr=max_fpr)
    assert metrics.partial_auroc(
        scores, labels, max_fpr=max_fpr, standardized=True
    ) == pytest.approx(standard, abs=1e-12)
    low, high = max_fpr**2 / 2, max_fpr
    area = standard if max_fpr == 1 else (2 * standard - 1) * (high - low) + low
    assert metrics.partial_auroc(scores, labels, max_fpr=max_fpr) == pytest.approx(
        area / max_fpr, abs=1e-9
    )


@settings(deadline=None, max_examples=30)
@given(case=binary(), max_fpr=rates, min_tpr=st.floats(0.0, 0.9))
def test_partial_areas_are_integrals_of_the_polyline(case, max_fpr, min_tpr):
    value = metrics.partial_auroc(*case, max_fpr=max_fpr, min_tpr=min_tpr)
    assert 0 <= value <= 1
    # the midpoint rule errs by a cell at each of at most 12 steps, more so over a thin range
    bound = 12 / 4000 / (1 - min_tpr)
    assert value == pytest.approx(integrated(*case, max_fpr, min_tpr), abs=bound)


@pytest.mark.parametrize(("top", "bottom"), [(2, 3), (5, 4), (8, 6), (1, 1)])
def test_two_way_area_compares_hardest_samples(top, bottom):
    """Without ties: the ``top`` highest negatives against the ``bottom`` lowest positives."""
    scores, labels = torch.randn(14, generator=rng(top)), torch.arange(14) < 6
    positives, negatives = scores[labels].sort().values, scores[~labels].sort().values
    wins = positives[:bottom, None] > negatives[-top:]
    value = metrics.partial_auroc(scores, labels, max_fpr=top / 8, min_tpr=1 - bottom / 6)
    assert value == pytest.approx(float(wins.double().mean()), abs=1e-12)


def test_partial_area_of_the_whole_square_is_the_area():
    scores, labels = torch.randn(40, generator=rng()).mul(2).round(), torch.arange(40) % 3 == 0
    whole = metrics.macro_auroc(scores, labels)
    for standardized in (False, True):
        value = metrics.partial_auroc(scores, labels, max_fpr=1.0, standardized=standardized)
        assert value == pytest.approx(whole, abs=1e-12)
    perfect = labels.float()
    assert metrics.partial_auroc(perfect, labels, max_fpr=0.3, min_tpr=0.7) == 1
    assert metrics.partial_auroc(-perfect, labels, max_fpr=0.3, min_tpr=0.7) == 0
    constant = metrics.partial_auroc(torch.zeros(40), labels, max_fpr=0.3)
    assert constant == pytest.approx(0.15)


def test_partial_area_refuses():
    scores, labels = torch.arange(4.0), torch.tensor([True, False, True, False])
    for bad in (0.0, -0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="max_fpr must lie in"):
            metrics.partial_auroc(scores, labels, max_fpr=bad)
    for bad in (1.0, -0.1, float("nan")):
        with pytest.raises(ValueError, match="min_tpr must lie in"):
            metrics.partial_auroc(scores, labels, max_fpr=0.5, min_tpr=bad)
    with pytest.raises(ValueError, match="standardized is defined only for min_tpr=0"):
        metrics.partial_auroc(scores, labels, max_fpr=0.5, min_tpr=0.5, standardized=True)
    with pytest.raises(ValueError, match=r"scores must have shape \(N,\)"):
        metrics.partial_auroc(scores[:, None], labels[:, None], max_fpr=0.5)
    with pytest.raises(ValueError, match="labels must have shape"):
        metrics.partial_auroc(scores, labels[:2], max_fpr=0.5)
    with pytest.raises(ValueError, match="have no positive"):
        metrics.partial_auroc(scores, labels & False, max_fpr=0.5)
    with pytest.raises(ValueError, match="scores holds 4 NaN"):
        metrics.partial_auroc(scores * torch.nan, labels, max_fpr=0.5)


# groups


@profile
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(-3, 3)), min_size=1, max_size=30
    )
)
def test_worst_group_is_found_by_a_loop(rows):
    accuracy = {
        group: sum(p == y for p, y, g in rows if g == group) / sum(g == group for *_, g in rows)
        for group in {g for *_, g in rows}
    }
    worst = min(accuracy.values())
    first = min(group for group, value in accuracy.items() if value == worst)
    found = metrics.worst_group_accuracy(*torch.tensor(rows).unbind(1))
    assert found == (worst, first)
    assert isinstance(found[1], int)


def test_worst_group_takes_booleans_and_refuses_scores():
    yes, ids = torch.tensor([True, False]), torch.tensor([0, 1])
    assert metrics.worst_group_accuracy(yes, torch.tensor([1, 1]), yes) == (0.0, 0)
    with pytest.raises(ValueError, match=r"predictions must be integers, got torch\.float32"):
        metrics.worst_group_accuracy(ids.float(), ids, ids)
    with pytest.raises(ValueError, match="targets must be integers"):
        metrics.worst_group_accuracy(ids, ids.float(), ids)
    with pytest.raises(ValueError, match="groups must be integers"):
        metrics.worst_group_accuracy(ids, ids, ids.float())
    with pytest.raises(ValueError, match="predictions must have shape"):
        metrics.worst_group_accuracy(ids[:0], ids[:0], ids[:0])
    with pytest.raises(ValueError, match=r"targets must have shape \(2,\)"):
        metrics.worst_group_accuracy(ids, ids[:1], ids)
    with pytest.raises(ValueError, match=r"groups must have shape \(2,\)"):
        metrics.worst_group_accuracy(ids, ids, ids[:1])


# rankings

item = st.tuples(coarse, st.integers(0, 4))


@profile
@given(
    queries=st.lists(st.lists(item, min_size=2, max_size=7), min_size=1, max_size=5),
    k=st.none() | st.integers(1, 9),
)
def test_ndcg_is_scikit_learns_query_by_query(queries, k):
    from sklearn.metrics import ndcg_score

    values = [
        ndcg_score([[2.0**y - 1 for _, y in query]], [[s for s, _ in query]], k=k)
        for query in queries
        if any(y for _, y in query)
    ]
    scores, grades = torch.tensor([pair for query in queries for pair in query]).unbind(1)
    lengths = torch.tensor([len(query) for query in queries])
    if not values:
        with pytest.raises(ValueError, match="grades: no query has a relevant item"):
            metrics.ndcg(scores, grades, lengths, k)
        return
    found = metrics.ndcg(scores, grades, lengths, k)
    assert found == pytest.approx(sum(values) / len(values), abs=1e-12)


def test_ties_in_ndcg_are_the_mean_over_orders():
    grades = [2, 0, 1, 3]
    orders = [
        [grades[0], *(grades[j] for j in middle)] for middle in itertools.permutations((1, 2, 3))
    ]

    def dcg(order):
        return sum((2**y - 1) / np.log2(r + 2) for r, y in enumerate(order[:3]))

    mean = np.mean([dcg(order) for order in orders]) / dcg(sorted(grades, reverse=True))
    scores = torch.tensor([INF, 1.0, 1.0, 1.0])
    found = metrics.ndcg(scores, torch.tensor(grades), torch.tensor([4]), k=3)
    assert found == pytest.approx(mean, abs=1e-12)


def test_ndcg_leaves_out_queries_without_relevant_items():
    scores, grades = torch.tensor([1.0, 2.0, 1.0, 7.0]), torch.tensor([1, 0, 0, 2])
    alone = metrics.ndcg(scores[:2], grades[:2], torch.tensor([2]))
    # a lone relevant item is ranked perfectly; an empty query and an irrelevant item do not count
    lengths = torch.tensor([2, 0, 1, 1], dtype=torch.int32)
    assert metrics.ndcg(scores, grades, lengths) == pytest.approx((alone + 1) / 2)
    assert metrics.ndcg(grades.float().requires_grad_(), grades.float(), lengths) == 1


def test_ndcg_refuses():
    scores, grades, lengths = torch.arange(4.0), torch.tensor([0, 1, 2, 0]), torch.tensor([1, 3])
    with pytest.raises(ValueError, match=r"scores must have shape \(N,\)"):
        metrics.ndcg(scores[None], grades, lengths)
    with pytest.raises(ValueError, match=r"grades must have shape \(4,\)"):
        metrics.ndcg(scores, grades[:3], lengths)
    with pytest.raises(ValueError, match=r"lengths must have shape \(Q,\)"):
        metrics.ndcg(scores, grades, lengths[None])
    with pytest.raises(ValueError, match="lengths must be integers"):
        metrics.ndcg(scores, grades, lengths.float())
    for bad in ([1, 2], [5, -1]):
        with pytest.raises(ValueError, match="lengths must be at least 0 and sum to 4"):
            metrics.ndcg(scores, grades, torch.tensor(bad))
    with pytest.raises(ValueError, match="grades must be at least 0, got -1"):
        metrics.ndcg(scores, grades - 1, lengths)
    with pytest.raises(ValueError, match="grades holds 1 infinite"):
        metrics.ndcg(scores, torch.tensor([0, INF, 0, 0]), lengths)
    with pytest.raises(ValueError, match=r"grades: 2\^y overflows at y = 2000"):
        metrics.ndcg(scores, grades * 1000, lengths)
    with pytest.raises(ValueError, match="scores holds 4 NaN"):
        metrics.ndcg(scores * torch.nan, grades, lengths)
    with pytest.raises(ValueError, match="k must be at least 1, got 0"):
        metrics.ndcg(scores, grades, lengths, k=0)


# survival


@pytest.fixture(scope="module")
def lifelines_index():
    with warnings.catch_warnings():
        # its dependencies warn as they are imported
        warnings.simplefilter("ignore")
        lifelines = pytest.importorskip("lifelines.utils")
    return lambda risk, times, events: lifelines.concordance_index(
        times.numpy(), -risk.numpy(), events.numpy()
    )


def loop_index(risk, times, events):
    known = right = 0.0
    for i, j in itertools.permutations(range(len(risk)), 2):
        if events[i] and (times[i] < times[j] or (times[i] == times[j] and not events[j])):
            known += 1
            right += 1.0 if risk[i] > risk[j] else 0.5 if risk[i] == risk[j] else 0.0
    return right / known if known else None


subjects = st.lists(st.tuples(coarse, st.integers(1, 4), st.booleans()), min_size=1, max_size=10)


@profile
@given(rows=subjects, pairs=st.integers(1, 30))
def test_concordance_is_its_definition(rows, pairs):
    risk, times, events = (torch.tensor(column) for column in zip(*rows, strict=True))
    truth = loop_index(risk, times, events)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(survival, "_PAIRS", pairs)
        if truth is None:
            with pytest.raises(ValueError, match="events: no pair has a known order"):
                metrics.concordance_index(risk, times, events)
            return
        found = metrics.concordance_index(risk, times, events)
    assert found == pytest.approx(truth, abs=1e-12)


@pytest.mark.parametrize("size", [10, 200, 10_000])
def test_concordance_is_that_of_lifelines(lifelines_index, size):
    times = torch.rand(size, generator=rng()).mul(500).ceil()
    risk = (-times / 300 + torch.randn(size, generator=rng(1))).mul(20).round()
    events = torch.rand(size, generator=rng(2)) < 0.6
    found = metrics.concordance_index(risk, times, events)
    assert 0.5 < found < 1
    assert found == pytest.approx(lifelines_index(risk, times, events), abs=1e-12)
    assert metrics.concordance_index(-risk, times, events) == pytest.approx(1 - found, abs=1e-12)


def test_concordance_refuses():
    risk, times, events = torch.zeros(3), torch.arange(3.0), torch.ones(3, dtype=torch.bool)
    assert metrics.concordance_index(risk, times, events) == 0.5
    with pytest.raises(ValueError, match="risk must have shape"):
        metrics.concordance_index(risk[:, None], times, events)
    with pytest.raises(ValueError, match=r"times must have shape \(3,\)"):
        metrics.concordance_index(risk, times[:2], events)
    with pytest.raises(ValueError, match=r"events must have shape \(3,\)"):
        metrics.concordance_index(risk, times, events[:2])
    with pytest.raises(ValueError, match="events must be booleans"):
        metrics.concordance_index(risk, times, events.long())
    with pytest.raises(ValueError, match="risk holds 3 NaN"):
        metrics.concordance_index(risk * torch.nan, times, events)
    with pytest.raises(ValueError, match="times holds 3 NaN"):
        metrics.concordance_index(risk, times * torch.nan, events)
    with pytest.raises(ValueError, match="no pair has a known order"):
        metrics.concordance_index(risk, times, ~events)


# embeddings


def far(a, b, metric):
    if metric == "cosine":
        return 1 - float(a @ b / (a.norm() * b.norm()))
    return float((a - b).square().sum())


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("k", [1, 4])
def test_knn_accuracy_is_a_vote(metric, k):
    classes = torch.arange(40) % 3
    centres = torch.randn(3, 5, generator=rng()) / 2
    points = centres[classes] + torch.randn(40, 5, generator=rng(1))
    new = centres[classes] + torch.randn(40, 5, generator=rng(2))
    right = 0
    for point, own in zip(new.double(), classes, strict=True):
        order = sorted(range(40), key=lambda j: far(point, points[j].double(), metric))
        votes = torch.bincount(classes[order[:k]], minlength=3)
        right += int(votes.argmax() == own)
    found = metrics.knn_accuracy(points, classes, new, classes, k, metric=metric)
    assert 0.4 < found < 1
    assert found == pytest.approx(right / 40)


def test_the_metric_of_a_neighbour_matters():
    points, classes = torch.tensor([[10.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1])
    new, own = torch.tensor([[1.0, 0.5]], requires_grad=True), torch.tensor([0])
    assert metrics.knn_accuracy(points, classes, new, own, k=1) == 1
    assert metrics.knn_accuracy(points, classes, new, own, k=1, metric="euclidean") == 0
    twin = torch.cat([new, 10 * new, torch.tensor([[1.0, 0.0]])])
    labels = torch.tensor([0, 0, 1])
    assert metrics.recall_at_k(twin, labels, 1) == pytest.approx(2 / 3)
    assert metrics.recall_at_k(twin, labels, 1, metric="euclidean") == pytest.approx(1 / 3)
    assert metrics.retrieval_recall(new, torch.cat([3 * points[:1], points[1:]]), 1) == 1
    assert metrics.retrieval_recall(new, points, 1, metric="euclidean") == 0


def chance_of_a_hit(distances, wanted, k):
    """Mean over all orders in which equals may come."""
    orders = [
        order
        for order in itertools.permutations(range(len(distances)))
        if all(distances[a] <= distances[b] for a, b in itertools.pairwise(order))
    ]
    return sum(any(wanted[j] for j in order[:k]) for order in orders) / len(orders)


grid = st.tuples(st.integers(0, 1), st.integers(0, 2))


@settings(deadline=None, max_examples=40)
@given(
    rows=st.lists(st.tuples(grid, st.integers(0, 2)), min_size=2, max_size=6),
    k=st.integers(1, 5),
    pairs=st.integers(1, 20),
)
def test_recall_is_the_mean_over_orders_of_equals(rows, k, pairs):
    points, classes = torch.tensor([p for p, _ in rows]).float(), torch.tensor([c for _, c in rows])
    k = min(k, len(rows) - 1)
    expected = 0.0
    for i in range(len(rows)):
        others = [j for j in range(len(rows)) if j != i]
        distances = [far(points[i], points[j], "euclidean") for j in others]
        expected += chance_of_a_hit(distances, [bool(classes[j] == classes[i]) for j in others], k)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedding, "_PAIRS", pairs)
        found = metrics.recall_at_k(points, classes, k, metric="euclidean")
    assert found == pytest.approx(expected / len(rows), abs=1e-9)


@settings(deadline=None, max_examples=40)
@given(
    rows=st.lists(st.tuples(grid, grid), min_size=1, max_size=4),
    more=st.lists(grid, max_size=2),
    k=st.integers(1, 6),
    pairs=st.integers(1, 20),
)
def test_retrieval_is_the_mean_over_orders_of_equals(rows, more, k, pairs):
    queries = torch.tensor([q for q, _ in rows]).float()
    gallery = torch.tensor([*(g for _, g in rows), *more]).float()
    k = min(k, len(gallery))
    expected = 0.0
    for i, query in enumerate(queries):
        distances = [far(query, other, "euclidean") for other in gallery]
        expected += chance_of_a_hit(distances, [j == i for j in range(len(gallery))], k)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedding, "_PAIRS", pairs)
        found = metrics.retrieval_recall(queries, gallery, k, metric="euclidean")
    assert found == pytest.approx(expected / len(rows), abs=1e-9)


@pytest.mark.parametrize("k", [1, 3, 10])
def test_cosine_recalls_are_those_of_sorted_similarities(k):
    classes = torch.arange(90) % 9
    points = torch.randn(90, 6, generator=rng()) + torch.randn(9, 6, generator=rng(1))[classes]
    unit = torch.nn.functional.normalize(points.double())
    similar = unit @ unit.T
    order = similar.clone().fill_diagonal_(-INF).argsort(dim=1, descending=True)[:, :k]
    expected = (classes[order] == classes[:, None]).any(1).double().mean()
    assert metrics.recall_at_k(points, classes, k) == pytest.approx(float(expected))
    noisy = points + torch.randn(90, 6, generator=rng(2))
    similar = torch.nn.functional.normalize(noisy.double()) @ unit.T
    order = similar.argsort(dim=1, descending=True)[:, :k]
    expected = (order == torch.arange(90)[:, None]).any(1).double().mean()
    assert metrics.retrieval_recall(noisy, points, k) == pytest.approx(float(expected))


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_collapsed_embeddings_get_what_chance_gets(metric):
    """Also where a matrix product would round equal points differently."""
    points = torch.randn(1, 17, generator=rng()).expand(1001, 17)
    assert metrics.retrieval_recall(points, points, 5, metric=metric) == pytest.approx(5 / 1001)
    classes = torch.arange(1001) % 7
    # 1001 = 7 x 143: 142 partners among 1000 others
    assert metrics.recall_at_k(points, classes, 1, metric=metric) == pytest.approx(142 / 1000)


def test_a_point_alone_in_its_class_is_a_miss():
    points = torch.tensor([[1.0], [2.0], [3.0]])
    assert metrics.recall_at_k(points, torch.arange(3), 2, metric="euclidean") == 0
    assert metrics.recall_at_k(points, torch.tensor([0, 0, 1]), 2, metric="euclidean") == (
        pytest.approx(2 / 3)
    )


def test_embedding_metrics_refuse():
    points, classes = torch.randn(6, 3, generator=rng()), torch.arange(6) % 2
    knn, recall, retrieval = metrics.knn_accuracy, metrics.recall_at_k, metrics.retrieval_recall
    for k in (0, 7):
        with pytest.raises(ValueError, match=f"k must be between 1 and 6, got {k}"):
            knn(points, classes, points, classes, k)
        with pytest.raises(ValueError, match=f"k must be between 1 and 6, got {k}"):
            retrieval(points, points, k)
    with pytest.raises(ValueError, match="k must be between 1 and 5, got 6"):
        recall(points, classes, 6)
    with pytest.raises(ValueError, match="embeddings must hold at least 2 points"):
        recall(points[:1], classes[:1], 1)
    with pytest.raises(ValueError, match=r"gallery must hold the 6 matches, got 5"):
        retrieval(points, points[:5], 1)
    for call in (
        lambda: knn(points, classes, points[:, :2], classes),
        lambda: knn(points, classes, points[0], classes),
        lambda: recall(points[0], classes, 1),
    ):
        with pytest.raises(ValueError, match=r"^embeddings must have shape \(N, "):
            call()
    with pytest.raises(ValueError, match=r"gallery must have shape \(M, 3\)"):
        retrieval(points, points[:, :2], 1)
    with pytest.raises(ValueError, match="train_embeddings must have shape"):
        knn(points[0], classes, points, classes)
    with pytest.raises(ValueError, match=r"train_classes must have shape \(6,\)"):
        knn(points, classes[:2], points, classes)
    with pytest.raises(ValueError, match="train_classes must be integers"):
        knn(points, classes.float(), points, classes)
    for call in (
        lambda bad: knn(points, classes, points, bad),
        lambda bad: recall(points, bad, 1),
    ):
        with pytest.raises(ValueError, match=r"^classes must have shape \(6,\)"):
            call(classes[:2])
        with pytest.raises(ValueError, match=r"^classes must be integers"):
            call(classes.float())
    for bad, words in (
        (points * torch.nan, "holds 18 NaN"),
        (points / 0, "holds 18 infinite"),
        (points * 0, r"rows \[0, 1, 2, 3, 4, 5\] are zero"),
    ):
        for name, call in (
            ("train_embeddings", lambda bad: knn(bad, classes, points, classes)),
            ("embeddings", lambda bad: knn(points, classes, bad, classes)),
            ("embeddings", lambda bad: recall(bad, classes, 1)),
            ("queries", lambda bad: retrieval(bad, points, 1)),
            ("gallery", lambda bad: retrieval(points, bad, 1)),
        ):
            with pytest.raises(ValueError, match=rf"^{name}:? {words}"):
                call(bad)
    with pytest.raises(ValueError, match='metric must be "cosine" or "euclidean"'):
        recall(points, classes, 1, metric="manhattan")


def test_the_package_needs_torch_alone():
    code = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(('sklearn', 'torchmetrics', 'lifelines'), None))\n"
        "import torch, fcco.metrics as m\n"
        "assert m.ndcg(torch.ones(1), torch.ones(1), torch.tensor([1])) == 1\n"
        "assert m.retrieval_recall(torch.eye(2), torch.eye(2), 1) == 1\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
