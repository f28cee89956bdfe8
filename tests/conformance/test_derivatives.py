"""Every criterion, differentiated once more or in forward mode: the right answer or an error.

The slopes of a criterion are constants of the graph, so its second derivatives would be wrong, and
a tangent would be lost. ``exact`` has both.
"""

import inspect
from functools import partial

import pytest
import torch
from conformance.every_criterion import EVERY, PROBABILITIES, TARGETS
from losses import criteria
from torch.autograd import forward_ad, functional

from fcco import losses as L
from fcco import objectives as O

every_criterion = pytest.mark.parametrize("name", EVERY)


def test_every_criterion_is_here():
    """A new one that is not would go unnoticed."""
    known = {type(entry.build()) for entry in EVERY.values()}
    public = {kind for kind in vars(L).values() if inspect.isclass(kind)}
    assert public - {L.ScoreLoss, L.RowLoss} == known


@every_criterion
def test_a_second_derivative_is_an_error(name):
    """Whether or not the first call filled the table before."""
    entry = EVERY[name]
    x, loss = entry.x, partial(entry.all_rows, entry.build())
    function = lambda x: loss(x.sin())  # noqa: E731  # as through a model, which is not linear
    for _ in range(2):
        leaf = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(function(leaf), leaf, create_graph=True)
        with pytest.raises(RuntimeError, match="differentiated twice"):
            torch.autograd.grad((gradient * x).sum(), leaf)
        with pytest.raises(RuntimeError, match="differentiated twice"):
            functional.hvp(function, x, torch.ones_like(x))
        # A penalty on the gradient of the square of a loss passes through the value, too.
        leaf = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(function(leaf).square(), leaf, create_graph=True)
        with pytest.raises(RuntimeError, match="differentiated twice"):
            gradient.square().sum().backward()


@every_criterion
def test_a_forward_derivative_is_an_error(name):
    entry = EVERY[name]
    x, loss = entry.x, partial(entry.all_rows, entry.build())
    function = lambda x: loss(x.sin())  # noqa: E731  # as through a model, which is not linear
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match="forward-mode"):
        function(forward_ad.make_dual(x, torch.ones_like(x)))
    with pytest.raises(RuntimeError):  # torch's own, about writing inside a transformation
        torch.func.hessian(function)(x)


EXACT = {case.name: (case.criterion().exact, case.scores()) for case in criteria.CASES}
EXACT |= {
    f"{kind.__name__} of labels": (kind(criteria.labels()).exact, criteria.CASES[0].scores())
    for kind in (O.AveragePrecision, O.PNormPush, O.AUC)
} | {
    type(loss).__name__: (lambda p, loss=loss: loss.exact(p, TARGETS.double()), PROBABILITIES)
    for loss in (L.F1Loss().double(), L.CorrelationLoss().double())
}


@pytest.mark.parametrize("name", EXACT)
def test_exact_has_second_and_forward_derivatives(name):
    """By central differences of the gradient."""
    exact, x = EXACT[name]
    along = torch.randn(x.shape, dtype=x.dtype, generator=criteria.generator(7))

    def gradient(at):
        leaf = at.clone().requires_grad_()
        return torch.autograd.grad(exact(leaf), leaf)[0]

    step = 1e-5
    expected = (gradient(x + step * along) - gradient(x - step * along)) / (2 * step)
    found = functional.hvp(exact, x, along)[1]
    size = gradient(x).abs().max().item() + expected.abs().max().item()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-8 * size)
    tangent = torch.func.jvp(exact, (x,), (along,))[1]
    slope = (gradient(x) * along).sum()
    assert tangent.item() == pytest.approx(slope.item(), rel=1e-9, abs=1e-12 * size)
