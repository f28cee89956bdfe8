"""Bad or empty labels and settings are named; old constructors say what to write instead."""

import math
import pickle

import numpy as np
import pytest
import torch

import fcco
from fcco import data as D
from fcco import objectives as O

N = 12
LABELS = torch.arange(N) % 2
TIMES = torch.arange(N).double() % 5
GRADES, LENGTHS = torch.arange(N) % 3, torch.tensor([5, 4, 3])
GROUPS = torch.arange(N) % 4
TARGETS = torch.zeros(N, dtype=torch.int64)

LABELLED = {
    "AUC": O.AUC,
    "AveragePrecision": O.AveragePrecision,
    "PartialAUC": lambda labels: O.PartialAUC(labels, temperature=1.0),
    "PNormPush": O.PNormPush,
    "MultiTaskAUC": lambda labels: O.MultiTaskAUC(labels),
    "MultiTaskGap": lambda labels: O.MultiTaskGap(labels),
}


@pytest.mark.parametrize("name", LABELLED)
@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.array(["a", "b"] * 6), "labels must be a tensor or an array of numbers"),
        (np.array([None, 1] * 6, dtype=object), "labels must be a tensor or an array of numbers"),
        (np.zeros(N, dtype="M8[s]"), "labels must be a tensor or an array of numbers"),
        (None, "labels must be a tensor or an array of numbers"),
        ({0, 1}, "labels must be a tensor or an array of numbers"),
        (torch.zeros(N, 2, 2), r"labels must have shape \(N,\) or \(N, T\), got \(12, 2, 2\)"),
        (torch.zeros(N, 0), r"labels must have shape \(N,\) or \(N, T\), got \(12, 0\)"),
        (torch.zeros(0, 2), r"labels must have shape \(N,\) or \(N, T\), got \(0, 2\)"),
        (2 * LABELS[:, None], "labels must be 0 or 1, or -1 or NaN where missing; sample 1, task 0 "
                              "has 2"),
        (torch.full((N, 1), 0.5), "sample 0, task 0 has 0.5"),
        (LABELS[:, None] + 1j, "sample 0, task 0 has 1j"),
        (torch.full((N, 2), -torch.inf), "sample 0, task 0 has -inf"),
    ],
)  # fmt: skip
def test_labels(name, labels, message):
    with pytest.raises(ValueError, match=message):
        LABELLED[name](labels)


@pytest.mark.parametrize("kind", [O.MultiTaskAUC, O.MultiTaskGap])
@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.zeros(N), "must be integers .*the class of each sample.* or booleans .*float32"),
        (LABELS - 1, "labels must be whole numbers that are not negative, got -1 at 0"),
        (np.where(LABELS > 0, np.uint64(2**64 - 1), np.uint64(0)), "labels must be whole numbers"),
        (LABELS * 10**12, "1000000000001 classes of 12 samples are too many tasks"),
        (torch.zeros(0).long(), "labels: no task has both"),
        (torch.zeros(N).long(), "labels: no task has both"),
    ],
)
def test_classes(kind, labels, message):
    with pytest.raises(ValueError, match=message):
        kind(labels)


