"""Rows of mantissa and log-scale: the trajectory of plain rows, where plain rows can follow."""

import copy
import itertools
import math
import pickle
from dataclasses import replace
from decimal import Decimal, localcontext

import pytest
import torch
from objectives.zoo import CLASSES, EVENTS, TIMES, N, X, Z
from support import CATALOGUE, RULES, flat, make_update
from support.job import assert_unchanged, capture
from torch import nn

import fcco
from fcco import Point, Probe, Weights
from fcco.data import exact_pass
from fcco.data.loader import filled
from fcco.kernel.rows import Rows
from fcco.objectives import NCA, Cox, GlobalContrastive
from fcco.problem.sampled import SampledObjective
from fcco.problem.scaled import ScaledObjective

STEPS = 30
NAMES = ("cox", "nca", "contrastive")
NUM_EVENTS = int(EVENTS.sum())
IN_TURN = list(zip(CATALOGUE, itertools.cycle(NAMES), strict=False))


def half(first):
    """Every second method, from the first or the second on, is in the fast suite."""
    return [
        pytest.param(*row, marks=() if k % 2 == first else pytest.mark.slow)
        for k, row in enumerate(IN_TURN)
    ]


class Paired:
    """Two independent samples of one step: what the fresh pair asks for."""

    def __init__(self, first, second):
        self.first, self.second = first, second


def paired(inner, model, batch):
    """The probe of the first sample, the second one as its pair and in its units."""
    if not isinstance(batch, Paired):
        probe = inner(model, batch)
        return replace(probe, pair=probe.values)
    one, other = inner(model, batch.first), inner(model, batch.second)
    units = (other.log_scale - one.log_scale).exp().unsqueeze(1)
    return replace(one, pair=other.values * units)


def plain_values(objective, probe, values):
    """exp(log_scale) times the mantissas."""
    scaled = objective.scaled_dim or objective.inner_dim
    factor = probe.log_scale.exp().unsqueeze(1)
    return torch.cat([values[:, :scaled] * factor, values[:, scaled:]], dim=1)


class Twin(SampledObjective):
    """The same problem as a plain objective: no log-scale, and no bound by fresh values."""

    def __init__(self, base):
        self.base = base
        self.num_samples, self.num_views = base.num_samples, base.num_views
        self.spans, self.chunk = base.spans, base.chunk
        self.num_blocks, self.inner_dim = base.num_blocks, base.inner_dim

    draw = spans = chunk = among = None  # of the base

    def inner(self, model, batch):
        probe = self.base.inner(model, batch)
        return Probe(
            probe.blocks,
            plain_values(self.base, probe, probe.values),
            probe.samples,
            pair=None if probe.pair is None else plain_values(self.base, probe, probe.pair),
            noise=plain_values(self.base, probe, probe.noise),
        )

    # Written out once more, in plain values.

    def outer(self, u, blocks):
        if isinstance(self.base, Cox):
            return torch.log(N * u[:, 0])
        if isinstance(self.base, NCA):
            return -u[:, 0] / u[:, 1]
        return u[:, 1] * (torch.log(u[:, 0] + 1e-14) + 0.2)

    def feasible(self, u, blocks):
        if isinstance(self.base, Cox):
            return u.clamp(min=1 / N)
        if isinstance(self.base, NCA):  # 0 <= a <= b
            a, b = u.unbind(1)
            middle = torch.where(a > b, (a + b) / 2, b)
            return torch.stack([torch.where(a > b, middle, a).clamp(min=0), middle], dim=1)
        return torch.stack([u[:, 0], u[:, 1].clamp(min=0.03)], dim=1)


class Watched:
    """Mixed into an objective: notes when ``supported`` changes a row, and makes pairs."""

    active = 0

    def inner(self, model, batch):
        if self.with_pair:
            return paired(super().inner, model, batch)
        return super().inner(model, batch)

    def supported(self, u, fresh, share):
        raised = super().supported(u, fresh, share)
        self.active += int((raised != u).sum()) if u.any() else 0  # of nothing, it is the bound
        return raised


class WatchedCox(Watched, Cox):
    pass


class WatchedNCA(Watched, NCA):
    pass


class WatchedContrastive(Watched, GlobalContrastive):
    pass


