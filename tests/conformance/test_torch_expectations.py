"""What torch expects of its own optimizers (``torch.testing._internal.common_optimizers`` and the
tests that run over it), asked of ours.

What does not apply, and why:

- ``foreach``, ``fused``, ``capturable``, ``differentiable``, ``maximize``: not offered, and refused
  by name. A step runs the closure at several points and is not differentiable itself; its
  elementwise part is foreach already; negate ``outer`` to maximise.
- complex parameters: refused when the optimizer is built.
- a tensor as lr: refused (in our words, not in torch's).
- sparse gradients: refused in the step (``test_bad_input``).
- a step without a closure, or with parameters whose ``.grad`` is set by hand, and "a step with zero
  gradients is a no-op": a step makes its own gradients, and z remembers.
- ``state["step"]`` of every parameter: there is one counter for all, under ``shared``.
- casting the state to the parameters' precision when it is loaded: it stays at least float32.
"""

import copy
import functools
import io
import pickle
import sys
import types
import unittest

import pytest
import torch
from support import Toy, assert_same, make_model
from torch import nn
from torch.optim import lr_scheduler
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

import fcco

OPTIMIZERS = {
    "SOX": functools.partial(fcco.SOX),
    "SOX-adam": functools.partial(fcco.SOX, update=fcco.updates.Adam()),
    "BSGD": functools.partial(fcco.BSGD),
    "MSVRM-v1": functools.partial(fcco.MSVRM, version=1),
    "MSVRM-v2": functools.partial(fcco.MSVRM, version=2, update=fcco.updates.AMSGrad()),
    "MSVRM-v3": functools.partial(fcco.MSVRM, version=3),
    "FreshPair-v2": functools.partial(fcco.FreshPair, version=2),
}
everyone = pytest.mark.parametrize("build", OPTIMIZERS.values(), ids=OPTIMIZERS)


@pytest.fixture(scope="module")
def torchs():
    """torch's module, which wants a package that is not installed and freezes backend flags."""
    flag = "__allow_nonbracketed_mutation_flag"
    before, stand_in = getattr(torch.backends, flag), types.ModuleType("expecttest")
    stand_in.TestCase = unittest.TestCase
    with pytest.MonkeyPatch.context() as patch:
        if "expecttest" not in sys.modules:
            patch.setitem(sys.modules, "expecttest", stand_in)
        module = pytest.importorskip("torch.testing._internal.common_optimizers")
    setattr(torch.backends, flag, before)
    return module


class Small:
    """A model with the optimizer under test; every step sees another sample."""

    def __init__(self, build, *, seed=0, groups=None, dtype=torch.float64, **settings):
        torch.manual_seed(seed)
        affine = getattr(build, "func", build) is fcco.FreshPair
        self.problem = Toy(6, 2, affine=affine, dtype=dtype)
        self.model = make_model("network", 2, seed=seed).to(dtype)
        params = self.model.parameters() if groups is None else groups(self.model)
        self.opt = build(params, self.problem, **({"lr": 0.05} | settings))
        self.generator = torch.Generator().manual_seed(1)

    def closure(self):
        draw = self.problem.draw(3, 2, self.generator)
        return lambda: self.problem.inner(self.model, draw)

    def snapshot(self):
        if self.opt.snapshot_due:
            self.opt.snapshot(lambda: self.problem.inner(self.model, self.problem.everything()))

    def run(self, steps):
        for _ in range(steps):
            self.snapshot()
            self.opt.step(self.closure())
        return self

    def objective(self):
        with torch.no_grad():
            probe = self.problem.inner(self.model, self.problem.everything())
            return float(self.problem.outer(probe.values, probe.blocks).mean())


def two_groups(model, **more):
    return [{"params": [*model[0].parameters()]}, {"params": [*model[2].parameters()], **more}]


