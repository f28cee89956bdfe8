"""Theorems 7 to 12: stage-wise methods for PL and convex objectives, which halve a target gap.

Each takes ``epsilon_0``, the gap F(w_1) - F_* at the start (or an upper bound), and starts every
stage with (w, u, z) of the last index. For a convex objective without the PL condition the paper
adds (mu/2) ||w||^2 with mu = epsilon/D: ``convex=True`` takes the step along z + mu w. The term
mu w is outside the estimator, because it is known exactly.
"""

import math

from fcco import methods
from fcco.schedules.formulas import alpha_in_range, beta_in_range, check, constant, halvings
from fcco.schedules.recipe import Recipe
from fcco.updates import Plain

__all__ = ["new_4", "new_5", "new_6", "thm_4", "thm_4_plus", "thm_6"]


def thm_4(
    *,
    m: int,
    B1: int,
    mu: float,
    epsilon: float,
    epsilon_0: float = 1.0,
    c_eta: float = 1.0,
    c_alpha: float = 1.0,
    c_beta: float = 1.0,
    c_T: float = 1.0,
    larger: bool = False,
    convex: bool = False,
) -> Recipe:
    """Theorem 7: stage-wise MSVRM-v1; complexity m/(mu^2 epsilon) for PL, m/epsilon^3 for convex.

    beta_s = c_beta mu eps_s, alpha_s = c_alpha B1 mu eps_s, eta_s = c_eta (B1/m) mu eps_s,
    T_s = c_T m/(B1 mu^2 eps_s), eps_{s+1} = eps_s/2. ``larger`` departs from the paper: eta_s =
    c_eta min{B1 mu eps_s, (B1/m) sqrt(mu eps_s)} and
    T_s = c_T max{1/(mu eta_s), m/(B1 beta_s), 1/alpha_s}.
    """
    check(m=m, B1=B1, mu=mu, epsilon=epsilon, epsilon_0=epsilon_0)
    stages = []
    for gap in halvings(epsilon_0, epsilon):
        alpha = alpha_in_range(c_alpha * B1 * mu * gap)
        beta = beta_in_range(c_beta * mu * gap)
        if larger:
            eta = c_eta * min(B1 * mu * gap, B1 / m * math.sqrt(mu * gap))
            num_steps = c_T * max(1 / (mu * eta), m / (B1 * beta), 1 / alpha)
        else:
            eta = c_eta * B1 / m * mu * gap
            num_steps = c_T * m / (B1 * mu**2 * gap)
        stages.append(constant(num_steps, lr=eta, alpha=alpha, beta=beta, gamma="theory"))
    return Recipe(
        "thm:4",
        methods.MSVRM_V1,
        Plain(),
        tuple(stages),
        initial_samples=1,
        weight_decay=mu if convex else 0.0,
    )


def thm_4_plus(
    *,
    m: int,
    B1: int,
    mu: float,
    epsilon: float,
    epsilon_0: float = 1.0,
    c_eta: float = 1.0,
    c_beta: float = 1.0,
    c_T: float = 1.0,
    convex: bool = False,
) -> Recipe:
    """Theorem 8: stage-wise MSVRM-v2; complexity m/(mu epsilon) for PL, m/epsilon^2 for convex.

    beta_s = c_beta mu eps_s, alpha_s = B1 beta_s/m, eta_s = c_eta (B1/m) sqrt(mu eps_s),
    T_s = c_T (m/B1) max{1/(mu eps_s), mu^(-3/2) eps_s^(-1/2)}.
    """
    check(m=m, B1=B1, mu=mu, epsilon=epsilon, epsilon_0=epsilon_0)
    stages = []
    for gap in halvings(epsilon_0, epsilon):
        beta = beta_in_range(c_beta * mu * gap)
        stages.append(
            constant(
                c_T * m / B1 * max(1 / (mu * gap), mu ** (-3 / 2) * gap ** (-1 / 2)),
                lr=c_eta * B1 / m * math.sqrt(mu * gap),
                alpha=alpha_in_range(B1 * beta / m),
                beta=beta,
                gamma="theory",
            )
        )
    return Recipe(
        "thm:4+",
        methods.MSVRM_V2,
        Plain(),
        tuple(stages),
        initial_samples=1,
        weight_decay=mu if convex else 0.0,
    )


