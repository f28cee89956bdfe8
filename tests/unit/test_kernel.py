"""The pure functions: batch dimensions, and numbers that are known."""

import math
from dataclasses import replace

import pytest
import torch

from fcco.distributed import Share
from fcco.kernel.checks import Checks
from fcco.kernel.safeguard import ChangeBound
from fcco.methods import (
    MSVRM_V1,
    MSVRM_V2,
    MSVRM_V3,
    SINGLE_POINT_V2,
    SOX,
    VARIANT_V3,
    Coefficients,
    Method,
    Point,
    SlopeAt,
    WeightRow,
    Weights,
    gamma_age,
    gamma_theory,
    mars,
)
from fcco.methods.weights import advance


def test_advance_takes_leading_batch_dimensions():
    generator = torch.Generator().manual_seed(0)
    u, now, before, then, anchor = torch.randn((5, 7, 3, 2), generator=generator)
    gamma = torch.rand((7, 3, 1), generator=generator)
    row = MSVRM_V3.inner.weights(0.3, gamma, 1.0)
    changes = {Point.PREVIOUS: now - before, Point.SNAPSHOT: now - then}
    whole = advance(u, 0.7, row, now, changes, anchor)
    for k in range(7):
        one = advance(
            u[k],
            0.7,
            MSVRM_V3.inner.weights(0.3, gamma[k], 1.0),
            now[k],
            {point: change[k] for point, change in changes.items()},
            anchor[k],
        )
        torch.testing.assert_close(whole[k], one, rtol=0, atol=0)


def test_coefficients_may_be_batched_too():
    """A sweep over runs: alpha and beta with a leading dimension."""
    beta = torch.tensor([0.1, 0.5]).view(2, 1, 1)
    row = SOX.inner.weights(beta, 0.0, 1.0)
    u = advance(torch.ones(2, 3, 1), 1 - beta, row, torch.zeros(2, 3, 1), {})
    torch.testing.assert_close(u[:, 0, 0], torch.tensor([0.9, 0.5]))


def test_plain_coefficients_are_those_of_the_paper():
    further = [Point.PREVIOUS, Point.SNAPSHOT]
    a, b = MSVRM_V3.inner.weights(0.25, 2.0, 1.0), MSVRM_V3.gradient.weights(0.25)
    assert list(a.at_points(further).values()) == [2.25, -2.0, -0.25]
    assert a.anchor == 0.25
    assert list(b.at_points(further).values()) == [1.0, -0.75, -0.25]
    assert b.anchor == 0.25
    v = VARIANT_V3.inner.weights(0.25, 0.0, 4.0)
    assert list(v.at_points(further).values()) == [4.0, -3.0, -1.0]
    assert v.anchor == 1.0
    assert b.at_points([]) == {Point.CURRENT: 0.0}, "points that coincide drop out"


def test_methods_declare_what_they_need():
    assert SOX.points == ()
    assert MSVRM_V1.points == (Point.PREVIOUS,)
    assert MSVRM_V3.points == (Point.PREVIOUS, Point.SNAPSHOT)
    assert MSVRM_V1.generations == ()
    assert SINGLE_POINT_V2.generations == (Point.PREVIOUS,)
    assert MSVRM_V2.updated().generations == MSVRM_V2.with_one_slope().generations == ()


