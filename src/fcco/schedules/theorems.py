"""The theorems of the paper as formulas for the coefficients, in the order of the paper.

The arguments are the paper's symbols, and O(.) constants are the arguments ``c_...``. "Departure"
says where a recipe differs from the printed theorem. Everywhere alpha is clamped to at most 1 and
beta to at most 1/2, or to at most 1 in Theorem 1, where gamma = 0.

Theorems 1 to 6 and 13 find stationary points of smooth objectives in T steps. Their functions
return the recipe. Theorems 7 to 12 are stage-wise methods for PL and convex objectives. Their
functions return one stage, which reduces F(w) - F_* to ``gap``, the paper's eps_s. The recipes of
these theorems in ``RECIPES`` take other arguments instead of ``gap``:

- ``epsilon`` is the target, and ``epsilon_0`` (default 1) is the gap at the start or an upper
  bound of it. Gaps are halved from stage to stage. A stage starts with the last (w, u, z) of the
  stage before.
- ``convex`` (default False) is for a convex objective without the PL condition. The paper adds
  (mu/2) ||w||^2 with mu = epsilon/D, and the step is taken along z + mu w. The term mu w is not
  part of the estimator, because it is known exactly.
"""

import inspect
import math
from collections.abc import Callable
from dataclasses import replace
from inspect import Parameter

from fcco import methods
from fcco.methods import Method
from fcco.methods.coefficients import Coefficients
from fcco.schedules.recipe import Recipe, Stage
from fcco.updates import Adam, AMSGrad, Normalized, Plain

__all__ = ["RECIPES"]


def theorem_1(*, m: int, B1: int, T: int) -> Recipe:
    """Theorem 1: MSVRM-v1 with gamma = 0 and normalized steps; ||grad F|| ~ (m/(B1 T))^(1/4).

    beta = sqrt(m/(B1 T)), alpha = sqrt(B1/T), eta = B1^(1/4) m^(-1/4) T^(-3/4). The theorem assumes
    smooth, Lipschitz f_i and g_i and bounded variance. Departure: beta <= 1, and the table is
    initialized with one sample per block, which the paper does not specify.
    """
    _check(m=m, B1=B1, T=T)
    stage = Stage.constant(
        T,
        lr=(B1 / m) ** (1 / 4) * T ** (-3 / 4),
        alpha=math.sqrt(B1 / T),
        beta=math.sqrt(m / (B1 * T)),
    )
    return Recipe("new:1", methods.MSVRM_V1, Normalized(), (stage,), initial_samples=1)


def theorem_1_linear(*, m: int, B1: int, T: int) -> Recipe:
    """Theorem 1, affine slopes: ||grad F|| ~ (B1 T)^(-1/4), independent of m.

    alpha = sqrt(B1/T), eta = B1^(1/4) T^(-3/4). Departure: the paper sets beta = 1 and gamma = 0,
    which leaves an old sample in the table. This recipe uses the fresh pair instead.
    """
    _check(m=m, B1=B1, T=T)
    stage = Stage.constant(T, lr=B1 ** (1 / 4) * T ** (-3 / 4), alpha=math.sqrt(B1 / T))
    return Recipe("new:1/linear", methods.FRESH_PAIR_V1, Normalized(), (stage,))