def thm_6(
    *,
    m: int,
    B1: int,
    n: int,
    mu: float,
    epsilon: float,
    epsilon_0: float = 1.0,
    c_eta: float = 1.0,
    c_T: float = 1.0,
    convex: bool = False,
) -> Recipe:
    """Theorem 9: stage-wise MSVRM-v3; linear convergence, m sqrt(n)/(mu B1) log(1/epsilon) steps.

    beta = 1/n, alpha = B1/(m n), eta = c_eta B1/(m sqrt(n)), I = ceil(m n/B1),
    T_s = c_T max{m n/B1, m sqrt(n)/(mu B1)}; the printed complexity lacks m n log(1/epsilon)
    for the snapshots. Each stage starts with an exact pass.
    """
    check(m=m, B1=B1, n=n, mu=mu, epsilon=epsilon, epsilon_0=epsilon_0)
    stages = [
        constant(
            c_T * max(m * n / B1, m * math.sqrt(n) / (mu * B1)),
            lr=c_eta * B1 / (m * math.sqrt(n)),
            alpha=alpha_in_range(B1 / (m * n)),
            beta=beta_in_range(1 / n),
            gamma="theory",
            exact=True,
        )
        for _ in halvings(epsilon_0, epsilon)
    ]
    return Recipe(
        "thm:6",
        methods.MSVRM_V3,
        Plain(),
        tuple(stages),
        snapshot_every=math.ceil(m * n / B1),
        weight_decay=mu if convex else 0.0,
    )


def new_4(
    *,
    m: int,
    B1: int,
    mu: float,
    epsilon: float,
    epsilon_0: float = 1.0,
    c_eta: float = 1.0,
    c_alpha: float = 1.0,
    convex: bool = False,
) -> Recipe:
    """Theorem 10: stage-wise fresh pair v1, affine slopes; 1/(mu^2 epsilon) for PL.

    alpha_s = c_alpha B1 mu eps_s, eta_s = c_eta alpha_s, T_s = max{8/alpha_s, 8/(mu eta_s)}.
    """
    check(m=m, B1=B1, mu=mu, epsilon=epsilon, epsilon_0=epsilon_0)
    stages = []
    for gap in halvings(epsilon_0, epsilon):
        alpha = alpha_in_range(c_alpha * B1 * mu * gap)
        eta = c_eta * alpha
        stages.append(constant(max(8 / alpha, 8 / (mu * eta)), lr=eta, alpha=alpha))
    return Recipe(
        "new:4",
        methods.FRESH_PAIR_V1,
        Plain(),
        tuple(stages),
        weight_decay=mu if convex else 0.0,
    )


def new_5(
    *,
    m: int,
    B1: int,
    mu: float,
    epsilon: float,
    epsilon_0: float = 1.0,
    c_eta: float = 1.0,
    c_alpha: float = 1.0,
    convex: bool = False,
) -> Recipe:
    """Theorem 11: stage-wise fresh pair v2, affine slopes; 1/(mu epsilon) for PL.

    alpha_s = c_alpha B1 mu eps_s, eta_s = c_eta min{sqrt(B1 alpha_s), 1},
    T_s = max{16/alpha_s, 8/(mu eta_s)}.
    """
    check(m=m, B1=B1, mu=mu, epsilon=epsilon, epsilon_0=epsilon_0)
    stages = []
    for gap in halvings(epsilon_0, epsilon):
        alpha = alpha_in_range(c_alpha * B1 * mu * gap)
        eta = c_eta * min(math.sqrt(B1 * alpha), 1.0)
        stages.append(constant(max(16 / alpha, 8 / (mu * eta)), lr=eta, alpha=alpha))
    return Recipe(
        "new:5",
        methods.FRESH_PAIR_V2,
        Plain(),
        tuple(stages),
        weight_decay=mu if convex else 0.0,
    )


def new_6(
    *,
    m: int,
    B1: int,
    n: int,
    mu: float,
    epsilon: float,
    epsilon_0: float = 1.0,
    c_eta: float = 1.0,
    c_T: float = 1.0,
    convex: bool = False,
) -> Recipe:
    """Theorem 12: stage-wise fresh pair v3, affine slopes; linear, sqrt(m n)/mu log(1/epsilon).

    alpha = B1/(m n), eta = c_eta min{B1/sqrt(m n), 1}, T_s = c_T (sqrt(m n)/B1 + 1)/mu, each
    stage starts with a snapshot; the printed complexity lacks m n log(1/epsilon) for these.
    """
    check(m=m, B1=B1, n=n, mu=mu, epsilon=epsilon, epsilon_0=epsilon_0)
    root = math.sqrt(m * n)
    stages = [
        constant(
            c_T * (root / B1 + 1) / mu,
            lr=c_eta * min(B1 / root, 1.0),
            alpha=alpha_in_range(B1 / (m * n)),
            exact=True,
        )
        for _ in halvings(epsilon_0, epsilon)
    ]
    return Recipe(
        "new:6",
        methods.FRESH_PAIR_V3,
        Plain(),
        tuple(stages),
        weight_decay=mu if convex else 0.0,
    )
