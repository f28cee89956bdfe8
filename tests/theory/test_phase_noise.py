"""The phase-noise family against enumeration and autograd."""

import math

import pytest
import torch

from fcco_lab.theory import PHI, PhaseNoise


@pytest.mark.parametrize("n", [2, 3, 8])
def test_exact_inner_values_are_means_over_the_phases(n):
    problem = PhaseNoise(12, inner_size=n, noise=0.7)
    w, everything = torch.randn(4, dtype=torch.float64), torch.arange(12)
    phases = torch.arange(n, dtype=torch.float64) * (2 * math.pi / n)
    samples = torch.stack([problem.sample(w, everything, xi.expand(12)) for xi in phases])
    torch.testing.assert_close(samples.mean(0), problem.exact_inner(w), rtol=1e-12, atol=1e-12)
    if n > 2:  # two opposite phases see the wave at one angle only
        torch.testing.assert_close(
            samples.var(0, correction=0), torch.full((12,), 0.49 / 2, dtype=torch.float64)
        )


@pytest.mark.parametrize("phi", PHI)
def test_gradients_and_slopes_equal_autograd(phi):
    problem = PhaseNoise(12, phi=phi)
    w = torch.randn(4, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(problem.value(w), w)
    torch.testing.assert_close(problem.gradient(w.detach()), gradient, rtol=1e-10, atol=1e-12)
    u = torch.randn((12, 1), dtype=torch.float64, requires_grad=True)
    everything = torch.arange(12)
    (slopes,) = torch.autograd.grad(problem.outer(u, everything).sum(), u)
    torch.testing.assert_close(problem.slope(u.detach()[:, 0], everything), slopes[:, 0])


@pytest.mark.parametrize("phi", ["quadratic", "log-cosh"])
def test_w_star_is_the_minimum_while_blocks_are_not_stationary(phi):
    problem = PhaseNoise(12, phi=phi)
    assert problem.gradient(problem.w_star).norm() < 1e-12
    everything = torch.arange(12)
    assert problem.slope(problem.exact_inner(problem.w_star), everything).abs().max() > 0.1
    for direction in torch.randn((20, 4), dtype=torch.float64):
        assert problem.value(problem.w_star + direction) > problem.optimum


def test_mu_is_the_pl_constant_of_the_quadratic():
    problem = PhaseNoise(12, phi="quadratic")
    ratios = []
    for direction in torch.randn((200, 4), dtype=torch.float64):
        w = problem.w_star + direction
        gap = problem.value(w) - problem.optimum
        ratios.append(float(problem.gradient(w).square().sum() / (2 * gap)))
    assert min(ratios) >= problem.mu * (1 - 1e-9)
    isotropic = PhaseNoise(12, phi="quadratic", isotropic=True)
    assert isotropic.mu == pytest.approx(1.0)


def test_repeating_blocks_leaves_the_objective_alone():
    small, large = PhaseNoise(8, distinct=8), PhaseNoise(64, distinct=8)
    w = torch.randn(4, dtype=torch.float64)
    torch.testing.assert_close(small.value(w), large.value(w))
    torch.testing.assert_close(small.gradient(w), large.gradient(w))


def test_phases_are_uniform():
    generator = torch.Generator().manual_seed(0)
    circle = PhaseNoise(8).phases((20000,), generator)
    assert circle.min() >= 0
    assert circle.max() < 2 * math.pi
    assert abs(circle.mean() - math.pi) < 0.05
    drawn = PhaseNoise(8, inner_size=4).phases((20000,), generator) / (math.pi / 2)
    assert (torch.bincount(drawn.round().long()) / 20000 - 0.25).abs().max() < 0.02


def test_refusals():
    with pytest.raises(ValueError, match="inner_size must be at least 2"):
        PhaseNoise(8, inner_size=1)
    with pytest.raises(ValueError, match="must exceed dim"):
        PhaseNoise(3)
    with pytest.raises(ValueError, match="only for a convex phi"):
        _ = PhaseNoise(8, phi="non-convex").optimum
