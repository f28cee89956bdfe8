"""What to say when a run has diverged: which coefficient to lower."""

from fcco.methods import Entry
from fcco_lab.entries import entry_of
from fcco_lab.training.config import Config

__all__ = ["Diverged", "advice"]


class Diverged(RuntimeError):
    """Values, slopes or z were no longer finite; the message says what to change."""


def advice(config: Config) -> str:
    """The coefficient most likely to blame, and what to set it to.

    Examples:
        >>> advice(Config(lr=3.0))
        'lower lr (it is 3; try 0.3)'
        >>> advice(Config(lr=0.001, gamma="theory", method="msvrm-v1"))
        'lower gamma (it is "theory", about m/B1; try gamma="age")'
        >>> advice(Config(lr=0.001, alpha=0.1, safeguard=False))
        'lower lr (it is 0.001; try 0.0001), or keep z near the gradient: safeguard = true'
    """
    entry = entry_of(config.method)
    corrected = isinstance(entry, Entry) and entry.method.corrected
    large = config.lr > (0.03 if config.update in ("adam", "amsgrad") else 1.0)
    if corrected and not large and config.gamma == "theory":
        return 'lower gamma (it is "theory", about m/B1; try gamma="age")'
    if corrected and not large and isinstance(config.gamma, float | int) and config.gamma > 1:
        return f'lower gamma (it is {config.gamma}; try gamma="age")'
    text = f"lower lr (it is {config.lr:g}; try {config.lr / 10:g})"
    if isinstance(entry, Entry) and entry.method.gradient.points and not config.safeguard:
        text += ", or keep z near the gradient: safeguard = true"
    return text
