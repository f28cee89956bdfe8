"""The scale of the experiments: that of the paper, of a laptop, or a quick check."""

from dataclasses import dataclass, field, replace
from typing import Any

__all__ = ["SCALES", "Scale"]

_SETS = ("usps", "mnist", "cifar10", "fashion_mnist", "svhn", "cifar100")


@dataclass(frozen=True, kw_only=True)
class Scale:
    """The scale of experiments.

    Args:
        name: the name on the command line.
        sets: data sets of the tables and of Figure 1.
        tuned_on: the data set on which a set's settings are tuned, if it is another one.
        network: the network of all figures except Figure 3.
        networks: the networks of Figure 3.
        samples: inner samples per block.
        blocks: B1.
        blocks_of: B1 of data sets with many tasks.
        passes: the budget of a run, in steps of SOX; every method gets the same work.
        passes_of: other budgets, by data set.
        tuning_passes: the budget of a tuning run.
        seeds: runs per setting.
        train_size: training samples used; 0: all.
        lrs: step sizes to try, by step rule.
        weights: pairs of alpha and beta to try.
        options: settings of every run.
    """

    name: str
    sets: tuple[str, ...]
    tuned_on: dict[str, str] = field(default_factory=dict)
    network: str
    networks: tuple[str, ...]
    samples: int
    blocks: int = 5
    blocks_of: dict[str, int] = field(default_factory=dict)
    passes: int
    passes_of: dict[str, int] = field(default_factory=dict)
    tuning_passes: int
    seeds: int
    train_size: int = 0
    lrs: dict[str, tuple[float, ...]]
    weights: tuple[tuple[float, float], ...]
    options: dict[str, Any] = field(default_factory=dict)


_PAPER_LRS = (1e-4, 1e-3, 2e-3, 5e-3, 1e-2)
_PAPER_WEIGHTS = (0.1, 0.5, 0.9, 1.0)

PAPER = Scale(
    name="paper",
    sets=(*_SETS, "stl10", "kmnist"),
    network="resnet18",
    networks=("resnet18", "resnet34", "densenet121"),
    samples=128,
    blocks_of={"cifar100": 50},
    passes=20_000,  # the paper does not say how long it trains
    tuning_passes=20_000,
    seeds=5,
    lrs=dict.fromkeys(("plain", "normalized", "adam"), _PAPER_LRS),
    weights=tuple((a, b) for a in _PAPER_WEIGHTS for b in _PAPER_WEIGHTS),
    options={"device": "cuda", "evaluations": 40},
)

# The paper's step sizes would hardly move the network in so few steps, so each rule has a range
# that contains its best value. 12 settings per contender.
LAPTOP = Scale(
    name="laptop",
    sets=(*_SETS, "tinyimagenet100"),
    tuned_on=dict.fromkeys(("mnist", "fashion_mnist"), "usps")
    | dict.fromkeys(("svhn", "cifar100", "tinyimagenet100"), "cifar10"),
    network="cnn",
    networks=("cnn", "resnet18-imagenet"),
    samples=16,
    blocks_of={"tinyimagenet100": 10},
    passes=1000,
    passes_of={"fashion_mnist": 500, "svhn": 3000, "tinyimagenet100": 500},
    tuning_passes=400,
    seeds=3,
    train_size=6000,
    lrs={
        "plain": (0.3, 1.0, 3.0, 10.0),
        "normalized": (0.03, 0.1, 0.3, 1.0),
        "adam": (0.001, 0.003, 0.01, 0.03),
    },
    weights=((0.1, 0.1), (0.5, 0.5), (0.9, 0.9)),
    options={"evaluations": 10, "snapshot_every": 100},
)

QUICK = replace(
    LAPTOP,
    name="quick",
    sets=("digits",),
    tuned_on={},
    passes=120,
    passes_of={},
    tuning_passes=40,
    seeds=2,
    lrs={"plain": (3.0,), "normalized": (0.3,), "adam": (0.01,)},
    weights=((0.5, 0.5),),
    options={"evaluations": 6, "snapshot_every": 30},
)

SCALES = {scale.name: scale for scale in (PAPER, LAPTOP, QUICK)}
"""By name; "quick" shows in a minute that everything works, on digits."""