@everyone
def test_errors_that_all_optimizers_share(build, torchs):
    """torch's own list of inputs, errors and words; of one the words are ours."""
    seen = 0
    for case in torchs.get_error_inputs_for_all_optims("cpu", torch.float32):
        given = case.optimizer_error_input
        params = [nn.Parameter(torch.ones(2, 1))] if given.params is None else given.params
        ours = given.desc == "Tensor lr must be 1-element"
        expected = "lr must be a finite number >= 0" if ours else case.error_regex
        assert case.error_on is torchs.OptimizerErrorEnum.CONSTRUCTION_ERROR
        settings, problem = {"lr": 0.1} | given.kwargs, Toy()
        with pytest.raises(case.error_type, match=expected):
            build(params, problem, **settings)
        seen += 1
    assert seen >= 6


@everyone
def test_what_is_not_offered_is_refused(build):
    params = [nn.Parameter(torch.ones(2))]
    for flag in ("foreach", "fused", "capturable", "differentiable", "maximize"):
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{flag}'"):
            build(params, Toy(), lr=0.1, **{flag: True})
    with pytest.raises(ValueError, match=r"a parameter is complex: .*view_as_real"):
        build([nn.Parameter(torch.ones(2, dtype=torch.complex64))], Toy(), lr=0.1)
    with pytest.raises(ValueError, match="empty parameter list"):
        build([], Toy(), lr=0.1)
    with pytest.raises(ValueError, match="weight_decay must be"):
        build(params, Toy(), lr=0.1, weight_decay=-1)


@everyone
def test_goes_in_the_right_direction_with_torchs_schedulers(build):
    schedulers = (
        [lambda opt: lr_scheduler.StepLR(opt, gamma=0.9, step_size=10)],
        [
            lambda opt: lr_scheduler.LinearLR(opt, start_factor=0.4, total_iters=4),
            lr_scheduler.ReduceLROnPlateau,
        ],
        [lambda opt: lr_scheduler.ExponentialLR(opt, gamma=0.99)],
        [lambda opt: lr_scheduler.PolynomialLR(opt, power=0.9, total_iters=40)],
    )
    for makers in schedulers:
        small = Small(build, groups=functools.partial(two_groups, lr=0.02))
        made = [make(small.opt) for make in makers]
        before = small.objective()
        for _ in range(40):
            small.run(1)
            for scheduler in made:
                plateau = isinstance(scheduler, lr_scheduler.ReduceLROnPlateau)
                scheduler.step(*([small.objective()] if plateau else []))
        assert small.objective() < before


@everyone
def test_groups_have_their_own_lr_and_weight_decay(build):
    """A group without lr stays; weight decay shrinks its own group, and no other."""
    small = Small(build, groups=functools.partial(two_groups, lr=0.0))
    before = copy.deepcopy(small.model.state_dict())
    small.run(3)
    moved = {k: not torch.equal(v, before[k]) for k, v in small.model.state_dict().items()}
    assert moved == {"0.weight": True, "0.bias": True, "2.weight": False, "2.bias": False}

    start = {k: v.clone() for k, v in make_model("network", 2).named_parameters()}
    ends = [
        Small(build, groups=functools.partial(two_groups, weight_decay=decay)).run(1)
        for decay in (0.0, 0.5)
    ]
    without, decayed = (dict(small.model.named_parameters()) for small in ends)
    for name, p in start.items():
        less = 0.05 * 0.5 * p if name.startswith("2.") else 0 * p
        torch.testing.assert_close(decayed[name], without[name] - less)


@everyone
def test_a_group_that_is_added_is_trained(build):
    small = Small(build, groups=lambda model: [*model[0].parameters()]).run(2)
    small.opt.add_param_group({"params": [*small.model[2].parameters()], "lr": 0.01})
    before = copy.deepcopy(small.model.state_dict())
    small.run(2)
    assert not any(torch.equal(v, before[k]) for k, v in small.model.state_dict().items())
    assert [group["lr"] for group in small.opt.param_groups] == [0.05, 0.01]
    with pytest.raises(ValueError, match="more than one parameter group"):
        small.opt.add_param_group({"params": [small.model[0].weight]})


@everyone
def test_it_can_be_printed(build):
    text = repr(Small(build).run(2).opt)
    assert "Parameter Group 0" in text
    assert "lr: 0.05" in text
    assert "tensor(" not in text


