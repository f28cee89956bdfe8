"""Any history of an optimizer: every method against the plain reference, which replays all of it.

Steps of any number of blocks, in micro-batches or not, estimates after which another optimizer
moves, snapshots, restarts, other step sizes, new parameters, faults in closures, saving, loading,
copying and pickling. Only what was committed is told to the reference, which starts from scratch.
"""

import copy
import io
import pickle

import pytest
import torch
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from support import CATALOGUE, RULES, Act, Draw, Toy, flat, make_model, make_update, replay
from support.faults import Fault
from support.job import assert_unchanged, capture

from fcco import Probe
from fcco.problem.batches import NoBlocks

M, P, SAMPLES = 6, 2, 2
SEEDS = st.integers(0, 10**6)
BLOCKS = st.integers(1, M)


def spoil(kind, probe):
    """A probe with a fault, or an exception."""
    blocks, values = probe.blocks, probe.values
    if kind == "raises":
        raise Fault("in a closure")
    changes = {
        "not finite": {"values": values * torch.nan},
        "foreign": {"blocks": blocks + M},
        "twice": {"blocks": blocks[:1].repeat(2), "values": values[:1].repeat(2, 1), "pair": None},
        "empty": {"blocks": blocks[:0], "values": values[:0], "pair": None},
        "shape": {"values": values[:, :1]},
        "whole numbers": {"values": values.detach().long()},
        "no samples": {"samples": 0},
        "detached": {"values": values.detach()},
    }
    return Probe(**(vars(probe) | {"noise": None} | changes[kind]))


FAULTS = ["raises", "not finite", "foreign", "twice", "empty", "shape", "whole numbers",
          "no samples", "detached"]  # fmt: skip


