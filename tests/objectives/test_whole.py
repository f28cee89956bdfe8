"""Exact values without all pairs, against all pairs."""

import math
from dataclasses import replace

import pytest
import torch
from objectives.zoo import CASES, CLASSES, EVENTS, GRADES, GROUPS, LENGTHS, TARGETS, TIMES, X, Y, Z
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fcco import data as D
from fcco import objectives as O
from fcco.data import exact_pass, exact_value
from fcco.kernel.rows import rows_of

GENERATOR = torch.Generator().manual_seed(11)


def normal(*size):
    return torch.randn(size, generator=GENERATOR, dtype=torch.float64)


class Cubic(O.Surrogate):
    """A user's own, for which nobody wrote ``sums``."""

    def __call__(self, s):
        return (2 + s).clamp(min=0) ** 3


class Steeper(O.SquaredHinge):
    """A user's change of a surrogate whose ``sums`` must not be used any more."""

    def __call__(self, s):
        return (self.margin + 2 * s).clamp(min=0).square()


def softplus(s):
    return max(s, 0.0) + math.log1p(math.exp(-abs(s)))


def logistic(s):
    return 1 / (1 + math.exp(-s)) if s > -700 else 0.0


SURROGATES = {
    "hinge": (O.SquaredHinge(), lambda s: max(1 + s, 0) ** 2),
    "narrow hinge": (O.SquaredHinge(0.01), lambda s: max(0.01 + s, 0) ** 2),
    "square": (O.Squared(0.5), lambda s: (0.5 + s) ** 2),
    "logistic": (O.Logistic(), lambda s: softplus(s) / math.log(2)),
    "sigmoid": (O.Sigmoid(), logistic),
    "steep sigmoid": (O.Sigmoid(0.003), lambda s: logistic(s / 0.003)),
    "flat sigmoid": (O.Sigmoid(50.0), lambda s: logistic(s / 50)),
    "exponential": (
        O.Exponential(2.0),
        lambda s: math.exp(s) if s <= 2 else math.exp(2) * (1 + s - 2),
    ),
    "own": (Cubic(), lambda s: max(2 + s, 0) ** 3),
}
SCORES = {
    "normal": (normal(300), normal(200)),
    "ties": (normal(300).round(), normal(200).round()),
    "whole": ((100 * normal(300)).round(), (100 * normal(200)).round()),
    "wide": (100 * normal(300), 100 * normal(200)),
    "one cell": (normal(300), 0.01 * normal(200)),
    "clusters": (normal(300) + 90 * (normal(300) > 0), normal(200) - 90 * (normal(200) > 0)),
    "single": (normal(1), normal(1)),
}


@pytest.mark.parametrize("scores", SCORES)
@pytest.mark.parametrize("name", SURROGATES)
def test_sums_over_pairs(name, scores):
    surrogate, truth = SURROGATES[name]
    partners, anchors = SCORES[scores]
    expected = [math.fsum(truth(p - a) for p in partners.tolist()) for a in anchors.tolist()]
    found = surrogate.sums(partners, anchors)
    torch.testing.assert_close(
        found, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-14
    )


def test_sums_of_hinges_do_not_cancel():
    """Whole numbers of 1e7 with differences of 1: integer arithmetic is the truth."""
    partners = [10**7 + k * k % 97 for k in range(500)] + [-(10**7), 0]
    anchors = [10**7 + k for k in range(0, 99, 7)]
    expected = [sum(max(1 + p - a, 0) ** 2 for p in partners) for a in anchors]
    found = O.SquaredHinge().sums(torch.tensor(partners), torch.tensor(anchors))
    assert found.tolist() == expected


# Exact values -----------------------------------------------------------------------------------

N = 240
WIDE = normal(N, 4)
LABELS = torch.rand(N, generator=GENERATOR) < 0.2
MANY = torch.rand((N, 3), generator=GENERATOR) < 0.3
LONG = torch.randint(30, (N,), generator=GENERATOR).double()
DEAD = torch.rand(N, generator=GENERATOR) < 0.6
POSITIVES = int(LABELS.sum())
SURVIVAL = {
    ties: D.AnchorData.survival(WIDE, LONG, DEAD, ties=ties) for ties in ("breslow", "efron")
}
KINDS = torch.randint(5, (N,), generator=GENERATOR)
KINDS[0] = 5  # alone in its class
OTHER = WIDE + 0.3 * normal(N, 4)


