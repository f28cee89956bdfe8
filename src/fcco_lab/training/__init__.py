"""The training engine: a config, a run that can be interrupted anywhere, and its record."""

from typing import TYPE_CHECKING

from fcco_lab.lazily import exported
from fcco_lab.training.config import Config, read_toml

if TYPE_CHECKING:
    from fcco_lab.training.divergence import Diverged
    from fcco_lab.training.engine import Progress, Training

__all__ = ["Config", "Diverged", "Progress", "Training", "read_toml"]

__getattr__ = exported(
    __name__,
    {
        "Diverged": "fcco_lab.training.divergence",
        "Progress": "fcco_lab.training.engine",
        "Training": "fcco_lab.training.engine",
    },
)
