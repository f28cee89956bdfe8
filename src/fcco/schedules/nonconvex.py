"""Theorems 1 to 6 and 13: stationary points of smooth objectives."""

import math

from fcco import methods
from fcco.methods.coefficients import Coefficients
from fcco.schedules.formulas import alpha_in_range, beta_in_range, ceil_root, check, constant
from fcco.schedules.recipe import Recipe, Stage
from fcco.updates import Adam, AMSGrad, Normalized, Plain, Update

__all__ = [
    "adam",
    "new_1",
    "new_1_linear",
    "new_2",
    "new_2_linear",
    "new_3",
    "new_3_linear",
    "thm_1",
    "thm_2",
    "thm_3",
]


def new_1(*, m: int, B1: int, T: int) -> Recipe:
    """Theorem 1: MSVRM-v1 with gamma = 0 and normalized steps; ||grad F|| ~ (m/(B1 T))^(1/4).

    Assumes smooth, Lipschitz f_i and g_i and bounded variance. beta = sqrt(m/(B1 T)),
    alpha = sqrt(B1/T), eta = B1^(1/4) m^(-1/4) T^(-3/4). Departure: alpha and beta are clamped to
    1, and one sample per block starts the table, which the paper does not specify.
    """
    check(m=m, B1=B1, T=T)
    stage = constant(
        T,
        lr=(B1 / m) ** (1 / 4) * T ** (-3 / 4),
        alpha=alpha_in_range(math.sqrt(B1 / T)),
        beta=alpha_in_range(math.sqrt(m / (B1 * T))),
    )
    return Recipe("new:1", methods.MSVRM_V1, Normalized(), (stage,), initial_samples=1)


def new_1_linear(*, m: int, B1: int, T: int) -> Recipe:
    """Theorem 1, affine slopes: ||grad F|| ~ (B1 T)^(-1/4), independent of m.

    alpha = sqrt(B1/T), eta = B1^(1/4) T^(-3/4). Departure: the paper sets beta = 1, gamma = 0,
    which leaves an old sample in the table; this recipe uses the fresh pair.
    """
    check(m=m, B1=B1, T=T)
    stage = constant(T, lr=B1 ** (1 / 4) * T ** (-3 / 4), alpha=alpha_in_range(math.sqrt(B1 / T)))
    return Recipe("new:1/linear", methods.FRESH_PAIR_V1, Normalized(), (stage,))


def thm_1(
    *,
    m: int,
    B1: int,
    T: int,
    c_eta: float = 1.0,
    c_alpha: float = 1.0,
    c_beta: float = 1.0,
    c_a: float = 1.0,
) -> Recipe:
    """Theorem 2: MSVRM-v1; ||grad F|| ~ max{(B1 T)^(-1/4), (m/(B1 T))^(1/3)} up to a log.

    eta_t = c_eta min{(B1/m)^(2/3) (a+t)^(-1/3), sqrt(B1) (a+t)^(-1/2)}, a = c_a m/B1,
    alpha_{t+1} = c_alpha eta_t, beta_{t+1} = c_beta (m/B1)^2 eta_t^2, gamma = Gamma(beta); assumes
    average smoothness. Departures: alpha <= 1 and beta <= 1/2 by clamping, eta_0 gives the first
    alpha and beta. The table of the paper and the theorem disagree; the rate is the theorem's.
    """
    check(m=m, B1=B1, T=T)
    a = c_a * m / B1

    def eta(t: int) -> float:
        slow = math.pow(B1 / m, 2 / 3) * math.pow(a + t, -1 / 3)
        return c_eta * min(slow, math.sqrt(B1 / (a + t)))

    def coefficients(t: int) -> Coefficients:
        before = eta(t - 1)
        return Coefficients(
            lr=eta(t),
            alpha=alpha_in_range(c_alpha * before),
            beta=beta_in_range(c_beta * (m / B1) ** 2 * before**2),
            gamma="theory",
        )

    stage = Stage(T, coefficients)
    return Recipe("thm:1", methods.MSVRM_V1, Plain(), (stage,), initial_samples=1)