def heated(objective):
    with torch.no_grad():
        objective.temperatures.copy_(torch.linspace(0.05, 0.9, len(objective.temperatures)))
    return objective


PROBLEMS = {
    "precision": (
        D.AnchorData.average_precision(WIDE, LABELS),
        O.AveragePrecision(POSITIVES, N),
        1,
    ),
    "sigmoid precision": (
        D.AnchorData.average_precision(WIDE, LABELS),
        O.AveragePrecision(POSITIVES, N, O.Sigmoid(0.1)),
        1,
    ),
    "own precision": (
        D.AnchorData.average_precision(WIDE, LABELS),
        O.AveragePrecision(POSITIVES, N, Cubic()),
        1,
    ),
    "changed precision": (
        D.AnchorData.average_precision(WIDE, LABELS),
        O.AveragePrecision(POSITIVES, N, Steeper()),
        1,
    ),
    "mean precision": (
        D.AnchorData.average_precision(WIDE, MANY),
        O.AveragePrecision(MANY.sum(0), N, O.Logistic()),
        3,
    ),
    "push": (D.AnchorData.negatives(WIDE, LABELS), O.PNormPush(N - POSITIVES, 3.0), 1),
    "exponential push": (
        D.AnchorData.negatives(WIDE, LABELS),
        O.PNormPush(N - POSITIVES, 2.0, O.Exponential(1.0)),
        1,
    ),
    "one-way": (
        D.AnchorData.positives(WIDE, LABELS),
        O.OneWayPartialAUC(POSITIVES, N - POSITIVES, 0.02),
        1,
    ),
    "one-way, logistic": (
        D.AnchorData.positives(WIDE, LABELS),
        O.OneWayPartialAUC(POSITIVES, N - POSITIVES, 0.5, O.Logistic()),
        1,
    ),
    "two-way": (
        D.AnchorData.positives(WIDE, LABELS),
        O.TwoWayPartialAUC(POSITIVES, N - POSITIVES, 2.0, 0.5),
        1,
    ),
    "breslow": (SURVIVAL["breslow"], O.Cox(int(DEAD.sum()), N), 1),
    "efron": (SURVIVAL["efron"], O.Cox(int(DEAD.sum()), N, SURVIVAL["efron"].max_ties), 1),
    "neighbours": (D.AnchorData.neighbours(WIDE, KINDS), O.NCA(N), 3),
    "neighbours, logarithm": (
        D.AnchorData.neighbours(WIDE, KINDS),
        O.NCA(N, 0.3, logarithm=True),
        1,
    ),
    "views": (
        D.ViewData(WIDE, OTHER, two_way=True),
        O.GlobalContrastive(N, temperature=0.05, two_way=True),
        3,
    ),
    "views, one way": (
        D.ViewData(WIDE, OTHER, two_way=False),
        O.GlobalContrastive(N, temperature=0.5, two_way=False, common=True).double(),
        3,
    ),
    "views, temperatures": (
        D.ViewData(WIDE, OTHER, two_way=True),
        heated(O.GlobalContrastive(N, temperature=0.3, two_way=True, individual=True).double()),
        3,
    ),
    "dropped": (
        D.AnchorData(WIDE, torch.arange(N), [torch.arange(0, N, 2)]),
        O.PNormPush(N, 2.0),
        1,
    ),
}


def by_chunks(model, data, objective):
    """F from the pairs of an exact pass."""
    form = rows_of(objective)
    with torch.no_grad():
        probes = [call() for call in exact_pass(model, data, objective, chunk_size=7)]
        rows = torch.cat([form.of(probe, torch.float64) for probe in probes])
        blocks = torch.cat([probe.blocks for probe in probes])
        return form.outer(rows, blocks).mean().item()