def make(name, with_pair=False):
    """Objective, inputs and model of a case; the same at every call."""
    torch.manual_seed(4)
    if name == "cox":
        objective, inputs, outputs = WatchedCox(TIMES, EVENTS, ties="breslow"), X, 1
    elif name == "nca":
        objective, inputs, outputs = WatchedNCA(CLASSES), X, 2
        objective.inner_size = 10**6  # an upper bound may be a loose one
    else:
        objective = WatchedContrastive(
            N, temperature=0.3, two_way=False, learned="individual", radius=0.2
        )
        temperatures = 0.3 + 0.05 * torch.arange(N, dtype=torch.float64)
        objective.temperatures = nn.Parameter(temperatures)
        inputs, outputs = (X, Z), 2
    objective.with_pair = with_pair
    model = nn.Linear(3, outputs).double()
    with torch.no_grad():
        model.weight.mul_(0.5)
    return objective, inputs, model


def batches(objective, inputs, count, samples=None, seed=0):
    """Random small batches, the same for the same seed; pairs where they are wanted."""
    generator = torch.Generator().manual_seed(seed)
    result = []
    for _ in range(count):
        b = int(torch.randint(2, 4, (), generator=generator))
        k = int(torch.randint(2, 4, (), generator=generator)) if samples is None else samples
        blocks = torch.randperm(objective.num_blocks, generator=generator)[:b]
        draws = []
        for _ in range(2):
            spread = torch.rand((b, k), generator=generator, dtype=torch.float64)
            batch = objective.draw(blocks, spread, spread[0], replacement=False)
            draws.append(filled(batch, inputs))
        result.append(Paired(*draws) if objective.with_pair else draws[0])
    return result


def parameters(objective, model):
    learned = getattr(objective, "temperatures", None)
    return [*model.parameters(), *([] if learned is None else [learned])]


def exact_inner(objective, inputs, model):
    """g_i(w), in plain values."""
    with torch.no_grad():
        probe = exact_pass(model, inputs, objective)[0]()
    return plain_values(objective, probe, probe.values)


def follow(entry, rule, name, wrap=lambda objective: objective, steps=STEPS):
    """w, z and (plain) u at every step, and the objective."""
    base, inputs, model = make(name, entry.affine)
    objective, params = wrap(base), parameters(base, model)
    # A first sample without the point's class would start NCA's first mean at 0, below any bound.
    initial = None if name != "nca" else exact_inner(base, inputs, model)
    opt = entry.build(
        params,
        objective,
        initial=initial,
        lr=0.002,
        alpha=0.4,
        beta=0.1,
        snapshot_every=7,
        update=make_update(rule),
        weight_decay=rule.weight_decay,
    )
    everything, path = torch.arange(base.num_blocks), []
    for batch in batches(base, inputs, steps):
        if opt.snapshot_due:
            opt.snapshot(exact_pass(model, inputs, objective, chunk_size=4))
        opt.step(lambda: objective.inner(model, batch))  # noqa: B023
        path.append(flat(params))
        path.append(flat(opt.state[p]["z"] for p in params))
        if opt.table is not None:
            path.append(opt.table.read(everything).flatten())
    return path, objective, opt


def close(actual, expected):
    """At every step, relative to the size of each vector."""
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected, strict=True):
        assert other.isfinite().all()
        error = (one - other).abs().max()
        assert error <= 1e-12 * other.abs().max(), f"{error} of {other.abs().max()}"


def combinations():
    """Every method with every rule and problem; one of each method's eighteen, in turn, is in the
    fast suite."""
    for k, method in enumerate(CATALOGUE):
        for j, (rule, name) in enumerate(itertools.product(RULES, NAMES)):
            if (method, name) == ("sox-log", "contrastive"):
                continue  # the size of plain rows, which this rule goes by, is that of all columns
            fast = j == 5 * k % 18
            yield pytest.param(method, rule, name, marks=() if fast else pytest.mark.slow)


@pytest.mark.sweep(3)
@pytest.mark.parametrize(("method", "rule", "name"), list(combinations()))
def test_scaled_rows_follow_plain_rows(method, rule, name):
    entry = CATALOGUE[method]
    path, objective, opt = follow(entry, RULES[rule], name)
    plain, _, twin_opt = follow(entry, RULES[rule], name, Twin)
    assert isinstance(objective, ScaledObjective)
    assert objective.active == 0  # else the twin would have to apply the bound too
    close(path, plain)
    assert opt.queries == twin_opt.queries


