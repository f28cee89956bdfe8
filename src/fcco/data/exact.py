"""Exact passes over a data set: chunks for ``snapshot``, and the exact value to monitor."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fcco.data.arguments import whole
from fcco.data.blocks import BlockData, Device
from fcco.distributed import Ranks
from fcco.kernel.rows import rows_of
from fcco.kernel.sums import RowSums
from fcco.kernel.writes import commit, way_back
from fcco.problem.batches import Batch
from fcco.problem.objective import Objective, same_class
from fcco.problem.probe import Closure, Probe

__all__ = ["exact_pass", "exact_value"]

OUTPUTS = 1 << 16
"""The size of a chunk once the model is done with it."""


def exact_pass(
    model: Any,
    dataset: BlockData[Any],
    objective: Objective,
    *,
    chunk_size: int = 1024,
    device: Device = None,
    rank: int | None = None,
    world_size: int | None = None,
) -> list[Closure]:
    """The closures of one exact pass, for ``opt.snapshot``; each makes its batch when called.

    With several ranks these are the closures of this rank; each rank has the same number.

    If blocks are anchors, every closure passes all partners through the model, so a pass costs one
    sweep over the data per chunk.

    Args:
        model: the model, as ``objective.inner`` takes it.
        dataset: the samples and their blocks.
        objective: the problem.
        chunk_size: samples per closure (or blocks, if they have many partners).
        device: the device of the model, if the inputs are elsewhere.
        rank: the rank of this process; by default from ``torch.distributed``, or 0.
        world_size: the number of processes; by default from ``torch.distributed``, or 1.

    Examples:
        >>> from fcco.data import TaskData
        >>> from fcco.objectives import MultiTaskAUC
        >>> data = TaskData.from_classes(torch.rand(6, 2), torch.tensor([0, 1, 2, 0, 1, 2]))
        >>> closures = exact_pass(torch.nn.Linear(2, 3), data, MultiTaskAUC(3), chunk_size=4)
        >>> [closure().samples for closure in closures]
        [4, 2]
    """
    _check(dataset, objective, chunk_size)

    def call(span: Tensor) -> Probe:
        batch: Batch = dataset.collate(dataset.chunk(span))
        return objective.inner(model, batch if device is None else batch.to(device))

    here = Ranks()
    size = here.size if world_size is None else world_size
    spans = _even(dataset.spans(chunk_size), size)
    return [partial(call, span) for span in spans[here.rank if rank is None else rank :: size]]


def _even(spans: Sequence[Tensor], size: int) -> list[Tensor]:
    """Spans whose number is a multiple of ``size``: some are cut in two."""
    even = list(spans)
    while len(even) % size:
        longest = max(range(len(even)), key=lambda k: len(even[k]))
        if len(even[longest]) < 2:
            raise ValueError(f"too little data to share an exact pass among {size} ranks")
        even[longest : longest + 1] = even[longest].tensor_split(2)
    return even


@torch.no_grad()
def exact_value(
    model: Any,
    dataset: BlockData[Any],
    objective: Objective,
    *,
    chunk_size: int = 1024,
    device: Device = None,
) -> float:
    """F(w) on the data set, the number to monitor; arguments as for ``exact_pass``.

    The data set may be another one than that of training: ``objective.on(dataset)`` is evaluated.

    Each input passes through the model once, in eval mode; then modes, buffers and the RNG are
    restored. (A function instead of a module is called as it is: set its modules to eval yourself.)
    The value is formed from the outputs: in O(N log N) by sorting or moments, or in a few hundred
    operations per sample by interpolation, where the objective and its surrogate allow that, and
    otherwise from all P * N pairs of P anchors and N partners.

    Examples:
        >>> from fcco.data import TaskData
        >>> from fcco.objectives import MultiTaskAUC
        >>> data = TaskData.from_classes(torch.zeros(4, 1), torch.tensor([0, 1, 0, 1]))
        >>> exact_value(lambda x: torch.zeros(len(x), 2), data, MultiTaskAUC(2))  # all scores 1/2
        0.5
    """
    objective = objective.on(dataset)
    _check(dataset, objective, chunk_size)
    modules = torch.nn.ModuleList(_modules(model))
    back = way_back(modules.parameters(), modules)
    modes = [(module, module.training) for module in modules.modules()]
    try:
        modules.eval()
        outputs, identity = dataset.through(model, chunk_size, device)
        return _value(outputs, identity, objective, chunk_size if outputs is dataset else OUTPUTS)
    finally:
        for module, training in modes:
            module.training = training
        commit(back)


def _modules(model: Any) -> list[torch.nn.Module]:
    parts = model if isinstance(model, tuple) else (model,)
    return [part for part in parts if isinstance(part, torch.nn.Module)]


def _value(dataset: BlockData[Any], model: Any, objective: Objective, chunk_size: int) -> float:
    form = rows_of(objective)
    sums: RowSums | None = None
    loss = 0.0
    for probe in _probes(dataset, model, objective, chunk_size):
        rows = form.of(probe, torch.promote_types(probe.values.dtype, torch.float32))
        if sums is None:
            sums = RowSums(form, objective.num_blocks, rows.dtype, torch.device("cpu"))
        counts = probe.samples_per_row()
        sums.add(probe.blocks, rows, counts)
        if probe.loss is not None:
            loss += float(probe.loss) * int(counts.sum())
    assert sums is not None
    value = form.outer(sums.means(), torch.arange(objective.num_blocks)).mean()
    return float(value) + loss / int(sums.samples.sum())


def _probes(
    dataset: BlockData[Any], model: Any, objective: Objective, chunk_size: int
) -> Iterator[Probe]:
    """One probe of all blocks, if the objective has a way to it, or those of all chunks."""
    whole = dataset.whole() if same_class(objective, "inner_of_all", "inner") else None
    probe = None if whole is None else objective.inner_of_all(whole)
    if probe is not None:
        yield probe
        return
    for chunk in dataset.chunks(chunk_size):
        yield objective.inner(model, dataset.collate(chunk))


def _check(dataset: BlockData[Any], objective: Objective, chunk_size: int) -> None:
    if whole("chunk_size", chunk_size) < 1:
        raise ValueError(f"chunk_size must be at least 1, got {chunk_size}")
    if objective.num_blocks != dataset.num_blocks:
        raise ValueError(
            f"the objective has {objective.num_blocks} blocks, the data set {dataset.num_blocks}"
        )
