"""``fcco recipes``: what each theorem prescribes, and the lines of Python that run it."""

import inspect
import re
from collections.abc import Mapping
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from fcco.methods.coefficients import gamma_theory
from fcco.methods.method import SlopeAt
from fcco.schedules import RECIPES, Recipe, stagewise
from fcco_lab.choices import choose
from fcco_lab.cli.recipe_program import arguments, build, lines_to_run, told

__all__ = ["recipes"]


def recipes(
    label: Annotated[
        str | None, typer.Argument(help="A theorem by its label, such as thm:4.")
    ] = None,
    m: Annotated[int, typer.Option(min=1, help="Blocks.")] = 100,
    blocks: Annotated[int, typer.Option(min=1, help="B1, of them a step.")] = 10,
    horizon: Annotated[int, typer.Option(min=1, help="T, the number of steps.")] = 10_000,
    inner_size: Annotated[
        int, typer.Option(min=1, help="n, inner samples of a block (finite sums).")
    ] = 100,
    mu: Annotated[float, typer.Option(help="The PL constant of a stage-wise recipe.")] = 1.0,
    epsilon: Annotated[
        float, typer.Option(help="Its accuracy, from a gap of 1 at the start.")
    ] = 0.01,
) -> None:
    """The paper's theorems as recipes: what each is for, and its coefficients for your m, B1, T."""
    console = Console(highlight=False)
    sizes = {"m": m, "B1": blocks, "T": horizon, "n": inner_size, "mu": mu, "epsilon": epsilon}
    if label is None:
        console.print(_all(sizes))
        console.print(
            f"I, steps between exact passes, and stages are for {told(sizes)}\n"
            "one of them with its coefficients: fcco recipes LABEL",
            soft_wrap=True,
        )
        return
    choose("recipe", label, RECIPES)
    recipe = build(label, sizes)
    about = inspect.cleandoc(RECIPES[label].__doc__ or "")
    console.print(f"{label}\n\n{about}\n", markup=False, soft_wrap=True)
    console.print(_coefficients(recipe, sizes))
    console.print(f"with {told(arguments(label, sizes))}:\n", soft_wrap=True)
    console.print(lines_to_run(label, sizes), markup=False, soft_wrap=True)


def _purpose(label: str, recipe: Recipe) -> str:
    """The objectives that the theorem is about."""
    words = ["PL or convex" if RECIPES[label].__module__ == stagewise.__name__ else "non-convex"]
    # Only a theorem about affine slopes takes them at a fresh sample, or at a stale one as printed.
    if recipe.method.slope_at is SlopeAt.PAIR or label.endswith("/literal"):
        words.append("affine slopes")
    if recipe.method.anchored:
        words.append("finite sums")
    return ", ".join(words) + (" (an experiment)" if label.endswith("/literal") else "")


def _all(sizes: Mapping[str, float]) -> Table:
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


def _coefficients(recipe: Recipe, sizes: Mapping[str, float]) -> Table:
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
