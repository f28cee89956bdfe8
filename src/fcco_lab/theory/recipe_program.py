"""The program that runs a recipe for given sizes."""

import inspect
from collections.abc import Mapping

from fcco.methods.method import SlopeAt
from fcco.schedules import RECIPES, Recipe

__all__ = ["arguments", "as_arguments", "build", "lines_to_run"]


def lines_to_run(label: str, sizes: Mapping[str, float]) -> str:
    """A program that runs a recipe, on data to be replaced by one's own.

    Args:
        label: see ``RECIPES``.
        sizes: m, B1, T, n, mu and epsilon.
    """
    given = as_arguments(arguments(label, sizes))
    m, blocks = int(sizes["m"]), int(sizes["B1"])
    method = build(label, sizes).method
    paired = method.slope_at is SlopeAt.PAIR
    objective = "MultiTaskGap(labels, paired=True)" if paired else "MultiTaskAUC(labels)"
    snapshot = """    if driver.snapshot_due:
        driver.opt.snapshot(fcco.data.exact_pass(model, inputs, objective))
"""
    return f"""import torch
import fcco
from fcco.schedules import RECIPES, Driver

recipe = RECIPES["{label}"]({given})
# Your data here: N samples, and for each whether it is a positive of each of the m tasks.
inputs = torch.randn(400, 20)
labels = inputs @ torch.randn(20, {m}) > 0
objective = fcco.objectives.{objective}
model = torch.nn.Linear(20, {m})
loader = fcco.data.block_loader(
    inputs, objective, blocks_per_step={blocks}, samples_per_block=32, num_steps=recipe.num_steps
)
driver = Driver.build(recipe, model.parameters(), objective)
for batch in loader:
{snapshot if method.anchored else ""}\
    driver.opt.step(lambda: objective.inner(model, batch))
    driver.step()
driver.finish()
"""


def arguments(label: str, sizes: Mapping[str, float]) -> dict[str, float]:
    """Those of the sizes that the theorem asks for.

    Examples:
        >>> arguments("new:2", {"m": 10, "B1": 5, "T": 100, "n": 50})
        {'m': 10, 'B1': 5, 'T': 100}
    """
    wanted = inspect.signature(RECIPES[label]).parameters
    return {name: value for name, value in sizes.items() if name in wanted}


def build(label: str, sizes: Mapping[str, float]) -> Recipe:
    """The recipe for the sizes that it asks for."""
    return RECIPES[label](**arguments(label, sizes))


def as_arguments(sizes: Mapping[str, float]) -> str:
    """The sizes as arguments.

    Examples:
        >>> as_arguments({"m": 10, "mu": 0.1})
        'm=10, mu=0.1'
    """
    return ", ".join(f"{name}={value}" for name, value in sizes.items())
