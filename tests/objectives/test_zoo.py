"""Every objective against its definition, by enumeration, by differences, and in a step."""

import itertools
import math

import pytest
import torch
from objectives.zoo import CASES, N, X, Z

import fcco
from fcco import objectives as O
from fcco.data import exact_pass, exact_value
from fcco.data.loader import filled
from fcco.problem.scaled import ScaledObjective
from fcco.updates import Normalized

every = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def exact_inner(case, model, chunk_size=1000):
    """g_i of all blocks from one exact pass, differentiable."""
    m = case.objective.num_blocks
    sums, totals = torch.zeros(m, case.objective.inner_dim, dtype=torch.float64), torch.zeros(m, 1)
    for call in exact_pass(model, case.inputs, case.objective, chunk_size=chunk_size):
        probe = call()
        counts = probe.samples_per_row().unsqueeze(1)
        sums = sums.index_add(0, probe.blocks, unscaled(case, probe) * counts)
        totals = totals.index_add(0, probe.blocks, counts.float())
    return sums / totals.double()


def unscaled(case, probe):
    if probe.log_scale is None:
        return probe.values
    scaled = case.objective.scaled_dim or case.objective.inner_dim
    factor = probe.log_scale.exp().unsqueeze(1)
    return torch.cat([probe.values[:, :scaled] * factor, probe.values[:, scaled:]], dim=1)


def truth(case, model):
    with torch.no_grad():
        views = (X, Z) if case.objective.num_views == 2 else (X,)
        return case.truth(*(model(view).tolist() for view in views))


def settle(case, model, away=0.0):
    """CVaR has a threshold, which ``exact`` chooses and ``inner`` takes: near the best one.

    At the best one itself F has a kink, for a threshold that does not move along.
    """
    if isinstance(case.objective, O.CVaR):
        losses = model(X).detach()[:, 0].sort(descending=True).values
        place = math.ceil(case.objective.fraction * N) - 1
        case.objective.threshold.data = losses[place] + away


@every
@pytest.mark.parametrize("chunk_size", [1000, 4])
def test_the_exact_value_is_the_definition(case, chunk_size):
    """Of the outputs of all samples, and of the inner values of all chunks."""
    model = case.model()
    settle(case, model)
    value = exact_value(model, case.inputs, case.objective, chunk_size=chunk_size)
    assert value == pytest.approx(truth(case, model), abs=1e-10)
    blocks = torch.arange(case.objective.num_blocks)
    by_chunks = case.objective.outer(exact_inner(case, model, chunk_size), blocks).mean()
    assert by_chunks.item() == pytest.approx(truth(case, model), abs=1e-10)


def outputs_of(case):
    model = case.model()
    views = (X, Z) if case.objective.num_views == 2 else (X,)
    return [model(view).detach() for view in views]


def by_differences(function, outputs, step=1e-3):
    """The gradient of the plain loops: central differences, extrapolated, off by O(step^4)."""

    def quotient(part, place, width):
        def at(shift):
            moved = [tensor.clone() for tensor in outputs]
            moved[part].view(-1)[place] += shift
            return function(*(tensor.tolist() for tensor in moved))

        return (at(width) - at(-width)) / (2 * width)

    return [
        torch.tensor(
            [
                (4 * quotient(part, place, step / 2) - quotient(part, place, step)) / 3
                for place in range(tensor.numel())
            ],
            dtype=torch.float64,
        ).view_as(tensor)
        for part, tensor in enumerate(outputs)
    ]


@pytest.mark.parametrize(
    "case", [case for case in CASES if hasattr(case.objective, "exact")], ids=lambda case: case.name
)
def test_exact_is_the_definition_and_so_is_its_gradient(case):
    outputs = [tensor.requires_grad_() for tensor in outputs_of(case)]
    value = case.objective.exact(*outputs)
    assert value.dtype == torch.float64
    expected = case.truth(*(h.tolist() for h in outputs))
    assert value.item() == pytest.approx(expected, rel=1e-13, abs=1e-12)
    found = torch.autograd.grad(value, outputs)
    detached = [tensor.detach() for tensor in outputs]
    # Where no gradient is wanted, some objectives sort instead of forming pairs.
    assert case.objective.exact(*detached).item() == pytest.approx(
        value.item(), rel=1e-13, abs=1e-13
    )
    for one, other in zip(found, by_differences(case.truth, detached), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9)


def grids(objective, block, replacement):
    """Uniform numbers that make ``draw`` visit every equally likely outcome once."""
    if hasattr(objective, "strata"):
        sizes = [len(part) for part in objective.strata]
        sizes = sizes if len(sizes) == 2 else [sizes[0] - (not replacement), sizes[0]]
    elif hasattr(objective, "labels") and objective.num_blocks == getattr(
        objective, "num_tasks", 0
    ):
        sizes = objective._counts[:, block].tolist()
    else:
        own = getattr(objective, "_sizes", getattr(objective, "sizes", None))
        size = N if own is None else int(own[block])
        sizes = [size - (not replacement), size]
    axes = [[(j + 0.5) / size for j in range(size)] for size in sizes]
    for point in itertools.product(*axes):
        yield torch.tensor(point, dtype=torch.float64)


