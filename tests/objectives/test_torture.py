"""Every objective where floating point hurts: nothing overflows, nothing is nan."""

import itertools

import pytest
import torch
from objectives.zoo import (
    BAG_LABELS,
    CASES,
    CLASSES,
    EVENTS,
    GRADES,
    GROUPS,
    HINGE,
    LENGTHS,
    MANY,
    MISSING,
    TARGETS,
    TIMES,
    N,
    X,
    Y,
    Z,
)
from torch import nn

import fcco
from fcco import objectives as O
from fcco.data import block_loader, exact_pass, exact_value
from fcco.updates import Adam

# The same structures as in the zoo, "usual", and with as little in them as is allowed, "thin".
ONE = torch.arange(N) == 4
STRUCTURES = {
    "usual": {
        "y": Y, "classes": CLASSES, "own": CLASSES, "many": MANY, "times": TIMES, "events": EVENTS,
        "grades": GRADES, "lengths": LENGTHS, "groups": GROUPS, "bags": BAG_LABELS, "pairs": N,
        "missing": MISSING,
    },
    "thin": {
        "y": ONE.long(),  # one positive
        "classes": torch.tensor([0, 1, 2, 2, 2, 2, 2, 2, 2]),
        "own": torch.arange(N),  # nobody shares a class
        "many": torch.stack([ONE, ONE.roll(1)], 1),
        "missing": torch.stack([ONE.long(), -ONE.roll(1).long()], 1),  # task 1 has no positive
        "times": TIMES,
        "events": torch.arange(N) == TIMES.argmax(),  # the last one, alone at risk
        "grades": GRADES,
        "lengths": torch.ones(N, dtype=torch.int64),  # one-item lists
        "groups": torch.arange(N),  # one-sample groups
        "bags": torch.arange(N) % 2,
        "pairs": 2,
    },
    "one negative": {
        "y": 1 - ONE.long(),
        "classes": CLASSES,
        "own": torch.zeros(N, dtype=torch.int64),  # one class
        "many": ~torch.stack([ONE, ONE.roll(1)], 1),
        "missing": 1 - torch.stack([ONE.long(), 2 * ONE.roll(1).long()], 1),  # nor a negative
        "times": torch.ones(N),  # all tied
        "events": torch.ones(N, dtype=torch.bool),
        "grades": torch.full((N,), 3),
        "lengths": torch.tensor([N]),
        "groups": torch.zeros(N, dtype=torch.int64),
        "bags": torch.tensor([1]),
        "pairs": 3,
    },
}  # fmt: skip


class Latent(nn.Module):
    """log-weights around a linear score."""

    def __init__(self, linear):
        super().__init__()
        self.linear = linear

    def forward(self, x, samples):
        noise = torch.linspace(-1, 1, samples).to(x)
        return self.linear(x) * (1 + noise)


