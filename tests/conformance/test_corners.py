"""Corners that a suite over all optimizers would miss."""

import copy
import gc
import math
import sys
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from support import CATALOGUE, RULES, Draw, Toy, flat, make_model, make_update
from support.job import Job, assert_same, assert_unchanged, capture
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

import fcco
from fcco import MSVRM, SOX, ChangeBound, Probe

FAST = ["sox", "msvrm-v1-age", "msvrm-v2-theory", "msvrm-v3-age", "fresh-pair-v2"]


def part(draw, *rows):
    return Draw(*(t[list(rows)] for t in (draw.blocks, draw.samples, draw.pair)))


def z_of(opt, model):
    return flat(opt.state[p]["z"] for p in model.parameters())


# An ordinary loss beside the compositional one -------------------------------------------------


@pytest.mark.parametrize("name", ["sox", "msvrm-v1-age", "msvrm-v2-age"])
def test_loss_goes_through_the_gradient_row(name):
    """With f = 0 what remains is the loss: momentum, or STORM, on its gradient."""

    class Nothing(Toy):
        def outer(self, u, blocks):
            return 0.0 * u.sum(1)

    problem, model, alpha, lr = Nothing(), make_model("network", 1), 0.3, 0.1
    twin = make_model("network", 1)
    opt = CATALOGUE[name].build(model.parameters(), problem, alpha=alpha, lr=lr)
    generator = torch.Generator().manual_seed(0)
    z = before = None
    for _ in range(6):
        draw = problem.draw(3, 2, generator)
        x = torch.randn((8, 3), generator=generator, dtype=torch.float64)

        def closure(draw=draw, x=x):
            probe = problem.inner(model, draw)
            return Probe(probe.blocks, probe.values, loss=model(x).square().mean())

        def gradient(x=x):
            return flat(torch.autograd.grad(twin(x).square().mean(), twin.parameters()))

        opt.step(closure)
        here, now = flat(twin.parameters()), gradient()
        if z is None:
            z = now
        elif "v2" in name:
            nn.utils.vector_to_parameters(before, twin.parameters())
            z = now + (1 - alpha) * (z - gradient())
        else:
            z = (1 - alpha) * z + alpha * now
        before = here
        nn.utils.vector_to_parameters(here - lr * z, twin.parameters())
        torch.testing.assert_close(
            flat(model.parameters()), flat(twin.parameters()), rtol=1e-12, atol=1e-12
        )


def test_uneven_micro_batches_weigh_their_losses_by_blocks():
    problem = Toy()
    draw = problem.draw(4, 2, torch.Generator().manual_seed(0))
    x = torch.randn((2, 5, 3), dtype=torch.float64)
    ends = []
    for split in (False, True):
        model = make_model("network", 1)
        opt = SOX(model.parameters(), problem, lr=0.1, alpha=0.5, beta=0.5)

        def closure(rows, losses, model=model):
            def call():
                probe = problem.inner(model, part(draw, *rows))
                loss = sum(w * model(x[k]).square().mean() for k, w in losses)
                return Probe(probe.blocks, probe.values, loss=loss)

            return call

        if split:
            opt.step([closure([0, 1, 2], [(0, 1.0)]), closure([3], [(1, 1.0)])])
        else:
            opt.step(closure([0, 1, 2, 3], [(0, 0.75), (1, 0.25)]))
        ends.append(flat(model.parameters()))
    torch.testing.assert_close(*ends, rtol=1e-12, atol=1e-12)


def test_uneven_chunks_of_a_snapshot_weigh_their_losses_by_samples():
    problem = Toy(3, 1, inner_size=4, affine=True)
    model = make_model("network", 1)
    opt = MSVRM(model.parameters(), problem, version=3, lr=0.1, alpha=0.5, beta=0.5)
    everything = problem.everything()

    def chunk(columns, scale):
        def call():
            samples = everything.samples[:, columns]
            values = problem.values(model, everything.blocks, samples)
            loss = scale * model(problem.x[0]).square().mean()
            return Probe(everything.blocks, values, samples=len(columns), loss=loss)

        return call

    opt.snapshot([chunk([0, 1, 2], 1.0), chunk([3], 5.0)])
    exact = problem.values(model, everything.blocks, everything.samples)
    whole = (
        problem.outer(exact, everything.blocks).mean()
        + (0.75 * 1.0 + 0.25 * 5.0) * model(problem.x[0]).square().mean()
    )
    expected = flat(torch.autograd.grad(whole, model.parameters()))
    anchor = flat(opt.state[p]["anchor"] for p in model.parameters())
    torch.testing.assert_close(anchor, expected, rtol=1e-12, atol=1e-12)


# Counting --------------------------------------------------------------------------------------


def test_samples_may_differ_between_blocks():
    job = Job(CATALOGUE["msvrm-v2-theory"]).run(2)
    before, draw = job.opt.queries, job.draw()

    def closure():
        probe = job.inner(draw)
        return Probe(probe.blocks, probe.values, samples=torch.tensor([1, 5, 10]))

    job.opt.step(closure)
    assert job.opt.queries.values - before.values == 2 * 16
    assert job.opt.queries.gradients - before.gradients == 2 * 16


