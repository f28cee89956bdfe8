"""Exact values on larger data, against the inner values of all chunks; modes, and other data."""

import math

import pytest
import torch
from objectives.zoo import (
    BAG_LABELS,
    CASES,
    CLASSES,
    EVENTS,
    GRADES,
    GROUPS,
    LENGTHS,
    MISSING,
    TARGETS,
    TIMES,
    X,
    Y,
    Z,
)
from torch import nn

from fcco import objectives as O
from fcco.data import exact_pass, exact_value
from fcco.kernel.rows import Rows
from fcco.losses.fingerprint import fingerprint

GENERATOR = torch.Generator().manual_seed(11)
N = 240


def normal(*size):
    return torch.randn(size, generator=GENERATOR, dtype=torch.float64)


class Cubic(O.Surrogate):
    """A user's own, for which nobody wrote ``sums``."""

    def __call__(self, s):
        return (2 + s).clamp(min=0) ** 3


WIDE = normal(N, 4)
LABELS = torch.rand(N, generator=GENERATOR) < 0.2
MANY = (torch.rand((N, 3), generator=GENERATOR) < 0.3).long()
MANY[torch.rand((N, 3), generator=GENERATOR) < 0.2] = -1
LONG = torch.randint(30, (N,), generator=GENERATOR).double()
DEAD = torch.rand(N, generator=GENERATOR) < 0.6
KINDS = torch.randint(5, (N,), generator=GENERATOR)
KINDS[0] = 5  # alone in its class
OTHER = WIDE + 0.3 * normal(N, 4)
RELEVANT = torch.randint(4, (N,), generator=GENERATOR)
LISTS = torch.tensor([1, 100, 39, 2, 98])


def learned(objective):
    objective = objective.double()
    with torch.no_grad():
        objective.temperatures.copy_(torch.linspace(0.05, 0.9, len(objective.temperatures)))
    return objective


# Objective and outputs of the model.
PROBLEMS = {
    "auc": (O.AUC(MANY, temperature=0.5), 3),
    "multi-task auc": (O.MultiTaskAUC(MANY), 3),
    "multi-task gap": (O.MultiTaskGap(KINDS), 6),
    "precision": (O.AveragePrecision(LABELS), 1),
    "hinge precision": (O.AveragePrecision(LABELS, surrogate=O.SquaredHinge()), 1),
    "steep precision": (O.AveragePrecision(LABELS, surrogate=O.Sigmoid(0.1)), 1),
    "own precision": (O.AveragePrecision(LABELS, surrogate=Cubic()), 1),
    "mean precision": (O.AveragePrecision(MANY, surrogate=O.Logistic()), 3),
    "push": (O.PNormPush(LABELS, power=3.0), 1),
    "mean push": (O.PNormPush(MANY), 3),
    "exponential push": (O.PNormPush(LABELS, power=2.0, surrogate=O.Exponential(1.0)), 1),
    "one-way": (O.PartialAUC(LABELS, temperature=0.02), 1),
    "one-way, logistic": (O.PartialAUC(LABELS, temperature=0.5, surrogate=O.Logistic()), 1),
    "two-way": (O.PartialAUC(MANY, temperature=0.5, two_way=2.0), 3),
    "sensitive": (O.PartialAUC(MANY, temperature=0.1, min_tpr=0.8), 3),
    "breslow": (O.Cox(LONG, DEAD, ties="breslow"), 1),
    "efron": (O.Cox(LONG, DEAD), 1),
    "ndcg": (O.NDCG(RELEVANT, LISTS), 1),
    "ndcg at 3": (O.NDCG(RELEVANT, LISTS, top_k=3, weights=torch.arange(1, 6)), 1),
    "list-net": (O.ListNet(RELEVANT, LISTS), 1),
    "dro": (O.DRO(N, temperature=0.3), 1),
    "neighbours": (O.NCA(KINDS), 3),
    "neighbours, logarithm": (O.NCA(KINDS, temperature=0.3, logarithm=True), 1),
    "views": (O.GlobalContrastive(N, temperature=0.05), 3),
    "views, one way": (
        learned(O.GlobalContrastive(N, temperature=0.5, two_way=False, learned="common")), 3,
    ),
    "views, temperatures": (
        learned(O.GlobalContrastive(N, temperature=0.3, learned="individual")), 3,
    ),
}  # fmt: skip