@pytest.mark.sweep(3)
@every
@pytest.mark.parametrize("replacement", [True, False])
def test_sampled_values_are_unbiased_by_enumeration(case, replacement):
    model = case.model()
    exact = exact_inner(case, model).detach()
    # The draw without replacement differs in Floyd's algorithm alone: some blocks will do.
    for block in range(0, case.objective.num_blocks, 1 if replacement else 3):
        blocks, values = torch.tensor([block]), []
        for point in grids(case.objective, block, replacement):
            batch = case.objective.draw(blocks, point[None], point, replacement=replacement)
            probe = case.objective.inner(model, filled(batch, case.inputs))
            values.append(unscaled(case, probe).detach())
        average = torch.cat(values).mean(0)
        torch.testing.assert_close(average, exact[block], rtol=1e-10, atol=1e-12)


@every
def test_gradients_are_those_of_the_definition(case):
    """F through exact values, differentiated by autograd and by differences."""
    model = case.model()
    settle(case, model, away=0.01)
    blocks = torch.arange(case.objective.num_blocks)

    def value(weight, bias):
        parameters = {"weight": weight, "bias": bias}

        def call(x):
            return torch.func.functional_call(model, parameters, (x,))

        return case.objective.outer(exact_inner(case, call), blocks).mean()

    assert torch.autograd.gradcheck(
        value, tuple(p.detach().requires_grad_() for p in model.parameters())
    )


def exact_gradient(case, model):
    """Of F through exact values, by autograd."""
    blocks = torch.arange(case.objective.num_blocks)
    value = case.objective.outer(exact_inner(case, model), blocks).mean()
    return torch.autograd.grad(value, list(model.parameters()))


@every
def test_the_optimizer_follows_the_gradient_of_the_definition(case):
    """With all blocks and all samples, BSGD's direction is the exact gradient.

    At the second step too: in the first one any method takes its slopes at fresh values. Steps of
    one length, since gradients differ by orders of magnitude between objectives.
    """
    model = case.model()
    opt = fcco.BSGD(model.parameters(), case.objective, lr=0.1, update=Normalized())
    for _ in range(2):
        expected = exact_gradient(case, model)
        [everything] = exact_pass(model, case.inputs, case.objective)
        opt.step(everything)
        for p, gradient in zip(model.parameters(), expected, strict=True):
            torch.testing.assert_close(opt.state[p]["z"], gradient, rtol=1e-9, atol=1e-11)


@every
def test_a_snapshot_holds_the_gradient_of_the_definition(case):
    """However the exact pass is cut into chunks."""
    model = case.model()
    expected = exact_gradient(case, model)
    opt = fcco.MSVRM(model.parameters(), case.objective, version=3, lr=0.1, alpha=0.5, beta=0.5)
    opt.snapshot(exact_pass(model, case.inputs, case.objective, chunk_size=4))
    for p, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(opt.state[p]["anchor"], gradient, rtol=1e-9, atol=1e-11)


@every
def test_a_step_lowers_the_objective(case):
    model = case.model(seed=3)
    settle(case, model)
    before = exact_value(model, case.inputs, case.objective)
    opt = fcco.SOX(
        model.parameters(), case.objective, lr=0.02, alpha=1.0, beta=1.0, update=Normalized()
    )
    opt.step(exact_pass(model, case.inputs, case.objective)[0])
    after = exact_value(model, case.inputs, case.objective)
    assert after < before


@every
def test_domains_hold_the_values_and_refuse_the_rest(case):
    objective, model = case.objective, case.model()
    blocks = torch.arange(objective.num_blocks)
    exact = exact_inner(case, model).detach()
    assert torch.equal(objective.feasible(exact.clone(), blocks), exact)
    generator = torch.Generator().manual_seed(0)
    wild = 10 * torch.randn(exact.shape, generator=generator, dtype=torch.float64)
    tame = objective.feasible(wild.clone(), blocks)
    torch.testing.assert_close(objective.feasible(tame.clone(), blocks), tame, rtol=0, atol=0)
    assert objective.outer(tame, blocks).isfinite().all()
    # A projection onto a convex set does not push points apart.
    other = 10 * torch.randn(exact.shape, generator=generator, dtype=torch.float64)
    apart = (objective.feasible(other.clone(), blocks) - tame).norm(dim=1)
    assert (apart <= (other - wild).norm(dim=1) + 1e-12).all()


@every
def test_scaled_outer_is_outer(case):
    if not isinstance(case.objective, ScaledObjective):
        pytest.skip("plain rows")
    blocks = torch.arange(case.objective.num_blocks)
    exact = exact_inner(case, case.model()).detach()
    scaled = case.objective.scaled_dim or case.objective.inner_dim
    shifted = exact.clone()
    shifted[:, :scaled] *= torch.exp(torch.tensor(-7.0, dtype=torch.float64))
    scale = torch.full_like(exact[:, 0], 7.0)
    torch.testing.assert_close(
        case.objective.scaled_outer(shifted, scale, blocks),
        case.objective.outer(exact, blocks),
        rtol=1e-12,
        atol=1e-12,
    )
