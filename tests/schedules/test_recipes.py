"""Every recipe's numbers, against the table of formulas written out once more, and its range."""

import inspect
import math
import re

import pytest

from fcco.schedules import RECIPES
from fcco.updates import Adam, AMSGrad

SIZES = [(10, 5, 1000), (100, 2, 50_000), (7, 7, 300), (1000, 10, 10**6)]
INNER = [2, 50, 1000]


def formulas(m, b, t_max, n):
    """label -> (method, rule, beta, gamma, alpha, eta); beta, alpha and eta are functions of t."""
    r = m / b

    def schedule_1(t):
        return min((1 / r) ** (2 / 3) * (r + t) ** (-1 / 3), b**0.5 * (r + t) ** (-0.5))

    def schedule_2(t):
        return (1 / r) ** (2 / 3) * (r + t) ** (-1 / 3)

    def steady(value):
        return lambda t: value

    return {
        "new:1": (
            "msvrm-v1",
            "Normalized",
            steady(min(1, (m / (b * t_max)) ** 0.5)),
            0.0,
            steady(min(1, (b / t_max) ** 0.5)),
            steady(b**0.25 * m**-0.25 * t_max**-0.75),
        ),
        "new:1/linear": (
            "fresh-pair-v1",
            "Normalized",
            None,
            0.0,
            steady(min(1, (b / t_max) ** 0.5)),
            steady(b**0.25 * t_max**-0.75),
        ),
        "thm:1": (
            "msvrm-v1",
            "Plain",
            lambda t: min(0.5, r**2 * schedule_1(t - 1) ** 2),
            "theory",
            lambda t: min(1, schedule_1(t - 1)),
            schedule_1,
        ),
        "thm:2": (
            "msvrm-v2",
            "Plain",
            lambda t: min(0.5, r**2 * schedule_2(t - 1) ** 2),
            "theory",
            lambda t: min(1, r * schedule_2(t - 1) ** 2),
            schedule_2,
        ),
        "adam": (
            "msvrm-v2",
            "Adam",
            lambda t: min(0.5, r**2 * schedule_2(t - 1) ** 2),
            "theory",
            lambda t: min(1, r * schedule_2(t - 1) ** 2),
            schedule_2,
        ),
        "new:2": (
            "msvrm-v2",
            "Normalized",
            steady(min(0.5, (r / t_max) ** (2 / 3))),
            "theory",
            steady(min(1, m ** (2 / 3) * b ** (1 / 3) * t_max ** (-2 / 3))),
            steady((b / m) ** (1 / 3) * t_max ** (-2 / 3)),
        ),
        "new:2/linear": (
            "fresh-pair-v2",
            "Normalized",
            None,
            0.0,
            steady(min(1, b ** (1 / 3) * t_max ** (-2 / 3))),
            steady(b ** (1 / 3) * t_max ** (-2 / 3)),
        ),
        "thm:3": (
            "msvrm-v3",
            "Plain",
            steady(min(0.5, 1 / n)),
            "theory",
            steady(b / (m * n)),
            steady(b / (m * n**0.5)),
        ),
        "new:3": (
            "msvrm-v3",
            "Normalized",
            steady(min(0.5, 1 / n)),
            "theory",
            steady(b / (m * n)),
            steady((b / t_max) ** 0.5 * m**-0.5 * n**-0.25),
        ),
        "new:3/linear": (
            "fresh-pair-v3",
            "Normalized",
            None,
            0.0,
            steady(b / (m * n)),
            steady((b / t_max) ** 0.5 * (m * n) ** -0.25),
        ),
    }


@pytest.mark.parametrize(("m", "b", "t_max"), SIZES)
@pytest.mark.parametrize("n", INNER)
def test_non_convex_recipes_follow_their_formulas(m, b, t_max, n):
    for label, (method, rule, beta, gamma, alpha, eta) in formulas(m, b, t_max, n).items():
        sizes = {"m": m, "B1": b, "T": t_max}
        anchored = method.endswith("v3")
        recipe = RECIPES[label](**sizes, n=n) if anchored else RECIPES[label](**sizes)
        assert recipe.label == label
        assert recipe.method.name == method
        assert type(recipe.update).__name__ == rule
        assert recipe.num_steps == t_max
        assert recipe.snapshot_every == (math.ceil(m * n / b) if anchored else None)
        for t in (1, 2, 17, t_max):
            c = recipe.coefficients(t)
            assert c.alpha == pytest.approx(alpha(t), rel=1e-12), (label, t)
            assert c.lr == pytest.approx(eta(t), rel=1e-12), (label, t)
            assert c.gamma == gamma
            if beta is not None:
                assert c.beta == pytest.approx(beta(t), rel=1e-12), (label, t)


def test_initial_batches():
    recipe = RECIPES["new:2"](m=10, B1=5, T=16_000)
    assert (recipe.initial_samples, recipe.first_samples) == (20, 3)
    assert RECIPES["new:2"](m=1000, B1=5, T=16_000).first_samples == 1
    assert RECIPES["new:2/linear"](m=10, B1=2, T=500).first_samples == 10


def test_the_adam_recipe_is_the_papers_rule():
    recipe = RECIPES["adam"](m=10, B1=5, T=100, radius=3.0, delta=0.1)
    assert isinstance(recipe.update, Adam)
    assert not recipe.update.bias_correction
    assert (recipe.update.radius, recipe.update.eps) == (3.0, 0.1)
    assert isinstance(RECIPES["adam"](m=10, B1=5, T=100, amsgrad=True).update, AMSGrad)