def theorem_2(
    *,
    m: int,
    B1: int,
    T: int,
    c_eta: float = 1,
    c_alpha: float = 1,
    c_beta: float = 1,
    c_a: float = 1,
) -> Recipe:
    """Theorem 2: MSVRM-v1; ||grad F|| ~ max{(B1 T)^(-1/4), (m/(B1 T))^(1/3)} up to a log.

    eta_t = c_eta min{(B1/m)^(2/3) (a+t)^(-1/3), sqrt(B1) (a+t)^(-1/2)}, a = c_a m/B1,
    alpha_{t+1} = c_alpha eta_t, beta_{t+1} = c_beta (m/B1)^2 eta_t^2, gamma = Gamma(beta). The
    theorem assumes average smoothness. Departure: eta_0 gives the first alpha and beta. The paper's
    table states another rate than the theorem; the rate here is the theorem's.
    """
    _check(m=m, B1=B1, T=T)
    a = c_a * m / B1

    def eta(t: int) -> float:
        slow = math.pow(B1 / m, 2 / 3) * math.pow(a + t, -1 / 3)
        return c_eta * min(slow, math.sqrt(B1 / (a + t)))

    def coefficients(t: int) -> Coefficients:
        # alpha and beta of step t depend on eta_{t-1}, and the first ones on eta_0.
        before = eta(t - 1)
        beta = c_beta * (m / B1) ** 2 * before**2
        return Coefficients(
            lr=eta(t), alpha=min(1.0, c_alpha * before), beta=min(0.5, beta), gamma="theory"
        )

    stage = Stage(T, coefficients)
    return Recipe("thm:1", methods.MSVRM_V1, Plain(), (stage,), initial_samples=1)


def theorem_3(
    *,
    m: int,
    B1: int,
    T: int,
    c_eta: float = 1,
    c_alpha: float = 1,
    c_beta: float = 1,
    c_a: float = 1,
) -> Recipe:
    """Theorem 3: MSVRM-v2; ||grad F|| ~ (m/(B1 T))^(1/3) up to a log.

    eta_t = c_eta (B1/m)^(2/3) (a+t)^(-1/3), a = c_a m/B1, alpha_{t+1} = c_alpha (m/B1) eta_t^2,
    beta_{t+1} = c_beta (m/B1)^2 eta_t^2, gamma = Gamma(beta). The theorem assumes average
    smoothness. Departure: eta_0 gives the first alpha and beta.
    """
    _check(m=m, B1=B1, T=T)
    a = c_a * m / B1

    def eta(t: int) -> float:
        return c_eta * math.pow(B1 / m, 2 / 3) * math.pow(a + t, -1 / 3)

    def coefficients(t: int) -> Coefficients:
        before = eta(t - 1)
        alpha = c_alpha * (m / B1) * before**2
        beta = c_beta * (m / B1) ** 2 * before**2
        return Coefficients(lr=eta(t), alpha=min(1.0, alpha), beta=min(0.5, beta), gamma="theory")

    stage = Stage(T, coefficients)
    return Recipe("thm:2", methods.MSVRM_V2, Plain(), (stage,), initial_samples=1)


def theorem_4(*, m: int, B1: int, T: int) -> Recipe:
    """Theorem 4: MSVRM-v2 with normalized steps, no constants; ||grad F|| ~ (m/(B1 T))^(1/3).

    beta = (m/(B1 T))^(2/3), alpha = m^(2/3) B1^(1/3) T^(-2/3), eta = (B1/m)^(1/3) T^(-2/3),
    gamma = Gamma(beta). Departure: the paper gives the size of an initial batch B_0 but never uses
    it. Here it is ceil((B1 T/m)^(1/3)) samples per block for u_1 and max(1, ceil(T^(1/3)/m)) for
    z_1.
    """
    _check(m=m, B1=B1, T=T)
    stage = Stage.constant(
        T,
        lr=(B1 / m) ** (1 / 3) * T ** (-2 / 3),
        alpha=m ** (2 / 3) * B1 ** (1 / 3) * T ** (-2 / 3),
        beta=(m / (B1 * T)) ** (2 / 3),
        gamma="theory",
    )
    return Recipe(
        "new:2",
        methods.MSVRM_V2,
        Normalized(),
        (stage,),
        initial_samples=_ceil_root(B1 * T / m),
        first_samples=max(1, math.ceil(T ** (1 / 3) / m)),
    )