@pytest.mark.parametrize("spread", [1e-3, 1.0, 300.0])
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_value_without_pairs_is_the_value_of_all_pairs(name, spread, monkeypatch):
    data, objective, outputs = PROBLEMS[name]
    torch.manual_seed(0)
    model = nn.Linear(4, outputs).double()
    model.weight.data *= spread
    model.bias.data += 1e6 * (spread == 1.0)
    truth = by_chunks(model, data, objective)
    monkeypatch.setattr(type(data), "chunk", None)  # no chunk, no pairs
    assert exact_value(model, data, objective) == pytest.approx(truth, rel=1e-11, abs=1e-12)


def test_an_objective_with_an_inner_of_its_own_is_seen_through_it():
    class Doubled(O.AveragePrecision):
        def inner(self, model, batch):
            probe = super().inner(model, batch)
            return replace(probe, values=probe.values * torch.tensor([0.5, 1.0]))

    data, objective, _ = PROBLEMS["precision"]
    model = nn.Linear(4, 1).double()
    mine = Doubled(objective.num_blocks, N, O.Logistic())
    assert exact_value(model, data, mine) == pytest.approx(by_chunks(model, data, mine), rel=1e-12)
    plain = O.AveragePrecision(objective.num_blocks, N, O.Logistic())
    assert exact_value(model, data, mine) != pytest.approx(exact_value(model, data, plain))


@pytest.mark.parametrize("name", ["precision", "breslow", "one-way"])
def test_scores_that_are_not_finite_are_not_hidden(name):
    data, objective, _ = PROBLEMS[name]
    assert math.isnan(exact_value(lambda x: x[:, 0] * math.nan, data, objective))


