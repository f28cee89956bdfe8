"""What every optimizer of the catalogue must do, whatever its equations.

A new method is tested by its row in ``fcco.methods.REGISTRY``, from which the catalogue is made.
"""

import copy
import io
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from support import CATALOGUE, Draw, Entry, Toy, flat, make_model
from support.job import Job, assert_same, assert_unchanged, capture
from torch import Tensor, nn

from fcco.optim import CompositionalOptimizer
from fcco.problem.probe import Probe
from fcco.updates import Adam, AMSGrad

# Those that differ from another in gamma or slopes alone are in the slow suite.
pytestmark = pytest.mark.parametrize(
    "entry",
    [
        pytest.param(entry, marks=pytest.mark.slow if entry.extra else (), id=name)
        for name, entry in CATALOGUE.items()
    ],
)


def _points(entry: Entry, step: int, snapshot_every: int) -> tuple[int, int, int]:
    """Closure calls, value passes and gradient passes of step t, from the registry's costs."""
    pair = 2 if entry.affine else 1
    if step == 1:
        return 1, pair, 1
    points, values, gradients = entry.points, entry.values, entry.gradients
    if entry.anchored and (step - 1) % snapshot_every == 0:
        points, values, gradients = points - 1, values - pair, gradients - 1
    return points, values, gradients


def test_calls_and_queries(entry: Entry) -> None:
    """The closure is called once per point; queries follow the formula exactly."""
    job = Job(entry)
    for step in range(1, 13):
        if job.opt.snapshot_due:
            before, calls = job.opt.queries, job.calls
            job.snapshot()
            samples = job.problem.num_blocks * job.problem.inner_size
            assert job.calls == calls + 1
            assert job.opt.queries.values == before.values + samples
            assert job.opt.queries.gradients == before.gradients + samples
        before, calls = job.opt.queries, job.calls
        job.step()
        points, values, gradients = _points(entry, step, 5)
        assert job.calls - calls == points, f"step {step}"
        assert job.opt.queries.values - before.values == values * 3 * 2, f"step {step}"
        assert job.opt.queries.gradients - before.gradients == gradients * 3 * 2, f"step {step}"


def test_one_pass(entry: Entry) -> None:
    """BatchNorm buffers, the RNG and dropout masks end a step as after one forward pass."""
    job = Job(entry)
    for _ in range(7):
        job.snapshot()
        twin = copy.deepcopy(job.model)
        rng = torch.get_rng_state()
        draw = job.draw()
        job.problem.inner(twin, draw)
        after = torch.get_rng_state()
        torch.set_rng_state(rng)
        job.step(draw)
        assert torch.equal(torch.get_rng_state(), after)
        for ours, theirs in zip(job.model.buffers(), twin.buffers(), strict=True):
            assert torch.equal(ours, theirs)


def test_snapshot_leaves_no_trace(entry: Entry) -> None:
    """A snapshot changes neither parameters, buffers nor the RNG."""
    job = Job(entry).run(2)
    if not entry.anchored:
        with pytest.raises(ValueError, match="snapshot"):
            job.opt.snapshot(lambda: job.inner(job.problem.everything()))
        return
    before = copy.deepcopy((job.model.state_dict(), torch.get_rng_state()))
    job.opt.snapshot(lambda: job.inner(job.problem.everything()))
    assert_same(list(before), [job.model.state_dict(), torch.get_rng_state()], "")
    assert all(p.grad is None for p in job.model.parameters())


def _resumes(entry: Entry, carry: Callable[[Job, Job], None], **options: Any) -> None:
    """Run 8 + 6 steps; a job that continues after 8 (between snapshots) ends bit-identical."""
    job = Job(entry, **options).run(8)
    other = Job(entry, **options)
    other.model.load_state_dict(copy.deepcopy(job.model.state_dict()))
    other.generator.set_state(job.generator.get_state())
    carry(job, other)
    rng = torch.get_rng_state()
    job.run(6)
    torch.set_rng_state(rng)
    other.run(6)
    assert torch.equal(job.w, other.w)
    assert_same(job.opt.state_dict(), other.opt.state_dict(), "")