# The objective, of a structure and a temperature, and the outputs of the model.
BUILD = {
    "auc multi-class": lambda s, t: (O.MultiTaskAUC(s["classes"]), 3),
    "auc multi-label, missing": lambda s, t: (O.MultiTaskAUC(s["missing"]), 2),
    "auc binary": lambda s, t: (O.MultiTaskAUC(s["y"].bool()), 1),
    "exponential auc": lambda s, t: (O.AUC(s["missing"], temperature=t), 2),
    "gap, squared hinge": lambda s, t: (O.MultiTaskGap(s["classes"]), 3),
    "gap, squared": lambda s, t: (O.MultiTaskGap(s["classes"], surrogate=O.Squared()), 3),
    "average precision": lambda s, t: (O.AveragePrecision(s["y"], surrogate=HINGE), 1),
    "average precision, sigmoid": lambda s, t: (
        O.AveragePrecision(s["y"], surrogate=O.Sigmoid(t)), 1
    ),
    "mean average precision": lambda s, t: (O.AveragePrecision(s["many"], surrogate=HINGE), 2),
    "mean average precision, missing": lambda s, t: (
        O.AveragePrecision(s["missing"], surrogate=HINGE), 2
    ),
    "one-way partial auc": lambda s, t: (O.PartialAUC(s["y"], temperature=t), 1),
    "two-way partial auc": lambda s, t: (O.PartialAUC(s["y"], temperature=t, two_way=0.5), 1),
    "partial auc, missing": lambda s, t: (O.PartialAUC(s["missing"], temperature=t), 2),
    "partial auc, sensitive": lambda s, t: (
        O.PartialAUC(s["missing"], temperature=t, min_tpr=0.5), 2
    ),
    "p-norm push": lambda s, t: (O.PNormPush(s["y"], power=3.0), 1),
    "p-norm push, missing": lambda s, t: (O.PNormPush(s["missing"]), 2),
    "p-norm push, exponential": lambda s, t: (
        O.PNormPush(s["y"], power=2.0, surrogate=O.Exponential()), 1
    ),
    "cox, breslow": lambda s, t: (O.Cox(s["times"], s["events"], ties="breslow"), 1),
    "cox, efron": lambda s, t: (O.Cox(s["times"], s["events"]), 1),
    "list-net": lambda s, t: (O.ListNet(s["grades"], s["lengths"]), 1),
    "list-net, lists weighted": lambda s, t: (
        O.ListNet(s["grades"], s["lengths"], weights=s["lengths"] * 0.5), 1
    ),
    "ndcg": lambda s, t: (O.NDCG(s["grades"], s["lengths"]), 1),
    "ndcg at 2": lambda s, t: (O.NDCG(s["grades"], s["lengths"], top_k=2, softness=t), 1),
    "ndcg, lists weighted": lambda s, t: (
        O.NDCG(s["grades"], s["lengths"], weights=s["lengths"] * 0.5), 1
    ),
    "dro": lambda s, t: (O.DRO(N, temperature=t), 1),
    "cvar": lambda s, t: (O.CVaR(N, fraction=0.3), 1),
    "nca": lambda s, t: (O.NCA(s["own"], temperature=t), 2),
    "nca, logarithm": lambda s, t: (O.NCA(s["own"], temperature=t, logarithm=True), 2),
    "contrastive, one-way": lambda s, t: (
        O.GlobalContrastive(s["pairs"], temperature=t, two_way=False), 2
    ),
    "contrastive, two-way": lambda s, t: (O.GlobalContrastive(s["pairs"], temperature=t), 2),
    "contrastive, individual": lambda s, t: (
        O.GlobalContrastive(s["pairs"], temperature=t, learned="individual"), 2
    ),
    "contrastive, common temperature": lambda s, t: (
        O.GlobalContrastive(s["pairs"], temperature=t, learned="common"), 2
    ),
    "group dro": lambda s, t: (O.GroupDRO(s["groups"], TARGETS, temperature=t), 2),
    "group cvar": lambda s, t: (
        O.GroupCVaR(s["groups"], TARGETS, fraction=0.5, temperature=t), 2
    ),
    "bags, soft maximum": lambda s, t: (
        O.SoftmaxPooling(s["groups"], s["bags"], temperature=t), 1
    ),
    "bags, attention": lambda s, t: (O.AttentionPooling(s["groups"], s["bags"]), 2),
    "penalty": lambda s, t: (
        O.ConstraintPenalty(
            s["groups"], constraint=lambda h, y, block: h[:, 0] - 0.1 * block, penalty=2.0
        ),
        1,
    ),
    "iwae": lambda s, t: (O.IWAE(N, exact_samples=5), 1),
}  # fmt: skip
NAMES = list(BUILD)
# The largest score, the temperature, the structure.
SETTINGS = {
    "huge": (1e4, 1.0, "usual"),
    "cold": (1.0, 0.01, "usual"),
    "huge and cold": (1e4, 0.01, "usual"),
    "flat": (0.0, 0.01, "usual"),
    "tiny": (1e-30, 1.0, "usual"),
    "thin": (1.0, 0.01, "thin"),
    "thin and huge": (1e4, 0.01, "thin"),
    "flat and thin": (0.0, 1.0, "thin"),
    "one negative": (1.0, 0.01, "one negative"),
    "one negative, huge": (1e4, 0.01, "one negative"),
}
OPTIMIZERS = {
    "bsgd": lambda *args, **more: fcco.BSGD(*args, **more),
    "sox": lambda *args, **more: fcco.SOX(*args, beta=0.3, **more),
    "v1": lambda *args, **more: fcco.MSVRM(*args, version=1, beta=0.3, **more),
    "v2": lambda *args, **more: fcco.MSVRM(*args, version=2, beta=0.3, **more),
}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def test_every_case_of_the_zoo_is_tortured():
    assert {case.name for case in CASES} <= set(NAMES)


