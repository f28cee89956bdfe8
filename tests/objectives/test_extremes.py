"""Ties, times of every dtype, huge and tiny scores, low precision: against loops and mpmath."""

import math

import mpmath
import pytest
import torch
from objectives.zoo import CASES, N, X
from torch import nn

from fcco import objectives as O
from fcco.data import block_loader, exact_value

GENERATOR = torch.Generator().manual_seed(8)


def normal(*shape):
    return torch.randn(shape, generator=GENERATOR, dtype=torch.float64)


# Ties and times -----------------------------------------------------------------------------------


def cox_loop(h, times, events, ties):
    """The definition, with Python's own numbers."""
    count, total = len(h), 0.0
    for time in sorted(set(times)):
        dead = [i for i in range(count) if events[i] and times[i] == time]
        risk = math.fsum(math.exp(h[j]) for j in range(count) if times[j] >= time)
        tied = math.fsum(math.exp(h[j]) for j in dead)
        for place, i in enumerate(dead):
            part = place / len(dead) * tied if ties == "efron" else 0.0
            total += math.log(risk - part) - h[i]
    return total / sum(events)


def least(kind):
    return torch.iinfo(kind).min


def most(kind):
    return torch.iinfo(kind).max


INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
TIMES = {
    **{f"zeros in {kind}": torch.tensor([0, 0, 1, 2] * 5, dtype=kind) for kind in INTEGERS},
    **{f"falling in {kind}": torch.arange(19, -1, -1).to(kind) for kind in INTEGERS},
    **{
        f"ends of {kind}": torch.tensor([least(kind), most(kind), least(kind), 3] * 5, dtype=kind)
        for kind in INTEGERS
    },
    **{
        f"zeros in {kind}": torch.tensor([0, 0, 1, 2] * 5).to(kind)
        for kind in (torch.uint16, torch.uint32, torch.float16, torch.bfloat16)
    },
    "booleans": torch.arange(20) % 3 > 0,
    "negative": -torch.arange(20.0) // 3,
    "neighbours in float64": 1 + (torch.arange(20) % 7) * 2.0**-52,
    "seconds": 1_600_000_000 + 7 * (torch.arange(20) % 9),
    "beyond 2^53": 2**53 + torch.arange(20) % 5,
    "all at once": torch.ones(20),
    "huge": torch.tensor([1e300, -1e300, 5e-324, 0.0] * 5, dtype=torch.float64),
}


@pytest.mark.parametrize("ties", ["efron", "breslow"])
@pytest.mark.parametrize("name", TIMES)
def test_times_are_compared_in_their_own_type(name, ties):
    times, count = TIMES[name], 20
    events = torch.rand(count, generator=GENERATOR) < 0.7
    h = normal(count)
    objective = O.Cox(times, events, ties=ties)
    expected = cox_loop(h.tolist(), times.tolist(), events.tolist(), ties)
    assert objective.exact(h).item() == pytest.approx(expected, abs=1e-12)
    model = nn.Identity()
    probe = objective.inner(model, objective.batch(h, range(count)))
    values = objective.scaled_outer(probe.values, probe.log_scale, probe.blocks)
    assert values.mean().item() == pytest.approx(expected, abs=1e-12)
    assert exact_value(model, h, objective, chunk_size=3) == pytest.approx(expected, abs=1e-12)


def test_the_order_of_the_samples_does_not_matter():
    """Efron's l of d tied events goes by their places; F does not."""
    times, events, h = torch.arange(30) // 6, torch.arange(30) % 3 > 0, normal(30)
    order = torch.randperm(30, generator=GENERATOR)
    values = [O.Cox(times, events).exact(h), O.Cox(times[order], events[order]).exact(h[order])]
    assert values[0].item() == pytest.approx(values[1].item(), abs=1e-13)


@pytest.mark.parametrize("count", [2000, 20_000, 200_000])
def test_many_ties_at_the_last_time(count):
    """float32 scores gave NaN: l/d of the tied was more than the risk set by rounding."""
    torch.manual_seed(0)
    h, objective = torch.randn(count), O.Cox(torch.ones(count), torch.ones(count))
    found = objective.exact(h)
    assert found.dtype == torch.float32
    # sum_l log((1 - l/d) S) - sum h = d log S + log(d! / d^d) - sum h
    d, x = float(count), h.double()
    expected = x.logsumexp(0) + (math.lgamma(d + 1) - d * math.log(d)) / d - x.mean()
    assert found.item() == pytest.approx(expected.item(), rel=1e-6)
    assert objective.exact(x).item() == pytest.approx(expected.item(), rel=1e-12)