def theorem_4_linear(*, m: int, B1: int, T: int) -> Recipe:
    """Theorem 4, affine slopes: ||grad F|| ~ (B1 T)^(-1/3), independent of m.

    alpha = eta = B1^(1/3) T^(-2/3), and z_1 is formed from ceil((B1 T)^(1/3)) samples per block.
    Departure: the fresh pair is used instead of beta = 1 and gamma = 0, with which ||z - grad F||
    grows with T.
    """
    _check(m=m, B1=B1, T=T)
    rate = B1 ** (1 / 3) * T ** (-2 / 3)
    stages = (Stage.constant(T, lr=rate, alpha=rate),)
    first = _ceil_root(B1 * T)
    return Recipe("new:2/linear", methods.FRESH_PAIR_V2, Normalized(), stages, first_samples=first)


def theorem_4_literal(*, m: int, B1: int, T: int) -> Recipe:
    """Theorem 4, affine slopes, as printed: beta = 1, gamma = 0. An experiment, not a method.

    The table then holds one old sample per block. The proof bounds the difference of two different
    samples by O(eta^2), which does not hold. So ||z - grad F|| does not fall with T. See
    ``new:2/linear``.
    """
    fresh = theorem_4_linear(m=m, B1=B1, T=T)
    first = fresh.first_samples
    return Recipe(
        "new:2/literal", methods.MSVRM_V2, fresh.update, fresh.stages, initial_samples=first
    )


def theorem_5(
    *, m: int, B1: int, T: int, n: int, c_eta: float = 1, c_alpha: float = 1, c_beta: float = 1
) -> Recipe:
    """Theorem 5: MSVRM-v3 on finite sums of n; ||grad F|| ~ (m sqrt(n)/(B1 T))^(1/2).

    alpha = c_alpha B1/(m n), beta = c_beta/n, eta = c_eta B1/(m sqrt(n)), I = ceil(m n/B1),
    gamma = Gamma(beta). Departure: the first snapshot is at t = 1 and gives an exact u_0 and z_1.
    The proof drops the initial errors.
    """
    _check(m=m, B1=B1, T=T, n=n)
    stage = Stage.constant(
        T,
        lr=c_eta * B1 / (m * math.sqrt(n)),
        alpha=c_alpha * B1 / (m * n),
        beta=c_beta / n,
        gamma="theory",
        exact=True,
    )
    every = math.ceil(m * n / B1)
    return Recipe("thm:3", methods.MSVRM_V3, Plain(), (stage,), snapshot_every=every)


def theorem_6(*, m: int, B1: int, T: int, n: int) -> Recipe:
    """Theorem 6: MSVRM-v3 with normalized steps; ||grad F|| ~ (m sqrt(n)/(B1 T))^(1/2).

    alpha = B1/(m n), beta = 1/n, I = ceil(m n/B1), gamma = Gamma(beta). Departure: eta =
    sqrt(B1/T) m^(-1/2) n^(-1/4) as in the proof. The statement prints m^(-1/4), which measured
    1.5 to 2 times worse. The start is exact.
    """
    _check(m=m, B1=B1, T=T, n=n)
    stage = Stage.constant(
        T,
        lr=math.sqrt(B1 / T) * m ** (-1 / 2) * n ** (-1 / 4),
        alpha=B1 / (m * n),
        beta=1 / n,
        gamma="theory",
        exact=True,
    )
    every = math.ceil(m * n / B1)
    return Recipe("new:3", methods.MSVRM_V3, Normalized(), (stage,), snapshot_every=every)


def theorem_6_linear(*, m: int, B1: int, T: int, n: int) -> Recipe:
    """Theorem 6, affine slopes: ||grad F|| ~ (sqrt(m n)/(B1 T))^(1/2).

    alpha = B1/(m n), eta = sqrt(B1/T) (m n)^(-1/4), I = ceil(m n/B1). Departure: the fresh pair is
    used, and the start is exact.
    """
    _check(m=m, B1=B1, T=T, n=n)
    eta = math.sqrt(B1 / T) * (m * n) ** (-1 / 4)
    stages = (Stage.constant(T, lr=eta, alpha=B1 / (m * n), exact=True),)
    every = math.ceil(m * n / B1)
    return Recipe("new:3/linear", methods.FRESH_PAIR_V3, Normalized(), stages, snapshot_every=every)


