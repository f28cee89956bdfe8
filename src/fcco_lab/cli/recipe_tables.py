"""Tables of recipes: all theorems, and the coefficients of one."""

import inspect
import re
from collections.abc import Mapping

from rich import box
from rich.table import Table

from fcco.methods.coefficients import gamma_theory
from fcco.methods.method import SlopeAt
from fcco.schedules import RECIPES, Recipe
from fcco_lab.theory.recipe_program import build

__all__ = ["all_recipes", "coefficients"]


def _purpose(label: str, recipe: Recipe) -> str:
    """The objectives that the theorem is about."""
    stagewise = "mu" in inspect.signature(RECIPES[label]).parameters
    words = ["PL or convex" if stagewise else "non-convex"]
    # Only a theorem about affine slopes takes them at a fresh sample, or at a stale one as printed.
    if recipe.method.slope_at is SlopeAt.PAIR or label.endswith("/literal"):
        words.append("affine slopes")
    if recipe.method.anchored:
        words.append("finite sums")
    return ", ".join(words) + (" (an experiment)" if label.endswith("/literal") else "")


def all_recipes(sizes: Mapping[str, float]) -> Table:
    """One row per theorem."""
    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0))
    for name in ("label", "thm", "method", "step", "for", "I", "stages"):
        table.add_column(name, no_wrap=name in ("label", "method", "step"))
    for label in RECIPES:
        recipe = build(label, sizes)
        theorem = re.match(r"Theorem (\d+)", RECIPES[label].__doc__ or "")
        table.add_row(
            label,
            theorem[1] if theorem else "",
            recipe.method.name,
            type(recipe.update).__name__.lower(),
            _purpose(label, recipe),
            f"{recipe.snapshot_every:,}" if recipe.snapshot_every else "",
            f"{len(recipe.stages)}",
        )
    return table


def coefficients(recipe: Recipe, sizes: Mapping[str, float]) -> Table:
    """The coefficients at the first, the middle and the last step."""
    table = Table("t", "stage", "lr", "alpha", "beta", "gamma", box=box.SIMPLE)
    stages = f" in {len(recipe.stages)} stages" if len(recipe.stages) > 1 else ""
    table.title = f"{recipe.num_steps:,} steps{stages}"
    last = recipe.num_steps
    for t in dict.fromkeys((1, max(1, last // 2), last)):
        at = recipe.coefficients(t)
        row = ["", ""]  # a method without a table has neither
        if recipe.method.inner is not None:
            gamma = at.gamma
            if gamma == "theory":
                gamma = gamma_theory(at.beta, int(sizes["m"]), int(sizes["B1"]))
            row = [f"{at.beta:.4g}", f"{gamma:.4g}"]
        stage = recipe.locate(t)[0] + 1
        table.add_row(f"{t:,}", f"{stage}", f"{at.lr:.4g}", f"{at.alpha:.4g}", *row)
    return table