def everything():
    """All combinations; one setting of three, each with one of the eight optimizers and
    precisions, all in turn, are in the fast suite."""
    ways = list(itertools.product(OPTIMIZERS, DTYPES))
    for k, (name, setting) in enumerate(itertools.product(NAMES, SETTINGS)):
        for j, way in enumerate(ways):
            fast = (k + j) % len(ways) == 0 and (k + k // len(SETTINGS)) % 3 == 0
            yield pytest.param(name, setting, *way, marks=() if fast else pytest.mark.slow)


def finite(*tensors):
    return all(tensor.isfinite().all() for tensor in tensors)


def resize(linear, inputs, size):
    """Scale the model so that its largest score is ``size``."""
    with torch.no_grad():
        peak = linear(inputs).abs().max()
        for p in linear.parameters():
            p.mul_(size / peak)
        assert linear(inputs).abs().max().item() == pytest.approx(size, rel=0.1, abs=1e-40)


def prepare(name, structure, temperature, size, dtype, num_steps):
    """Objective, inputs, model, the linear map in it, all parameters, batches."""
    objective, outputs = BUILD[name](STRUCTURES[structure], temperature)
    x, z = (part[: objective.num_samples].to(dtype) for part in (X, Z))
    inputs = (x, z) if objective.num_views == 2 else x
    torch.manual_seed(0)
    linear = nn.Linear(3, outputs).to(dtype)
    resize(linear, x, size)
    model = Latent(linear) if name == "iwae" else linear
    learned = list(objective.parameters()) if isinstance(objective, nn.Module) else []
    loader = block_loader(
        inputs,
        objective,
        blocks_per_step=min(3, objective.num_blocks),
        samples_per_block=2,
        num_steps=num_steps,
        seed=1,
    )
    return objective, inputs, model, linear, [*linear.parameters(), *learned], loader


def take(opt, objective, model, batch, params):
    """A step, after which everything is finite."""
    value = opt.step(lambda: objective.inner(model, batch))
    assert finite(value, *params)
    assert finite(*(opt.state[p]["z"] for p in params))
    if opt.table is not None:
        assert finite(opt.table.gather(torch.arange(objective.num_blocks)))


@pytest.mark.sweep(3)
@pytest.mark.parametrize(("name", "setting", "optimizer", "precision"), list(everything()))
def test_nothing_overflows(name, setting, optimizer, precision):
    size, temperature, structure = SETTINGS[setting]
    objective, inputs, model, _, params, loader = prepare(
        name, structure, temperature, size, DTYPES[precision], 20
    )
    opt = OPTIMIZERS[optimizer](params, objective, lr=1e-3, alpha=0.3, update=Adam())
    for batch in loader:
        take(opt, objective, model, batch, params)
    if optimizer == "bsgd":  # once is enough
        assert torch.tensor(exact_value(model, inputs, objective, chunk_size=4)).isfinite()
        opt = fcco.MSVRM(params, objective, version=3, lr=1e-3, alpha=0.3, beta=0.3, update=Adam())
        opt.snapshot(exact_pass(model, inputs, objective, chunk_size=4))
        take(opt, objective, model, batch, params)
        take(opt, objective, model, batch, params)


def jumps():
    for k, name in enumerate(NAMES):
        for j, optimizer in enumerate(("v1", "v2", "sox")):
            fast = j == k % 2
            yield pytest.param(name, optimizer, marks=() if fast else pytest.mark.slow)


@pytest.mark.sweep(3)
@pytest.mark.parametrize(("name", "optimizer"), list(jumps()))
def test_rows_survive_a_model_that_jumps(name, optimizer):
    """Scores a thousand times larger from one step to the next, and back: all rows are stale, and
    corrections are larger than what they correct."""
    objective, _, model, linear, params, loader = prepare(
        name, "usual", 0.1, 1.0, torch.float32, 24
    )
    opt = OPTIMIZERS[optimizer](params, objective, lr=1e-3, alpha=0.3, update=Adam())
    for t, batch in enumerate(loader):
        if t % 4 == 0:
            resize(linear, X.float(), (1.0, 1e3)[t // 4 % 2])
        take(opt, objective, model, batch, params)