def test_a_chunked_snapshot_counts_every_sweep():
    """Blocks split over chunks: values twice at first, then once, totals being known."""
    problem = Toy(4, 1, inner_size=6)
    model = make_model("network", 1)
    opt = MSVRM(model.parameters(), problem, version=3, lr=0.1, alpha=0.5, beta=0.5)
    samples = problem.everything().samples
    halves = [Draw(torch.arange(4), s, s) for s in samples.split(3, dim=1)]
    calls = 0

    def chunk(half):
        def call():
            nonlocal calls
            calls += 1
            return problem.inner(model, half)

        return call

    chunks = [chunk(half) for half in halves]
    opt.snapshot(chunks)
    assert (opt.queries.values, opt.queries.gradients, calls) == (48, 36, 4)
    opt.snapshot(chunks)
    assert (opt.queries.values, opt.queries.gradients, calls) == (48 + 24, 36 + 24, 6)


class HostReads(TorchFunctionMode):
    """Counts the calls that wait for the device, but for counters, clock and gain on the host."""

    WAITING = {"tolist", "item", "__bool__", "__int__", "__float__", "nonzero", "cpu", "__index__"}

    def __init__(self):
        super().__init__()
        self.reads = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        if name in self.WAITING:
            caller = sys._getframe(1).f_code.co_filename
            if not caller.endswith(("memory.py", "table.py", "gain.py")):
                self.reads.append((name, caller))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", CATALOGUE)
@pytest.mark.parametrize(
    "update", [fcco.updates.Normalized(), fcco.updates.AMSGrad(radius=1.0)], ids=["norm", "amsgrad"]
)
def test_one_host_read_a_step(name, update):
    job = Job(CATALOGUE[name], update=update).run(2)
    draw = job.draw()
    with HostReads() as host:
        job.opt.step(lambda: job.inner(draw))
    assert [read[0] for read in host.reads] == ["tolist"], host.reads


# Gradients that share memory, parameters that come and go ---------------------------------------


