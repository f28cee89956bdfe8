"""Faults that a reader of the code found: each was silent before."""

import copy

import pytest
import torch
from torch import nn

import fcco
from fcco import losses as L
from fcco.losses.fingerprint import fingerprint
from fcco.losses.merge import merge


class Squares(fcco.Objective):
    num_blocks, inner_dim = 4, 1

    def outer(self, u, blocks):
        return u[:, 0].square()


class Roots(Squares):
    """Finite slopes where the value is not."""

    def outer(self, u, blocks):
        return torch.where(u[:, 0] > 1, torch.inf, 0.0) + u[:, 0]

    def outer_slope(self, u, blocks):
        return torch.ones_like(u)


@pytest.mark.parametrize("change", ["zero_grad", "zeros", "backward"])
def test_a_closure_that_changes_grad_is_an_error(change):
    """At the second point zero_grad() would erase the gradient of the first."""
    model = nn.Linear(2, 1)
    opt = fcco.MSVRM(model, Squares(), version=2, lr=0.1)
    blocks, x = torch.tensor([0, 1]), torch.randn(2, 2)
    opt.step(lambda: fcco.Probe(blocks, model(x)))
    before = copy.deepcopy((model.state_dict(), opt.state_dict()))

    def closure():
        if change == "backward":
            values = model(x)
            values.sum().backward(retain_graph=True)
            return fcco.Probe(blocks, values)
        opt.zero_grad(set_to_none=change == "zero_grad")
        return fcco.Probe(blocks, model(x))

    with pytest.raises(ValueError, match=r"changed \.grad"):
        opt.step(closure)
    after = model.state_dict(), opt.state_dict()
    torch.testing.assert_close(after[0], before[0], rtol=0, atol=0)
    assert all(p.grad is None for p in model.parameters())


def test_a_value_that_is_not_finite_is_an_error():
    model = nn.Linear(1, 1)
    opt = fcco.SOX(model, Roots(), lr=0.1, beta=0.5)
    with pytest.raises(FloatingPointError, match=r"f\(u\) of blocks \[1\]"):
        opt.step(
            lambda: fcco.Probe(
                torch.tensor([0, 1]), model.weight * 0 + torch.tensor([[0.5], [2.0]])
            )
        )
    assert opt.queries.values == 0


def test_every_direction_is_checked():
    """A rule that returns z itself for the first parameter only."""

    class Odd(fcco.updates.Update):
        def directions(self, zs, states, norm=None):
            return [zs[0], torch.full_like(zs[1], torch.nan)]

    model = nn.Linear(2, 1)
    opt = fcco.SOX(model, Squares(), lr=0.1, update=Odd())
    with pytest.raises(FloatingPointError, match="direction of Odd"):
        opt.step(lambda: fcco.Probe(torch.tensor([0]), model(torch.ones(1, 2))))


def test_micro_batches_with_and_without_a_scale_are_joined():
    """exp(5) in one micro-batch as a scale, in the other as a value: the mean is exp(5)."""
    criterion = L.TableLoss(fcco.objectives.GlobalContrastive(4, temperature=1.0), beta=1.0)
    criterion.accumulate = True
    one = torch.ones(1, 1, requires_grad=True)
    scaled = fcco.Probe(torch.tensor([0]), one, log_scale=torch.tensor([5.0]))
    plain = fcco.Probe(torch.tensor([0]), one * torch.tensor(5.0).exp())
    for probe in (scaled, plain):
        criterion(probe).backward()
    torch.optim.SGD([one], lr=0.0).step()
    torch.testing.assert_close(criterion.read(torch.tensor([0])), torch.tensor([[5.0]]).exp())


def test_a_copy_has_no_open_window():
    criterion = L.MeansLoss(lambda u: u[..., 0].square(), 1)
    criterion.accumulate = True
    x = torch.ones(2, 1, requires_grad=True)
    criterion(x).backward()
    twin = copy.deepcopy(criterion)
    assert twin._window is None
    torch.optim.SGD([x], lr=0.0).step()
    assert criterion.table.visited.all()
    assert not twin.table.visited.any()


def test_a_mode_is_no_setting():
    objective = fcco.objectives.GlobalContrastive(4, temperature=1.0, learned="common")
    before = fingerprint(objective)
    objective.eval()
    assert fingerprint(objective).equal(before)


def test_draws_that_saw_the_same_samples_have_them_once():
    probe = fcco.Probe(torch.tensor([3, 3]), torch.ones(2, 1), 5)
    assert merge(probe, 0, common=True).samples.tolist() == [5]
    assert merge(probe, 0).samples.tolist() == [10]


def test_embeddings_of_two_dtypes_are_an_error():
    criterion = L.ContrastiveLoss(4, temperature=0.1)
    with pytest.raises(ValueError, match=r"second is torch\.float64, the other"):
        criterion(torch.randn(2, 3), torch.randn(2, 3).double(), torch.arange(2))