def theorem_6_literal(*, m: int, B1: int, T: int, n: int) -> Recipe:
    """Theorem 6, affine slopes, as printed: u is the last sample. An experiment, not a method.

    ``new:3/linear`` is the recipe to use.
    """
    # SOX's row with beta = 1 makes u the last sample of each block.
    method = replace(methods.MSVRM_V3, name="msvrm-v3-literal", inner=methods.SOX.inner)
    fresh = theorem_6_linear(m=m, B1=B1, T=T, n=n)
    return replace(fresh, label="new:3/literal", method=method)


def theorem_7(
    gap: float,
    *,
    m: int,
    B1: int,
    mu: float,
    c_eta: float = 1,
    c_alpha: float = 1,
    c_beta: float = 1,
    c_T: float = 1,
    larger: bool = False,
) -> Stage:
    """Theorem 7: stage-wise MSVRM-v1; complexity m/(mu^2 epsilon) for PL, m/epsilon^3 for convex.

    beta_s = c_beta mu eps_s, alpha_s = c_alpha B1 mu eps_s, eta_s = c_eta (B1/m) mu eps_s,
    T_s = c_T m/(B1 mu^2 eps_s). With ``larger``, which departs from the paper,
    eta_s = c_eta min{B1 mu eps_s, (B1/m) sqrt(mu eps_s)} and
    T_s = c_T max{1/(mu eta_s), m/(B1 beta_s), 1/alpha_s}.
    """
    beta = min(0.5, c_beta * mu * gap)
    alpha = min(1.0, c_alpha * B1 * mu * gap)
    eta = c_eta * B1 / m * mu * gap
    num_steps = c_T * m / (B1 * mu**2 * gap)
    if larger:
        eta = c_eta * min(B1 * mu * gap, B1 / m * math.sqrt(mu * gap))
        num_steps = c_T * max(1 / (mu * eta), m / (B1 * beta), 1 / alpha)
    return Stage.constant(num_steps, lr=eta, alpha=alpha, beta=beta, gamma="theory")


def theorem_8(
    gap: float, *, m: int, B1: int, mu: float, c_eta: float = 1, c_beta: float = 1, c_T: float = 1
) -> Stage:
    """Theorem 8: stage-wise MSVRM-v2; complexity m/(mu epsilon) for PL, m/epsilon^2 for convex.

    beta_s = c_beta mu eps_s, alpha_s = B1 beta_s/m, eta_s = c_eta (B1/m) sqrt(mu eps_s),
    T_s = c_T (m/B1) max{1/(mu eps_s), mu^(-3/2) eps_s^(-1/2)}.
    """
    beta = min(0.5, c_beta * mu * gap)
    eta = c_eta * B1 / m * math.sqrt(mu * gap)
    num_steps = c_T * m / B1 * max(1 / (mu * gap), mu ** (-3 / 2) * gap ** (-1 / 2))
    return Stage.constant(num_steps, lr=eta, alpha=B1 * beta / m, beta=beta, gamma="theory")


def theorem_9(
    gap: float, *, m: int, B1: int, n: int, mu: float, c_eta: float = 1, c_T: float = 1
) -> Stage:
    """Theorem 9: stage-wise MSVRM-v3; linear convergence, m sqrt(n)/(mu B1) log(1/epsilon) steps.

    beta = 1/n, alpha = B1/(m n), eta = c_eta B1/(m sqrt(n)), I = ceil(m n/B1),
    T_s = c_T max{m n/B1, m sqrt(n)/(mu B1)}. Each stage starts with an exact pass. The printed
    complexity lacks m n log(1/epsilon) for the snapshots.
    """
    eta = c_eta * B1 / (m * math.sqrt(n))
    alpha = B1 / (m * n)
    num_steps = c_T * max(m * n / B1, m * math.sqrt(n) / (mu * B1))
    return Stage.constant(num_steps, lr=eta, alpha=alpha, beta=1 / n, gamma="theory", exact=True)


