"""The training engine: a config, a run that can be interrupted anywhere, and its record."""

from fcco.experiments.training.config import Config, read_toml
from fcco.experiments.training.divergence import Diverged
from fcco.experiments.training.engine import Progress, Training

__all__ = ["Config", "Diverged", "Progress", "Training", "read_toml"]