def test_state_dict_resumes(entry: Entry) -> None:
    """Saved to disk and loaded with ``weights_only=True``, the run continues bit for bit."""

    def carry(job: Job, other: Job) -> None:
        file = io.BytesIO()
        torch.save(job.opt.state_dict(), file)
        file.seek(0)
        other.opt.load_state_dict(torch.load(file, weights_only=True))

    _resumes(entry, carry)
    _resumes(entry, carry, update=Adam())
    _resumes(entry, carry, update=AMSGrad(radius=1.0))


def test_loading_copies(entry: Entry) -> None:
    """Two optimizers loaded from one state do not share memory."""
    job, other = Job(entry).run(3), Job(entry)
    state = job.opt.state_dict()
    other.opt.load_state_dict(state)
    kept = copy.deepcopy(state)
    other.run(3)
    assert_same(kept["state"], job.opt.state_dict()["state"], "")


def test_distributed_state_dict_resumes(entry: Entry) -> None:
    """``get_optimizer_state_dict`` keeps the table, plain and flattened."""
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        get_optimizer_state_dict,
        set_optimizer_state_dict,
    )

    for flatten in (False, True):
        options = StateDictOptions(flatten_optimizer_state_dict=flatten)

        def carry(job: Job, other: Job, options: Any = options) -> None:
            state = get_optimizer_state_dict(job.model, job.opt, options=options)
            set_optimizer_state_dict(other.model, other.opt, copy.deepcopy(state), options=options)

        _resumes(entry, carry)


def test_lost_state_is_an_error(entry: Entry) -> None:
    """A state without its table, of another method or size is refused, and nothing changes."""
    job = Job(entry).run(3)
    good = copy.deepcopy(job.opt.state_dict())
    empty = copy.deepcopy(good)
    empty["state"] = {}
    no_z = copy.deepcopy(good)
    del no_z["state"][1]["z"]
    wrong_size = copy.deepcopy(good)
    wrong_size["state"][1]["z"] = torch.zeros(3)
    bad = [empty, no_z, wrong_size]
    if job.opt.table is not None:
        for name in dict(job.opt.table.named_buffers()):
            bad.append(copy.deepcopy(good))
            del bad[-1]["param_groups"][1]["shared"]["table"][name]
        bad.append(copy.deepcopy(good))
        del bad[-1]["param_groups"][1]["shared"]["table"]
        bad.append(copy.deepcopy(good))
        del bad[-1]["param_groups"][1]
        bad.append(copy.deepcopy(good))
        bad[-1]["param_groups"][1]["shared"]["table"]["rows"] = torch.zeros(7, 2)
    sgd = torch.optim.SGD(job.model.parameters(), lr=0.1)
    bad.append(sgd.state_dict())
    for state in bad:
        before = capture(job.model, job.opt)
        with pytest.raises(ValueError, match="saved"):
            job.opt.load_state_dict(state)
        assert_unchanged(before, job.model, job.opt)


@pytest.mark.sweep(3)
def test_pickles_and_copies(entry: Entry) -> None:
    """A pickled or deep-copied optimizer continues bit for bit, also with a scheduler."""
    copiers: tuple[Callable[[Any], Any], ...] = (
        copy.deepcopy,
        lambda both: pickle.loads(pickle.dumps(both)),
    )
    for scheduled in (False, True):
        for copier in copiers:
            job = Job(entry)
            if scheduled:
                torch.optim.lr_scheduler.StepLR(job.opt, step_size=2)
            job.run(8)
            model, opt = copier((job.model, job.opt))
            rng, stream = torch.get_rng_state(), job.generator.get_state()
            job.run(6)
            torch.set_rng_state(rng)
            twin = Job(entry)
            twin.model, twin.opt = model, opt
            twin.generator.set_state(stream)
            torch.set_rng_state(rng)
            twin.run(6)
            assert torch.equal(job.w, twin.w)
            assert opt.queries == job.opt.queries