REFUSALS = {
    "times of another length": (
        lambda: O.Cox(TIMES, LABELS[:3]),
        r"events must have shape \(12,\)",
    ),
    "times of two dimensions": (
        lambda: O.Cox(TIMES[:, None], LABELS),
        r"times must have shape \(N",
    ),
    "times nan": (lambda: O.Cox(TIMES * torch.nan, LABELS), "times must be finite .* nan at 0"),
    "times infinite": (lambda: O.Cox(TIMES + torch.inf, LABELS), "times must be finite numbers"),
    "complex times": (
        lambda: O.Cox(TIMES + 0j, LABELS),
        "times must be finite numbers, got .*compl",
    ),
    "times of words": (lambda: O.Cox(["a"] * N, LABELS), "times must be a tensor or an array"),
    "no times": (lambda: O.Cox([], []), "events: no event was observed"),
    "only censoring": (lambda: O.Cox(TIMES, 0 * LABELS), "events: no event was observed"),
    "events of 2": (lambda: O.Cox(TIMES, 2 * LABELS), "events must be 0 or 1, got 2 at 1"),
    "events missing": (lambda: O.Cox(TIMES, -LABELS), "events must be 0 or 1, got -1 at 1"),
    "ties": (lambda: O.Cox(TIMES, LABELS, ties="exact"), "ties must be .* got 'exact'"),
    "grades of another length": (
        lambda: O.NDCG(GRADES[:3], LENGTHS),
        "lengths must add up to the 3",
    ),
    "lengths of another sum": (lambda: O.ListNet(GRADES, LENGTHS[:2]), "they add up to 9"),
    "lengths: one number": (lambda: O.NDCG(GRADES, N), r"lengths must have shape \(N,\), got \(\)"),
    "lengths below 0": (lambda: O.NDCG(GRADES, [-12, 24]), "lengths must be whole numbers"),
    "empty lists": (lambda: O.NDCG(GRADES, [5, 0, 7, 0]), r"lists \[1, 3\] are empty"),
    "nothing relevant": (lambda: O.NDCG(0 * GRADES, LENGTHS), "grades: no item is relevant"),
    "grades below 0": (lambda: O.ListNet(GRADES - 1, LENGTHS), "grades must be finite and not neg"),
    "grades nan": (lambda: O.NDCG(GRADES / 0, LENGTHS), "grades must be finite numbers, got nan"),
    "grades too large": (lambda: O.NDCG(GRADES * 600, LENGTHS), "2.y overflows at y = 1200"),
    "list weights": (
        lambda: O.NDCG(GRADES, LENGTHS, weights=[1, 2]),
        r"weights must have shape \(3",
    ),
    "list weights of 0": (
        lambda: O.ListNet(GRADES, LENGTHS, weights=[1, 0, 1]),
        "weights .* above 0",
    ),
    "top_k": (lambda: O.NDCG(GRADES, LENGTHS, top_k=0), "top_k must be positive and finite, got 0"),
    "top_k of a half": (lambda: O.NDCG(GRADES, LENGTHS, top_k=1.5), "top_k must be a whole number"),
    "softness": (lambda: O.NDCG(GRADES, LENGTHS, softness=0.0), "softness must be positive"),
    "no samples": (lambda: O.DRO(0, temperature=1.0), "num_samples must be positive"),
    "half a sample": (lambda: O.CVaR(2.5, fraction=0.5), "num_samples must be a whole number"),
    "fraction": (lambda: O.CVaR(3, fraction=0.0), r"fraction must lie in \(0, 1\], got 0.0"),
    "group fraction": (lambda: O.GroupCVaR(GROUPS, fraction=1.5), r"fraction must lie in \(0, 1\]"),
    "temperature": (lambda: O.DRO(3, temperature=0.0), "temperature must be positive and finite"),
    "infinite temperature": (
        lambda: O.GroupDRO(GROUPS, temperature=torch.inf),
        "temperature must be",
    ),
    "auc temperature": (lambda: O.AUC(LABELS, temperature=-1.0), "temperature must be positive"),
    "cross_entropy": (
        lambda: O.AUC(LABELS, cross_entropy=-0.1),
        "cross_entropy must be at least 0",
    ),
    "margin": (
        lambda: O.MultiTaskAUC(GROUPS, margin=0.0),
        "margin must be positive and finite, got 0.0",
    ),
    "margin without end": (lambda: O.MultiTaskAUC(GROUPS, margin=torch.inf), "margin must be pos"),
    "temperature of a word": (
        lambda: O.AUC(LABELS, temperature="1"),
        "temperature must be positive and finite, got '1'",
    ),
    "no temperature": (lambda: O.AUC(LABELS, temperature=None), "temperature must be .* got None"),
    "sigmoid that decreases": (lambda: O.Sigmoid(temperature=-1.0), "temperature must be positive"),
    "sigmoid without a slope": (lambda: O.Sigmoid(temperature=0.0), "temperature must be positive"),
    "hinge": (lambda: O.SquaredHinge(margin=math.nan), "margin must be a finite number, got nan"),
    "square": (lambda: O.Squared(margin=math.inf), "margin must be a finite number, got inf"),
    "cap": (lambda: O.Exponential(cap="20"), "cap must be a finite number, got '20'"),
    "power": (lambda: O.PNormPush(LABELS, power=0.5), "power must be at least 1, got 0.5"),
    "two_way": (
        lambda: O.PartialAUC(LABELS, temperature=1.0, two_way=0.0),
        "two_way must be positive",
    ),
    "both rates": (
        lambda: O.PartialAUC(LABELS, temperature=1.0, max_fpr=0.3, min_tpr=0.8),
        "max_fpr and min_tpr together are the two-way partial AUC: give two_way too",
    ),
    "no classes": (lambda: O.NCA(torch.zeros(0).long()), "classes is empty"),
    "fractional classes": (lambda: O.NCA(torch.full((N,), 0.9)), "classes must be whole numbers"),
    "one pair": (lambda: O.GlobalContrastive(1, temperature=0.1), "num_samples must be at least 2"),
    "learned": (
        lambda: O.GlobalContrastive(9, temperature=0.1, learned="all"),
        "learned must be .* 'all'",
    ),
    "no groups": (lambda: O.GroupDRO(GROUPS[:0], temperature=1.0), "groups is empty"),
    "groups of another type": (
        lambda: O.GroupDRO(GROUPS.float(), temperature=1.0),
        "groups must be whole numbers",
    ),
    "groups below 0": (
        lambda: O.GroupDRO(GROUPS - 1, temperature=1.0),
        "groups must be .* not negat",
    ),
    "groups with a gap": (
        lambda: O.GroupDRO(LABELS * 10**12, temperature=1.0),
        r"groups \[1, 2, .*\] have no sample",
    ),
    "targets: one number": (
        lambda: O.GroupDRO(GROUPS, 3, temperature=1.0),
        r"targets of shape \(\)",
    ),
    "targets of another length": (
        lambda: O.GroupDRO(GROUPS, TARGETS[:5], temperature=1.0),
        r"targets of shape \(5,\)",
    ),
    "bags with a gap": (lambda: O.AttentionPooling([0, 2], [0, 1]), r"bags \[1\] have no sample"),
    "labels of bags": (lambda: O.SoftmaxPooling(GROUPS, [0, 1]), "4 bags have 2 labels"),
    "missing labels of bags": (lambda: O.SoftmaxPooling([0, 1], [0, -1]), "labels must be 0 or 1"),
    "penalty": (
        lambda: O.ConstraintPenalty(GROUPS, constraint=len, penalty=0.0),
        "penalty must be positive",
    ),
    "exact samples": (lambda: O.IWAE(3, exact_samples=0), "exact_samples must be positive"),
    "points": (lambda: O.IWAE(2.5), "num_samples must be a whole number, got 2.5"),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_refusals_name_the_argument(what):
    call, message = REFUSALS[what]
    with pytest.raises(ValueError, match=message):
        call()


# Names and calls of 0.2 ---------------------------------------------------------------------------

OLD_CALLS = {
    "Cox": lambda: O.Cox(5, 10),
    "MultiTaskAUC": lambda: O.MultiTaskAUC(3),
    "MultiTaskAUC with a margin": lambda: O.MultiTaskAUC(3, margin=0.5),
    "MultiTaskGap": lambda: O.MultiTaskGap(3),
    "PNormPush": lambda: O.PNormPush(7),
    "NCA": lambda: O.NCA(9),
    "GroupDRO": lambda: O.GroupDRO(3, temperature=0.5),
    "GroupCVaR": lambda: O.GroupCVaR(3, fraction=0.5),
    "SoftmaxPooling": lambda: O.SoftmaxPooling(torch.tensor([0, 1, 1]), 4),
}


@pytest.mark.parametrize("name", OLD_CALLS)
def test_a_number_in_the_place_of_labels_says_what_objectives_are_built_from(name):
    with pytest.raises(ValueError, match=r"since 0\.3 objectives are built from labels"):
        OLD_CALLS[name]()


@pytest.mark.parametrize(
    "call",
    [
        lambda: O.AveragePrecision(3, 9),
        lambda: O.AveragePrecision(3, num_samples=9),
        lambda: O.Cox(5, 10, max_ties=2),
        lambda: O.GlobalContrastive(9, 0.1),
        lambda: O.GroupDRO(3),
    ],
)
def test_other_old_calls_do_not_pass(call):
    with pytest.raises(TypeError, match="argument"):
        call()


OLD_NAMES = {
    "AnchorData": r"Cox\(times, events\).*block_loader\(inputs, objective",
    "TaskData": r"MultiTaskAUC\(labels\).*block_loader\(inputs, objective",
    "ListData": r"NDCG\(grades, lengths\)",
    "GroupData": r"GroupDRO\(groups, targets, temperature=",
    "ViewData": r"a pair \(first, second\).*GlobalContrastive",
    "PointData": r"IWAE\(num_samples\)",
    "BlockData": "SampledObjective",
    "Survival": "fcco_lab.datasets.records",
    "imbalanced": "fcco_lab.datasets.imbalance",
}


@pytest.mark.parametrize("name", OLD_NAMES)
def test_old_data_sets_say_the_new_call(name):
    with pytest.raises(AttributeError, match=f"fcco.data.{name} .*{OLD_NAMES[name]}"):
        getattr(D, name)


def test_what_old_messages_point_to_is_there():
    from fcco.problem import SampledObjective
    from fcco_lab.datasets.imbalance import binary, imbalanced
    from fcco_lab.datasets.records import Classified, Ranked, Survival

    assert all((SampledObjective, binary, imbalanced, Classified, Ranked, Survival))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ExponentialAUC", r"is now fcco.objectives.AUC\(labels\)"),
        ("OneWayPartialAUC", r"is now fcco.objectives.PartialAUC\(labels, temperature=...\)"),
        ("TwoWayPartialAUC", r"PartialAUC\(labels, temperature=..., two_way=...\), where temp"),
    ],
)
def test_old_objectives_say_the_new_call(name, message):
    with pytest.raises(AttributeError, match=message):
        getattr(O, name)


