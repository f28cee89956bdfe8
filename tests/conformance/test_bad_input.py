"""Bad input: the right error, naming its culprit, and everything as it was before the call."""

import re
import warnings
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import CATALOGUE, Draw, Toy, make_model
from support.job import Job, assert_unchanged, capture

import fcco
from fcco import Probe

NAN, INF = float("nan"), float("inf")

NAMES = [pytest.param(n, marks=[pytest.mark.slow] * e.extra) for n, e in CATALOGUE.items()]
ANCHORED = [p for p in NAMES if CATALOGUE[p.values[0]].anchored]
"""Entries that differ from another one in coefficients alone are in the slow suite."""


def replaced(probe, **fields):
    return Probe(**(vars(probe) | fields))


def at(tensor, row, value):
    """A copy with one row overwritten, still attached to the graph."""
    mask = torch.zeros_like(tensor, dtype=torch.bool)
    mask[row] = True
    return torch.where(mask, torch.as_tensor(value, dtype=tensor.dtype), tensor)


def with_block(probe, row, block):
    blocks = probe.blocks.clone()
    blocks[row] = block
    return replaced(probe, blocks=blocks)


# name -> (corruption of a good probe, error, what the message names); row is any probed row.
CORRUPTIONS = {
    "id too large": (lambda p, r: with_block(p, r, 6), ValueError, r"\[6\] lie outside 0\.\.5"),
    "id negative": (lambda p, r: with_block(p, r, -1), ValueError, r"\[-1\] lie outside"),
    "duplicate id": (
        lambda p, r: with_block(p, r, int(p.blocks[r - 1])),
        ValueError,
        "probed twice",
    ),
    "ids int32": (lambda p, r: replaced(p, blocks=p.blocks.int()), ValueError, "blocks.*int64"),
    "ids float": (lambda p, r: replaced(p, blocks=p.blocks.double()), ValueError, "blocks.*int64"),
    "ids two-dimensional": (
        lambda p, r: replaced(p, blocks=p.blocks.unsqueeze(1)),
        ValueError,
        "blocks must have shape",
    ),
    "ids a list": (lambda p, r: replaced(p, blocks=p.blocks.tolist()), ValueError, "blocks.*list"),
    "ids elsewhere": (lambda p, r: replaced(p, blocks=p.blocks.to("meta")), ValueError, "on meta"),
    "empty": (
        lambda p, r: replaced(p, blocks=p.blocks[:0], values=p.values[:0]),
        ValueError,
        "empty",
    ),
    "too few values": (
        lambda p, r: replaced(p, values=p.values[:-1]),
        ValueError,
        r"values must have shape \(3, 2\), got \(2, 2\)",
    ),
    "values of another p": (
        lambda p, r: replaced(p, values=p.values[:, :1]),
        ValueError,
        "values must have shape",
    ),
    "values flat": (lambda p, r: replaced(p, values=p.values[:, 0]), ValueError, "values"),
    "values integer": (lambda p, r: replaced(p, values=p.values.long()), ValueError, "floating"),
    "values None": (lambda p, r: replaced(p, values=None), ValueError, "values must be a tensor"),
    "values elsewhere": (
        lambda p, r: replaced(p, values=p.values.to("meta")),
        ValueError,
        "values is on meta",
    ),
    "values detached": (
        lambda p, r: replaced(p, values=p.values.detach()),
        ValueError,
        "depends on a trainable parameter",
    ),
    "values nan": (lambda p, r: replaced(p, values=at(p.values, r, NAN)), FloatingPointError, None),
    "values inf": (lambda p, r: replaced(p, values=at(p.values, r, INF)), FloatingPointError, None),
    "samples zero": (lambda p, r: replaced(p, samples=0), ValueError, "samples must be at least 1"),
    "samples bool": (lambda p, r: replaced(p, samples=True), ValueError, "samples"),
    "samples tensor zero": (
        lambda p, r: replaced(p, samples=at(torch.ones(3, dtype=torch.int64), r, 0)),
        ValueError,
        "samples of blocks",
    ),
    "samples tensor float": (
        lambda p, r: replaced(p, samples=torch.ones(3)),
        ValueError,
        "samples must be int64",
    ),
    "samples tensor short": (
        lambda p, r: replaced(p, samples=torch.ones(2, dtype=torch.int64)),
        ValueError,
        "samples must have shape",
    ),
    "pair of another shape": (
        lambda p, r: replaced(p, pair=p.values[:1]),
        ValueError,
        "pair must have shape",
    ),
    "pair nan": (
        lambda p, r: replaced(p, pair=at(p.values, r, NAN)),
        FloatingPointError,
        "Probe.pair",
    ),
    "loss a vector": (
        lambda p, r: replaced(p, loss=p.values[:, 0]),
        ValueError,
        "loss must have shape",
    ),
    "loss nan": (
        lambda p, r: replaced(p, loss=p.values.sum() * NAN),
        FloatingPointError,
        "Probe.loss",
    ),
    "not a probe": (lambda p, r: p.values, TypeError, "must return a Probe, got Tensor"),
}


