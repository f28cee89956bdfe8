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
    LENGTHS,
    MANY,
    TARGETS,
    TIMES,
    N,
    X,
    Y,
    Z,
)
from torch import nn

import fcco
from fcco import data as D
from fcco import objectives as O
from fcco.data import block_loader, exact_pass, exact_value
from fcco.updates import Adam

# The same structures as in the zoo, "usual", and with as little in them as is allowed, "thin".
ONE = torch.arange(N) == 4
STRUCTURES = {
    "usual": {
        "y": Y, "classes": CLASSES, "own": CLASSES, "many": MANY, "times": TIMES, "events": EVENTS,
        "grades": GRADES, "lengths": LENGTHS, "groups": GROUPS, "bags": BAG_LABELS, "pairs": N,
    },
    "thin": {
        "y": ONE.long(),  # one positive
        "classes": torch.tensor([0, 1, 2, 2, 2, 2, 2, 2, 2]),
        "own": torch.arange(N),  # nobody shares a class
        "many": torch.stack([ONE, ONE.roll(1)], 1),
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


def build(name, structure, heat, dtype):
    """Objective, data set and the number of outputs."""
    s = STRUCTURES[structure]
    y, groups, grades, lengths, m = s["y"], s["groups"], s["grades"], s["lengths"], s["pairs"]
    x, z = X.to(dtype), Z.to(dtype)
    positives, tied = int(y.sum()), int(s["events"].sum())
    events, bags = int(s["events"].sum()), len(s["bags"])
    size = int(torch.bincount(groups).max())
    lists = D.ListData(x, grades, lengths)
    individual = O.GlobalContrastive(m, heat, individual=True)
    return {
        "auc multi-class": lambda: (O.MultiTaskAUC(3), D.TaskData.from_classes(x, s["classes"]), 3),
        "auc multi-label, missing": lambda: (O.MultiTaskAUC(2), D.TaskData(x, s["many"]), 2),
        "auc binary": lambda: (O.MultiTaskAUC(1), D.TaskData.binary(x, y), 1),
        "exponential auc": lambda: (
            O.ExponentialAUC(2, N, heat), D.TaskData(x, s["many"]), 2
        ),
        "gap, squared hinge": lambda: (
            O.MultiTaskGap(3), D.TaskData.from_classes(x, s["classes"]), 3
        ),
        "gap, squared": lambda: (
            O.MultiTaskGap(3, O.Squared()), D.TaskData.from_classes(x, s["classes"]), 3
        ),
        "average precision": lambda: (
            O.AveragePrecision(positives, N), D.AnchorData.average_precision(x, y), 1
        ),
        "average precision, sigmoid": lambda: (
            O.AveragePrecision(positives, N, O.Sigmoid(heat)),
            D.AnchorData.average_precision(x, y), 1,
        ),
        "mean average precision": lambda: (
            O.AveragePrecision(s["many"].sum(0), N), D.AnchorData.average_precision(x, s["many"]), 2
        ),
        "one-way partial auc": lambda: (
            O.OneWayPartialAUC(positives, N - positives, heat), D.AnchorData.positives(x, y), 1
        ),
        "two-way partial auc": lambda: (
            O.TwoWayPartialAUC(positives, N - positives, heat, 0.5),
            D.AnchorData.positives(x, y), 1,
        ),
        "p-norm push": lambda: (
            O.PNormPush(N - positives, 3.0), D.AnchorData.negatives(x, y), 1
        ),
        "p-norm push, exponential": lambda: (
            O.PNormPush(N - positives, 2.0, O.Exponential()), D.AnchorData.negatives(x, y), 1
        ),
        "cox, breslow": lambda: (
            O.Cox(events, N), D.AnchorData.survival(x, s["times"], s["events"]), 1
        ),
        "cox, efron": lambda: (
            O.Cox(events, N, max_ties=tied),
            D.AnchorData.survival(x, s["times"], s["events"], ties="efron"), 1,
        ),
        "list-net": lambda: (
            O.ListNet(grades, lengths), D.ListData(x, grades, lengths, relevant=False), 1
        ),
        "ndcg": lambda: (O.NDCG(grades, lengths), lists, 1),
        "ndcg at 2": lambda: (O.NDCG(grades, lengths, top_k=2, softness=heat), lists, 1),
        "nca": lambda: (O.NCA(N, heat), D.AnchorData.neighbours(x, s["own"]), 2),
        "nca, logarithm": lambda: (
            O.NCA(N, heat, logarithm=True), D.AnchorData.neighbours(x, s["own"]), 2
        ),
        "contrastive, one-way": lambda: (
            O.GlobalContrastive(m, heat), D.ViewData(x[:m], z[:m]), 2
        ),
        "contrastive, two-way": lambda: (
            O.GlobalContrastive(m, heat, two_way=True), D.ViewData(x[:m], z[:m], two_way=True), 2
        ),
        "contrastive, individual": lambda: (individual, D.ViewData(x[:m], z[:m]), 2),
        "contrastive, common temperature": lambda: (
            O.GlobalContrastive(m, heat, common=True), D.ViewData(x[:m], z[:m]), 2
        ),
        "group dro": lambda: (O.GroupDRO(bags, heat), D.GroupData(x, groups, TARGETS), 2),
        "group cvar": lambda: (
            O.GroupCVaR(bags, temperature=heat), D.GroupData(x, groups, TARGETS), 2
        ),
        "bags, soft maximum": lambda: (
            O.SoftmaxPooling(s["bags"], size, heat), D.GroupData(x, groups), 1
        ),
        "bags, attention": lambda: (O.AttentionPooling(s["bags"], size), D.GroupData(x, groups), 2),
        "penalty": lambda: (
            O.ConstraintPenalty(bags, lambda h, y, block: h[:, 0] - 0.1 * block, 2.0),
            D.GroupData(x, groups), 1,
        ),
        "iwae": lambda: (O.IWAE(N), D.PointData(x, exact_samples=5), 1),
    }  # fmt: skip


EXTRA = ["average precision, sigmoid", "p-norm push, exponential", "iwae"]
NAMES = [case.name for case in CASES] + EXTRA
# The largest score, the temperature, the structure.
SETTINGS = {
    "huge": (1e4, 1.0, "usual"),
    "cold": (1.0, 0.01, "usual"),
    "huge and cold": (1e4, 0.01, "usual"),
    "flat": (0.0, 0.01, "usual"),
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
    assert set(build("", "usual", 1.0, torch.float32)) == set(NAMES)


def everything():
    """All combinations; two settings of three, each with one of the eight optimizers and
    precisions, all in turn, are in the fast suite."""
    ways = list(itertools.product(OPTIMIZERS, DTYPES))
    for k, (name, setting) in enumerate(itertools.product(NAMES, SETTINGS)):
        for j, way in enumerate(ways):
            fast = (k + j) % len(ways) == 0 and (k + k // len(SETTINGS)) % 3 > 0
            yield pytest.param(name, setting, *way, marks=() if fast else pytest.mark.slow)


def finite(*tensors):
    return all(tensor.isfinite().all() for tensor in tensors)


def resize(linear, inputs, size):
    """Scale the model so that its largest score is ``size``."""
    with torch.no_grad():
        peak = linear(inputs).abs().max()
        for p in linear.parameters():
            p.mul_(size / peak)
        assert linear(inputs).abs().max().item() == pytest.approx(size, rel=0.1)


def prepare(name, structure, heat, size, dtype, num_steps):
    """Objective, data, model, the linear map in it, all parameters, batches."""
    objective, data, outputs = build(name, structure, heat, dtype)[name]()
    torch.manual_seed(0)
    linear = nn.Linear(3, outputs).to(dtype)
    resize(linear, data.inputs, size)
    model = Latent(linear) if name == "iwae" else linear
    learned = [p for p in vars(objective).values() if isinstance(p, nn.Parameter)]
    loader = block_loader(
        data,
        objective,
        blocks_per_step=min(3, data.num_blocks),
        samples_per_block=2,
        num_steps=num_steps,
        seed=1,
    )
    return objective, data, model, linear, [*linear.parameters(), *learned], loader


def take(opt, objective, model, batch, params):
    """A step, after which everything is finite."""
    value = opt.step(lambda: objective.inner(model, batch))
    assert finite(value, *params)
    assert finite(*(opt.state[p]["z"] for p in params))
    if opt.table is not None:
        assert finite(opt.table.gather(torch.arange(objective.num_blocks)))


@pytest.mark.parametrize(("name", "setting", "optimizer", "precision"), list(everything()))
def test_nothing_overflows(name, setting, optimizer, precision):
    size, heat, structure = SETTINGS[setting]
    objective, data, model, _, params, loader = prepare(
        name, structure, heat, size, DTYPES[precision], 20
    )
    opt = OPTIMIZERS[optimizer](params, objective, lr=1e-3, alpha=0.3, update=Adam())
    for batch in loader:
        take(opt, objective, model, batch, params)
    if optimizer == "bsgd":  # once is enough
        assert torch.tensor(exact_value(model, data, objective, chunk_size=4)).isfinite()
        opt = fcco.MSVRM(params, objective, version=3, lr=1e-3, alpha=0.3, beta=0.3, update=Adam())
        opt.snapshot(exact_pass(model, data, objective, chunk_size=4))
        take(opt, objective, model, batch, params)
        take(opt, objective, model, batch, params)


def jumps():
    for k, name in enumerate(NAMES):
        for j, optimizer in enumerate(("v1", "v2", "sox")):
            fast = j == k % 2
            yield pytest.param(name, optimizer, marks=() if fast else pytest.mark.slow)


@pytest.mark.parametrize(("name", "optimizer"), list(jumps()))
def test_rows_survive_a_model_that_jumps(name, optimizer):
    """Scores a thousand times larger from one step to the next, and back: all rows are stale, and
    corrections are larger than what they correct."""
    objective, data, model, linear, params, loader = prepare(
        name, "usual", 0.1, 1.0, torch.float32, 24
    )
    opt = OPTIMIZERS[optimizer](params, objective, lr=1e-3, alpha=0.3, update=Adam())
    for t, batch in enumerate(loader):
        if t % 4 == 0:
            resize(linear, data.inputs, (1.0, 1e3)[t // 4 % 2])
        take(opt, objective, model, batch, params)