@pytest.mark.parametrize("name", FAST)
def test_parameters_whose_gradients_share_a_buffer(name):
    """A sum of views gives both one buffer, to which a further point would add twice."""
    entry, results = CATALOGUE[name], []
    for shared in (True, False):
        problem = Toy(6, 1, affine=entry.affine)
        torch.manual_seed(0)
        a, b = (nn.Parameter(torch.randn(shape, dtype=torch.float64)) for shape in ((6, 1), (1, 6)))
        (a.view(6) + b.view(6)).backward(torch.ones(6, dtype=torch.float64))
        assert a.grad.data_ptr() == b.grad.data_ptr(), "this is what the test is about"
        opt = entry.build([a, b], problem, lr=0.1)
        generator = torch.Generator().manual_seed(0)

        def closure(blocks, xi, a=a, b=b, shared=shared):
            both = a.view(6) + b.view(6) if shared else (1 * a).view(6) + (1 * b).view(6)
            values = both.view(6, 1) * xi
            return Probe(blocks, values, pair=values)

        for _ in range(4):
            blocks = torch.randperm(6, generator=generator)
            xi = torch.rand((6, 1), generator=generator, dtype=torch.float64)
            if opt.snapshot_due:
                opt.snapshot(lambda xi=xi: closure(torch.arange(6), xi))
            opt.step(lambda blocks=blocks, xi=xi: closure(blocks, xi))
            assert opt.state[a]["z"].data_ptr() != opt.state[b]["z"].data_ptr()
        results.append(flat([a, b, opt.state[a]["z"], opt.state[b]["z"]]))
    torch.testing.assert_close(*results, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", FAST)
def test_parameters_whose_gradients_overlap(name):
    """Autograd gives ``last`` a part of the buffer of ``whole``, at another address."""
    entry, results = CATALOGUE[name], []
    for own in (False, True):
        problem = Toy(4, 1, affine=entry.affine)
        generator = torch.Generator().manual_seed(0)
        whole, first, last = params = [
            nn.Parameter(torch.randn(n, generator=generator, dtype=torch.float64))
            for n in (4, 1, 3)
        ]
        (whole.view(4, 1) + torch.cat([first, last]).view(4, 1)).backward(
            torch.ones(4, 1, dtype=torch.float64)
        )
        offset = last.grad.data_ptr() - whole.grad.data_ptr()
        assert offset == whole.element_size(), "this is what the test is about"
        opt = entry.build(params, problem, lr=0.1)

        def closure(xi, own=own, params=params):
            # Multiplied by 1, each parameter has a gradient of its own.
            whole, first, last = (1 * p for p in params) if own else params
            values = (whole.view(4, 1) + torch.cat([first, last]).view(4, 1)) * xi
            return Probe(torch.arange(4), values, pair=values)

        for _ in range(4):
            xi = torch.rand((4, 1), generator=generator, dtype=torch.float64)
            if opt.snapshot_due:
                opt.snapshot(lambda xi=xi: closure(xi))
            opt.step(lambda xi=xi: closure(xi))
        results.append(flat([*params, *(opt.state[p]["z"] for p in params)]))
    torch.testing.assert_close(*results, rtol=1e-12, atol=1e-12)


def test_a_state_does_not_hold_a_large_buffer():
    """The gradient of ``small`` is a part of the gradient of the concatenation."""
    small, large = nn.Parameter(torch.zeros(1)), torch.ones(10_000)
    opt = SOX([small], Toy(4, 1, dtype=torch.float32), lr=0.1)
    opt.step(lambda: Probe(torch.arange(4), (torch.cat([small, large]) * 2)[:4, None]))
    assert opt.state[small]["z"].untyped_storage().nbytes() == small.nbytes


@pytest.mark.parametrize("frozen", [torch.float8_e4m3fn, torch.complex64, torch.int8, torch.bool])
def test_a_frozen_parameter_may_have_any_type(frozen):
    weight = nn.Parameter(torch.ones(4, 1))
    other = nn.Parameter(torch.ones(2).to(frozen), requires_grad=False)
    opt = MSVRM([weight, other], Toy(4, 1, dtype=torch.float32), version=2, lr=0.1)
    for _ in range(2):
        opt.step(lambda: Probe(torch.arange(4), weight * 1))
    assert opt.table.dtype == torch.float32
    assert opt.state_dict()["state"].keys() == {0, 1}
    if frozen.is_complex:
        other.requires_grad_()
        with pytest.raises(ValueError, match="a parameter is complex"):
            opt.step(lambda: Probe(torch.arange(4), weight * 1))


@pytest.mark.parametrize("name", FAST)
def test_freezing_and_thawing_keeps_the_points_right(name):
    """The older points of a parameter that was frozen for a while are where it stands."""
    job = Job(CATALOGUE[name], kind="network").run(3)
    first = next(job.model.parameters())
    first.requires_grad_(False)
    job.run(3)
    first.requires_grad_(True)
    for point in job.opt.method.points:
        assert torch.equal(job.opt.state[first][point.value], first.detach())
    job.run(3)
    state = copy.deepcopy(job.opt.state_dict())
    other = Job(CATALOGUE[name], kind="network")
    other.opt.load_state_dict(state)
    assert other.opt.queries == job.opt.queries


@pytest.mark.parametrize("name", FAST)
def test_freezing_what_stands_still_changes_nothing_else(name):
    """A parameter that is frozen for a while differs from one whose lr is zero in its z alone."""
    frozen, still = Job(CATALOGUE[name], kind="network"), Job(CATALOGUE[name], kind="network")
    for job in (frozen, still):
        *others, last = job.model.parameters()
        job.opt = job.entry.build(
            [{"params": others}, {"params": [last], "lr": 0.0}],
            job.problem,
            snapshot_every=5 if job.entry.anchored else None,
        )
        job.run(3)
        last.requires_grad_(job is still)
        job.run(3)
    states = [job.opt.state_dict()["state"] for job in (frozen, still)]
    one, other = (state.pop(len(others)) for state in states)
    assert_same(*states)
    assert one.keys() == other.keys()
    # Both estimate its gradient, and the second snapshot was taken while it was frozen.
    own = {"z", "anchor", "anchor_step"}
    assert {key for key in one if not torch.equal(one[key], other[key])} <= own
    assert not torch.equal(one["z"], other["z"])
    assert torch.equal(frozen.w, still.w)


@pytest.mark.parametrize("name", FAST)
def test_a_parameter_frozen_when_built_resumes_with_its_state(name):
    def build():
        job = Job(CATALOGUE[name], kind="network")
        params = list(job.model.parameters())
        params[1].requires_grad_(False)
        job.opt = job.entry.build(
            params, job.problem, snapshot_every=5 if job.entry.anchored else None
        )
        return job, params[1]

    job, frozen = build()
    job.run(2)
    frozen.requires_grad_(True)
    before = capture(job.model, job.opt)
    # An error does not even leave an empty state behind; version 3 asks for a snapshot first.
    with pytest.raises(ValueError if job.entry.anchored else KeyError):
        job.opt.step(lambda: {}["no probe"])
    assert_unchanged(before, job.model, job.opt)
    job.run(3)
    other, thawed = build()
    other.model.load_state_dict(job.model.state_dict())
    thawed.requires_grad_(True)
    other.generator.set_state(job.generator.get_state())
    other.opt.load_state_dict(copy.deepcopy(job.opt.state_dict()))
    assert torch.equal(other.opt.state[thawed]["z"], job.opt.state[frozen]["z"])
    job.run(4)
    other.run(4)
    assert torch.equal(job.w, other.w)


@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize("rule", ["plain", "normalized", "adam"])
@pytest.mark.parametrize("used", [True, False])
def test_empty_parameters_change_nothing(name, rule, used):
    """Two, since buffers without entries seem to lie at one place; used or not in the closure."""
    plain, job = (
        Job(CATALOGUE[name], kind="network", update=make_update(RULES[rule])) for _ in range(2)
    )
    empties = [nn.Parameter(torch.zeros(0, 3, dtype=torch.float64)) for _ in range(2)]
    job.opt.add_param_group({"params": empties})
    inner = job.inner

    def inner_with_empties(draw):
        probe = inner(draw)
        nothing = sum(p.sum() for p in empties) if used else 0.0
        return Probe(**(vars(probe) | {"values": probe.values + nothing}))

    job.inner = inner_with_empties
    for _ in range(7):  # a snapshot is taken twice
        assert torch.equal(job.step(), plain.step())
        assert torch.equal(job.w, plain.w)
    for p in empties:
        assert p.shape == job.opt.state[p]["z"].shape == (0, 3)
        assert p.grad is None


def test_sparse_gradients_are_refused_by_name():
    table = nn.Embedding(6, 1, sparse=True).double()
    problem = Toy()
    opt = SOX(table.parameters(), problem, lr=0.1, alpha=0.5, beta=0.5)
    blocks = torch.tensor([0, 3])
    before = capture(table, opt)
    with pytest.raises(ValueError, match="parameter 0 has a sparse gradient"):
        opt.step(lambda: Probe(blocks, table(blocks)))
    assert_unchanged(before, table, opt)


def test_buffers_left_behind_by_a_moved_model_are_noticed():
    problem, model = Toy(), make_model("network", 1)
    elsewhere = [torch.zeros(2, device="meta")]
    opt = SOX(model.parameters(), problem, lr=0.1, alpha=0.5, beta=0.5, buffers=elsewhere)
    with pytest.raises(ValueError, match="after moving the model"):
        opt.step(lambda: problem.inner(model, problem.everything()))


# Snapshots -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["msvrm-v3-age", "fresh-pair-v3", "variant-v3"])
def test_a_non_finite_full_gradient_is_not_kept(name):
    job = Job(CATALOGUE[name])

    def closure():
        probe = job.inner(job.problem.everything())
        probe.values.register_hook(lambda g: g * float("nan"))
        return probe

    before = capture(job.model, job.opt)
    with pytest.raises(FloatingPointError, match="z of trainable parameters"):
        job.opt.snapshot(closure)
    assert_unchanged(before, job.model, job.opt)


@pytest.mark.parametrize("name", ["msvrm-v3-age", "fresh-pair-v3"])
def test_a_snapshot_taken_before_a_restart_is_a_point_of_its_own(name):
    job = Job(CATALOGUE[name], kind="network").run(5)
    job.snapshot()
    with torch.no_grad():
        for p in job.model.parameters():
            p.add_(0.1)
    job.opt.restart()
    calls = job.calls
    draw = job.draw()
    job.opt.step(lambda: job.inner(draw))
    assert job.calls - calls == 2  # the current point and the snapshot


def test_an_objective_may_project_in_place():
    class InPlace(Toy):
        def feasible(self, u, blocks):
            return u.clamp_(-0.2, 0.2)

    ends = []
    for cls in (InPlace, Toy):
        problem, model = cls(box=0.2), make_model("network", 1)
        opt = MSVRM(model.parameters(), problem, version=3, lr=0.1, alpha=0.5, beta=0.5)
        generator = torch.Generator().manual_seed(0)
        opt.snapshot(lambda: problem.inner(model, problem.everything()))  # noqa: B023
        for _ in range(5):
            draw = problem.draw(3, 2, generator)
            opt.step(lambda: problem.inner(model, draw))  # noqa: B023
        ends.append(flat(model.parameters()))
    torch.testing.assert_close(*ends, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["sox", "msvrm-v2-theory"])
def test_an_objective_may_take_its_slope_in_place(name):
    class Plain(Toy):
        def outer_slope(self, u, blocks):
            return u * 2

    class InPlace(Toy):
        def outer_slope(self, u, blocks):
            return u.mul_(2)

    ends = []
    for cls in (Plain, InPlace):
        job = Job(CATALOGUE[name], kind="network")
        job.problem = job.opt.objective = cls(6, 2)
        ends.append(job.run(4).w)
    assert torch.equal(*ends)


def test_noise_that_a_closure_writes_in_place():
    """One tensor for the noise at every point; that of the current point counts."""
    ends = []
    for shared in (True, False):
        problem, model = Toy(4, 1), make_model("network", 1)
        opt = MSVRM(model, problem, version=1, lr=0.3, beta="auto")
        generator = torch.Generator().manual_seed(0)
        buffer = torch.zeros(4, 1, dtype=torch.float64)

        def closure(draw):
            values = problem.inner(model, draw).values  # noqa: B023
            noise = values.detach().abs() * 0.3
            noise = buffer.copy_(noise) if shared else noise  # noqa: B023
            return Probe(draw.blocks, values, noise=noise)

        for _ in range(6):
            draw = problem.draw(4, 2, generator)
            opt.step(lambda draw=draw: closure(draw))
        ends.append(torch.cat([flat(model.parameters()), opt.table.gain]))
    assert torch.equal(*ends)


def test_the_end_of_an_iterator_reaches_the_caller():
    job = Job(CATALOGUE["msvrm-v3-age"], kind="network")
    job.step()
    before, draws = capture(job.model, job.opt), iter(())
    for call in (job.opt.step, job.opt.estimate, job.opt.snapshot):
        with pytest.raises(StopIteration):
            call(lambda: job.problem.inner(job.model, next(draws)))
        assert_unchanged(before, job.model, job.opt)


# Precision -------------------------------------------------------------------------------------


def test_bfloat16_gradients_of_two_points_are_combined_in_float32():
    problem = Toy(4, 1, dtype=torch.float32)
    model = make_model("network", 1).bfloat16()
    alpha = 0.25
    opt = MSVRM(model.parameters(), problem, version=2, lr=0.05, alpha=alpha, beta=0.5, initial=0.5)
    generator = torch.Generator().manual_seed(0)

    def gradient(draw, u):
        values = problem.values(lambda x: model(x.bfloat16()), draw.blocks, draw.samples)
        slopes = problem.slope(u[draw.blocks], draw.blocks).to(values.dtype)
        return flat(torch.autograd.grad(values, model.parameters(), slopes)).float() / 2

    u = u_before = torch.full((4, 1), 0.5)
    z = before = None
    for _ in range(4):
        draw = problem.draw(2, 1, generator)
        here = flat(model.parameters())
        now = gradient(draw, u)
        if z is None:
            z = now
        else:
            nn.utils.vector_to_parameters(before, model.parameters())
            z = (1 - alpha) * z + now - (1 - alpha) * gradient(draw, u_before)
            nn.utils.vector_to_parameters(here.clone(), model.parameters())
        opt.step(lambda: problem.inner(lambda x: model(x.bfloat16()), draw))  # noqa: B023
        before, u_before, u = here, u, opt.table.read(torch.arange(4))
        torch.testing.assert_close(z_of(opt, model), z, rtol=1e-6, atol=1e-6)


def test_bfloat16_gradients_of_micro_batches_add_up_in_float32():
    """The largest comes first: in bfloat16, which has 8 bits, the others would be rounded away."""
    problem, weight = Toy(4, 1, dtype=torch.float32), nn.Parameter(torch.ones(1).bfloat16())
    opt = SOX([weight], problem, lr=0.0, alpha=1.0, beta=0.5, initial=0.5)
    sizes = [256.0, 0.5, 0.5, 0.5]

    def closure(block):
        return Probe(torch.tensor([block]), (sizes[block] * weight).view(1, 1))

    opt.step([lambda block=block: closure(block) for block in range(4)])
    slopes = problem.slope(torch.full((4, 1), 0.5), torch.arange(4)).bfloat16().float()
    parts = (slopes.flatten() * torch.tensor(sizes)).bfloat16().float()
    assert opt.state[weight]["z"].item() == pytest.approx(parts.mean().item(), rel=1e-6)


def test_an_outer_autocast_keeps_no_cast_of_another_point():
    problem = Toy(4, 1, dtype=torch.float32)
    model = make_model("network", 1).float()
    opt = MSVRM(model.parameters(), problem, version=2, lr=0.0, alpha=0.5, beta=0.5)
    generator = torch.Generator().manual_seed(0)
    x = torch.ones(2, 3)
    for _ in range(2):
        with torch.no_grad():
            for p in model.parameters():
                p.add_(1.0)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            draw = problem.draw(2, 1, generator)
            opt.estimate(lambda: problem.inner(model, draw))  # noqa: B023
            seen = model(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(seen, model(x))


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_an_outer_autocast_keeps_no_tangent_of_another_micro_batch(parts):
    """A weight that was cast while one closure ran carries the tangent of a level that ended."""
    ends = []
    for cached in (True, False):
        problem = Toy(4, 1, dtype=torch.float32)
        model, scale = make_model("network", 1).float(), nn.Parameter(torch.ones(()))
        opt = MSVRM(
            [*model.parameters(), scale], problem, version=1, single_point=True, lr=0.1, gamma=2.0
        )
        generator = torch.Generator().manual_seed(0)
        for _ in range(3):
            draw = problem.draw(4, 1, generator)

            def closure(rows, draw=draw, problem=problem, model=model, scale=scale):
                probe = problem.inner(model, part(draw, *rows))
                return Probe(probe.blocks, probe.values.float() * scale)

            chunks = torch.arange(4).tensor_split(parts)
            with torch.autocast("cpu", torch.bfloat16, cache_enabled=cached):
                opt.step([lambda rows=rows: closure(rows.tolist()) for rows in chunks])
        ends.append(opt.table.read(torch.arange(4)))
    assert torch.equal(*ends)


# The safeguard ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["msvrm-v2-theory", "msvrm-v3-theory", "fresh-pair-v2"])
def test_safeguard_does_nothing_at_small_steps_and_bounds_large_ones(name):
    entry, alpha = CATALOGUE[name], 0.4

    def run(lr, safeguard):
        problem = Toy(affine=entry.affine)
        model = make_model("network", 1)
        opt = entry.build(model.parameters(), problem, lr=lr, alpha=alpha, safeguard=safeguard)
        generator = torch.Generator().manual_seed(1)
        if opt.snapshot_due:
            opt.snapshot(lambda: problem.inner(model, problem.everything()))
        for _ in range(6):
            draw = problem.draw(3, 2, generator)
            opt.step(lambda: problem.inner(model, draw))  # noqa: B023
        return flat(model.parameters())

    small, large = 1e-3, 3.0
    torch.testing.assert_close(run(small, ChangeBound()), run(small, None), rtol=1e-12, atol=1e-12)
    assert not torch.allclose(run(large, ChangeBound()), run(large, None), rtol=1e-3)


def test_safeguard_zero_is_momentum_and_the_bound_is_met():
    """ratio = 0 turns version 2 into momentum; else the correction is ratio alpha ||G|| long."""
    problem, alpha = Toy(), 0.4
    generator = torch.Generator().manual_seed(1)
    draws = [problem.draw(3, 2, generator) for _ in range(3)]

    def step_through(version, safeguard):
        model = make_model("network", 1)
        opt = MSVRM(
            model.parameters(),
            problem,
            version=version,
            lr=3.0,
            alpha=alpha,
            beta=0.5,
            safeguard=safeguard,
        )
        zs = []
        for draw in draws[:2]:
            opt.step(lambda: problem.inner(model, draw))  # noqa: B023
            zs.append(z_of(opt, model))
        return zs

    momentum, none = step_through(1, None)
    torch.testing.assert_close(step_through(2, ChangeBound(ratio=0.0))[1], none)
    bounded = step_through(2, ChangeBound(ratio=0.5))[1]
    correction = bounded - none  # version 1 is the same without it
    sample = (none - (1 - alpha) * momentum) / alpha
    torch.testing.assert_close(correction.norm(), 0.5 * alpha * sample.norm())


# Forward mode ----------------------------------------------------------------------------------


def test_single_point_refuses_a_log_scale_that_moves():
    """Tangents pass through no_grad, so such a scale would change the derivative of the values."""

    class Sums(fcco.ScaledObjective):
        num_blocks, inner_dim, inner_size = 2, 1, 8

        def scaled_outer(self, u, log_scale, blocks):
            return u[:, 0].log() + log_scale

    model, x = torch.nn.Linear(4, 2), torch.randn(8, 4)
    opt = fcco.MSVRM(model, Sums(), version=1, lr=0.1, single_point=True)

    def closure(detach):
        exponents = model(x).T
        with torch.no_grad():
            scale = exponents.detach().amax(1) if detach else exponents.amax(1)
        values = (exponents - scale[:, None]).exp().mean(1, keepdim=True)
        return Probe(torch.arange(2), values, log_scale=scale)

    for _ in range(2):
        opt.step(lambda: closure(detach=True))
    before = capture(model, opt)
    with pytest.raises(ValueError, match="log_scale has a derivative"):
        opt.step(lambda: closure(detach=False))
    assert_unchanged(before, model, opt)


def test_single_point_says_when_tangents_are_dropped():
    class Opaque(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    problem, model = Toy(), make_model("network", 1)
    opt = CATALOGUE["msvrm-v1-sp"].build(model.parameters(), problem)

    def closure():
        probe = problem.inner(model, problem.everything())
        return Probe(probe.blocks, Opaque.apply(probe.values))

    opt.step(closure)
    before = capture(model, opt)
    with pytest.raises(NotImplementedError, match="single_point=False"):
        opt.step(closure)
    assert_unchanged(before, model, opt)

    anchor = torch.zeros(1, requires_grad=True)

    def reentrant():
        draw = problem.everything()

        def values(_):
            return problem.values(model, draw.blocks, draw.samples)

        return Probe(draw.blocks, checkpoint(values, anchor, use_reentrant=True))

    with pytest.raises(ValueError, match="drops forward-mode tangents"):
        opt.step(reentrant)
    assert_unchanged(before, model, opt)


@pytest.mark.parametrize("name", ["sox", "msvrm-v1-age", "msvrm-v2-theory", "msvrm-v3-age"])
def test_cached_parametrizations_follow_the_points(name):
    """Around a step, parametrize.cached() would hand the weights of one point to the next."""
    ends = []
    for cached in (False, True):
        job = Job(CATALOGUE[name], kind="network")
        nn.utils.parametrizations.weight_norm(job.model[0])
        job.opt = CATALOGUE[name].build(job.model, job.problem, lr=0.05, alpha=0.4, beta=0.3)
        for _ in range(5):
            with nn.utils.parametrize.cached() if cached else nullcontext():
                job.step()
        ends.append(job.w)
    assert torch.equal(*ends)


def test_a_table_of_low_precision_is_at_least_float32():
    initial = torch.zeros(6, 1, dtype=torch.bfloat16)
    opt = fcco.SOX(make_model("linear", 1).float(), Toy(), lr=0.1, initial=initial)
    assert opt.table.dtype == torch.float32


@pytest.mark.parametrize("entry", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["sox", "msvrm-v2-age", "msvrm-v3-theory"])
def test_a_saved_state_that_is_not_finite_is_refused(name, entry):
    job = Job(CATALOGUE[name]).run(3)
    good = copy.deepcopy(job.opt.state_dict())
    for spoil in ("z", "rows"):
        bad = copy.deepcopy(good)
        shared = bad["param_groups"][-1]["shared"]
        (bad["state"][0]["z"] if spoil == "z" else shared["table"]["rows"])[0] = entry
        before = capture(job.model, job.opt)
        with pytest.raises(ValueError, match=f"{spoil} has non-finite entries"):
            job.opt.load_state_dict(bad)
        assert_unchanged(before, job.model, job.opt)


def test_the_saved_settings_are_loaded():
    state = SOX(make_model("linear", 1), Toy(), lr=0.5, alpha=0.25, weight_decay=0.1).state_dict()
    opt = SOX(make_model("linear", 1), Toy(), lr=0.1)
    opt.load_state_dict(copy.deepcopy(state))
    found = {name: opt.param_groups[0][name] for name in ("lr", "alpha", "weight_decay")}
    assert found == {"lr": 0.5, "alpha": 0.25, "weight_decay": 0.1}


def test_a_step_of_many_blocks_resumes():
    """u_{t-2} of more rows than a new optimizer has room for."""
    problem, draws = Toy(4_200, 1, inner_size=2), []
    generator = torch.Generator().manual_seed(0)
    draws = [problem.draw(size, 1, generator) for size in (4_200, 4_200, 5, 5)]
    ends = []
    for stop in (None, 2):
        model = make_model("linear", 1)
        opt = MSVRM(model, problem, version=2, lr=0.1)
        for number, draw in enumerate(draws):
            if number == stop:
                state, opt = copy.deepcopy(opt.state_dict()), MSVRM(model, problem, version=2, lr=1)
                opt.load_state_dict(state)
            opt.step(lambda: problem.inner(model, draw))  # noqa: B023
        ends.append(flat(model.parameters()))
    torch.testing.assert_close(*ends, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["msvrm-v3-age", "fresh-pair-v3"])
@pytest.mark.parametrize("how", ["added", "thawed", "frozen across a snapshot"])
def test_a_parameter_without_an_anchor_makes_a_snapshot_due(name, how):
    """Its z would be zero, or follow an anchor of another point, until the next one."""
    job = Job(CATALOGUE[name], kind="network", snapshot_every=None)
    late = job.model[2].bias
    if how == "added":
        params = [p for p in job.model.parameters() if p is not late]
        job.opt = CATALOGUE[name].build(params, job.problem, lr=0.05)
    late.requires_grad_(how == "frozen across a snapshot")
    job.run(2)
    if how == "frozen across a snapshot":
        late.requires_grad_(False)
        job.opt.snapshot(lambda: job.inner(job.problem.everything()))
        job.step()
    late.requires_grad_(True)
    if how == "added":
        job.opt.add_param_group({"params": [late]})
    assert job.opt.snapshot_due
    draw, before = job.draw(), capture(job.model, job.opt)
    with pytest.raises(ValueError, match="a snapshot is due before step"):
        job.opt.step(lambda: job.inner(draw))
    assert_unchanged(before, job.model, job.opt)
    job.opt.snapshot(lambda: job.inner(job.problem.everything()))
    assert not job.opt.snapshot_due
    job.opt.step(lambda: job.inner(draw))
    exact = job.opt.state[late]["anchor"]
    assert exact.abs().min() > 0


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            n, marks=() if n in ("sox", "msvrm-v1-sp", "msvrm-v3-theory") else pytest.mark.slow
        )
        for n, e in CATALOGUE.items()
        if not e.extra
    ],
)
def test_a_step_leaves_nothing_to_the_garbage_collector(name):
    """A cycle would keep the graphs of many steps until it is found."""
    job = Job(CATALOGUE[name]).run(8)
    while gc.collect():  # what other tests left may need several passes
        pass
    gc.disable()
    try:
        job.run(3)
        assert gc.collect() == 0
    finally:
        gc.enable()