# mpmath -------------------------------------------------------------------------------------------


def exactly(function):
    """With 60 digits."""

    def call(*args):
        with mpmath.workdps(60):
            found = function(*args)
            return [float(x) for x in found] if isinstance(found, list) else float(found)

    return call


@exactly
def cox_truth(h, times, events, ties):
    """F and its gradient."""
    h = [mpmath.mpf(x) for x in h]
    hazards, everyone = [mpmath.exp(x) for x in h], range(len(h))
    total, slopes = mpmath.mpf(0), [mpmath.mpf(0)] * len(h)
    for time in sorted(set(times)):
        risk = [j for j in everyone if times[j] >= time]
        dead = [j for j in risk if events[j] and times[j] == time]
        for place, i in enumerate(dead):
            part = mpmath.mpf(place) / len(dead) if ties == "efron" else mpmath.mpf(0)
            counts = {j: (1 - part if j in dead else 1) * hazards[j] for j in risk}
            whole = mpmath.fsum(counts.values())
            total += mpmath.log(whole) - h[i]
            slopes[i] -= 1
            for j in risk:
                slopes[j] += counts[j] / whole
    return [x / sum(events) for x in (total, *slopes)]


@exactly
def auc_truth(h, labels, temperature):
    p = [mpmath.mpf(x) for x, y in zip(h, labels, strict=True) if y]
    n = [mpmath.mpf(x) for x, y in zip(h, labels, strict=True) if not y]
    pairs = mpmath.fsum(mpmath.exp((b - a) / mpmath.mpf(temperature)) for a in p for b in n)
    return mpmath.mpf(temperature) * mpmath.log1p(pairs / (len(p) * len(n)))


@exactly
def dro_truth(h, temperature):
    t = mpmath.mpf(temperature)
    return t * mpmath.log(mpmath.fsum(mpmath.exp(mpmath.mpf(x) / t) for x in h) / len(h))