@pytest.mark.parametrize("count", [12, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", NAMES)
def test_corrupted_probe_changes_nothing(name, count):
    @settings(max_examples=count, deadline=None, derandomize=True)
    @given(data=st.data())
    def check(data):
        refuse_a_corrupted_probe(CATALOGUE[name], data)

    check()


def refuse_a_corrupted_probe(entry, data):
    corruption = data.draw(st.sampled_from(sorted(CORRUPTIONS)))
    row = data.draw(st.integers(0, 2))
    steps = data.draw(st.integers(0, 6))
    in_micro_batch = data.draw(st.booleans())
    corrupt, error, message = CORRUPTIONS[corruption]
    job = Job(entry).run(steps)
    job.snapshot()
    draw, other = job.draw(), job.problem.draw(3, 2, job.generator)
    others = [int(b) for b in range(6) if b not in draw.blocks.tolist()]
    other = Draw(torch.tensor(others), other.samples, other.pair)

    def bad():
        return corrupt(job.inner(draw), row)

    def good():
        return job.inner(other)

    before = capture(job.model, job.opt)
    with pytest.raises(error, match=message) as caught:
        job.opt.step([good, bad] if in_micro_batch else bad)
    if corruption in ("values nan", "values inf"):
        assert f"blocks [{int(draw.blocks[row])}]" in str(caught.value)
    assert_unchanged(before, job.model, job.opt)
    job.step(draw)  # and the run goes on


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", ANCHORED)
@pytest.mark.parametrize("corruption", sorted(CORRUPTIONS))
@pytest.mark.parametrize("first", [True, False])
def test_corrupted_snapshot_changes_nothing(name, corruption, first):
    corrupt, error, message = CORRUPTIONS[corruption]
    job = Job(CATALOGUE[name], snapshot_every=None)
    if not first:
        job.run(3)
    chunks = [
        lambda: job.inner(job.problem.everything(torch.tensor([0, 1, 2]))),
        lambda: corrupt(job.inner(job.problem.everything(torch.tensor([3, 4, 5]))), 1),
    ]
    before = capture(job.model, job.opt)
    with pytest.raises(error, match=message):
        job.opt.snapshot(chunks)
    assert_unchanged(before, job.model, job.opt)
    job.run(2)


def test_snapshot_that_misses_a_block_changes_nothing():
    job = Job(CATALOGUE["msvrm-v3-theory"])
    before = capture(job.model, job.opt)
    with pytest.raises(ValueError, match=r"no sample of 2 blocks.*\[2, 5\]"):
        job.opt.snapshot(lambda: job.inner(job.problem.everything(torch.tensor([0, 1, 3, 4]))))
    assert_unchanged(before, job.model, job.opt)


def test_snapshot_whose_chunks_differ_when_called_again():
    job = Job(CATALOGUE["msvrm-v3-theory"])
    sizes = iter([1, 1, 2, 1])

    def chunk():
        return replaced(job.inner(job.problem.everything()), samples=next(sizes))

    before = capture(job.model, job.opt)
    with pytest.raises(ValueError, match="other samples when called again"):
        job.opt.snapshot([chunk, chunk])
    assert_unchanged(before, job.model, job.opt)


MOVING = [n for n, e in CATALOGUE.items() if e.points > 1]


@pytest.mark.parametrize("name", MOVING)
@pytest.mark.parametrize("kind", ["other blocks", "other number"])
def test_closure_whose_blocks_differ_between_points(name, kind):
    job = Job(CATALOGUE[name]).run(3)
    draws = [job.draw() for _ in range(4)]
    draws[1] = job.problem.draw(3 if kind == "other blocks" else 2, 2, job.generator)
    calls = iter(draws)
    before = capture(job.model, job.opt)
    with pytest.raises(ValueError, match="deterministic given the RNG state"):
        job.opt.step(lambda: job.inner(next(calls)))
    assert_unchanged(before, job.model, job.opt)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("call", [0, 1, 2])
def test_closure_that_raises(name, call):
    """At whichever point it happens, the model is back where it was."""
    entry = CATALOGUE[name]
    job = Job(entry).run(3)
    start, draw = job.calls, job.draw()

    def closure():
        probe = job.inner(draw)
        if job.calls - start == call + 1:
            raise KeyError("the user's own error")
        return probe

    before = capture(job.model, job.opt)
    if call < entry.points:
        with pytest.raises(KeyError, match="own error"):
            job.opt.step(closure)
        assert_unchanged(before, job.model, job.opt)
    else:
        job.opt.step(closure)  # this point is never evaluated


@pytest.mark.parametrize("name", NAMES)
def test_non_finite_slope_and_z(name):
    entry = CATALOGUE[name]

    class Steep(Toy):
        def outer(self, u, blocks):
            return (u - u.detach()).abs().sqrt().sum(1)  # slope inf or nan everywhere

    job = Job(entry).run(3)
    job.opt.objective = Steep(6, 2, affine=entry.affine)
    before = capture(job.model, job.opt)
    with pytest.raises(FloatingPointError, match=r"slope of f .*blocks \["):
        job.step()
    assert_unchanged(before, job.model, job.opt)

    job = Job(entry).run(3)
    draw = job.draw()

    def closure():
        probe = job.inner(draw)
        if probe.values.requires_grad:
            probe.values.register_hook(lambda g: g * NAN)
        return probe

    before = capture(job.model, job.opt)
    with pytest.raises(FloatingPointError, match="z of trainable parameters"):
        job.opt.step(closure)
    assert_unchanged(before, job.model, job.opt)


@pytest.mark.parametrize("name", [n for n, e in CATALOGUE.items() if e.anchored])
def test_missing_and_overdue_snapshots(name):
    job = Job(CATALOGUE[name], snapshot_every=3)
    draw = job.draw()
    assert job.opt.snapshot_due
    for _ in range(2):
        before = capture(job.model, job.opt)
        with pytest.raises(ValueError, match="snapshot"):
            job.opt.step(lambda: job.inner(draw))
        assert_unchanged(before, job.model, job.opt)
        job.snapshot()
        for _ in range(3):
            assert not job.opt.snapshot_due
            job.opt.step(lambda: job.inner(draw))
        assert job.opt.snapshot_due
    free = Job(CATALOGUE[name], snapshot_every=None)
    assert free.opt.snapshot_due
    with pytest.raises(ValueError, match="never taken"):
        free.opt.step(lambda: free.inner(draw))
    free.run(20)
    assert not free.opt.snapshot_due


def test_theory_gamma_is_singular_at_beta_one():
    problem, model = Toy(), make_model("batchnorm", 1)
    with pytest.warns(UserWarning, match="beta <= 1/2") as caught:
        opt = fcco.MSVRM(
            model.parameters(),
            problem,
            version=2,
            lr=0.1,
            alpha=0.5,
            beta=1.0,
            gamma="theory",
            buffers=model.buffers(),
        )
    assert [warning.filename for warning in caught] == [__file__]  # the line that built it
    generator = torch.Generator().manual_seed(0)
    before = capture(model, opt)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it warns once
        with pytest.raises(ValueError, match="singular at beta=1"):
            opt.step(lambda: problem.inner(model, problem.draw(3, 2, generator)))
        assert_unchanged(before, model, opt)
        opt.step(lambda: problem.inner(model, problem.draw(6, 2, generator)))  # B1 = m is fine
        halves = [problem.everything(torch.tensor(ids)) for ids in ([0, 4, 2], [1, 3, 5])]
        opt.step([lambda half=half: problem.inner(model, half) for half in halves])  # here too


def test_warns_once_when_a_schedule_raises_beta():
    job = Job(CATALOGUE["msvrm-v1-theory"]).run(2)
    job.opt.param_groups[0]["beta"] = 0.7
    draw = job.draw()
    with pytest.warns(UserWarning, match="beta <= 1/2") as caught:
        job.opt.step(lambda: job.inner(draw))
    assert [warning.filename for warning in caught] == [__file__]  # through torch's wrapper of step
    job.step()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("alpha", v) for v in (0.0, -0.1, 1.1, NAN)),
        *(("beta", v) for v in (0.0, -0.1, 1.1, NAN)),
        *(("gamma", v) for v in (-0.1, NAN, INF, "storms")),
        *(("lr", v) for v in (-0.1, NAN, INF)),
        *(("weight_decay", v) for v in (-0.1, NAN)),
    ],
)
def test_coefficients_outside_their_range(name, value):
    problem, model = Toy(), make_model("network", 1)
    arguments = {"version": 1, "lr": 0.1, "alpha": 0.5, "beta": 0.5}
    with pytest.raises(ValueError, match=name):
        fcco.MSVRM(model.parameters(), problem, **(arguments | {name: value}))
    opt = fcco.MSVRM(model.parameters(), problem, **arguments)
    opt.param_groups[0][name] = value
    before = capture(model, opt)
    with pytest.raises(ValueError, match=name):
        opt.step(lambda: problem.inner(model, problem.everything()))
    before["optimizer"]["param_groups"][0].pop(name)
    after = capture(model, opt)
    after["optimizer"]["param_groups"][0].pop(name)
    assert str(before) == str(after)