class Largest(TorchDispatchMode):
    """The largest tensor that any operation returns."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self.numel = max(self.numel, leaf.numel())
        return result


@pytest.mark.parametrize("surrogate", [O.SquaredHinge(), O.Squared(), O.Exponential()])
def test_sorting_forms_no_pairs(surrogate):
    n = 3000
    data = D.AnchorData.average_precision(torch.arange(n)[:, None] % 101.0, torch.arange(n) % 2)
    with Largest() as largest:
        exact_value(nn.Linear(1, 1), data, O.AveragePrecision(n // 2, n, surrogate))
    assert largest.numel <= 2 * n


def test_interpolation_sees_few_points():
    """500 anchors in a few cells cost as much as the nodes of these cells."""
    seen = []

    class Counted(O.Sigmoid):
        pass

    original = torch.sigmoid
    try:
        torch.sigmoid = lambda s: (seen.append(s.numel()), original(s))[1]
        Counted().sums(normal(1000), normal(500).clamp(-2, 1.9))
    finally:
        torch.sigmoid = original
    assert 0 < sum(seen) <= 2 * 24 * 1000


# The model's mode -------------------------------------------------------------------------------


def moody():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Dropout(0.5), nn.Linear(5, 1))
    model.double().train()
    model[2].eval()  # as a user may have frozen it
    return model


def test_the_value_is_that_of_eval_mode_and_modes_come_back():
    data, objective = D.AnchorData.average_precision(X, Y), O.AveragePrecision(3, 9)
    model = moody()
    modes = [module.training for module in model.modules()]
    state = {key: value.clone() for key, value in model.state_dict().items()}
    value = exact_value(model, data, objective, chunk_size=4)
    assert [module.training for module in model.modules()] == modes
    assert all(state[key].equal(value) for key, value in model.state_dict().items())
    assert value == exact_value(moody().eval(), data, objective)


def test_modes_come_back_after_an_error():
    class Broken(nn.Module):
        def forward(self, x):
            raise RuntimeError("out of paper")

    model = nn.Sequential(nn.Dropout(), Broken())
    model[0].eval()
    with pytest.raises(RuntimeError, match="out of paper"):
        exact_value(model, D.AnchorData.average_precision(X, Y), O.AveragePrecision(3, 9))
    assert [module.training for module in model.modules()] == [True, False, True]


# Another data set -------------------------------------------------------------------------------

half = slice(0, 6)
FEWER = {
    "average precision": lambda: (
        D.AnchorData.average_precision(X[half], Y[half]),
        O.AveragePrecision(2, 6),
    ),
    "mean average precision": lambda: (
        D.AnchorData.average_precision(X[half], CASES_LABELS[half]),
        O.AveragePrecision(CASES_LABELS[half].sum(0), 6),
    ),
    "one-way partial auc": lambda: (
        D.AnchorData.positives(X[half], Y[half]),
        O.OneWayPartialAUC(2, 4, 0.5),
    ),
    "two-way partial auc": lambda: (
        D.AnchorData.positives(X[half], Y[half]),
        O.TwoWayPartialAUC(2, 4, 0.7, 0.5),
    ),
    "p-norm push": lambda: (D.AnchorData.negatives(X[half], Y[half]), O.PNormPush(4, 3.0)),
    "cox, efron": lambda: (
        data := D.AnchorData.survival(X[half], TIMES[half], EVENTS[half], ties="efron"),
        O.Cox(data.num_blocks, 6, data.max_ties),
    ),
    "list-net": lambda: (
        D.ListData(X[half], GRADES[half], LENGTHS[:2], relevant=False),
        O.ListNet(GRADES[half], LENGTHS[:2]),
    ),
    "ndcg at 2": lambda: (
        D.ListData(X[half], GRADES[half], LENGTHS[:2]),
        O.NDCG(GRADES[half], LENGTHS[:2], top_k=2),
    ),
    "nca": lambda: (D.AnchorData.neighbours(X[half], CLASSES[half]), O.NCA(6)),
    "contrastive, two-way": lambda: (
        D.ViewData(X[half], Z[half], two_way=True),
        O.GlobalContrastive(6, 0.3, two_way=True),
    ),
    "group dro": lambda: (
        D.GroupData(X[half], GROUPS[half] % 2, TARGETS[half]),
        O.GroupDRO(2, 0.5),
    ),
    "group cvar": lambda: (D.GroupData(X[half], GROUPS[half] % 2, TARGETS[half]), O.GroupCVaR(2)),
    "bags, soft maximum": lambda: (
        D.GroupData(X[half], GROUPS[half] % 2, GROUPS[half] % 2),
        O.SoftmaxPooling(torch.tensor([0, 1]), 4, 0.5),
    ),
    "bags, attention": lambda: (
        D.GroupData(X[half], GROUPS[half] % 2, GROUPS[half] % 2),
        O.AttentionPooling(torch.tensor([0, 1]), 4),
    ),
    "auc binary": lambda: (D.TaskData.binary(X[half], Y[half]), O.MultiTaskAUC(1)),
}
CASES_LABELS = torch.stack([Y == 1, CLASSES == 1], dim=1)
NAMED = {case.name: case for case in CASES}


@pytest.mark.parametrize("name", FEWER)
def test_validation_needs_no_second_objective(name):
    case, (data, by_hand) = NAMED[name], FEWER[name]()
    model = case.model()
    blocks = case.objective.num_blocks
    value = exact_value(model, data, case.objective)
    assert value == exact_value(model, data, by_hand)
    assert value == pytest.approx(by_chunks_mean(model, data, by_hand), abs=1e-12)
    assert case.objective.on(data).num_blocks == data.num_blocks
    assert case.objective.num_blocks == blocks  # the objective of training is as before


def by_chunks_mean(model, data, objective):
    """One closure for all blocks, without ``on``."""
    form = rows_of(objective)
    with torch.no_grad():
        [call] = exact_pass(model, data, objective, chunk_size=1000)
        probe = call()
        return form.outer(form.of(probe, torch.float64), probe.blocks).mean().item()


def test_temperatures_of_single_anchors_do_not_fit_others():
    with pytest.raises(ValueError, match="individual temperatures belong to 9 anchors"):
        NAMED["contrastive, individual"].objective.on(D.ViewData(X[half], Z[half]))


def test_instances_of_a_bag_share_its_label():
    data = D.GroupData(X, GROUPS, TARGETS)
    with pytest.raises(ValueError, match="targets differ within a bag"):
        NAMED["bags, attention"].objective.on(data)


def test_an_own_objective_must_fit():
    data = D.GroupData(X[half], GROUPS[half] % 2)
    with pytest.raises(ValueError, match="the objective has 3 blocks, the data set 2"):
        exact_value(nn.Linear(3, 1).double(), data, NAMED["penalty"].objective)