def thm_2(
    *,
    m: int,
    B1: int,
    T: int,
    c_eta: float = 1.0,
    c_alpha: float = 1.0,
    c_beta: float = 1.0,
    c_a: float = 1.0,
) -> Recipe:
    """Theorem 3: MSVRM-v2; ||grad F|| ~ (m/(B1 T))^(1/3) up to a log.

    eta_t = c_eta (B1/m)^(2/3) (a+t)^(-1/3), a = c_a m/B1, alpha_{t+1} = c_alpha (m/B1) eta_t^2,
    beta_{t+1} = c_beta (m/B1)^2 eta_t^2, gamma = Gamma(beta); assumes average smoothness.
    Departures: alpha <= 1 and beta <= 1/2 by clamping, eta_0 gives the first alpha and beta.
    """
    return _storm("thm:2", Plain(), m, B1, T, c_eta, c_alpha, c_beta, c_a)


def adam(
    *,
    m: int,
    B1: int,
    T: int,
    c_eta: float = 1.0,
    c_alpha: float = 1.0,
    c_beta: float = 1.0,
    c_a: float = 1.0,
    radius: float | None = None,
    delta: float = 1e-3,
    beta2: float = 0.999,
    amsgrad: bool = False,
) -> Recipe:
    """Theorem 13: MSVRM-v2 with an Adam- or AMSGrad-style step; ||grad F|| ~ (m/(B1 T))^(1/3).

    Coefficients as Theorem 3; the step is Pi[z] / (sqrt(h) + delta) without bias correction.
    Departures: the projection's radius is C_F = C_f C_g (the statement prints L_f), it clips only
    the direction, and None leaves it out.
    """
    kind = AMSGrad if amsgrad else Adam
    update = kind(beta2=beta2, eps=delta, radius=radius, bias_correction=False)
    return _storm("adam", update, m, B1, T, c_eta, c_alpha, c_beta, c_a)


def _storm(
    label: str,
    update: Update,
    m: int,
    B1: int,
    T: int,
    c_eta: float,
    c_alpha: float,
    c_beta: float,
    c_a: float,
) -> Recipe:
    check(m=m, B1=B1, T=T)
    a = c_a * m / B1

    def eta(t: int) -> float:
        return c_eta * math.pow(B1 / m, 2 / 3) * math.pow(a + t, -1 / 3)

    def coefficients(t: int) -> Coefficients:
        before = eta(t - 1)
        return Coefficients(
            lr=eta(t),
            alpha=alpha_in_range(c_alpha * (m / B1) * before**2),
            beta=beta_in_range(c_beta * (m / B1) ** 2 * before**2),
            gamma="theory",
        )

    stage = Stage(T, coefficients)
    return Recipe(label, methods.MSVRM_V2, update, (stage,), initial_samples=1)


def new_2(*, m: int, B1: int, T: int) -> Recipe:
    """Theorem 4: MSVRM-v2 with normalized steps, no constants; ||grad F|| ~ (m/(B1 T))^(1/3).

    beta = (m/(B1 T))^(2/3), alpha = m^(2/3) B1^(1/3) T^(-2/3), eta = (B1/m)^(1/3) T^(-2/3),
    gamma = Gamma(beta). Departures: beta <= 1/2 and alpha <= 1 by clamping; the initial batch B_0,
    which the paper sizes but never uses, is ceil((B1 T/m)^(1/3)) samples per block for u_1 and
    max(1, ceil(T^(1/3)/m)) for z_1.
    """
    check(m=m, B1=B1, T=T)
    stage = constant(
        T,
        lr=(B1 / m) ** (1 / 3) * T ** (-2 / 3),
        alpha=alpha_in_range(m ** (2 / 3) * B1 ** (1 / 3) * T ** (-2 / 3)),
        beta=beta_in_range((m / (B1 * T)) ** (2 / 3)),
        gamma="theory",
    )
    return Recipe(
        "new:2",
        methods.MSVRM_V2,
        Normalized(),
        (stage,),
        initial_samples=ceil_root(B1 * T / m),
        first_samples=max(1, math.ceil(T ** (1 / 3) / m)),
    )


