"""Every theorem of the paper as a recipe, and the driver that runs a recipe."""

from fcco.schedules.driver import Driver
from fcco.schedules.recipe import Recipe, Stage
from fcco.schedules.theorems import RECIPES

__all__ = ["RECIPES", "Driver", "Recipe", "Stage"]