def inputs_of(objective):
    return (WIDE, OTHER) if objective.num_views == 2 else WIDE


def by_chunks(model, inputs, objective, chunk_size):
    """F from the inner values of an exact pass whose chunks are blocks."""
    form = Rows(objective)
    with torch.no_grad():
        probes = [call() for call in exact_pass(model, inputs, objective, chunk_size=chunk_size)]
        rows = torch.cat([form.read(probe, torch.float64) for probe in probes])
        blocks = torch.cat([probe.blocks for probe in probes])
        assert len(blocks) == objective.num_blocks
        return form.outer(rows, blocks).mean().item()


@pytest.mark.parametrize("spread", [1e-3, 1.0, 300.0])
@pytest.mark.parametrize("name", PROBLEMS)
def test_exact_is_the_mean_over_all_chunks(name, spread, monkeypatch):
    objective, outputs = PROBLEMS[name]
    inputs = inputs_of(objective)
    torch.manual_seed(0)
    model = nn.Linear(4, outputs).double()
    model.weight.data *= spread
    if name in ("dro", "auc", "multi-task auc", "multi-task gap"):  # chunks are samples: one
        truth = by_chunks(model, inputs, objective, N)
    else:
        model.bias.data += 1e6 * (spread == 1.0)  # which changes no difference of scores
        truth = by_chunks(model, inputs, objective, 7)
    monkeypatch.setattr(type(objective), "chunk", None)
    assert exact_value(model, inputs, objective) == pytest.approx(truth, rel=1e-11, abs=1e-12)


@pytest.mark.parametrize("name", [name for name in PROBLEMS if "views" not in name])
def test_the_gradient_of_exact_is_that_of_the_chunks(name):
    """At N = 240 pairs are formed in parts, and each part is formed again by the backward pass."""
    objective, outputs = PROBLEMS[name]
    h = WIDE @ normal(4, outputs)
    found, expected = h.clone().requires_grad_(), h.clone().requires_grad_()
    objective.exact(found).backward()
    everything = objective.batch(torch.arange(N).double(), range(N))
    probe = objective.inner(lambda rows: expected[rows.long()], everything)
    assert probe.blocks.sort().values.equal(torch.arange(objective.num_blocks))
    if probe.log_scale is None:
        costs = objective.outer(probe.values, probe.blocks)
    else:
        costs = objective.scaled_outer(probe.values, probe.log_scale, probe.blocks)
    costs.mean().backward()
    torch.testing.assert_close(found.grad, expected.grad, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["precision", "one-way", "ndcg", "push", "list-net", "efron"])