def test_follows_schedulers(entry: Entry) -> None:
    """A learning-rate scheduler acts as setting lr by hand, and lr may differ between groups."""
    job, twin = Job(entry), Job(entry)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(job.opt, gamma=0.8)
    for step in range(6):
        for group in twin.opt.param_groups:
            group["lr"] = 0.05 * 0.8**step
        torch.manual_seed(step)
        job.step()
        scheduler.step()
        torch.manual_seed(step)
        twin.step()
    torch.testing.assert_close(job.w, twin.w, rtol=1e-13, atol=1e-13)
    layers = make_model("network", 2)
    still, moving = list(layers[0].parameters()), list(layers[2].parameters())
    groups: list[dict[str, Any]] = [{"params": still, "lr": 0.0}, {"params": moving}]
    opt = entry.build(groups, job.problem, lr=0.05)
    before = flat(still), flat(moving)
    if opt.snapshot_due:
        opt.snapshot(lambda: job.problem.inner(layers, job.problem.everything()))
    for draw in (job.draw(), job.draw()):
        opt.step(partial(job.problem.inner, layers, draw))
    assert torch.equal(flat(still), before[0])
    assert not torch.equal(flat(moving), before[1])


def test_frozen_and_unused_parameters(entry: Entry) -> None:
    """Frozen and unused parameters stay; one that gets no gradient at one point is fine."""
    job = Job(entry, kind="network")
    unused = nn.Parameter(torch.ones(3, dtype=torch.float64))
    params = [*job.model.parameters(), unused]
    params[0].requires_grad_(False)
    frozen = params[0].detach().clone()
    job.opt = entry.build(
        params, job.problem, lr=0.05, snapshot_every=5 if entry.anchored else None, weight_decay=0.1
    )
    job.run(7)
    assert torch.equal(params[0], frozen)
    assert torch.equal(unused, torch.ones(3, dtype=torch.float64))
    # An extra that enters the graph only while it is zero, that is, only at the first point.
    extra = nn.Parameter(torch.zeros(2, dtype=torch.float64))
    opt = entry.build([*job.model.parameters(), extra], job.problem, lr=0.05)
    params[0].requires_grad_(True)

    def closure(draw: Draw) -> Probe:
        probe = job.problem.inner(job.model, draw)
        if bool(extra.detach().abs().sum() > 0):
            return probe
        return Probe(probe.blocks, probe.values + extra, probe.samples, probe.pair)

    if opt.snapshot_due:
        opt.snapshot(lambda: closure(job.problem.everything()))
    for draw in (job.draw(), job.draw(), job.draw()):
        opt.step(partial(closure, draw))
    assert flat(opt.state[p]["z"] for p in [*job.model.parameters(), extra]).isfinite().all()
    assert not torch.equal(extra.detach(), torch.zeros(2, dtype=torch.float64))


def test_bfloat16_parameters(entry: Entry) -> None:
    """State of bf16 parameters is float32, also after loading, and steps stay close to float64."""
    job = Job(entry, kind="network")
    model = copy.deepcopy(job.model).bfloat16()
    problem = Toy(6, 2, affine=entry.affine, dtype=torch.float32)

    def closure(draw: Draw) -> Probe:
        probe = problem.inner(lambda x: model(x.bfloat16()), draw)
        return probe

    def build() -> CompositionalOptimizer:
        return entry.build(model.parameters(), problem, lr=0.05, alpha=0.4, beta=0.3)

    opt = build()
    if opt.snapshot_due:
        opt.snapshot(lambda: closure(problem.everything()))
        job.snapshot()
    for _ in range(4):
        draw = job.draw()
        job.step(draw)
        opt.step(partial(closure, draw))
    restored = build()
    restored.load_state_dict(opt.state_dict())
    for p in model.parameters():
        assert restored.state[p]["z"].dtype == torch.float32
        assert torch.equal(restored.state[p]["z"], opt.state[p]["z"])
        assert p.dtype == torch.bfloat16
    if opt.table is not None and restored.table is not None:
        assert restored.table.dtype == torch.float32
    torch.testing.assert_close(flat(model.parameters()).double(), job.w, rtol=0.05, atol=0.05)


