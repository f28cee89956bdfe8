"""Tracking error on a prescribed smooth path with noise, over all seeds at once by the kernel."""

import math

import pytest
import torch

from fcco.methods import MSVRM_V1, Point
from fcco.methods.coefficients import gamma_storm, gamma_theory
from fcco.methods.weights import advance

SEEDS, BLOCKS, PROBED = 64, 16, 2
HORIZONS = [2**k for k in range(8, 14)]  # six octave marks


def tracking_error(num_steps, gamma_of):
    """The mean of ||u - g(w)||^2 / m over the second half of the path, with Theorem 4's beta, eta.

    w runs along a circle with steps of length eta; g_i(w; xi) = a_i . w + s sin(o_i . w + xi).
    """
    generator = torch.Generator().manual_seed(0)  # one problem for every horizon
    m, count = BLOCKS, PROBED
    beta = min(0.5, (m / (count * num_steps)) ** (2 / 3))
    eta = (count / m) ** (1 / 3) * num_steps ** (-2 / 3)
    gamma = gamma_of(beta)
    a, o = torch.randn((2, m, 2), generator=generator, dtype=torch.float64)
    s = 0.5
    generator.manual_seed(num_steps)

    def place(t):
        return torch.tensor([math.cos(eta * t), math.sin(eta * t)], dtype=torch.float64)

    def inner(w, blocks, xi):
        return (a[blocks] * w).sum(-1) + s * torch.sin((o[blocks] * w).sum(-1) + xi)

    u = (a @ place(0)).expand(SEEDS, m) + s / math.sqrt(2) * torch.randn(
        (SEEDS, m), generator=generator, dtype=torch.float64
    )
    total = 0.0
    for t in range(1, num_steps + 1):
        now, before = place(t), place(t - 1)
        blocks = torch.rand((SEEDS, m), generator=generator).argsort(1)[:, :count]
        xi = 2 * math.pi * torch.rand((SEEDS, count), generator=generator, dtype=torch.float64)
        value = inner(now, blocks, xi)
        change = value - inner(before, blocks, xi)
        row = MSVRM_V1.inner.weights(beta, gamma, m / count)
        rows = advance(u.gather(1, blocks), 1 - beta, row, value, {Point.PREVIOUS: change})
        u = u.scatter(1, blocks, rows)
        if 2 * t > num_steps:
            total += float((u - a @ now).square().mean()) / (num_steps / 2)
    return total


def slope(errors):
    """The exponent of error ~ T^slope, by least squares in logarithms."""
    x = torch.tensor(HORIZONS, dtype=torch.float64).log2()
    y = torch.tensor(errors, dtype=torch.float64).log2()
    x = x - x.mean()
    return float((x * y).sum() / x.square().sum())


@pytest.mark.slow
def test_msvr_tracks_at_the_rate_of_theorem_4_and_the_others_do_not():
    theory = slope(
        [tracking_error(t, lambda beta: gamma_theory(beta, BLOCKS, PROBED)) for t in HORIZONS]
    )
    average = slope([tracking_error(t, lambda beta: 0.0) for t in HORIZONS])
    storm = slope([tracking_error(t, gamma_storm) for t in HORIZONS])
    assert abs(theory + 2 / 3) < 0.08, theory
    assert average > -0.15, average
    assert storm > -0.15, storm