class Restless:
    """Reports every probe in other units, that differ from row to row and from call to call."""

    def __init__(self, base):
        self.base, self.calls = base, 0

    def __getattr__(self, name):
        return getattr(self.base, name)

    def inner(self, model, batch):
        self.calls += 1
        probe = self.base.inner(model, batch)
        shift = ((7 * probe.blocks + 11 * self.calls) % 61 - 30).double()
        factor = torch.ones_like(probe.values)
        factor[:, : self.base.scaled_dim or self.base.inner_dim] = (-shift).exp().unsqueeze(1)
        return replace(
            probe,
            values=probe.values * factor,
            pair=None if probe.pair is None else probe.pair * factor,
            noise=probe.noise * factor,
            log_scale=probe.log_scale + shift,
        )


def restless(base):
    """An instance of the same class, whose ``inner`` is that of ``Restless``."""
    other = copy.copy(base)
    other.inner = Restless(base).inner
    return other


@pytest.mark.sweep(3)
@pytest.mark.parametrize(("method", "name"), half(0))
def test_units_do_not_matter(method, name):
    entry = CATALOGUE[method]
    path, objective, _ = follow(entry, RULES["adam"], name, steps=10)
    assert objective.active == 0
    close(follow(entry, RULES["adam"], name, restless, steps=10)[0], path)


def test_the_bound_by_fresh_values_is_in_the_units_of_the_row():
    """Active in every step: a row far below what the fresh value proves."""
    paths = []
    for wrap in (lambda base: base, restless):
        base, inputs, model = make("cox")
        base.max_ties = 10**6  # no other bound
        opt = fcco.SOX(model.parameters(), wrap(base), lr=0.01, alpha=1.0, beta=1e-9, initial=1e-6)
        with torch.no_grad():
            model.weight.mul_(3)
        for batch in batches(base, inputs, 10):
            opt.step(lambda: opt.objective.inner(model, batch))  # noqa: B023
        paths.append([flat(model.parameters()), opt.table.read(torch.arange(NUM_EVENTS)).flatten()])
        assert opt.objective.active > 10
    close(*paths)


# Far beyond what a plain row can hold --------------------------------------------------------


class Exponent(ScaledObjective):
    """g_i = exp(w_i) and f = log: the slope through g is 1, whatever w."""

    inner_dim = 1

    def __init__(self, num_blocks, inner_size=100):
        self.num_blocks, self.inner_size = num_blocks, inner_size

    def scaled_outer(self, u, log_scale, blocks):
        return u[:, 0].log() + log_scale

    def probe(self, w, blocks):
        scale = w.detach()[blocks].ceil()
        return Probe(blocks, (w[blocks] - scale).exp().unsqueeze(1), log_scale=scale)


@pytest.mark.parametrize("jump", [90.0, 700.0, 20000.0])
@pytest.mark.parametrize("method", [n for n, e in CATALOGUE.items() if e.has_table])
def test_rows_stale_by_hundreds_of_e_folds(method, jump):
    """Far above its row a fresh value counts at most n times, far below it for nothing."""
    n, entry, blocks = 100, CATALOGUE[method], torch.arange(3)
    start = torch.tensor([5.0, -300.0, 7000.0])
    w = nn.Parameter(start.clone())
    opt = entry.build([w], Exponent(3, n), lr=0.0, alpha=1.0, beta=0.1)
    for _ in range(2):
        if opt.snapshot_due:
            opt.snapshot(lambda: opt.objective.probe(w, blocks))
        opt.step(lambda: opt.objective.probe(w, blocks))
    torch.testing.assert_close(opt.state[w]["z"], torch.full((3,), 1 / 3), rtol=2e-3, atol=0)
    with torch.no_grad():
        w.copy_(start + torch.tensor([jump, jump, -jump]))
    value = opt.step(lambda: opt.objective.probe(w, blocks))
    assert value.isfinite()
    rows, z = opt.table.gather(blocks), opt.state[w]["z"]
    assert rows.dtype == torch.float32
    assert rows.isfinite().all()
    assert z.isfinite().all()
    logs = rows[:, 0].log() + rows[:, 1]
    assert (logs >= w.detach() - math.log(n) - 1e-2).all()  # what the fresh value proves
    if entry.equations.get("slope") == "updated":  # at the rows as they are now
        expected = (w.detach() - logs).exp() / 3
    else:
        expected = torch.tensor([n / 3, n / 3, 0.0])
    if not entry.anchored:  # there z has the anchor's gradient too
        torch.testing.assert_close(z, expected, rtol=2e-3, atol=1e-30)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_sample_without_partners_leaves_no_trace(version):
    """A point that met itself alone has a row of nothing, which must not outweigh e^-500."""
    torch.manual_seed(0)
    objective, inputs, model = NCA(CLASSES), X.float(), nn.Linear(3, 2)
    with torch.no_grad():
        model.weight.mul_(100)
    if version:
        opt = fcco.MSVRM(
            model.parameters(), objective, version=version, lr=0.0, alpha=1.0, beta=0.3
        )
    else:
        opt = fcco.BSGD(model.parameters(), objective, lr=0.0)
    block = torch.tensor([0])

    def visit(partners):
        place = (torch.tensor(partners, dtype=torch.float64) + 0.5) / N
        batch = filled(objective.draw(block, place[None], place), inputs)
        value = opt.step(lambda: objective.inner(model, batch))
        assert value.isfinite()
        assert opt.state[model.weight]["z"].isfinite().all()
        return objective.inner(model, batch)

    assert not visit([0, 0]).values.any()
    for _ in range(2):
        probe = visit([3, 4])
        assert probe.log_scale < -100
    if version:  # the row is now a share of the values that were seen
        row, share = opt.table.gather(block), 1 - 0.7**2
        actual = row[0, :2].log() + row[0, 2]
        expected = probe.values[0].detach().log() + probe.log_scale + math.log(share)
        torch.testing.assert_close(actual, expected)