@pytest.mark.parametrize(
    ("m", "b", "mu", "n"), [(16, 2, 0.1, 8), (100, 10, 0.03, 50), (4, 4, 1.0, 2)]
)
def test_stage_wise_recipes_follow_their_formulas(m, b, mu, n):
    gaps = [0.5 / 2**k for k in range(1, 6)]
    pl = {"m": m, "B1": b, "mu": mu, "epsilon": gaps[-1], "epsilon_0": 0.5}

    def constants(stage):
        c = stage.coefficients(1)
        assert c == stage.coefficients(stage.num_steps)
        return c

    def check(label, sizes, expected):
        recipe = RECIPES[label](**sizes)
        assert len(recipe.stages) == len(gaps)
        for gap, stage in zip(gaps, recipe.stages, strict=True):
            beta, alpha, eta, steps = expected(gap)
            c = constants(stage)
            assert c.alpha == pytest.approx(min(1, alpha), rel=1e-12)
            assert c.lr == pytest.approx(eta, rel=1e-12)
            assert stage.num_steps == max(1, math.ceil(steps - 1e-9)) or stage.num_steps == (
                max(1, math.ceil(steps))
            )
            if beta is not None:
                assert c.beta == pytest.approx(min(0.5, beta), rel=1e-12)
                assert c.gamma == "theory"
        assert recipe.weight_decay == 0
        assert RECIPES[label](**sizes, convex=True).weight_decay == mu

    check(
        "thm:4",
        pl,
        lambda e: (mu * e, b * mu * e, b / m * mu * e, m / (b * mu**2 * e)),
    )

    def larger(e):
        beta, alpha = min(0.5, mu * e), min(1, b * mu * e)
        eta = min(b * mu * e, b / m * (mu * e) ** 0.5)
        return beta, alpha, eta, max(1 / (mu * eta), m / (b * beta), 1 / alpha)

    check("thm:4", pl | {"larger": True}, larger)
    check(
        "thm:4+",
        pl,
        lambda e: (
            mu * e,
            b * min(0.5, mu * e) / m,
            b / m * (mu * e) ** 0.5,
            m / b * max(1 / (mu * e), mu**-1.5 * e**-0.5),
        ),
    )
    check(
        "thm:6",
        pl | {"n": n},
        lambda e: (
            1 / n,
            b / (m * n),
            b / (m * n**0.5),
            max(m * n / b, m * n**0.5 / (mu * b)),
        ),
    )

    def new_4(e):
        alpha = min(1, b * mu * e)
        return None, alpha, alpha, max(8 / alpha, 8 / (mu * alpha))

    check("new:4", pl, new_4)

    def new_5(e):
        alpha = min(1, b * mu * e)
        eta = min((b * alpha) ** 0.5, 1)
        return None, alpha, eta, max(16 / alpha, 8 / (mu * eta))

    check("new:5", pl, new_5)
    root = (m * n) ** 0.5
    check(
        "new:6",
        pl | {"n": n},
        lambda e: (None, b / (m * n), min(b / root, 1), (root / b + 1) / mu),
    )


def test_steps_are_numbered_through_the_stages():
    recipe = RECIPES["new:4"](m=4, B1=2, mu=1.0, epsilon=0.3)
    first, second = (stage.num_steps for stage in recipe.stages)
    assert recipe.starts == (1, first + 1)
    assert recipe.locate(first) == (0, first)
    assert recipe.locate(first + 1) == (1, 1)
    assert recipe.coefficients(first + second) == recipe.stages[1].coefficients(second)
    for t in (0, first + second + 1):
        with pytest.raises(ValueError, match="lies outside"):
            recipe.coefficients(t)


@pytest.mark.parametrize(
    ("label", "sizes", "message"),
    [
        ("new:1", {"m": 10, "B1": 11, "T": 5}, r"B1 must lie in 1\.\.m=10"),
        ("new:2", {"m": 10, "B1": 0, "T": 5}, "B1 must be positive"),
        ("thm:1", {"m": 10, "B1": 2, "T": 0}, "T must be positive"),
        ("thm:2", {"m": 10, "B1": 2.5, "T": 9}, "B1 must be a whole number"),
        ("new:3", {"m": 10, "B1": 2, "T": 5, "n": -1}, "n must be positive"),
        ("thm:4", {"m": 10, "B1": 2, "mu": 0.0, "epsilon": 0.1}, "mu must be positive"),
        ("new:5", {"m": 10, "B1": 2, "mu": 1.0, "epsilon": float("nan")}, "epsilon"),
        ("thm:4", {"m": 10, "B1": 2, "mu": 1.0, "epsilon": 1.0}, r"epsilon must be below .*=1\.0"),
    ],
)
def test_sizes_outside_a_theorem_are_refused(label, sizes, message):
    with pytest.raises(ValueError, match=message):
        RECIPES[label](**sizes)


def test_every_docstring_names_its_theorem_and_departures():
    """With a horizon T all but the literal ones depart from the paper, by clamping at least."""
    theorems = set()
    for label, recipe in RECIPES.items():
        found = re.match(r"Theorem (\d+)[:,] ", recipe.__doc__)
        assert found, label
        theorems.add(int(found[1]))
        if "T" in inspect.signature(recipe).parameters and "/literal" not in label:
            assert re.search(r"Departures?: ", recipe.__doc__), label
    assert theorems == set(range(1, 14))