def build(**changes):
    problem, model = changes.pop("problem", Toy()), make_model("network", 1)
    arguments = {"version": 1, "lr": 0.1, "alpha": 0.5, "beta": 0.5} | changes
    cls = arguments.pop("cls", fcco.MSVRM)
    return cls(arguments.pop("params", model.parameters()), problem, **arguments)


class LogMean(fcco.ScaledObjective):
    """Its sizes are right unless they are given; ``...`` leaves one out."""

    def __init__(self, **sizes):
        for name, size in ({"num_blocks": 6, "inner_dim": 2, "inner_size": 5} | sizes).items():
            if size is not ...:
                setattr(self, name, size)

    def scaled_outer(self, u, log_scale, blocks):
        return u[:, 0].log() + log_scale


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 4}, r"version must be one of \[1, 2, 3\]"),
        ({"version": 3, "single_point": True}, r"version must be one of \[1, 2\]"),
        ({"snapshot_every": 5}, "no snapshots"),
        ({"version": 3, "snapshot_every": 0}, "at least 1"),
        ({"version": 3, "snapshot_every": 2.5}, "snapshot_every must be a whole number"),
        ({"initial": torch.zeros(5, 1)}, r"initial must be .* \(6, 1\)"),
        ({"initial": torch.zeros(6, 1, dtype=torch.int64)}, "floating"),
        ({"initial": torch.full((6, 1), NAN)}, "initial has non-finite"),
        ({"initial": INF}, "initial must be finite"),
        ({"params": [torch.zeros(3)]}, "no trainable parameter"),
    ],
)
def test_constructor_refuses(changes, message):
    with pytest.raises(ValueError, match=message):
        build(**changes)