def test_long_runs_do_not_drift():
    """The moving average of exp(w_t) in log space, while w wanders over thousands of e-folds."""
    w = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    opt = fcco.SOX([w], Exponent(1, 10**9), lr=0.0, alpha=1.0, beta=0.5)
    block, truth = torch.tensor([0]), 0.0
    opt.step(lambda: opt.objective.probe(w, block))
    for t in range(400):
        here = 1500 * math.sin(t / 20) + 0.3 * (t % 7)
        with torch.no_grad():
            w.fill_(here)
        opt.step(lambda: opt.objective.probe(w, block))
        high, low = max(truth, here), min(truth, here)
        truth = high + math.log1p(math.exp(low - high)) - math.log(2)
        mantissa, scale = opt.table.gather(block)[0].tolist()
        assert 1 - 1e-12 <= mantissa <= math.e + 1e-12
        assert scale == round(scale)
        assert math.log(mantissa) + scale == pytest.approx(truth, abs=1e-9)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_mantissas_of_corrected_rows_stay_near_one(version):
    objective, inputs, model = make("cox")
    with torch.no_grad():
        model.weight.mul_(40)  # exponents of tens
    opt = fcco.MSVRM(
        model.parameters(), objective, version=version, lr=0.01, alpha=0.3, beta=0.3,
        snapshot_every=20 if version == 3 else None, update=make_update(RULES["normalized"]),
    )  # fmt: skip
    for batch in batches(objective, inputs, 60):
        if opt.snapshot_due:
            opt.snapshot(exact_pass(model, inputs, objective))
        opt.step(lambda: objective.inner(model, batch))  # noqa: B023
    rows = opt.table.gather(torch.arange(NUM_EVENTS))
    assert (rows[:, 0] > 1e-3).all()
    assert (rows[:, 0] < 10).all()


# What travels ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "name"), half(1))
def test_resuming_is_bit_exact(method, name):
    entry = CATALOGUE[method]

    def build():
        objective, inputs, model = make(name, entry.affine)
        common = {"lr": 0.01, "alpha": 0.4, "beta": 0.3, "snapshot_every": 3}
        update = make_update(RULES["amsgrad"])
        opt = entry.build(parameters(objective, model), objective, update=update, **common)
        return objective, inputs, model, opt

    def run(objective, inputs, model, opt, some):
        for batch in some:
            if opt.snapshot_due:
                opt.snapshot(exact_pass(model, inputs, objective))
            opt.step(lambda: objective.inner(model, batch))  # noqa: B023
        return everything(objective, model, opt)

    def everything(objective, model, opt):
        tensors = [flat(parameters(objective, model)), opt.state[model.weight]["z"]]
        table = [] if opt.table is None else list(opt.table.buffers())
        return [t.clone() for t in [*tensors, *table]]

    first = build()
    stream = batches(*first[:2], 9)
    run(*first, stream[:5])
    pickled = pickle.loads(pickle.dumps(first))
    second = build()
    second[2].load_state_dict(first[2].state_dict())
    if name == "contrastive":
        second[0].temperatures.data.copy_(first[0].temperatures)
    second[3].load_state_dict(copy.deepcopy(first[3].state_dict()))
    expected = run(*first, stream[5:])
    for other in (pickled, second):
        assert other[3].objective is other[0]
        for one, two in zip(run(*other, stream[5:]), expected, strict=True):
            assert torch.equal(one, two)