PREVIOUS, SNAPSHOT = Point.PREVIOUS, Point.SNAPSHOT
MOMENTUM, STORM, MSVR = SOX.gradient, MSVRM_V2.gradient, MSVRM_V2.inner


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: WeightRow(STORM.weights, [PREVIOUS]), "must be a tuple"),
        (lambda: WeightRow(STORM.weights, ("previous",)), "must be a tuple"),
        (lambda: WeightRow(STORM.weights, (Point.CURRENT, PREVIOUS)), "must be a tuple"),
        (lambda: WeightRow(STORM.weights, (PREVIOUS, PREVIOUS)), "declared twice"),
        (
            lambda: Method("own", inner=SOX.inner, gradient=WeightRow(STORM.weights)),
            "own: the row of z has a weight since the previous point, which it does not declare",
        ),
        (
            lambda: Method("own", inner=WeightRow(MSVR.weights), gradient=MOMENTUM),
            "own: the row of u has a weight since the previous point",
        ),
        (
            lambda: Method(
                "own",
                inner=SOX.inner,
                gradient=WeightRow(lambda alpha: Weights(alpha, anchor=alpha)),
            ),
            "has an anchor, but does not declare the snapshot",
        ),
        (
            lambda: Method("own", inner=MSVRM_V3.inner, gradient=MOMENTUM),
            "u is anchored, so z must be",
        ),
        (lambda: Method("own", gradient=MOMENTUM), "if there is a row of u"),
        (
            lambda: Method("own", inner=SOX.inner, gradient=MOMENTUM, slope_at=SlopeAt.PAIR),
            "if there is a row of u",
        ),
        (
            lambda: Method(
                "own",
                inner=WeightRow(lambda b, g, r: Weights(b, since_previous=b), (PREVIOUS,), True),
                gradient=MOMENTUM,
            ),
            "gamma is not its correction's weight",
        ),
        (
            lambda: Method("own", inner=SOX.inner, gradient=MOMENTUM, single_point=True),
            "single_point needs a corrected row",
        ),
        (lambda: replace(MSVRM_V3, slope_at=SlopeAt.UPDATED), "cannot take its slopes at u_t"),
        (
            lambda: replace(SINGLE_POINT_V2, slope_at=SlopeAt.UPDATED),
            "cannot take its slopes at u_t",
        ),
        (
            lambda: Method(
                "own",
                inner=WeightRow(lambda b, g, ratio: Weights(ratio * b)),
                gradient=MOMENTUM,
                slope_at=SlopeAt.UPDATED,
            ),
            "cannot take its slopes at u_t",
        ),
    ],
)
def test_a_wrong_declaration_is_an_error_where_it_is_written(build, message):
    """Otherwise the kernel would run another method in silence."""
    with pytest.raises(ValueError, match=message):
        build()


def test_declarations_of_the_wrong_type():
    with pytest.raises(TypeError, match="slope_at must be a SlopeAt"):
        replace(SOX, slope_at="table")
    with pytest.raises(TypeError, match="the row of z must return Weights"):
        replace(SOX, gradient=WeightRow(lambda alpha: None))


def test_the_safeguard_reads_the_weights_of_the_row():
    norms = torch.tensor(1.0), torch.tensor(3.0)
    storm, tiny = MSVRM_V2.gradient.weights(0.25), mars(1e-6).gradient.weights(0.25)
    assert float(ChangeBound().scale(storm, *norms)) == pytest.approx(0.25 / (0.75 * 3))
    assert float(ChangeBound().scale(tiny, *norms)) == 1.0, "too small a correction to bound"


def test_which_gammas_correct():
    def corrects(beta, gamma):
        return Coefficients(lr=1.0, alpha=0.5, beta=beta, gamma=gamma).corrects

    for beta, gamma in ((0.5, "age"), (0.5, "storm"), (1.0, "theory"), (1.0, 0.1)):
        assert corrects(beta, gamma)
    for beta, gamma in ((0.5, 0.0), (1.0, "age"), (1.0, "storm")):
        assert not corrects(beta, gamma)


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
    row = MSVRM_V1.inner.weights(0.1, gamma, 1.0)
    exact = 0.9 * 0.5 + 0.1 * float(now) + gamma * (float(now) - float(before))
    ours = advance(torch.tensor([0.5]), 0.9, row, now, {Point.PREVIOUS: now - before})
    assert abs(float(ours) - exact) < 1e-6
    at = row.at_points([Point.PREVIOUS])
    plain = 0.9 * torch.tensor([0.5]) + at[Point.CURRENT] * now + at[Point.PREVIOUS] * before
    assert abs(float(plain) - exact) > 1e-3


def test_a_norm_that_overflows_is_not_a_fault():
    checks = Checks(Share(3), 1, torch.device("cpu"))
    checks.finite([torch.tensor([3e30, 1.0]), torch.tensor([1.0])], "z")
    assert checks.raise_if_invalid(5) == 5
    checks.finite([torch.tensor([1.0]), torch.tensor([torch.inf])], "z")
    with pytest.raises(FloatingPointError, match=r"trainable parameters \[1\]"):
        checks.raise_if_invalid()