@pytest.mark.parametrize("name", ["num_blocks", "inner_dim", "inner_size"])
@pytest.mark.parametrize("size", [..., None, 0, -1, 5.0, "5", True, torch.tensor(5)])
def test_sizes_of_an_objective_are_positive_ints(name, size):
    problem = LogMean(**{name: size})
    with pytest.raises(ValueError, match=rf"objective\.{name} must be a positive int, got"):
        build(problem=problem)


@pytest.mark.parametrize("dim", [0, -1, 3, 1.0, True])
def test_the_scaled_components_are_among_the_components(dim):
    with pytest.raises(ValueError, match=r"objective\.scaled_dim must be None or an int in 1\.\.2"):
        build(problem=LogMean(scaled_dim=dim))


@pytest.mark.parametrize("dim", [None, 1, 2])
def test_sizes_in_their_range_are_accepted(dim):
    class Derived(LogMean):
        """A size may be computed, and is then read as any other."""

        @property
        def inner_size(self):
            return self.num_blocks - 5

    opt = build(problem=Derived(inner_size=..., scaled_dim=dim))
    assert opt.objective.inner_size == 1
    assert opt.table.gather(torch.arange(6)).shape == (6, 3)  # two mantissas and their scale


def test_a_plain_objective_needs_no_inner_size():
    class Plain(fcco.Objective):
        num_blocks, inner_dim = 2, 1

        def outer(self, u, blocks):
            return u.sum(1)

    assert build(problem=Plain()).table.gather(torch.arange(2)).shape == (2, 1)


