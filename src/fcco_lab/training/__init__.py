"""The training engine: a config, a run that can be interrupted anywhere, and its record."""

from fcco_lab.training.config import Config, read_toml
from fcco_lab.training.divergence import Diverged
from fcco_lab.training.engine import Progress, Training

__all__ = ["Config", "Diverged", "Progress", "Training", "read_toml"]
