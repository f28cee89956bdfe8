"""Plots of trials."""

from collections.abc import Sequence
from pathlib import Path

from fcco.experiments.trial import Trial

__all__ = ["plot_curves"]


def plot_curves(trials: Sequence[Trial], path: Path, *, title: str) -> None:
    """The exact objective against oracle work, one line a trial; colour by method, dash by rule."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    dashes = {"": "-", "normalized": "--", "adam": ":"}
    colours: dict[str, str] = {}
    figure, axes = plt.subplots(figsize=(9, 5.5), layout="constrained")
    for trial in trials:
        method, _, rule = trial.name.partition(" ")
        colour = colours.setdefault(method, f"C{len(colours)}")
        work, value = zip(*trial.curve, strict=True)
        axes.plot(work, value, dashes[rule], color=colour, label=trial.name, linewidth=1.4)
    axes.set(yscale="log", xlabel="oracle work (values + 2 gradients)", ylabel="exact objective")
    axes.set_title(title)
    axes.grid(alpha=0.3, which="both")
    figure.legend(loc="outside right upper", fontsize="small")
    figure.savefig(path, dpi=130)
    plt.close(figure)