def test_updates_and_safeguard_refuse():
    for make, message in (
        (lambda: fcco.updates.Projected(0.0), "radius must be positive"),
        (lambda: fcco.updates.Adam(beta2=1.0), "Adam: beta2"),
        (lambda: fcco.updates.AMSGrad(eps=0.0), "AMSGrad: eps"),
        (lambda: fcco.updates.Adam(radius=-1.0), "radius must be positive"),
        (lambda: fcco.ChangeBound(ratio=-1.0), "ratio must not be negative"),
    ):
        with pytest.raises(ValueError, match=message):
            make()


def test_freezing_everything_later_is_an_error():
    job = Job(CATALOGUE["sox"]).run(2)
    for p in job.model.parameters():
        p.requires_grad_(False)
    before = capture(job.model, job.opt)
    with pytest.raises(ValueError, match="no trainable parameter"):
        job.step()
    assert_unchanged(before, job.model, job.opt)


@pytest.mark.parametrize("closure", [None, [], [None], 3])
def test_step_needs_a_closure(closure):
    job = Job(CATALOGUE["sox"])
    before = capture(job.model, job.opt)
    with pytest.raises((ValueError, TypeError), match=r"closure|iterable"):
        job.opt.step(closure)
    assert_unchanged(before, job.model, job.opt)


def test_age_needs_to_be_asked_for_at_the_start():
    job = Job(CATALOGUE["msvrm-v1-theory"]).run(2)
    job.opt.param_groups[0]["gamma"] = "age"
    with pytest.raises(ValueError, match='built with gamma="age"'):
        job.step()


def test_outer_of_the_wrong_shape_is_named():
    job = Job(CATALOGUE["sox"]).run(2)

    class Sum(Toy):
        def outer(self, u, blocks):
            return u.sum()

    job.opt.objective = Sum(6, 2)
    before = capture(job.model, job.opt)
    with pytest.raises(ValueError, match=re.escape("Sum.outer must return shape (3,)")):
        job.step()
    assert_unchanged(before, job.model, job.opt)


def test_reading_outside_the_table():
    job = Job(CATALOGUE["sox"])
    with pytest.raises(ValueError, match=r"\[6, -1\] lie outside"):
        job.opt.table.read(torch.tensor([6, 0, -1]))


def test_fresh_pair_without_a_pair():
    job = Job(CATALOGUE["fresh-pair-v2"]).run(1)
    before = capture(job.model, job.opt)
    with pytest.raises(ValueError, match=r"needs Probe\.pair"):
        job.opt.step(lambda: replaced(job.inner(job.draw()), pair=None))
    assert_unchanged(before, job.model, job.opt)


def test_objective_without_inner_says_so():
    class Outer(fcco.Objective):
        num_blocks, inner_dim = 2, 1

        def outer(self, u, blocks):
            return u.sum(1)

    with pytest.raises(TypeError, match=r"Outer defines no inner\(model, batch\)"):
        Outer().inner(None, None)


class Broken(fcco.updates.Update):
    """Overwrites what it remembers, and then fails in one of several ways."""

    def __init__(self, how):
        self.how = how

    def init(self, z):
        return {"seen": torch.zeros_like(z)}

    def directions(self, zs, states, norm=None):
        for state in states:
            state["seen"].fill_(7.0)
        if self.how == "raises":
            raise RuntimeError("broken")
        if self.how == "too few":
            return list(zs)[1:]
        if self.how == "other shape":
            return [z.flatten()[:1] for z in zs]
        return [z * NAN for z in zs]