def theorem_10(
    gap: float, *, m: int, B1: int, mu: float, c_eta: float = 1, c_alpha: float = 1
) -> Stage:
    """Theorem 10: stage-wise fresh pair v1, affine slopes; 1/(mu^2 epsilon) for PL.

    alpha_s = c_alpha B1 mu eps_s, eta_s = c_eta alpha_s, T_s = max{8/alpha_s, 8/(mu eta_s)}.
    """
    alpha = min(1.0, c_alpha * B1 * mu * gap)
    eta = c_eta * alpha
    return Stage.constant(max(8 / alpha, 8 / (mu * eta)), lr=eta, alpha=alpha)


def theorem_11(
    gap: float, *, m: int, B1: int, mu: float, c_eta: float = 1, c_alpha: float = 1
) -> Stage:
    """Theorem 11: stage-wise fresh pair v2, affine slopes; 1/(mu epsilon) for PL.

    alpha_s = c_alpha B1 mu eps_s, eta_s = c_eta min{sqrt(B1 alpha_s), 1},
    T_s = max{16/alpha_s, 8/(mu eta_s)}.
    """
    alpha = min(1.0, c_alpha * B1 * mu * gap)
    eta = c_eta * min(math.sqrt(B1 * alpha), 1.0)
    return Stage.constant(max(16 / alpha, 8 / (mu * eta)), lr=eta, alpha=alpha)


def theorem_12(
    gap: float, *, m: int, B1: int, n: int, mu: float, c_eta: float = 1, c_T: float = 1
) -> Stage:
    """Theorem 12: stage-wise fresh pair v3, affine slopes; linear, sqrt(m n)/mu log(1/epsilon).

    alpha = B1/(m n), eta = c_eta min{B1/sqrt(m n), 1}, T_s = c_T (sqrt(m n)/B1 + 1)/mu. Each stage
    starts with a snapshot. The printed complexity lacks m n log(1/epsilon) for the snapshots.
    """
    root = math.sqrt(m * n)
    eta = c_eta * min(B1 / root, 1.0)
    num_steps = c_T * (root / B1 + 1) / mu
    return Stage.constant(num_steps, lr=eta, alpha=B1 / (m * n), exact=True)


def theorem_13(
    *,
    m: int,
    B1: int,
    T: int,
    c_eta: float = 1,
    c_alpha: float = 1,
    c_beta: float = 1,
    c_a: float = 1,
    radius: float | None = None,
    delta: float = 1e-3,
    beta2: float = 0.999,
    amsgrad: bool = False,
) -> Recipe:
    """Theorem 13: MSVRM-v2 with an Adam- or AMSGrad-style step; ||grad F|| ~ (m/(B1 T))^(1/3).

    The coefficients are those of Theorem 3. The step is Pi[z] / (sqrt(h) + delta), without bias
    correction. Departures: the radius of the projection is C_F = C_f C_g, while the statement
    prints L_f. The projection clips only the direction, and radius=None leaves it out.
    """
    kind = AMSGrad if amsgrad else Adam
    update = kind(beta2=beta2, eps=delta, radius=radius, bias_correction=False)
    plain = theorem_3(m=m, B1=B1, T=T, c_eta=c_eta, c_alpha=c_alpha, c_beta=c_beta, c_a=c_a)
    return replace(plain, label="adam", update=update)