def test_bfloat16_autocast(entry: Entry) -> None:
    """Autocast inside the closure, and around the whole step, both give the same weights."""

    def run(around: bool) -> Tensor:
        job = Job(entry, kind="network")
        job.model.float()
        problem = Toy(6, 2, affine=entry.affine, dtype=torch.float32)
        opt = entry.build(job.model.parameters(), problem, lr=0.05)
        cast = torch.autocast("cpu", dtype=torch.bfloat16)

        def closure(draw: Draw) -> Probe:
            if around:
                return problem.inner(job.model, draw)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return problem.inner(job.model, draw)

        def go() -> None:
            if opt.snapshot_due:
                opt.snapshot(lambda: closure(problem.everything()))
            for _ in range(4):
                draw = job.draw()
                opt.step(partial(closure, draw))

        if around:
            with cast:
                go()
        else:
            go()
        return job.w

    inside, around = run(False), run(True)
    assert inside.isfinite().all()
    # Around the step, the outer functions may be cast as well: close, not equal.
    torch.testing.assert_close(inside, around, rtol=0.02, atol=0.02)


def test_estimate_then_any_optimizer(entry: Entry) -> None:
    """``estimate`` + SGD is ``step``; z is copied, not shared; AdamW trains with it."""
    job, twin = Job(entry), Job(entry)
    sgd = torch.optim.SGD(twin.model.parameters(), lr=0.05)
    for step in range(7):
        draw = job.draw()
        torch.manual_seed(step)
        job.step(draw)
        torch.manual_seed(step)
        twin.snapshot()
        twin.opt.estimate(partial(twin.inner, draw))
        for p in twin.model.parameters():
            assert p.grad is not None
            z = twin.opt.state[p]["z"]
            assert torch.equal(p.grad, z)
            assert p.grad.data_ptr() != z.data_ptr()
        sgd.step()
        assert torch.equal(job.w, twin.w)
    other = Job(entry, kind="network")
    adamw = torch.optim.AdamW(other.model.parameters(), lr=0.01)
    before = other.w
    for _ in range(5):
        other.snapshot()
        draw = other.draw()
        other.opt.estimate(partial(other.inner, draw))
        adamw.step()
    assert not torch.equal(before, other.w)
    assert other.w.isfinite().all()


def test_discards_gradients(entry: Entry) -> None:
    """An existing ``.grad`` has no influence, and none is left behind."""
    job, twin = Job(entry), Job(entry)
    for step in range(3):
        for p in twin.model.parameters():
            p.grad = torch.full_like(p, torch.nan)
        torch.manual_seed(step)
        job.step()
        torch.manual_seed(step)
        twin.step()
    assert torch.equal(job.w, twin.w)
    assert all(p.grad is None for p in twin.model.parameters())


@pytest.mark.sweep(3)
def test_compiled_models(entry: Entry) -> None:
    """A compiled model steps like the plain one, and moving parameters recompiles nothing."""
    graphs = 0

    def backend(graph: Any, inputs: Any) -> Any:
        nonlocal graphs
        graphs += 1
        return graph.forward

    job, twin = Job(entry, kind="network"), Job(entry, kind="network")
    torch.compiler.reset()
    plain = twin.model
    compiled = torch.compile(plain, backend=backend)
    seen = []
    for _ in range(8):
        job.step()
        twin.snapshot()
        draw = twin.draw()
        twin.opt.step(partial(twin.problem.inner, compiled, draw))
        seen.append(graphs)
    torch.testing.assert_close(job.w, twin.w, rtol=1e-12, atol=1e-12)
    assert seen[-1] == seen[3], f"recompiled: {seen}"


def test_groups_must_agree(entry: Entry) -> None:
    """alpha, beta and gamma are common to all groups; different values are an error."""
    job = Job(entry).run(2)
    job.opt.add_param_group({"params": [nn.Parameter(torch.zeros(2, dtype=torch.float64))]})
    job.step()
    for name in ("alpha", "beta", "gamma"):
        kept = job.opt.param_groups[1][name]
        job.opt.param_groups[1][name] = 0.123
        before = capture(job.model, job.opt)
        with pytest.raises(ValueError, match=name):
            job.step()
        assert_unchanged(before, job.model, job.opt)
        job.opt.param_groups[1][name] = kept