def new_2_linear(*, m: int, B1: int, T: int) -> Recipe:
    """Theorem 4, affine slopes: ||grad F|| ~ (B1 T)^(-1/3), independent of m.

    alpha = eta = B1^(1/3) T^(-2/3), z_1 from ceil((B1 T)^(1/3)) samples per block. Departure: the
    fresh pair instead of beta = 1, gamma = 0, with which ||z - grad F|| grows with T.
    """
    check(m=m, B1=B1, T=T)
    rate = B1 ** (1 / 3) * T ** (-2 / 3)
    stage = constant(T, lr=rate, alpha=alpha_in_range(rate))
    return Recipe(
        "new:2/linear",
        methods.FRESH_PAIR_V2,
        Normalized(),
        (stage,),
        first_samples=ceil_root(B1 * T),
    )


def thm_3(
    *,
    m: int,
    B1: int,
    T: int,
    n: int,
    c_eta: float = 1.0,
    c_alpha: float = 1.0,
    c_beta: float = 1.0,
) -> Recipe:
    """Theorem 5: MSVRM-v3 on finite sums of n; ||grad F|| ~ (m sqrt(n)/(B1 T))^(1/2).

    alpha = c_alpha B1/(m n), beta = c_beta/n, eta = c_eta B1/(m sqrt(n)), I = ceil(m n/B1),
    gamma = Gamma(beta). Departures: the first snapshot is at t = 1 and gives an exact u_0 and z_1
    (the proof drops the initial errors); beta <= 1/2, alpha <= 1 by clamping.
    """
    check(m=m, B1=B1, T=T, n=n)
    stage = constant(
        T,
        lr=c_eta * B1 / (m * math.sqrt(n)),
        alpha=alpha_in_range(c_alpha * B1 / (m * n)),
        beta=beta_in_range(c_beta / n),
        gamma="theory",
        exact=True,
    )
    every = math.ceil(m * n / B1)
    return Recipe("thm:3", methods.MSVRM_V3, Plain(), (stage,), snapshot_every=every)


def new_3(*, m: int, B1: int, T: int, n: int) -> Recipe:
    """Theorem 6: MSVRM-v3 with normalized steps; ||grad F|| ~ (m sqrt(n)/(B1 T))^(1/2).

    alpha = B1/(m n), beta = 1/n, I = ceil(m n/B1), gamma = Gamma(beta). Departure: eta =
    sqrt(B1/T) m^(-1/2) n^(-1/4) as in the proof (the statement prints m^(-1/4), which measured
    1.5 to 2 times worse); exact start; clamping.
    """
    check(m=m, B1=B1, T=T, n=n)
    stage = constant(
        T,
        lr=math.sqrt(B1 / T) * m ** (-1 / 2) * n ** (-1 / 4),
        alpha=alpha_in_range(B1 / (m * n)),
        beta=beta_in_range(1 / n),
        gamma="theory",
        exact=True,
    )
    every = math.ceil(m * n / B1)
    return Recipe("new:3", methods.MSVRM_V3, Normalized(), (stage,), snapshot_every=every)


def new_3_linear(*, m: int, B1: int, T: int, n: int) -> Recipe:
    """Theorem 6, affine slopes: ||grad F|| ~ (sqrt(m n)/(B1 T))^(1/2).

    alpha = B1/(m n), eta = sqrt(B1/T) (m n)^(-1/4), I = ceil(m n/B1). Departure: the fresh pair;
    exact start.
    """
    check(m=m, B1=B1, T=T, n=n)
    stage = constant(
        T,
        lr=math.sqrt(B1 / T) * (m * n) ** (-1 / 4),
        alpha=alpha_in_range(B1 / (m * n)),
        exact=True,
    )
    every = math.ceil(m * n / B1)
    return Recipe(
        "new:3/linear", methods.FRESH_PAIR_V3, Normalized(), (stage,), snapshot_every=every
    )