def _stagewise(
    label: str,
    method: Method,
    stage: Callable[..., Stage],
    *,
    initial_samples: int | None = None,
    periodic: bool = False,
) -> Callable[..., Recipe]:
    """Return the function that makes the recipe of a stage-wise theorem.

    Args:
        label: the paper's label.
        method: the method, see ``fcco.methods``.
        stage: a function from the target gap of a stage, sizes and constants to the stage.
        initial_samples: the number of samples for each row of u_1, see ``Recipe``.
        periodic: whether there are snapshots within a stage too, every ceil(m n/B1) steps.
    """
    own = [p for p in inspect.signature(stage).parameters.values() if p.name != "gap"]
    signature = inspect.Signature(
        [
            *own,
            Parameter("epsilon", Parameter.KEYWORD_ONLY, annotation=float),
            Parameter("epsilon_0", Parameter.KEYWORD_ONLY, annotation=float, default=1.0),
            Parameter("convex", Parameter.KEYWORD_ONLY, annotation=bool, default=False),
        ]
    )

    def recipe(**arguments: float) -> Recipe:
        bound = signature.bind(**arguments)
        bound.apply_defaults()
        given = bound.arguments
        names = ("m", "B1", "n", "mu", "epsilon", "epsilon_0")
        _check(**{name: given[name] for name in names if name in given})
        if given["epsilon"] >= given["epsilon_0"]:
            raise ValueError(
                f"epsilon must be below epsilon_0={given['epsilon_0']}, the gap at the start, got "
                f"{given['epsilon']}"
            )
        sizes = {p.name: given[p.name] for p in own}
        # eps_s = eps_0 / 2^s, until the target is reached.
        gaps, gap = [], given["epsilon_0"]
        while gap > given["epsilon"]:
            gap /= 2
            gaps.append(gap)
        return Recipe(
            label,
            method,
            Plain(),
            tuple(stage(gap, **sizes) for gap in gaps),
            snapshot_every=math.ceil(given["m"] * given["n"] / given["B1"]) if periodic else None,
            initial_samples=initial_samples,
            weight_decay=given["mu"] if given["convex"] else 0.0,
        )

    recipe.__doc__ = stage.__doc__
    recipe.__signature__ = signature  # type: ignore[attr-defined]
    return recipe


def _check(**sizes: float) -> None:
    """Raise a ``ValueError`` that names a size that no theorem covers.

    Examples:
        >>> _check(m=10, B1=11)
        Traceback (most recent call last):
        ValueError: B1 must lie in 1..m=10, got 11
    """
    for name, value in sizes.items():
        if not value > 0 or not math.isfinite(value):
            raise ValueError(f"{name} must be positive, got {value}")
        if name in ("m", "B1", "T", "n") and value != int(value):
            raise ValueError(f"{name} must be a whole number, got {value}")
    if sizes["B1"] > sizes["m"]:
        raise ValueError(f"B1 must lie in 1..m={sizes['m']}, got {sizes['B1']}")


def _ceil_root(number: float) -> int:
    """Return the ceiling of the cube root, which is exact for cubes despite rounding.

    Examples:
        >>> _ceil_root(1000), _ceil_root(1001)
        (10, 11)
    """
    # cbrt(1000) may be 10.000000000000002, and its ceiling 11.
    return math.ceil(math.cbrt(number) - 1e-9)


RECIPES: dict[str, Callable[..., Recipe]] = {
    "new:1": theorem_1,
    "new:1/linear": theorem_1_linear,
    "thm:1": theorem_2,
    "thm:2": theorem_3,
    "new:2": theorem_4,
    "new:2/linear": theorem_4_linear,
    "new:2/literal": theorem_4_literal,
    "thm:3": theorem_5,
    "new:3": theorem_6,
    "new:3/linear": theorem_6_linear,
    "new:3/literal": theorem_6_literal,
    "thm:4": _stagewise("thm:4", methods.MSVRM_V1, theorem_7, initial_samples=1),
    "thm:4+": _stagewise("thm:4+", methods.MSVRM_V2, theorem_8, initial_samples=1),
    "thm:6": _stagewise("thm:6", methods.MSVRM_V3, theorem_9, periodic=True),
    "new:4": _stagewise("new:4", methods.FRESH_PAIR_V1, theorem_10),
    "new:5": _stagewise("new:5", methods.FRESH_PAIR_V2, theorem_11),
    "new:6": _stagewise("new:6", methods.FRESH_PAIR_V3, theorem_12),
    "adam": theorem_13,
}
"""Recipes by the paper's labels; each is a function of m, B1, T, n, mu, epsilon and constants.

"/linear" is the branch of a theorem for affine slopes, with the fresh pair. "/literal" is the same
branch as the paper prints it, which is an experiment and not meant for use."""