# Sizes and precisions ---------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1e-36, 1e-25, 1.0, 1e20, 1e37])
def test_directions_of_gradients_of_any_size(size):
    """The norm of (3, 4) is 5, also where squares of float32 are 0 or infinite."""
    z = torch.tensor([3.0, 4.0]) * size
    expected = (z.double() / z.double().norm()).float()
    (direction,) = fcco.updates.Normalized().directions([z], [{}])
    torch.testing.assert_close(direction, expected)
    (direction,) = fcco.updates.Projected(size / 2).directions([z], [{}])
    torch.testing.assert_close(direction / (size / 2), expected, rtol=1e-5, atol=0)
    (direction,) = fcco.updates.Projected(10 * size).directions([z], [{}])
    assert direction.equal(z)
    for rule in (fcco.updates.Normalized(), fcco.updates.Projected(size)):
        assert rule.directions([0 * z], [{}])[0].tolist() == [0.0, 0.0]


def test_initial_values_have_no_graph():
    problem, model = Toy(6, 1), make_model("network", 1)
    initial = problem.inner(model, problem.everything()).values
    opt = SOX(model, problem, lr=0.1, initial=initial)
    assert not opt.table.read(torch.arange(6)).requires_grad
    assert copy.deepcopy(opt).table.rows.equal(initial.detach())


