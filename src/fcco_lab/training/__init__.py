"""The training engine: a config, a run that can be interrupted anywhere, and its record."""

from fcco_lab.training.config import Config, read_toml
from fcco_lab.training.engine import Diverged, Training

__all__ = ["Config", "Diverged", "Training", "read_toml"]
