"""The settings that are tried for a contender, and the choice among them."""

from collections.abc import Iterable
from typing import Any

from fcco.methods import REGISTRY
from fcco_lab.entries import BASELINES
from fcco_lab.reproduction.plan import Contender, Item
from fcco_lab.reproduction.scales import Scale
from fcco_lab.runs import Record
from fcco_lab.training import Config

__all__ = ["chosen", "final_runs", "grid", "tuning_runs"]

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


def _config(scale: Scale, item: Item, given: dict[str, Any]) -> Config:
    """The config of a run; what is ``given`` wins over the scale, ``passes`` are its budget."""
    settings: dict[str, Any] = {
        "network": scale.network,
        "method": item.contender.method,
        "update": item.contender.update,
        "blocks_per_step": scale.blocks_of.get(given["data"], scale.blocks),
        "samples_per_block": scale.samples,
        "train_size": scale.train_size,
        "steps": 0,
        **scale.options,
    }
    if item.tuned:  # the defaults keep their decay and safeguard
        settings |= {"safeguard": False, "decay": "none"}
    settings |= given
    entry = REGISTRY.get(item.contender.method)
    if entry is None or not entry.method.anchored:
        settings.pop("snapshot_every", None)
    # The budget is that of SOX with the B1 of the scale, for every B1 of the run.
    settings["work"] = settings.pop("passes") * 3 * scale.blocks * scale.samples
    return Config(**settings)


def tuning_runs(scale: Scale, items: Iterable[Item]) -> dict[str, Config]:
    """The runs that tune ``items``, by name; one per contender and data set."""
    runs = {}
    for item in items:
        if not item.tuned:
            continue
        data = scale.tuned_on.get(item.data, item.data)
        given: dict[str, Any] = {"data": data, "passes": scale.tuning_passes, "seed": TUNING_SEED}
        given |= {"holdout": 0.2, "evaluations": 2}
        for settings in grid(scale, item.contender):
            config = _config(scale, item, given | settings)
            runs[config.name] = config
    return runs


def chosen(scale: Scale, item: Item, records: Iterable[Record]) -> dict[str, float]:
    """The setting with the best AUC on the held-out part; diverged runs have none."""
    method, update = item.contender.method, item.contender.update
    wanted = (scale.tuned_on.get(item.data, item.data), method, update)
    able = [
        record
        for record in records
        if record["status"] == "finished"
        and tuple(record["config"][key] for key in ("data", "method", "update")) == wanted
    ]
    if not able:
        raise ValueError(f"every setting of {method} {update} diverged")
    best = max(able, key=lambda record: float(record["auc"]))
    return {key: best["config"][key] for key in grid(scale, item.contender)[0]}


def final_runs(scale: Scale, items: Iterable[Item], records: Iterable[Record]) -> dict[str, Config]:
    """The runs of ``items`` with every seed, by name, once tuning is done."""
    tuned = list(records)
    runs = {}
    for item in items:
        given: dict[str, Any] = {
            "data": item.data,
            "passes": scale.passes_of.get(item.data, scale.passes),
        }
        settings = chosen(scale, item, tuned) if item.tuned else {}
        options = dict(item.options)
        for seed in range(options.pop("seeds", scale.seeds)):
            config = _config(scale, item, given | settings | options | {"seed": seed})
            runs[config.name] = config
    return runs