class Histories(RuleBasedStateMachine):
    """One optimizer, and what happened to it."""

    name: str

    @initialize(
        update=st.sampled_from(sorted(RULES)),
        initial=st.booleans(),
        every=st.sampled_from([None, 3]),
        later=st.booleans(),
    )
    def begin(self, update, initial, every, later):
        self.entry, self.rule = CATALOGUE[self.name], RULES[update]
        self.problem = Toy(M, P, affine=self.entry.affine, box=1.5)
        self.model = make_model("network", P)
        self.start = copy.deepcopy(self.model)
        random = torch.Generator().manual_seed(5)
        table = torch.rand((M, P), generator=random, dtype=torch.float64)
        self.initial = table if initial and self.entry.has_table else None
        self.every = every if self.entry.anchored else None
        self.later = later  # whether the last bias waits for a group of its own
        self.snapshot_age: int | None = None
        if later:
            self.late.requires_grad_(False)
        self.opt = self.build(self.model)
        self.acts: list[Act] = []
        self.found = {"w": [], "u": [], "z": []}
        self.losses: list[tuple[float, torch.Tensor]] = []
        self.untrained = self.late.numel() if later else 0

    @property
    def late(self):
        return list(self.model.parameters())[-1]

    def build(self, model):
        params = list(model.parameters())
        return self.entry.build(
            params[:-1] if self.later else params,
            self.problem,
            lr=0.05,
            alpha=0.4,
            beta=0.3,
            initial=self.initial,
            snapshot_every=self.every,
            update=make_update(self.rule),
            weight_decay=self.rule.weight_decay,
        )

    # What is told to the reference ----------------------------------------------------------------

    def record(self, act):
        self.acts.append(act)
        if act.draw is None:
            return
        params = list(self.model.parameters())
        self.found["w"].append(flat(params))
        z = [self.opt.state[p]["z"] if p.requires_grad else torch.zeros_like(p) for p in params]
        self.found["z"].append(flat(z))
        if self.opt.table is not None:
            self.found["u"].append(self.opt.table.read(torch.arange(M)))

    def teardown(self):
        if not hasattr(self, "acts"):
            return
        values = {"alpha": 0.4, "beta": 0.3, "lr": 0.05, "rule": self.rule, "initial": self.initial}
        trained = self.entry.settings(**values)
        first = {"untrained": list(self.start.parameters())[-1].numel() if self.later else 0}
        expected = replay(self.problem, self.start, [Act(changes=first), *self.acts], trained)
        for name, found in self.found.items():
            for mine, other in zip(found, getattr(expected, name), strict=bool(found)):
                torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-11)
        if self.found["u"]:
            steps = [act for act in self.acts if act.draw is not None]
            for loss, act, u in zip(self.losses, steps, expected.u, strict=True):
                blocks = act.draw.blocks
                value = self.problem.outer(u[blocks], blocks).mean().item()
                assert loss == pytest.approx(value, rel=1e-9, abs=1e-12)

    # What happens ---------------------------------------------------------------------------------

    def draw(self, blocks, seed):
        return self.problem.draw(blocks, SAMPLES, torch.Generator().manual_seed(seed))

    def inner(self, draw):
        self.evaluated += draw.samples.numel() * (2 if self.entry.affine else 1)
        return self.problem.inner(self.model, draw)

    def closures(self, draw, cut):
        """One, or one for each part of the blocks."""
        parts = [draw]
        if 0 < cut < len(draw.blocks):
            parts = [Draw(*(x[:cut] for x in vars(draw).values())),
                     Draw(*(x[cut:] for x in vars(draw).values()))]  # fmt: skip
        found = [lambda part=part: self.inner(part) for part in parts]
        return found[0] if len(found) == 1 else found

    def due(self):
        if not self.entry.anchored:
            return False
        overdue = self.every is not None and (self.snapshot_age or 0) >= self.every
        return self.snapshot_age is None or overdue

    def ready(self):
        """A snapshot that is due is an error before it is taken."""
        assert self.opt.snapshot_due == self.due()
        if self.due():
            before = capture(self.model, self.opt)
            with pytest.raises(ValueError, match="a snapshot"):
                self.opt.step(lambda: self.inner(self.draw(2, 0)))
            assert_unchanged(before, self.model, self.opt)
            self.take_snapshot("whole")

    def took_step(self, draw, values, **how):
        if self.snapshot_age is not None:
            self.snapshot_age += 1
        if not self.opt.method.single_point:  # of which a tangent counts as a value
            assert self.opt.queries.values - values == self.evaluated
        self.record(Act(draw, **how))

    @rule(blocks=BLOCKS, seed=SEEDS, cut=st.integers(0, 4))
    def step(self, blocks, seed, cut):
        self.ready()
        draw, values, self.evaluated = self.draw(blocks, seed), self.opt.queries.values, 0
        self.losses.append(self.opt.step(self.closures(draw, cut)).item())
        self.took_step(draw, values)

    @rule(blocks=BLOCKS, seed=SEEDS, cut=st.integers(0, 4), lr=st.sampled_from([0.0, 0.03]))
    def estimate(self, blocks, seed, cut, lr):
        """Another optimizer then moves along .grad, which is z."""
        self.ready()
        draw, values, self.evaluated = self.draw(blocks, seed), self.opt.queries.values, 0
        self.losses.append(self.opt.estimate(self.closures(draw, cut)).item())
        trained = [p for p in self.model.parameters() if p.requires_grad]
        for p in trained:
            assert p.grad.equal(self.opt.state[p]["z"])
            assert p.grad is not self.opt.state[p]["z"]
        torch.optim.SGD(trained, lr).step()
        self.took_step(draw, values, move=False, elsewhere=lr)

    @precondition(lambda self: self.entry.anchored)
    @rule(chunks=st.sampled_from(["whole", "blocks", "samples"]))
    def take_snapshot(self, chunks):
        whole, self.evaluated = self.problem.everything(), 0
        parts = [whole]
        if chunks == "blocks":
            parts = [self.problem.everything(torch.arange(a, b)) for a, b in ((0, 1), (1, M))]
        elif chunks == "samples":  # every block in both, with two and with three samples
            parts = [Draw(whole.blocks, whole.samples[:, s], whole.pair[:, s])
                     for s in (slice(0, 2), slice(2, 5))]  # fmt: skip
        self.opt.snapshot([lambda part=part: self.inner(part) for part in parts])
        self.snapshot_age = 0
        assert self.opt.at_snapshot
        self.record(Act(snapshot=True))

    @rule()
    def restart(self):
        self.opt.restart()
        self.record(Act(restart=True))

    @rule(lr=st.sampled_from([0.01, 0.1]), alpha=st.sampled_from([0.2, 0.9]))
    def change_settings(self, lr, alpha):
        """Every group has its own step size; alpha is the same for all, and some methods' own."""
        if "alpha" not in self.entry.equations:
            for group in self.opt.param_groups:
                group["alpha"] = alpha
        rates = []
        for number, group in enumerate(self.opt.param_groups):
            group["lr"] = lr * (number + 1)
            rates += [torch.full_like(p, group["lr"]).flatten() for p in group["params"]]
        if self.untrained:
            rates.append(torch.zeros_like(self.late))
        kept = {} if "alpha" in self.entry.equations else {"alpha": alpha}
        self.record(Act(changes={"lr": torch.cat(rates).detach(), **kept}))

    @precondition(lambda self: self.untrained)
    @rule(lr=st.sampled_from([0.02, 0.2]))
    def add_group(self, lr):
        rates = [torch.full_like(p, group["lr"]).flatten()
                 for group in self.opt.param_groups for p in group["params"]]  # fmt: skip
        self.late.requires_grad_()
        alpha = self.opt.param_groups[0]["alpha"]  # which is common to all groups
        self.opt.add_param_group({"params": [self.late], "lr": lr, "alpha": alpha})
        self.untrained = 0
        self.snapshot_age = None  # it has no anchor
        rates = torch.cat([*rates, torch.full_like(self.late, lr)]).detach()
        self.record(Act(changes={"untrained": 0, "lr": rates}))

    @rule(blocks=BLOCKS, seed=SEEDS, kind=st.sampled_from(FAULTS), at=st.integers(0, 2),
          estimate=st.booleans())  # fmt: skip
    def fail(self, blocks, seed, kind, at, estimate):
        """In the visit of one of the points; without a trace, unless that point is not visited."""
        self.ready()
        draw, values, self.evaluated, calls = self.draw(blocks, seed), self.opt.queries.values, 0, 0
        for p in self.model.parameters():
            p.grad = None
        before = capture(self.model, self.opt)

        def closure():
            nonlocal calls
            calls += 1
            probe = self.inner(draw)
            return spoil(kind, probe) if calls == at + 1 else probe

        verb = self.opt.estimate if estimate else self.opt.step
        try:
            loss = verb(closure)
        except (Fault, ValueError, TypeError, FloatingPointError):
            assert calls == at + 1 or kind not in ("raises", "shape", "empty")
            assert_unchanged(before, self.model, self.opt)
        else:
            # A point at which values alone are wanted may bring them detached.
            assert calls <= at or kind == "detached"
            self.losses.append(loss.item())
            self.took_step(draw, values, move=not estimate)

    @rule(estimate=st.booleans())
    def no_block(self, estimate):
        self.ready()
        before = capture(self.model, self.opt)

        def closure():
            raise NoBlocks("no sample of this batch belongs to a block")

        assert (self.opt.estimate if estimate else self.opt.step)(closure).item() == 0
        assert_unchanged(before, self.model, self.opt)

    @precondition(lambda self: self.entry.anchored)
    @rule(kind=st.sampled_from(["raises", "not finite", "foreign", "shape"]))
    def fail_in_a_snapshot(self, kind):
        for p in self.model.parameters():
            p.grad = None
        before = capture(self.model, self.opt)
        self.evaluated = 0
        with pytest.raises((Fault, ValueError, FloatingPointError)):
            self.opt.snapshot(lambda: spoil(kind, self.inner(self.problem.everything())))
        with pytest.raises(ValueError, match="block"):
            self.opt.snapshot(lambda: self.inner(self.problem.everything(torch.arange(M - 1))))
        assert_unchanged(before, self.model, self.opt)

    @rule(way=st.sampled_from(["state", "deepcopy", "pickle"]))
    def travel(self, way):
        if way == "deepcopy":
            self.model, self.opt = copy.deepcopy((self.model, self.opt))
        elif way == "pickle":
            self.model, self.opt = pickle.loads(pickle.dumps((self.model, self.opt)))
        else:
            file = io.BytesIO()
            torch.save((self.model.state_dict(), self.opt.state_dict()), file)
            file.seek(0)
            model = copy.deepcopy(self.start)
            list(model.parameters())[-1].requires_grad_(not self.untrained)
            opt = self.build(model)
            if self.later and not self.untrained:
                opt.add_param_group({"params": [list(model.parameters())[-1]]})
            for part, state in zip((model, opt), torch.load(file, weights_only=True), strict=True):
                part.load_state_dict(state)
            self.model, self.opt = model, opt


def run(name, examples):
    test = type(name, (Histories,), {"name": name}).TestCase
    test.settings = settings(
        max_examples=examples,
        stateful_step_count=20,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )
    test().runTest()


FEW = ["sox", "sox-auto", "msvrm-v1-age", "msvrm-v2-storm", "msvrm-v3-storm", "bsgd", "svrg",
       "variant-v3", "fresh-pair-v2"]  # fmt: skip


@pytest.mark.parametrize("name", FEW)
@pytest.mark.filterwarnings("ignore:gamma=:UserWarning")
def test_any_history(name):
    run(name, 8)


@pytest.mark.slow
@pytest.mark.parametrize("name", CATALOGUE)
@pytest.mark.filterwarnings("ignore:gamma=:UserWarning")
def test_many_histories(name):
    run(name, 100 if CATALOGUE[name].extra else 300)
