"""torchsurv's tests of Cox's likelihood, asked of ours: R's figures, and any survival data.

R's log likelihoods are in ``losses/test_values``. Here are the maxima of R's fits, R's C-indices,
and torchsurv's strategies: any times and log hazards in a wide range. Where torchsurv is installed
(it is no dependency), its own value and gradient are compared too.
"""

import gzip
import json
from pathlib import Path

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from lifelines.datasets import load_lung
from lifelines.utils import concordance_index
from losses.criteria import cox

from fcco import losses as L
from fcco import objectives as O

HERE = Path(__file__).parent


def vectors(file):
    return json.loads(gzip.decompress(file.read_bytes()))["vectors"]


CONCORDANCE = vectors(HERE / "r_cindex.json.gz")
LIKELIHOOD = vectors(HERE.parent / "losses" / "r_coxph.json.gz")


@st.composite
def survival(draw, least=2, most=30):
    """Times (tied ones too), events of which there is at least one, and log hazards."""
    size = draw(st.integers(least, most))
    apart = st.floats(1e-6, 1e6)
    tied = st.integers(1, 4).map(float)
    times = draw(st.lists(draw(st.sampled_from([apart, tied])), min_size=size, max_size=size))
    events = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    events[draw(st.integers(0, size - 1))] = True
    hazards = draw(st.lists(st.floats(-50, 50), min_size=size, max_size=size))
    as_double = torch.tensor([times, hazards], dtype=torch.float64)
    return as_double[0], torch.tensor(events), as_double[1]


ties = pytest.mark.parametrize("ties", ["efron", "breslow"])
many = settings(max_examples=40, deadline=None)


@pytest.mark.parametrize("number", range(6))
def test_the_c_index_is_that_of_r(number):
    """To its four decimals."""
    vector = CONCORDANCE[number]
    scores = torch.tensor(vector["log_hazards"], dtype=torch.float64)
    found = O.Cox(vector["times"], vector["events"]).metric(scores)
    assert abs(found - vector["c_index"]) <= 0.5e-4


def newton(loss, size):
    """The minimum of a smooth convex function of few numbers."""
    w = torch.zeros(size, dtype=torch.float64)
    for _ in range(20):
        slope = torch.func.grad(loss)(w)
        w = w - torch.linalg.solve(torch.func.hessian(loss)(w), slope)
    assert slope.abs().max() < 1e-10
    return w


@ties
@pytest.mark.parametrize("columns", [["age"], ["age", "sex"]], ids="-".join)
def test_the_best_coefficients_are_those_of_r(ties, columns):
    """Log hazards of R's fit of the lung data, to their four decimals."""
    lung = load_lung()
    lung["age"] = (lung["age"] - lung["age"].mean()) / lung["age"].std()
    lung["sex"] = (lung["sex"] == 1).astype(float)
    x = torch.tensor(lung[columns].to_numpy(), dtype=torch.float64)
    objective = O.Cox(lung["time"].to_numpy(), lung["status"].to_numpy(), ties=ties)
    found = x @ newton(lambda w: objective.exact(x @ w), len(columns))
    known = [
        torch.tensor(v["log_hazards"], dtype=torch.float64)
        for v in LIKELIHOOD
        if v["times"] == lung["time"].tolist() and v["ties"] == ties
    ]
    assert len(known) == 2
    expected = known[len(columns) - 1]
    assert (found - expected).abs().max() <= 0.5e-4 + 1e-6


@ties
@given(data=survival())
@many
def test_the_value_is_finite_and_the_definition(ties, data):
    times, events, hazards = data
    value = O.Cox(times, events, ties=ties).exact(hazards)
    expected = cox(ties)(hazards.unsqueeze(1).tolist(), times, events)
    # Loops without logarithms lose what is small beside the largest hazard: e^100 eps.
    assert value.item() == pytest.approx(expected, rel=1e-9, abs=1e-9)


