"""The pure functions: batch dimensions, and numbers that are known."""

import math

import pytest
import torch

from fcco.kernel.checks import check_z
from fcco.methods.coefficients import Weights, gamma_age, gamma_theory
from fcco.kernel.faults import Faults
from fcco.methods import MSVRM_V1, MSVRM_V3, SINGLE_POINT_V2, SOX, VARIANT_V3
from fcco.methods.point import Point
from fcco.kernel.recursion import advance


def test_advance_takes_leading_batch_dimensions():
    generator = torch.Generator().manual_seed(0)
    u, now, before, then, anchor = torch.randn((5, 7, 3, 2), generator=generator)
    gamma = torch.rand((7, 3, 1), generator=generator)
    row = MSVRM_V3.inner(0.3, gamma, 1.0)
    changes = {Point.PREVIOUS: now - before, Point.SNAPSHOT: now - then}
    whole = advance(u, 0.7, row, now, changes, anchor)
    for k in range(7):
        one = advance(
            u[k],
            0.7,
            MSVRM_V3.inner(0.3, gamma[k], 1.0),
            now[k],
            {point: change[k] for point, change in changes.items()},
            anchor[k],
        )
        torch.testing.assert_close(whole[k], one, rtol=0, atol=0)


def test_coefficients_may_be_batched_too():
    """A sweep over runs: alpha and beta with a leading dimension."""
    beta = torch.tensor([0.1, 0.5]).view(2, 1, 1)
    u = advance(torch.ones(2, 3, 1), 1 - beta, SOX.inner(beta, 0.0, 1.0), torch.zeros(2, 3, 1), {})
    torch.testing.assert_close(u[:, 0, 0], torch.tensor([0.9, 0.5]))


def test_plain_coefficients_are_those_of_the_paper():
    a, b = MSVRM_V3.inner(0.25, 2.0, 1.0), MSVRM_V3.gradient(0.25)
    assert [a.at(point) for point in Point] == [2.25, -2.0, -0.25]
    assert a.anchor == 0.25
    assert [b.at(point) for point in Point] == [1.0, -0.75, -0.25]
    assert b.anchor == 0.25
    v = VARIANT_V3.inner(0.25, 0.0, 4.0)
    assert [v.at(point) for point in Point] == [4.0, -3.0, -1.0]
    assert v.anchor == 1.0


def test_points_are_read_off_non_zero_weights():
    assert SOX.reach() == set()
    assert MSVRM_V1.reach() == {Point.PREVIOUS}
    assert MSVRM_V3.reach() == {Point.PREVIOUS, Point.SNAPSHOT}
    assert not MSVRM_V1.recalls(Point.PREVIOUS)
    assert SINGLE_POINT_V2.recalls(Point.PREVIOUS)
    assert Weights(current=1.0, since_previous=0.5).without(Point.PREVIOUS).points() == set()


def test_gamma_by_age_sums_the_momentum():
    for alpha in (1e-9, 0.01, 0.3, 1.0):
        age = torch.tensor([1, 2, 7, 1000])
        expected = [0.8 * math.fsum((1 - alpha) ** j for j in range(k)) for k in age.tolist()]
        torch.testing.assert_close(
            gamma_age(alpha, 0.2, age),
            torch.tensor(expected, dtype=torch.float64),
            rtol=1e-9,
            atol=0,
        )


def test_gamma_theory():
    assert gamma_theory(0.2, 10, 2) == pytest.approx(8 / (2 * 0.8) + 0.8)
    assert gamma_theory(1.0, 4, 4) == 0.0
    with pytest.raises(ValueError, match="singular"):
        gamma_theory(1.0, 4, 3)


def test_differences_keep_their_digits_in_float32():
    """gamma near m/B1 = 1e6 on a change of 1e-6: plain coefficients would lose everything."""
    gamma, before = 1e6, torch.tensor([0.7])
    now = before + 1e-6
    row = MSVRM_V1.inner(0.1, gamma, 1.0)
    exact = 0.9 * 0.5 + 0.1 * float(now) + gamma * (float(now) - float(before))
    ours = advance(torch.tensor([0.5]), 0.9, row, now, {Point.PREVIOUS: now - before})
    assert abs(float(ours) - exact) < 1e-6
    plain = (
        0.9 * torch.tensor([0.5]) + row.at(Point.CURRENT) * now + row.at(Point.PREVIOUS) * before
    )
    assert abs(float(plain) - exact) > 1e-3


def test_a_norm_that_overflows_is_not_a_fault():
    faults = Faults()
    check_z(faults, [torch.tensor([3e30, 1.0]), torch.tensor([1.0])])
    assert faults.settle(5) == 5
    check_z(faults, [torch.tensor([1.0]), torch.tensor([torch.inf])])
    with pytest.raises(FloatingPointError, match=r"trainable parameters \[1\]"):
        faults.settle()
