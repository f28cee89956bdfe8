"""The settings that are tried for a contender, and the choice among them."""

from collections.abc import Iterable
from typing import Any

from fcco.methods import REGISTRY
from fcco_lab.entries import BASELINES
from fcco_lab.reproduction.plan import Contender, Item
from fcco_lab.reproduction.scales import Scale
from fcco_lab.runs import Record
from fcco_lab.training import Config

__all__ = ["chosen", "final_runs", "grid", "tuning_runs", "tuning_set"]

TUNING_SEED = 1000
"""The seed of tuning runs; results are reported for other seeds."""


def grid(scale: Scale, contender: Contender) -> list[dict[str, float]]:
    """The settings to try; every contender has the same number.

    Baselines have no alpha and beta and try weight decays instead.
    """
    lrs = scale.lrs[contender.update]
    if contender.method in BASELINES:
        if contender.method == "min-max":
            lrs = tuple(lr / 30 for lr in lrs)  # a loss of another scale, and momentum 0.9
        decays = (0.0, 1e-4, 1e-2)[: len(scale.weights)]
        return [{"lr": lr, "weight_decay": decay} for lr in lrs for decay in decays]
    return [{"lr": lr, "alpha": a, "beta": b} for lr in lrs for a, b in scale.weights]


def tuning_set(scale: Scale, item: Item) -> str:
    """The data set on which the settings of an item are tuned."""
    return scale.tuned_on.get(item.data, item.data)


def _config(
    scale: Scale,
    item: Item,
    data: str,
    passes: int,
    settings: dict[str, Any],
    options: dict[str, Any],
) -> Config:
    # The defaults are not tuned and keep their decay and safeguard.
    bare = {"safeguard": False, "decay": "none"} if item.tuned else {}
    given: dict[str, Any] = {
        "data": data,
        "network": scale.network,
        "method": item.contender.method,
        "update": item.contender.update,
        "blocks_per_step": scale.blocks_of.get(data, scale.blocks),
        "samples_per_block": scale.samples,
        "train_size": scale.train_size,
        "steps": 0,
        **bare,
        **scale.options,
        **settings,
        **options,
    }
    passes = given.pop("passes", passes)
    entry = REGISTRY.get(item.contender.method)
    if entry is None or not entry.method.anchored:
        given.pop("snapshot_every", None)
    # The budget is that of SOX with the B1 of the scale, for every B1 of the run.
    given["work"] = passes * 3 * scale.blocks * scale.samples
    return Config(**given)


def tuning_runs(scale: Scale, items: Iterable[Item]) -> dict[str, Config]:
    """The runs that tune ``items``, by name; one per contender and data set."""
    runs = {}
    for item in items:
        if not item.tuned:
            continue
        data = tuning_set(scale, item)
        for settings in grid(scale, item.contender):
            options = {"holdout": 0.2, "evaluations": 2, "seed": TUNING_SEED}
            config = _config(scale, item, data, scale.tuning_passes, settings, options)
            runs[config.name] = config
    return runs


def chosen(scale: Scale, item: Item, records: Iterable[Record]) -> dict[str, float]:
    """The setting with the best AUC on the held-out part; diverged runs have none."""
    data, contender = tuning_set(scale, item), item.contender
    best, settings = -1.0, None
    keys = list(grid(scale, contender)[0])
    for record in records:
        config = record["config"]
        mine = (config["data"], config["method"], config["update"])
        if mine != (data, contender.method, contender.update) or record["status"] != "finished":
            continue
        if record["auc"] > best:
            best, settings = record["auc"], {key: config[key] for key in keys}
    if settings is None:
        raise ValueError(f"every setting of {contender.method} {contender.update} diverged")
    return settings


def final_runs(scale: Scale, items: Iterable[Item], records: Iterable[Record]) -> dict[str, Config]:
    """The runs of ``items`` with every seed, by name, once tuning is done."""
    tuned = list(records)
    runs = {}
    for item in items:
        settings: dict[str, Any] = chosen(scale, item, tuned) if item.tuned else {}
        for seed in range(scale.seeds):
            options = {**item.options, "seed": seed}
            passes = scale.passes_of.get(item.data, scale.passes)
            config = _config(scale, item, item.data, passes, settings, options)
            runs[config.name] = config
    return runs