def test_packages_say_where_they_went():
    with pytest.raises(AttributeError, match=r"use objective.metric\(scores\)"):
        _ = fcco.metrics
    with pytest.raises(AttributeError, match=r"fcco.TaskBatch is gone .*fcco.PairBatch"):
        _ = fcco.TaskBatch
    with pytest.raises(AttributeError, match=r"fcco.problems is gone .*fcco_lab.theory"):
        _ = fcco.problems
    with pytest.raises(AttributeError, match=r"fcco.testing is gone .*tests/support"):
        _ = fcco.testing


def test_modules_still_answer_what_they_have():
    for module, name in ((fcco, "metrics"), (D, "TaskData"), (O, "ExponentialAUC")):
        assert not hasattr(module, name)
        assert not hasattr(module, "__wrapped__")
        with pytest.raises(
            AttributeError, match=f"module '{module.__name__}' has no attribute 'x'"
        ):
            _ = module.x
    objective = pickle.loads(pickle.dumps(O.Cox(TIMES, LABELS)))
    assert objective.exact(TIMES).equal(O.Cox(TIMES, LABELS).exact(TIMES))


def test_no_label_is_missing_by_arithmetic():
    """255 in uint8 is -1 by wrapping; a user's label is never changed."""
    with pytest.raises(ValueError, match="has 255"):
        O.AUC(torch.tensor([1, 0, 255], dtype=torch.uint8))