@pytest.mark.parametrize("name", ["sox", "msvrm-v2-age", "msvrm-v3-theory", "fresh-pair-v2"])
@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ("raises", RuntimeError, "broken"),
        ("too few", ValueError, "Broken.directions must give a tensor"),
        ("other shape", ValueError, "Broken.directions must give a tensor of the shape of z"),
        ("nan", FloatingPointError, "non-finite direction of Broken of trainable parameters"),
    ],
)
def test_a_step_rule_that_fails_leaves_nothing_behind(name, how, error, message):
    job = Job(CATALOGUE[name], update=Broken("works not"))
    job.opt.update.how = how
    job.snapshot()
    before, draw = capture(job.model, job.opt), job.draw()
    with pytest.raises(error, match=message):
        job.opt.step(lambda: job.inner(draw))
    assert_unchanged(before, job.model, job.opt)


@pytest.mark.parametrize("name", ["lr", "weight_decay", "alpha", "beta", "gamma"])
@pytest.mark.parametrize("value", [torch.tensor(0.1), 1e39, "much", None])
def test_coefficients_that_are_no_numbers(name, value):
    """Refused at once: torch would raise in the middle of the commit, or the state change type."""
    job = Job(CATALOGUE["msvrm-v1-theory"]).run(2)
    job.opt.param_groups[0][name] = value
    before, draw = capture(job.model, job.opt), job.draw()
    with pytest.raises(ValueError, match=f"{name} must be"):
        job.opt.step(lambda: job.inner(draw))
    assert_unchanged(before, job.model, job.opt)


def test_coefficients_of_any_type():
    """Schedulers of users compute with NumPy, and NumPy's numbers are those of Python."""
    ends = []
    for kind in (float, np.float32, np.float64, Fraction):
        job = Job(CATALOGUE["msvrm-v1-theory"]).run(2)
        for name in ("lr", "weight_decay", "alpha", "beta", "gamma"):
            job.opt.param_groups[0][name] = kind(0.125)
        ends.append(job.run(2).w)
    assert all(w.equal(ends[0]) for w in ends)


def test_an_alpha_that_is_not_a_number_is_named_once():
    with pytest.raises(ValueError, match=r"alpha must be a number in \(0, 1\], got nan"):
        fcco.SOX(make_model("linear", 1), Toy(), lr=0.1, alpha=NAN)


def test_feasible_of_another_precision_or_shape():
    """float64 bounds promote float32 rows; another shape is named."""

    class Wide(Toy):
        def feasible(self, u, blocks):
            return u.clamp(max=torch.tensor(2.0, dtype=torch.float64).expand(len(u), 1))

    class Short(Toy):
        def feasible(self, u, blocks):
            return u[:, :1]

    generator = torch.Generator().manual_seed(0)
    problem, model = Wide(dtype=torch.float32), make_model("network", 1).float()
    opt = fcco.MSVRM(model, problem, version=2, lr=0.1)
    for _ in range(3):
        draw = problem.draw(3, 2, generator)
        opt.step(lambda: problem.inner(model, draw))  # noqa: B023
    assert opt.table.dtype == torch.float32
    job = Job(CATALOGUE["sox"]).run(2)
    job.opt.objective = Short(6, 2)
    before, draw = capture(job.model, job.opt), job.draw()
    with pytest.raises(
        ValueError, match=r"Short.feasible must return shape \(3, 2\), got \(3, 1\)"
    ):
        job.opt.step(lambda: job.inner(draw))
    assert_unchanged(before, job.model, job.opt)


@pytest.mark.parametrize("samples", [2**63, 2**40, torch.tensor([1, 2**40, 1])])
def test_more_samples_than_can_be_counted(samples):
    job = Job(CATALOGUE["sox"]).run(2)
    before, draw = capture(job.model, job.opt), job.draw()

    def closure():
        probe = job.inner(draw)
        return Probe(probe.blocks, probe.values, samples)

    with pytest.raises(ValueError, match=r"Probe.samples .*must be at least 1 and at most"):
        job.opt.step(closure)
    assert_unchanged(before, job.model, job.opt)


def test_ages_beyond_32_bits():
    job = Job(CATALOGUE["msvrm-v1-age"]).run(2)
    job.opt._progress["step"].fill_(2**31 - 1)
    job.run(2)


def test_an_expanded_parameter_is_refused():
    expanded = torch.nn.Parameter(torch.zeros(1, 3).expand(2, 3))
    with pytest.raises(ValueError, match="a parameter is expanded"):
        fcco.SOX([expanded], Toy(), lr=0.1)