def test_parts_of_pairs_add_up(name, monkeypatch):
    """However few pairs are formed at a time."""
    objective, _ = PROBLEMS[name]
    h = normal(N)
    values = []
    for pairs in (1 << 18, 1000, 1):
        monkeypatch.setattr("fcco.objectives.pairs.PAIRS", pairs)
        leaf = h.clone().requires_grad_()
        value = objective.exact(leaf)
        (gradient,) = torch.autograd.grad(value, leaf)
        values.append(torch.cat([value.detach()[None], gradient]))
    torch.testing.assert_close(values[1], values[0], rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(values[2], values[0], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", ["precision", "breslow", "one-way", "ndcg", "dro", "auc"])
def test_scores_that_are_not_finite_are_named(name):
    objective, outputs = PROBLEMS[name]
    h = normal(N, outputs)
    h[[3, 7]] = math.nan
    with pytest.raises(FloatingPointError, match=r"scores of samples \[3, 7\] are not finite"):
        exact_value(lambda x: h, WIDE, objective)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_embeddings_that_are_not_finite_are_named(bad):
    points = normal(N, 4)
    points[[3, 7], 1] = bad
    calls = {
        "embeddings": lambda: O.NCA(KINDS).exact(points),
        "first": lambda: O.GlobalContrastive(N, temperature=0.1).exact(points, WIDE),
        "second": lambda: O.GlobalContrastive(N, temperature=0.1).exact(WIDE, points),
    }
    for name, call in calls.items():
        with pytest.raises(FloatingPointError, match=rf"{name} of samples \[3, 7\] is not finite"):
            call()


# The model's mode -------------------------------------------------------------------------------


def moody():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Dropout(0.5), nn.Linear(5, 1))
    model.double().train()
    model[2].eval()  # as a user may have frozen it
    return model


def test_the_value_is_that_of_eval_mode_and_modes_come_back():
    model, objective = moody(), O.AveragePrecision(Y)
    modes = [module.training for module in model.modules()]
    state = {key: value.clone() for key, value in model.state_dict().items()}
    value = exact_value(model, X, objective, chunk_size=4)
    assert [module.training for module in model.modules()] == modes
    assert all(state[key].equal(value) for key, value in model.state_dict().items())
    assert value == exact_value(moody().eval(), X, objective)


def test_modes_come_back_after_an_error():
    class Broken(nn.Module):
        def forward(self, x):
            raise RuntimeError("out of paper")

    model = nn.Sequential(nn.Dropout(), Broken())
    model[0].eval()
    with pytest.raises(RuntimeError, match="out of paper"):
        exact_value(model, X, O.AveragePrecision(Y))
    assert [module.training for module in model.modules()] == [True, False, True]


def test_two_encoders_are_a_tuple():
    objective, first, second = (
        O.GlobalContrastive(9, temperature=0.3),
        *(nn.Linear(3, 2).double() for _ in range(2)),
    )
    value = exact_value((first, second), (X, Z), objective, chunk_size=4)
    assert value == pytest.approx(objective.exact(first(X), second(Z)).item(), abs=1e-12)


# Another data set -------------------------------------------------------------------------------

half = slice(0, 6)
NAMED = {case.name: case for case in CASES}
FEWER = {
    "auc binary": (Y[half].bool(),),
    "gap, squared hinge": (CLASSES[half],),
    "exponential auc": (MISSING[half],),
    "average precision": (Y[half],),
    "mean average precision, missing": (MISSING[half],),
    "one-way partial auc": (Y[half],),
    "two-way partial auc": (Y[half],),
    "partial auc, sensitive": (MISSING[half],),
    "p-norm push": (Y[half],),
    "cox, efron": (TIMES[half].double(), EVENTS[half]),
    "cox, breslow": (TIMES[half], EVENTS[half]),
    "list-net": (GRADES[half].double(), LENGTHS[:2]),
    "ndcg at 2": (GRADES[half], LENGTHS[:2]),
    "ndcg, lists weighted": (GRADES[half], LENGTHS[:2]),  # weights belong to their lists
    "list-net, lists weighted": (GRADES[half], LENGTHS[:2]),
    "dro": (6,),
    "cvar": (6,),
    "nca": (CLASSES[half],),
    "nca, logarithm": (CLASSES[half],),
    "contrastive, two-way": (6,),
    "contrastive, common temperature": (6,),
    "group dro": (GROUPS[half] % 2, TARGETS[half]),
    "group cvar": (GROUPS[half] % 2, TARGETS[half]),
    "bags, soft maximum": (GROUPS[half] % 2, BAG_LABELS[:2]),
    "bags, attention": (GROUPS[half] % 2, BAG_LABELS[:2]),
    "penalty": (GROUPS[half] % 2,),
}
SETTINGS = {
    "exponential auc": {"temperature": 0.5},
    "average precision": {"surrogate": O.SquaredHinge()},
    "mean average precision, missing": {"surrogate": O.SquaredHinge()},
    "one-way partial auc": {"temperature": 0.5},
    "two-way partial auc": {"temperature": 0.5, "two_way": 0.7},
    "partial auc, sensitive": {"temperature": 0.5, "min_tpr": 0.5},
    "p-norm push": {"power": 3.0},
    "cox, breslow": {"ties": "breslow"},
    "ndcg at 2": {"top_k": 2},
    "dro": {"temperature": 0.7},
    "cvar": {"fraction": 0.4},
    "nca, logarithm": {"logarithm": True},
    "contrastive, two-way": {"temperature": 0.3},
    "group dro": {"temperature": 0.5},
    "group cvar": {"fraction": 0.5},
    "bags, soft maximum": {"temperature": 0.5},
}


@pytest.mark.parametrize("name", FEWER)
def test_validation_needs_no_second_objective(name):
    """``on`` is the objective built with the same settings from other labels."""
    case, labels = NAMED[name], FEWER[name]
    training, model = case.objective, case.model()
    before, shape = training.num_blocks, training.num_samples
    value = exact_value(model, case.inputs, training)
    other = training.on(*labels)
    assert type(other) is type(training)
    assert other.num_samples == 6
    inputs = (X[half], Z[half]) if other.num_views == 2 else X[half]
    found = exact_value(model, inputs, other)
    if name == "penalty":
        settings = {"constraint": training.constraint, "penalty": 2.0}
    elif name == "contrastive, common temperature":
        settings = None  # learned: shared
        assert other.temperatures is training.temperatures
    else:
        settings = SETTINGS.get(name, {})
    if settings is not None:
        by_hand = type(training)(*labels, **settings)
        for size in ("num_blocks", "num_samples", "num_tasks", "inner_dim", "inner_size"):
            assert getattr(other, size, None) == getattr(by_hand, size, None), size
        assert found == exact_value(model, inputs, by_hand)
    # The objective of training is as before.
    assert (training.num_blocks, training.num_samples) == (before, shape)
    assert exact_value(model, case.inputs, training) == value


def test_every_kind_goes_to_other_data():
    assert {type(NAMED[name].objective) for name in FEWER} == {type(c.objective) for c in CASES}
    points = O.IWAE(3)
    points.lock()
    points = points.on(torch.tensor(5))
    assert (points.num_blocks, points.num_samples, points.inner_size) == (5, 5, 10**4)
    with pytest.raises(ValueError, match="num_samples must be positive"):
        points.on(0)


@pytest.mark.parametrize("name", FEWER)
def test_an_objective_that_has_a_table_goes_to_other_data(name):
    """Only its own settings are locked."""
    objective = NAMED[name].objective.on(*FEWER[name])
    objective.lock()
    other = objective.on(*FEWER[name])
    other.inner_dim = 9
    assert other.num_samples == 6
    with pytest.raises(AttributeError, match="num_samples cannot be changed"):
        objective.num_samples = 7


@pytest.mark.parametrize("arrays", [False, True], ids=["tensors", "arrays"])
@pytest.mark.parametrize("name", FEWER)
def test_labels_are_the_callers_to_change(name, arrays):
    """An objective has its own copy, of labels in any type."""
    case = NAMED[name]
    mine = [x.clone() for x in FEWER[name] if isinstance(x, torch.Tensor)]
    given = [x.numpy() for x in mine] if arrays else mine
    objective = case.objective.on(*given or FEWER[name])
    inputs = (X[half], Z[half]) if objective.num_views == 2 else X[half]

    def found():
        return exact_value(case.model(), inputs, objective), fingerprint(objective).item()

    before = found()
    for label in mine:
        label.zero_()
    assert found() == before


def test_batches_of_other_data_are_of_other_data():
    """Also those that a first batch of the training set had been prepared for."""
    objective = O.AveragePrecision(Y)
    objective.batch(X, range(9))
    other = objective.on(1 - Y)
    assert other.batch(X, range(9)).blocks.tolist() == list(range(6))
    assert other.batch(X[:4], [0, 1, 2, 3]).blocks.tolist() == [0, 1, 2]


def test_temperatures_of_single_anchors_do_not_fit_others():
    with pytest.raises(ValueError, match="individual temperatures belong to 9 pairs, got 6"):
        NAMED["contrastive, individual"].objective.on(6)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_inputs_of_other_data_are_refused(case):
    fewer = (X[half], Z[half]) if case.objective.num_views == 2 else X[half]
    for call in (exact_value, exact_pass):
        with pytest.raises(ValueError, match="was built from 9 samples, inputs hold 6"):
            call(case.model(), fewer, case.objective)