def test_large_unsigned_times_do_not_tie():
    times = torch.tensor([2**53, 2**53 + 1, 2**53 + 2], dtype=torch.uint64)
    objective = O.Cox(times, [1, 1, 1])
    assert objective.max_ties == 1


def test_absurd_weights_are_named():
    for weight in (1e308, 1e-310, -1.0, float("nan")):
        with pytest.raises(ValueError, match="weight must be finite and not negative"):
            O.AUC([1, 0]).exact(torch.zeros(2), [1.0, weight])


def test_scores_that_overflow_the_objective_are_an_error():
    with pytest.raises(FloatingPointError, match="1e\\+300"):
        O.PNormPush([1, 0]).exact(torch.tensor([0.0, 1e300], dtype=torch.float64))


def test_a_small_weight_beside_far_scores():
    """The logarithm of a weight spreads the terms as well as a score does."""
    objective = O.Cox([6.0, 5, 4, 3, 2, 1], [1] * 6)
    h = torch.tensor([-590.0, 0, 0, 0, 0, -1], dtype=torch.float64)
    w = torch.tensor([1e-100, 1, 1, 1, 1, 1], dtype=torch.float64)
    logs = [(h[: k + 1] + w[: k + 1].log()).logsumexp(0) for k in range(6)]
    expected = sum(w[k] * (logs[k] - h[k]) for k in range(6)) / w.sum()
    torch.testing.assert_close(objective.exact(h, w), expected)