def test_blocks_that_a_closure_writes_in_place():
    """One tensor for the blocks of every point; they differ, though the tensor is the same."""
    problem, model = Toy(6, 1), make_model("network", 1)
    opt = MSVRM(model, problem, version=2, lr=0.1)
    draw = problem.draw(3, 2, torch.Generator().manual_seed(0))
    opt.step(lambda: problem.inner(model, draw))
    blocks = torch.zeros(3, dtype=torch.int64)

    def closure():
        blocks.copy_((blocks[0] + torch.arange(1, 4)) % 6)
        return Probe(blocks, problem.inner(model, draw).values)

    with pytest.raises(ValueError, match=r"blocks \[1, 2, 3\] .* but \[2, 3, 4\]"):
        opt.step(closure)


def test_parameters_that_become_more_precise():
    problem, model = Toy(6, 1), make_model("network", 1).float()
    opt = SOX(model, problem, lr=0.1)
    assert opt.table.rows.dtype == torch.float32
    model.double()
    before = capture(model, opt)
    with pytest.raises(ValueError, match="float64, which the state of this optimizer would round"):
        opt.step(lambda: problem.inner(model, problem.everything()))
    assert_unchanged(before, model, opt)


def test_an_error_leaves_no_gradient_behind():
    problem, model = Toy(6, 1), make_model("network", 1).float()
    opt = SOX(model, problem, lr=0.1)
    model.double()
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    with pytest.raises(ValueError, match="would round"):
        opt.step(lambda: problem.inner(model, problem.everything()))
    assert all(p.grad is None for p in model.parameters())


