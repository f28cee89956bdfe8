"""Batches for the steps of an optimizer, exact passes, and indices for losses."""

from typing import Any

from fcco.data.digits import load_digits
from fcco.data.exact import exact_pass, exact_value
from fcco.data.inputs import Inputs
from fcco.data.loader import BlockLoader, block_loader
from fcco.data.sampler import BlockSampler
from fcco.data.with_index import WithIndex

__all__ = [
    "BlockLoader",
    "BlockSampler",
    "Inputs",
    "WithIndex",
    "block_loader",
    "exact_pass",
    "exact_value",
    "load_digits",
]

_NOW = {
    "AnchorData": "an objective is built from labels, as fcco.objectives.Cox(times, events), "
    "AveragePrecision(labels), PartialAUC(labels, temperature=...), PNormPush(labels) or "
    "NCA(classes)",
    "ListData": "an objective is built from grades, as fcco.objectives.NDCG(grades, lengths)",
    "TaskData": "an objective is built from labels, as fcco.objectives.MultiTaskAUC(labels)",
    "GroupData": "an objective is built from groups, as fcco.objectives.GroupDRO(groups, targets, "
    "temperature=...)",
    "ViewData": "inputs are a pair (first, second), and the objective is "
    "fcco.objectives.GlobalContrastive(num_samples, temperature=...)",
    "PointData": "inputs are all there is, and the objective is fcco.objectives.IWAE(num_samples)",
    "BlockData": "derive from fcco.problem.SampledObjective, which knows the samples of its blocks",
    "Classified": "it moved to fcco_lab.datasets.records",
    "Survival": "it moved to fcco_lab.datasets.records",
    "Ranked": "it moved to fcco_lab.datasets.records",
    "binary": "it moved to fcco_lab.datasets.imbalance",
    "imbalanced": "it moved to fcco_lab.datasets.imbalance",
}
"""Names of version 0.2, with what to write instead."""


def __getattr__(name: str) -> Any:
    if name not in _NOW:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    usage = "; then block_loader(inputs, objective, ...)" if name.endswith("Data") else ""
    raise AttributeError(f"fcco.data.{name} is gone since 0.3: {_NOW[name]}{usage}")
