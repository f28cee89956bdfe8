"""The lemmas, by enumeration of every choice a step could make: no Monte Carlo."""

import copy
import itertools

import pytest
import torch
from support import Draw, Toy, flat, make_model

from fcco import BSGD, MSVRM, FreshPair


def full_gradient(problem, model):
    """grad F by plain autograd of the definition."""
    exact = problem.everything()
    inner = problem.values(model, exact.blocks, exact.samples)
    return flat(torch.autograd.grad(problem.outer(inner, exact.blocks).mean(), model.parameters()))


def z_of(opt, model):
    return flat(opt.state[p]["z"] for p in model.parameters())


def expected_tracking_error(m, count, beta, gamma):
    """E||u_t - g(w_t)||^2 over all block subsets, with exact inner values, by the optimizer."""
    problem = Toy(m, 2)
    model = make_model("network", 2)
    generator = torch.Generator().manual_seed(5)
    initial = torch.randn((m, 2), generator=generator, dtype=torch.float64)
    opt = MSVRM(
        model.parameters(),
        problem,
        version=1,
        lr=0.3,
        alpha=0.5,
        beta=beta,
        gamma=gamma,
        initial=initial,
    )
    exact = problem.everything()

    def inner():
        return problem.values(model, exact.blocks, exact.samples).detach()

    before = inner()
    opt.step(lambda: problem.inner(model, problem.everything(torch.tensor([1]))))
    u, after = opt.table.read(exact.blocks), inner()
    errors = []
    for subset in itertools.combinations(range(m), count):
        twin_model, twin = copy.deepcopy((model, opt))
        draw = problem.everything(torch.tensor(subset))
        twin.step(lambda: problem.inner(twin_model, draw))  # noqa: B023
        errors.append((twin.table.read(exact.blocks) - after).square().sum())
    return torch.stack(errors).mean(), u - before, after - before


CASES = [(6, 2, 0.3), (5, 1, 0.5), (4, 3, 0.1), (6, 5, 0.5), (3, 3, 0.2)]


@pytest.mark.parametrize(("m", "count", "beta"), CASES)
def test_cross_term_vanishes_at_gamma_theory(m, count, beta):
    measured, e, d = expected_tracking_error(m, count, beta, "theory")
    p, gamma0 = count / m, (m - count) / (count * (1 - beta))
    identity = (1 - p + p * (1 - beta) ** 2) * e.square().sum() + (
        1 - p + p * gamma0**2
    ) * d.square().sum()
    torch.testing.assert_close(measured, identity, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("m", "count", "beta"), CASES)
def test_cross_term_remains_at_gamma_storm(m, count, beta):
    measured, e, d = expected_tracking_error(m, count, beta, "storm")
    p = count / m
    without = (1 - p + p * (1 - beta) ** 2) * e.square().sum() + (1 - p) * d.square().sum()
    cross = -2 * (1 - p) * (e * d).sum()
    torch.testing.assert_close(measured, without + cross, rtol=1e-12, atol=1e-12)
    if count < m:
        assert abs(cross) > 1e-4, "the case must show the term"


def choices(problem, count, samples_per_block=1):
    """Every draw: all block subsets, all samples and all second samples."""
    one = list(itertools.product(range(problem.inner_size), repeat=samples_per_block))
    for subset in itertools.combinations(range(problem.num_blocks), count):
        for first in itertools.product(one, repeat=count):
            for second in itertools.product(one, repeat=count):
                yield Draw(torch.tensor(subset), torch.tensor(first), torch.tensor(second))


def mean_first_z(build, problem, count):
    zs = []
    for draw in choices(problem, count):
        model = make_model("network", problem.inner_dim)
        opt = build(model.parameters())
        if opt.snapshot_due:
            opt.snapshot(lambda: problem.inner(model, problem.everything()))  # noqa: B023
        opt.step(lambda: problem.inner(model, draw))  # noqa: B023
        zs.append(z_of(opt, model))
    return torch.stack(zs).mean(0)


@pytest.mark.parametrize("inner_dim", [1, 3])
def test_fresh_pair_is_unbiased(inner_dim):
    problem = Toy(3, inner_dim, inner_size=2, affine=True)
    mean = mean_first_z(
        lambda p: FreshPair(p, problem, version=1, lr=0.1, alpha=0.5), problem, count=2
    )
    torch.testing.assert_close(
        mean, full_gradient(problem, make_model("network", inner_dim)), rtol=1e-12, atol=1e-12
    )


def test_fresh_pair_change_is_unbiased():
    """Version 2's second step: the mean over its sample of G(w_2) - (1 - alpha) G(w_1)."""
    problem, alpha = Toy(3, 1, inner_size=2, affine=True), 0.3
    start = make_model("network", 1)
    opt = FreshPair(start.parameters(), problem, version=2, lr=0.2, alpha=alpha)
    first = full_gradient(problem, start)
    opt.step(lambda: problem.inner(start, next(choices(problem, 2))))
    z_1 = z_of(opt, start)
    zs = []
    for draw in choices(problem, 2):
        model, twin = copy.deepcopy((start, opt))
        twin.step(lambda: problem.inner(model, draw))  # noqa: B023
        zs.append(z_of(twin, model))
    expected = (1 - alpha) * (z_1 - first) + full_gradient(problem, start)
    torch.testing.assert_close(torch.stack(zs).mean(0), expected, rtol=1e-12, atol=1e-12)


def test_one_sample_for_value_and_jacobian_is_biased():
    """The negative control: BSGD's slope comes from the Jacobian's own sample."""
    problem = Toy(3, 1, inner_size=2, affine=True)
    mean = mean_first_z(lambda p: BSGD(p, problem, lr=0.1), problem, count=2)
    assert (mean - full_gradient(problem, make_model("network", 1))).norm() > 1e-3


@pytest.mark.parametrize("build", [MSVRM, FreshPair])
def test_version_3_starts_exactly(build):
    problem = Toy(5, 2, affine=build is FreshPair)
    model = make_model("network", 2)
    arguments = {"beta": 0.3} if build is MSVRM else {}
    opt = build(model.parameters(), problem, version=3, lr=0.1, alpha=0.1, **arguments)
    exact = problem.everything()
    opt.snapshot(lambda: problem.inner(model, exact))
    expected = full_gradient(problem, model)
    inner = problem.values(model, exact.blocks, exact.samples).detach()
    if opt.table is not None:
        torch.testing.assert_close(opt.table.read(exact.blocks), inner, rtol=1e-12, atol=1e-12)
    generator = torch.Generator().manual_seed(0)
    opt.step(lambda: problem.inner(model, problem.draw(2, 1, generator)))
    torch.testing.assert_close(z_of(opt, model), expected, rtol=1e-12, atol=1e-12)
    if opt.table is not None:
        torch.testing.assert_close(opt.table.read(exact.blocks), inner, rtol=1e-12, atol=1e-12)