def test_read_gives_plain_values_and_gather_both_parts():
    objective, inputs, model = make("contrastive")
    opt = fcco.SOX(parameters(objective, model), objective, lr=0.0, alpha=1.0, beta=1.0)
    batch = filled(objective.chunk(torch.arange(N)), inputs)
    opt.step(lambda: objective.inner(model, batch))
    with torch.no_grad():
        x, y = (nn.functional.normalize(model(view), dim=1) for view in (X, Z))
        temperatures = objective.temperatures.unsqueeze(1)
        pairs = ((x @ y.T - (x * y).sum(1, keepdim=True)) / temperatures).exp()
        u = (pairs.sum(1) - 1) / (N - 1)
    ids = torch.tensor([3, 0, 8])
    read = opt.table.read(ids)
    torch.testing.assert_close(
        read, torch.stack([u, temperatures[:, 0]], 1)[ids], rtol=1e-12, atol=0
    )
    rows = opt.table.gather(ids)
    assert rows.shape == (3, 3)
    torch.testing.assert_close(rows[:, 0].log() + rows[:, 2], u[ids].log(), rtol=0, atol=1e-12)
    assert opt.table.read(torch.tensor([1])).shape == (1, 2)


def test_an_initial_table_is_in_plain_values():
    objective, _, model = make("contrastive")
    initial = 1 + torch.rand((N, 2), dtype=torch.float64)
    opt = fcco.SOX(
        parameters(objective, model), objective, lr=0.1, alpha=1.0, beta=0.1, initial=initial
    )
    assert torch.equal(opt.table.read(torch.arange(N)), initial)


# Refusals -------------------------------------------------------------------------------------


def spoil_scale(change):
    return lambda probe: replace(probe, log_scale=change(probe.log_scale))


REFUSALS = {
    "requires grad": (
        spoil_scale(lambda s: s.clone().requires_grad_()),
        ValueError,
        "Probe.log_scale must be detached",
    ),
    "a column": (
        spoil_scale(lambda s: s.unsqueeze(1)),
        ValueError,
        r"Probe.log_scale must have shape \(\d\), got \(\d, 1\)",
    ),
    "too short": (spoil_scale(lambda s: s[:1]), ValueError, "Probe.log_scale must have shape"),
    "whole numbers": (
        spoil_scale(lambda s: s.long()),
        ValueError,
        "Probe.log_scale must be floating point",
    ),
    "not a tensor": (spoil_scale(lambda s: 3.0), ValueError, "Probe.log_scale must be a tensor"),
    "nan": (
        spoil_scale(lambda s: s.index_fill(0, torch.tensor([1]), torch.nan)),
        FloatingPointError,
        "non-finite Probe.log_scale at the {point} point of blocks",
    ),
    "infinite": (
        spoil_scale(lambda s: s.index_fill(0, torch.tensor([1]), torch.inf)),
        FloatingPointError,
        "non-finite Probe.log_scale at the {point} point of blocks",
    ),
    "minus infinity": (
        spoil_scale(lambda s: s.index_fill(0, torch.tensor([1]), -torch.inf)),
        FloatingPointError,
        "non-finite Probe.log_scale at the {point} point of blocks",
    ),
    "nan values": (
        lambda probe: replace(probe, values=probe.values * torch.nan),
        FloatingPointError,
        "non-finite Probe.values at the {point} point",
    ),
}


@pytest.mark.parametrize("what", REFUSALS)
@pytest.mark.parametrize("method", ["sox", "bsgd", "msvrm-v2-age", "msvrm-v3-theory"])
def test_a_bad_log_scale_is_named_and_changes_nothing(what, method):
    spoil, error, message = REFUSALS[what]
    objective, inputs, model = make("cox")
    opt = CATALOGUE[method].build(model.parameters(), objective, lr=0.01, alpha=0.4, beta=0.3)
    good = exact_pass(model, inputs, objective)
    for batch in batches(objective, inputs, 4):
        if opt.snapshot_due:
            opt.snapshot(good)
        opt.step(lambda: objective.inner(model, batch))  # noqa: B023
    before = capture(model, opt)
    with pytest.raises(error, match=message.format(point="current")):
        opt.step(lambda: spoil(objective.inner(model, batch)))
    assert_unchanged(before, model, opt)
    if CATALOGUE[method].anchored:
        with pytest.raises(error, match=message.format(point="snapshot")):
            opt.snapshot(lambda: spoil(good[0]()))
        assert_unchanged(before, model, opt)
    opt.step(lambda: objective.inner(model, batch))  # and the run goes on


