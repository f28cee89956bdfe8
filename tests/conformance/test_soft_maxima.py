"""Functions that continue along a tangent where they would overflow: no value is a surprise there.

A soft maximum lies between the mean and the maximum of what it is of, at every temperature and in
single precision too; a function and its slope are continuous where the tangent begins.
"""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fcco import losses as L
from fcco import objectives as O

TEMPERATURES = st.integers(-30, 80).map(lambda k: 10.0 ** (k / 10))
COSTS = st.lists(st.floats(0, 50, width=32), min_size=1, max_size=6)
DTYPES = st.sampled_from([torch.float32, torch.float64])
few = settings(max_examples=60, deadline=None, derandomize=True)


def between(value, costs, rounding):
    least, most = sum(costs) / len(costs), max(costs)
    return least - rounding * (1 + least) <= value <= most + rounding * (1 + most)


@few
@given(TEMPERATURES, COSTS, DTYPES)
def test_group_dro(temperature, costs, dtype):
    """Also beyond u = 10 T, where the exponential goes on along its tangent."""
    criterion = L.GroupDROLoss(len(costs), temperature=temperature).to(dtype)
    losses = torch.tensor(costs, dtype=dtype, requires_grad=True)
    loss = criterion(losses, torch.arange(len(costs)))
    if not loss.isfinite():
        return
    risk = criterion.objective.risk(loss.item())
    assert between(risk, costs, 1e-5 if dtype == torch.float32 else 1e-9)
    (slopes,) = torch.autograd.grad(loss, losses)
    expected = [math.exp(min(u / temperature, 10)) / len(costs) for u in costs]
    rounding = 1e-5 if dtype == torch.float32 else 1e-12
    assert slopes.tolist() == pytest.approx(expected, rel=rounding)


@few
@given(TEMPERATURES, COSTS, st.floats(0.01, 1))
def test_robust_risks_of_samples(temperature, costs, fraction):
    h = torch.tensor(costs, dtype=torch.float64)
    rounding = 1e-14 * (1 + temperature)  # T times the logarithm of a mean near 1
    assert between(O.DRO(len(costs), temperature=temperature).exact(h).item(), costs, rounding)
    assert between(O.CVaR(len(costs), fraction=fraction).exact(h).item(), costs, 1e-14)


@few
@given(TEMPERATURES, st.lists(st.floats(-5, 5, width=32), min_size=2, max_size=7))
def test_partial_auc(temperature, scores):
    """Of one positive, the first sample, over the costs of its negatives."""
    h = torch.tensor(scores, dtype=torch.float64)
    labels = [1] + [0] * (len(scores) - 1)
    costs = (1 + h[1:] - h[0]).clamp(min=0).square().tolist()
    value = O.PartialAUC(labels, temperature=temperature).exact(h).item()
    assert between(value, costs, 1e-13 * (1 + temperature))


@pytest.mark.parametrize("T", [0.1, 1.0, 7.0])
def test_where_the_tangent_begins(T):
    """At the cap itself a slope counts once, and values on both sides meet."""
    at = torch.tensor([10 * T], dtype=torch.float64, requires_grad=True)
    objective = O.GroupDRO(torch.arange(1), temperature=T)
    assert (at / T).item() == 10, "exactly there"
    (slope,) = torch.autograd.grad(objective.outer(at[:, None], torch.arange(1)).sum(), at)
    assert slope.item() == pytest.approx(math.exp(10), rel=1e-14)
    values = [
        objective.outer(torch.tensor([[10 * T + d]], dtype=torch.float64), torch.arange(1)).item()
        for d in (-1e-9 * T, 1e-9 * T)
    ]
    assert values[1] - values[0] == pytest.approx(2e-9 * T * math.exp(10), rel=1e-4)
    cap = torch.tensor([20.0], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(O.Exponential()(cap).sum(), cap)
    assert slope.item() == pytest.approx(math.exp(20), rel=1e-14)


def test_a_cap_that_no_exponential_reaches():
    """exp(1000) overflows, but no value below the cap needs it."""
    objective = O.GroupDRO(torch.arange(2), temperature=0.001, cap=1.0)
    u = torch.tensor([[0.002], [0.01]], dtype=torch.float64, requires_grad=True)
    values = objective.outer(u, torch.arange(2))
    (slopes,) = torch.autograd.grad(values.sum(), u)
    assert slopes.flatten().tolist() == pytest.approx([math.exp(2), math.exp(10)])
    assert objective.risk(values.mean().item()) == pytest.approx(
        0.001 * math.log((math.exp(2) + math.exp(10)) / 2)
    )