def test_a_table_begins_with_an_array():
    rows = np.arange(6.0).reshape(6, 1)
    for initial in (rows, rows.tolist(), rows[:, ::-1]):
        opt = SOX(make_model("network", 1), Toy(6, 1), lr=0.1, initial=initial)
        assert opt.table.read(range(6)).flatten().tolist() == rows.flatten().tolist()
    for initial in ("abc", [[1.0]], rows * np.nan, rows.astype(int)):
        with pytest.raises(ValueError, match="initial"):
            SOX(make_model("network", 1), Toy(6, 1), lr=0.1, initial=initial)


@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.int32, np.int64, list])
def test_rows_are_read_by_ids_of_any_whole_type(kind):
    """torch takes uint8 for a mask."""
    initial = torch.arange(5.0, dtype=torch.float64)[:, None]
    opt = SOX(make_model("network", 1), Toy(5, 1), lr=0.1, initial=initial)
    ids = [3, 0, 1]
    read = opt.table.read(ids if kind is list else np.array(ids, dtype=kind))
    assert read.flatten().tolist() == ids
    assert opt.table.read([]).shape == (0, 1)
    for wrong in (torch.ones(5, dtype=torch.bool), torch.tensor([0.0])):
        with pytest.raises(ValueError, match="blocks must be ids of blocks"):
            opt.table.read(wrong)


@pytest.mark.parametrize("wrong", [
    {"lr": -1.0}, {"lr": "a"}, {"weight_decay": torch.nan}, {"alpha": 0.1}, {"beta": 0.1},
    "float64",
], ids=str)  # fmt: skip
def test_a_group_with_which_no_step_is_possible_is_not_added(wrong):
    """It was added, and every later step failed."""
    w = nn.Parameter(torch.ones(2, 1))
    optimizer = MSVRM([w], Toy(6, 1), version=2, lr=0.1)

    def closure():
        return Probe(torch.tensor([0, 1]), w * 2)

    optimizer.step(closure)
    dtype = torch.float64 if wrong == "float64" else torch.float32
    added = nn.Parameter(torch.ones(1, dtype=dtype))
    before, known = len(optimizer.param_groups), len(optimizer.state)
    with pytest.raises(ValueError, match=r"float64|lr|weight_decay|alpha|beta"):
        optimizer.add_param_group({"params": [added]} | ({} if wrong == "float64" else wrong))
    assert len(optimizer.param_groups) == before
    assert len(optimizer.state) == known
    optimizer.step(closure)