COUNT = 17
EDGE = torch.full((COUNT,), 11.684549640797426, dtype=torch.float64)
EDGE[0], EDGE[1] = -425.37768691896827, -400.8875680310928
SCORES = {
    "normal": normal(COUNT),
    "equal": torch.full((COUNT,), 0.1, dtype=torch.float64),
    "1e4": 1e4 * normal(COUNT).clamp(-1, 1),
    "apart by 599": torch.linspace(-299.5, 299.5, COUNT, dtype=torch.float64),
    "apart by 601": torch.linspace(-300.5, 300.5, COUNT, dtype=torch.float64),
    "one far below": torch.cat([normal(COUNT - 1), torch.tensor([-800.0])]),
    "one far above": torch.cat([torch.tensor([900.0]), normal(COUNT - 1)]),
    "1e-30": 1e-30 * normal(COUNT),
    "far from 0": 1e6 + normal(COUNT),
    "two clusters": torch.where(torch.arange(COUNT) % 2 == 0, 500.0, -500.0) + normal(COUNT),
    "a product of sums that is not normal": EDGE,
}
STRUCTURES = {
    "one after the other": (torch.arange(COUNT, 0, -1.0), torch.ones(COUNT)),
    "the other way round": (torch.arange(COUNT), torch.arange(COUNT) % 4 > 0),
    "ties": (torch.arange(COUNT) // 4, torch.arange(COUNT) % 3 > 0),
    "one time": (torch.zeros(COUNT), torch.ones(COUNT)),
    "one outlives all others": ((torch.arange(COUNT) == 0).double(), torch.ones(COUNT)),
}


@pytest.mark.parametrize("ties", ["efron", "breslow"])
@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("name", SCORES)
def test_cox_to_the_last_digits(name, structure, ties):
    times, events = STRUCTURES[structure]
    h = SCORES[name]
    objective = O.Cox(times, events, ties=ties)
    expected, *slopes = cox_truth(h.tolist(), times.tolist(), events.bool().tolist(), ties)
    # A value is a difference of scores, and an exponential of one has its absolute error.
    rounding = 1e-15 * max(h.abs().max().item(), 1)
    for weight in (None, torch.ones(COUNT)):
        leaf = h.clone().requires_grad_()
        value = objective.exact(leaf, weight)
        (gradient,) = torch.autograd.grad(value, leaf)
        assert value.item() == pytest.approx(expected, rel=1e-13, abs=2 * rounding)
        assert gradient.tolist() == pytest.approx(slopes, rel=1e-12, abs=2 * rounding)


@pytest.mark.parametrize("temperature", [1.0, 0.01])
@pytest.mark.parametrize("name", SCORES)
def test_auc_to_the_last_digits(name, temperature):
    h, labels = SCORES[name], torch.arange(COUNT) % 3 == 0
    expected = auc_truth(h.tolist(), labels.tolist(), temperature)
    found = O.AUC(labels, temperature=temperature).exact(h).item()
    assert found == pytest.approx(expected, rel=1e-12, abs=4e-15 * h.abs().max().item())


def test_a_small_auc_risk_keeps_its_digits():
    """log(1 + exp(-80)): 1e-35, not 0."""
    h, labels = torch.tensor([40.0, -40.0], dtype=torch.float64), torch.tensor([1, 0])
    assert O.AUC(labels).exact(h).item() == pytest.approx(math.exp(-80), rel=1e-12)


@pytest.mark.parametrize("temperature", [1.0, 0.01, 1e6])
@pytest.mark.parametrize("name", SCORES)
def test_dro_to_the_last_digits(name, temperature):
    h = SCORES[name]
    expected = dro_truth(h.tolist(), temperature)
    found = O.DRO(COUNT, temperature=temperature).exact(h).item()
    # F is T times a difference of logarithms of the size log N.
    rounding = 5e-16 * (temperature * math.log(COUNT) + h.abs().max().item())
    assert found == pytest.approx(expected, rel=1e-13, abs=rounding)


# Scores of every size and precision ---------------------------------------------------------------

SCORED = [case for case in CASES if hasattr(case.objective, "exact")]
scored = pytest.mark.parametrize("case", SCORED, ids=lambda case: case.name)


def outputs_of(case, size, dtype=torch.float64):
    views = 2 if case.objective.num_views == 2 else 1
    return [(size * X @ normal(3, case.outputs)).to(dtype) for _ in range(views)]


@scored
@pytest.mark.parametrize("size", [1e4, 1e-30])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_scores_of_any_size_have_a_value_and_a_gradient(case, size, dtype):
    outputs = [h.requires_grad_() for h in outputs_of(case, size, dtype)]
    value = case.objective.exact(*outputs)
    assert value.isfinite()
    for gradient in torch.autograd.grad(value, outputs):
        assert gradient.isfinite().all()
        assert gradient.dtype == dtype
    if size < 1 and case.objective.num_views == 1:  # as if all were equal
        flat = [torch.zeros_like(h) for h in outputs]
        assert value.item() == pytest.approx(case.objective.exact(*flat).item(), abs=1e-6)


@scored
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_low_precision_is_widened(case, dtype):
    """The value is that of the same numbers in float64, rounded to float32; so are gradients."""
    outputs = outputs_of(case, 0.3, dtype)
    narrow = [h.clone().requires_grad_() for h in outputs]
    wide = [h.double().requires_grad_() for h in outputs]
    value, expected = case.objective.exact(*narrow), case.objective.exact(*wide)
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(expected.item(), rel=1e-6, abs=1e-7)
    gradients = zip(
        torch.autograd.grad(value, narrow), torch.autograd.grad(expected, wide), strict=True
    )
    for one, other in gradients:
        assert one.dtype == dtype
        torch.testing.assert_close(one.double(), other, rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_inner_values_of_low_precision_are_at_least_float32(case, dtype):
    inputs = [view.to(dtype) for view in (case.inputs if case.objective.num_views == 2 else [X])]
    given = tuple(inputs) if len(inputs) == 2 else inputs[0]
    model = case.model().to(dtype)
    (batch,) = block_loader(
        given, case.objective, blocks_per_step=1, samples_per_block=4, num_steps=1
    )
    probe = case.objective.inner(model, batch)
    assert probe.values.dtype in (torch.float32, torch.float64)  # as the objective's parameters
    assert probe.values.isfinite().all()
    assert torch.tensor(exact_value(model, given, case.objective)).isfinite()


@scored
def test_autocast_does_not_narrow_an_exact_value(case):
    outputs = outputs_of(case, 1.0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = case.objective.exact(*outputs)
    assert found.equal(case.objective.exact(*outputs))


def test_one_sample_of_each_kind_is_enough():
    assert O.AUC([1, 0]).exact(torch.zeros(2)).item() == pytest.approx(math.log(2))
    assert O.Cox([1.0], [1]).exact(torch.tensor([5.0])).item() == 0
    assert O.DRO(1, temperature=3.0).exact(torch.tensor([5.0])).item() == 5
    assert O.CVaR(1, fraction=0.1).exact(torch.tensor([5.0])).item() == 5
    assert O.NDCG([1], [1]).exact(torch.tensor([5.0])).item() == -1
    assert O.ListNet([1], [1]).exact(torch.tensor([5.0])).item() == 0
    assert len(X) == N