@everyone
def test_state_dicts_are_deterministic_and_go_through_weights_only(build):
    small = Small(build).run(4)
    file = io.BytesIO()
    torch.save(small.opt.state_dict(), file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    assert_same(loaded, small.opt.state_dict())
    other = Small(build, seed=3)
    other.model.load_state_dict(small.model.state_dict())
    other.opt.load_state_dict(loaded)
    other.generator.set_state(small.generator.get_state())
    for one in (small, other):
        one.run(4)
    assert_same(small.opt.state_dict(), other.opt.state_dict())
    assert_same(dict(small.model.state_dict()), dict(other.model.state_dict()))


@everyone
def test_a_loaded_state_is_a_copy_and_groups_are_too(build):
    small = Small(build).run(2)
    saved = copy.deepcopy(small.opt.state_dict())
    kept = copy.deepcopy(saved)
    small.opt.load_state_dict(saved)
    small.opt.param_groups[0]["lr"] = 7.0
    small.run(0 if small.opt.snapshot_due else 1)
    assert_same(saved, kept)


@everyone
def test_states_of_another_precision_are_cast(build):
    """float64 to float32 and back; of bfloat16 parameters the state stays float32."""
    source = Small(build).run(3)
    for dtype, kept in ((torch.float32, torch.float32), (torch.bfloat16, torch.float32)):
        narrow = Small(build, dtype=dtype)
        narrow.opt.load_state_dict(copy.deepcopy(source.opt.state_dict()))
        pairs = zip(narrow.model.parameters(), source.model.parameters(), strict=True)
        for p, q in pairs:
            z, wide = narrow.opt.state[p]["z"], source.opt.state[q]["z"]
            assert z.dtype == kept
            torch.testing.assert_close(z, wide.to(kept))
        back = Small(build)
        back.opt.load_state_dict(copy.deepcopy(narrow.opt.state_dict()))
        assert all(back.opt.state[p]["z"].dtype == torch.float64 for p in back.model.parameters())


@everyone
@pytest.mark.parametrize("names", [(True, False), (False, True), (True, True)])
def test_named_parameters_load_from_and_into_unnamed_ones(build, names):
    def params(named):
        return lambda model: model.named_parameters() if named else model.parameters()

    one, other = (Small(build, groups=params(named)) for named in names)
    one.run(2)
    other.opt.load_state_dict(copy.deepcopy(one.opt.state_dict()))
    assert ("param_names" in other.opt.param_groups[0]) == any(names)
    assert other.opt.queries == one.opt.queries


@everyone
@pytest.mark.parametrize("how", [copy.deepcopy, lambda both: pickle.loads(pickle.dumps(both))])
def test_copies_keep_attributes_and_go_on_alike(build, how):
    small = Small(build).run(3)
    twin = copy.copy(small)
    twin.model, twin.opt = how((small.model, small.opt))
    twin.generator = torch.Generator()
    twin.generator.set_state(small.generator.get_state())
    public = {name for name in vars(small.opt) if not name.startswith("_")}
    assert public == {name for name in vars(twin.opt) if not name.startswith("_")}
    for one in (small, twin):
        one.run(3)
    assert_same(small.opt.state_dict(), twin.opt.state_dict())
    assert_same(dict(small.model.state_dict()), dict(twin.model.state_dict()))


@everyone
def test_step_hooks(build):
    """Own and global ones, in torch's order; a pre-hook may give another closure."""
    small, seen = Small(build), []
    small.snapshot()
    other = small.closure()
    handles = [
        register_optimizer_step_pre_hook(lambda *_: seen.append("global before")),
        register_optimizer_step_post_hook(lambda *_: seen.append("global after")),
        small.opt.register_step_pre_hook(lambda opt, args, kwargs: seen.append("before")),
        small.opt.register_step_pre_hook(lambda opt, args, kwargs: ((opt, other), {})),
        small.opt.register_step_post_hook(lambda opt, args, kwargs: seen.append(args[1] is other)),
    ]
    small.opt.step(lambda: pytest.fail("the hook gave another closure"))
    assert seen == ["global before", "before", True, "global after"]
    for handle in handles:
        handle.remove()
    small.run(1)
    assert len(seen) == 4


@everyone
def test_state_dict_hooks_see_everything(build):
    small, seen = Small(build).run(2), []

    def after(opt, state):
        seen.append(state["param_groups"][-1]["shared"].keys())
        return state | {"note": len(seen)}

    small.opt.register_state_dict_pre_hook(lambda opt: seen.append("before"))
    small.opt.register_state_dict_pre_hook(lambda opt: seen.append("first"), prepend=True)
    small.opt.register_state_dict_post_hook(after)
    small.opt.register_state_dict_post_hook(
        lambda opt, state: seen.append("note" in state), prepend=True
    )
    state = small.opt.state_dict()
    shared = {"progress"} | ({"table"} if small.opt.table is not None else set())
    assert seen == ["first", "before", False, shared]
    assert state["note"] == 4


@everyone
def test_load_hooks_see_everything_and_may_change_it(build):
    source, small, seen = Small(build).run(3), Small(build), []
    saved = copy.deepcopy(source.opt.state_dict())

    def in_place(opt, state):
        seen.append(sorted(state["param_groups"][-1]["shared"]))
        state["state"] = {**state["state"], 0: copy.deepcopy(state["state"][0])}
        state["state"][0]["z"].fill_(1.5)

    def anew(opt, state):
        seen.append(int(state["param_groups"][-1]["shared"]["progress"]["step"]))
        changed = copy.deepcopy(state)
        shared = changed["param_groups"][-1]["shared"]
        if "table" in shared:
            shared["table"]["rows"].fill_(0.25)
        changed["param_groups"][0]["lr"] = 0.5
        return changed

    def whole(opt):
        first = opt.param_groups[0]["params"][0]
        rows = None if opt.table is None else opt.table.whole().unique().tolist()
        seen.append((opt.queries, opt.state[first]["z"].unique().tolist(), rows))

    small.opt.register_load_state_dict_pre_hook(anew)
    small.opt.register_load_state_dict_pre_hook(in_place, prepend=True)
    small.opt.register_load_state_dict_post_hook(whole)
    kept = copy.deepcopy(saved)
    small.opt.load_state_dict(saved)
    names = ["progress"] if small.opt.table is None else ["progress", "table"]
    rows = None if small.opt.table is None else [0.25]
    assert seen == [names, 3, (source.opt.queries, [1.5], rows)]
    assert small.opt.param_groups[0]["lr"] == 0.5
    assert_same(saved, kept)


@everyone
def test_an_error_in_a_load_hook_changes_nothing(build):
    small, source = Small(build).run(1), Small(build).run(3)
    before = copy.deepcopy(small.opt.state_dict())
    handle = small.opt.register_load_state_dict_pre_hook(lambda opt, state: {}["missing"])
    with pytest.raises(KeyError, match="missing"):
        small.opt.load_state_dict(source.opt.state_dict())
    handle.remove()
    for spoil, error in (
        (lambda s: s["param_groups"][0]["params"].pop(), "has 3 parameters, this optimizer 4"),
        (lambda s: s["param_groups"].pop(0), "has 0 parameters, this optimizer 4"),
        (lambda s: s["state"][1].update(z=3.0), "parameter 1: z is no tensor: float"),
    ):
        bad = copy.deepcopy(source.opt.state_dict())
        spoil(bad)
        with pytest.raises(ValueError, match=error):
            small.opt.load_state_dict(bad)
        assert_same(small.opt.state_dict(), before)
    halves = Small(build, groups=two_groups).opt.state_dict()
    with pytest.raises(ValueError, match=r"groups of sizes \[2, 2\], this optimizer \[4\]"):
        small.opt.load_state_dict(halves)


@everyone
def test_the_state_is_there_after_a_step_and_zero_grad_works(build):
    small = Small(build).run(1)
    assert all(small.opt.state[p] for p in small.model.parameters())
    small.opt.zero_grad()
    small.opt.zero_grad(set_to_none=False)
    assert all(p.grad is None for p in small.model.parameters())
