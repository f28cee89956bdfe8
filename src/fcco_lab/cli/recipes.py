"""``fcco recipes``: what each theorem prescribes, and the lines of Python that run it."""

import inspect
from typing import Annotated

import typer
from rich.console import Console

from fcco_lab.choices import choose

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
    from fcco.schedules import RECIPES
    from fcco_lab.cli.recipe_tables import all_recipes, coefficients
    from fcco_lab.theory.recipe_program import arguments, as_arguments, build, lines_to_run

    console = Console(highlight=False)
    sizes = {"m": m, "B1": blocks, "T": horizon, "n": inner_size, "mu": mu, "epsilon": epsilon}
    if label is None:
        console.print(all_recipes(sizes))
        console.print(
            f"I, steps between exact passes, and stages are for {as_arguments(sizes)}\n"
            "one of them with its coefficients: fcco recipes LABEL",
            soft_wrap=True,
        )
        return
    choose("recipe", label, RECIPES)
    recipe = build(label, sizes)
    about = inspect.cleandoc(RECIPES[label].__doc__ or "")
    console.print(f"{label}\n\n{about}\n", markup=False, soft_wrap=True)
    console.print(coefficients(recipe, sizes))
    console.print(f"with {as_arguments(arguments(label, sizes))}:\n", soft_wrap=True)
    console.print(lines_to_run(label, sizes), markup=False, soft_wrap=True)