@ties
@given(data=survival(), seed=st.integers(0, 100), size=st.integers(1, 7))
@many
def test_batches_of_any_size_end_at_the_value_of_all(ties, data, seed, size):
    times, events, hazards = data
    criterion = L.CoxLoss(times, events, ties=ties).double()
    order = torch.randperm(len(times), generator=torch.Generator().manual_seed(seed))
    scores = hazards.clone().requires_grad_()
    total = torch.zeros_like(hazards)
    for index in order.split(size):
        criterion(scores[index], index)
    for index in order.split(size):
        loss = criterion(scores[index], index)
        (slope,) = torch.autograd.grad(loss, scores)
        total += slope * len(index) / len(times)
    exact = criterion.exact(scores)
    (expected,) = torch.autograd.grad(exact, scores)
    torch.testing.assert_close(loss, exact, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(total, expected, rtol=1e-9, atol=1e-10)


@ties
@given(data=survival(), seed=st.integers(0, 100), shift=st.floats(-20, 20))
@many
def test_what_does_not_matter(ties, data, seed, shift):
    """The order of the samples, the unit of time, and a constant in all log hazards."""
    times, events, hazards = data
    value = O.Cox(times, events, ties=ties).exact(hazards)
    order = torch.randperm(len(times), generator=torch.Generator().manual_seed(seed))
    mixed = O.Cox(times[order], events[order], ties=ties).exact(hazards[order])
    ranks = times.unique(return_inverse=True)[1]
    ranked = O.Cox(ranks, events, ties=ties).exact(hazards)
    shifted = O.Cox(times, events, ties=ties).exact(hazards + shift)
    for other in (mixed, ranked, shifted):
        torch.testing.assert_close(other, value, rtol=1e-10, atol=1e-10)


@given(data=survival())
@many
def test_efron_is_at_most_breslow_and_equal_without_ties(data):
    times, events, hazards = data
    efron, breslow = (
        O.Cox(times, events, ties=ties).exact(hazards).item() for ties in ("efron", "breslow")
    )
    dead = times[events]
    if len(dead.unique()) == len(dead):
        assert efron == pytest.approx(breslow, rel=1e-12, abs=1e-12)
    else:
        assert efron <= breslow + 1e-9


@given(data=survival())
@many
def test_the_c_index_is_that_of_lifelines(data):
    times, events, hazards = data
    comparable = (times.unsqueeze(1) < times) & events.unsqueeze(1)
    ties_with_censored = (times.unsqueeze(1) == times) & events.unsqueeze(1) & ~events
    if not (comparable | ties_with_censored).any():
        return
    found = O.Cox(times, events).metric(hazards)
    assert 0 <= found <= 1
    expected = concordance_index(times.numpy(), -hazards.numpy(), events.numpy())
    assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.filterwarnings("ignore:Ties in `time` detected")
@ties
@given(data=survival(least=3))
@many
def test_torchsurv_gives_the_same_value_and_gradient(ties, data):
    theirs = pytest.importorskip("torchsurv.loss.cox", reason="torchsurv is not installed")
    times, events, hazards = data
    # It computes in float32, without taking the largest hazard out of the sums; its mean is over
    # distinct times; and of the samples that are censored at the time of an event it leaves some
    # out of the risk set (0.2.0), so that there are none here.
    times = torch.where(events, times, times + 0.5).float()
    assume(not torch.isin(times[~events], times[events]).any())
    hazards = (hazards / 10).float().requires_grad_()
    ours = O.Cox(times, events, ties=ties).exact(hazards) * events.sum()
    value = theirs.neg_partial_log_likelihood(
        hazards, events, times, ties_method=ties, reduction="sum"
    )
    slopes = [torch.autograd.grad(loss, hazards)[0] for loss in (ours, value)]
    torch.testing.assert_close(ours.float(), value, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(*slopes, rtol=1e-4, atol=1e-4)