@pytest.mark.parametrize("method", ["sox", "bsgd", "msvrm-v3-theory"])
def test_a_log_scale_with_a_plain_objective_is_refused(method):
    base, inputs, model = make("cox")
    twin = Twin(base)
    opt = CATALOGUE[method].build(model.parameters(), twin, lr=0.01, alpha=0.4, beta=0.3)
    batch = batches(base, inputs, 1)[0]
    before = capture(model, opt)
    if CATALOGUE[method].anchored:
        with pytest.raises(ValueError, match=r"Probe.log_scale is for a ScaledObjective.*Twin"):
            opt.snapshot(exact_pass(model, inputs, base))
        assert_unchanged(before, model, opt)
        opt.snapshot(exact_pass(model, inputs, twin))
        before = capture(model, opt)
    with pytest.raises(ValueError, match=r"Probe.log_scale is for a ScaledObjective.*Twin is not"):
        opt.step(lambda: base.inner(model, batch))
    assert_unchanged(before, model, opt)
    opt.step(lambda: twin.inner(model, batch))


def test_without_a_log_scale_values_are_plain():
    objective = Exponent(2)
    w = nn.Parameter(torch.tensor([0.5, -0.5], dtype=torch.float64))
    opt = fcco.SOX([w], objective, lr=0.0, alpha=1.0, beta=1.0)
    opt.step(lambda: Probe(torch.arange(2), w.exp().unsqueeze(1)))
    torch.testing.assert_close(opt.table.read(torch.arange(2))[:, 0], w.detach().exp())
    torch.testing.assert_close(opt.state[w]["z"], torch.full_like(w, 0.5))


def test_a_correction_takes_away_no_more_than_the_row_kept():
    """u = 0.01, g fell from 10 to 1: the recursion says -8.5, a moving average holds 0.5."""
    rows = Rows(make("cox")[0])
    old, before, now = (
        torch.tensor([[value, 0.0]], dtype=torch.float64) for value in (0.01, 10, 1)
    )
    row = Weights(current=0.5, since_previous=1.0)
    new = rows.advance(old, 0.5, row, now, {Point.PREVIOUS: before}, None, None)
    assert (new[:, 0] * new[:, 1].exp()).item() == pytest.approx(0.5, rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("power", range(0, 31, 2))
def test_mantissas_belong_to_their_scale_however_large_it_is(dtype, power):
    """A large scale rounds when it is moved; the row is compared with exact arithmetic."""
    objective = Exponent(1, 100)
    rows, blocks = Rows(objective), torch.tensor([0])
    generator = torch.Generator().manual_seed(power)
    scale = torch.tensor(1.7 * 10.0**power, dtype=dtype)
    gap = (torch.nextafter(scale, scale + torch.inf) - scale).item()
    for _ in range(20):
        sizes = torch.exp(torch.randn(2, generator=generator, dtype=torch.float64) * 8).to(dtype)
        lower = scale - gap * int(torch.randint(3, (), generator=generator))
        old = torch.stack([sizes[0], scale]).unsqueeze(0)
        fresh = torch.stack([sizes[1], lower]).unsqueeze(0)
        new = rows.advance(old, 0.7, Weights(current=0.3), fresh, {}, None, None)
        with localcontext() as exact:
            exact.prec = 80

            def log(row):
                """log u, but for the common scale."""
                mantissa, own = (Decimal(x.item()) for x in row[0])
                return mantissa.ln() + own - Decimal(scale.item())

            expected = (Decimal("0.7") * log(old).exp() + Decimal("0.3") * log(fresh).exp()).ln()
            error = abs(float(log(new) - expected))
        assert error < (1e-5 if dtype is torch.float32 else 1e-13)
        # The slope of log u at the row itself, for the fresh mantissa: exp(log fresh - log u) / m.
        slopes = rows.slopes(new, fresh, blocks, supported=False)
        with localcontext() as exact:
            exact.prec = 80
            ratio = float((log(fresh) - log(new)).exp() / Decimal(sizes[1].item()))
        assert slopes.item() == pytest.approx(ratio, rel=1e-4 if dtype is torch.float32 else 1e-12)
