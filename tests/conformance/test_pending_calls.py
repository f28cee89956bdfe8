"""Calls that wait for a backward pass, and calls that repeat what is known: every criterion.

Activation checkpointing computes a forward pass again. Whatever came between the first pass and
the backward pass, the gradient is that of the first pass, and the table is written once. Where
nothing has moved since the last call, a criterion has the value and the gradient of a fresh one.
"""

import copy

import pytest
import torch
from conformance.every_criterion import EVERY
from support import Toy, make_model
from torch.utils.checkpoint import checkpoint

import fcco
from fcco import losses as L
from fcco.kernel.safeguard import ChangeBound

# Calls in eval mode and without gradients are what these tests are about; they warn.
pytestmark = pytest.mark.filterwarnings("ignore:.*it is not a validation loss")

every_criterion = pytest.mark.parametrize("name", EVERY)


def state(criterion):
    return {key: tensor.clone() for key, tensor in criterion.state_dict().items()}


@pytest.mark.sweep(3)
@every_criterion
@pytest.mark.parametrize("accumulate", [False, True])
def test_several_recomputed_calls_before_one_backward(name, accumulate):
    """Of some samples each; the third brings what the first one brought, and the table changed.
    The last one brings other values of the same samples."""
    build, call, x = EVERY[name]
    criterion = build()
    everyone = torch.arange(len(x))
    parts = [everyone[:9], everyone[6:], everyone[:9], everyone[::2], everyone[:9]]
    if accumulate and isinstance(criterion, L.ScoreLoss):
        return  # a score loss adds up without a switch
    call(criterion, 0.7 * x, everyone)
    criterion.accumulate = accumulate
    results = []
    for recomputed in (False, True):
        twin = copy.deepcopy(criterion)
        scales = zip((0.5, 0.9, 0.5, 0.8, 0.6), parts, strict=True)
        leaves = [(scale * x[index]).requires_grad_() for scale, index in scales]
        losses = []
        for leaf, index in zip(leaves, parts, strict=True):
            run = lambda h, c=twin, index=index: call(c, h * 1.0, index)  # noqa: E731
            losses.append(checkpoint(run, leaf, use_reentrant=False) if recomputed else run(leaf))
        sum(losses).backward(retain_graph=not recomputed)
        grads = [leaf.grad for leaf in leaves]
        torch.optim.SGD(leaves, 0.0).step()  # which closes a window
        results.append((*losses, *grads, *twin.state_dict().values()))
    for plain, again in zip(*results, strict=True):
        torch.testing.assert_close(again, plain, rtol=0, atol=0)


@every_criterion
def test_other_values_of_pending_samples_are_a_step_of_their_own(name):
    """A reentrant checkpoint takes its step in the backward pass, while the first call is alive."""
    build, call, x = EVERY[name]
    criterion, everyone = build(), torch.arange(len(x))
    call(criterion, 0.7 * x, everyone)
    results = []
    for reentrant in (False, True):
        twin = copy.deepcopy(criterion)
        first, second = ((scale * x).requires_grad_() for scale in (0.5, 0.9))
        run = lambda h, c=twin: call(c, h * 1.0, everyone)  # noqa: E731
        plain = run(first)
        again = checkpoint(run, second, use_reentrant=True) if reentrant else run(second)
        (plain + again).backward()
        results.append((first.grad, second.grad, *twin.state_dict().values()))
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


@every_criterion
def test_calls_that_only_look_leave_pending_ones_alone(name, recwarn):
    build, _, x = EVERY[name]
    call = EVERY[name].all_rows
    criterion, twin = build(), build()
    grads = []
    for some, looking in ((criterion, False), (twin, True)):
        leaf = (0.5 * x).requires_grad_()
        loss = checkpoint(lambda h, c=some: call(c, h * 1.0), leaf, use_reentrant=False)
        if looking:
            before = state(some)
            call(some.eval(), 0.9 * x)
            with torch.no_grad():
                call(some.train(), 0.9 * x)
            assert all(before[key].equal(tensor) for key, tensor in some.state_dict().items())
        loss.backward()
        grads.append(leaf.grad)
    assert grads[0].equal(grads[1])
    recwarn.clear()


@every_criterion
def test_what_does_not_move_has_the_loss_of_a_fresh_criterion(name):
    """A guard, a gain or a correction does nothing where nothing is stale."""
    build, _, x = EVERY[name]
    call = EVERY[name].all_rows
    found = []
    criterion = build()
    for _ in range(4):
        leaf = x.clone().requires_grad_()
        loss = call(criterion, leaf)
        (gradient,) = torch.autograd.grad(loss, leaf)
        found.append((loss.detach(), gradient))
    for loss, gradient in found[1:]:
        torch.testing.assert_close(loss, found[0][0], rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(gradient, found[0][1], rtol=1e-9, atol=1e-13)


def run_at_rest(version, gamma, safeguard):
    """z after some steps whose values are exact, with weights that do not move."""
    problem, model = Toy(6, 2), make_model("network", 2)
    opt = fcco.MSVRM(
        model, problem, version=version, lr=0.0, alpha=0.1, gamma=gamma, safeguard=safeguard
    )
    order = torch.Generator().manual_seed(0)
    steps = [problem.everything()]  # after which every row is exact
    steps += [problem.everything(torch.randperm(6, generator=order)[:3]) for _ in range(5)]
    for draw in steps:
        if opt.snapshot_due:
            opt.snapshot(lambda: problem.inner(model, problem.everything()))
        opt.step(lambda draw=draw: problem.inner(model, draw))
    return [opt.state[p]["z"] for p in model.parameters()]


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("gamma", ["age", "storm"])
def test_a_safeguard_does_nothing_at_rest(version, gamma):
    """Every G(w_t) is G(w_{t-1})."""
    results = [run_at_rest(version, gamma, some) for some in (None, ChangeBound(ratio=0.5))]
    for plain, guarded in zip(*results, strict=True):
        torch.testing.assert_close(guarded, plain, rtol=1e-12, atol=1e-14)


@every_criterion
def test_a_call_with_another_state(name):
    """``functional_call`` has the value of a criterion with that state, and leaves no trace."""
    build, call, x = EVERY[name]
    everyone, part = torch.arange(len(x)), torch.arange(len(x))[3:9]
    criterion = build()
    call(criterion, 0.7 * x, everyone)
    other, untouched = copy.deepcopy(criterion), copy.deepcopy(criterion)
    call(other, 0.3 * x.flip(0), everyone)
    for _ in range(2):
        leaves = [(0.5 * x[part]).requires_grad_() for _ in range(2)]
        replaced = lambda *given, **more: torch.func.functional_call(  # noqa: E731
            criterion,
            state(other),
            given,
            more,
        )
        losses = call(replaced, leaves[0], part), call(copy.deepcopy(other), leaves[1], part)
        torch.testing.assert_close(*losses, rtol=1e-12, atol=1e-12)
        grads = [torch.autograd.grad(*pair)[0] for pair in zip(losses, leaves, strict=True)]
        torch.testing.assert_close(*grads, rtol=1e-12, atol=1e-12)
        both = [call(each, 0.6 * x[part], part) for each in (criterion, untouched)]
        torch.testing.assert_close(*both, rtol=1e-12, atol=1e-12)
    for mine, theirs in zip(state(criterion).values(), state(untouched).values(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)
