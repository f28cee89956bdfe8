"""Exact passes over the training set: closures for ``snapshot``, and the value to monitor."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fcco.data.inputs import read_inputs, take
from fcco.data.loader import filled
from fcco.distributed import Ranks
from fcco.kernel.exact import RowSums
from fcco.kernel.interrupts import SavedState
from fcco.kernel.rows import Rows
from fcco.problem.batches import each
from fcco.problem.given import whole
from fcco.problem.probe import Closure, Probe
from fcco.problem.sampled import SampledObjective

__all__ = ["exact_pass", "exact_value"]

Device = torch.device | str | None


def exact_pass(
    model: Any,
    inputs: Any,
    objective: SampledObjective,
    *,
    chunk_size: int = 1024,
    device: Device = None,
    rank: int | None = None,
    world_size: int | None = None,
) -> list[Closure]:
    """Return the closures of one exact pass, for ``opt.snapshot``.

    Each closure forms its batch when it is called. With several ranks, these are the closures of
    this rank, and all ranks have the same number. If blocks are anchors, every closure passes all
    partners through the model, so a pass costs one sweep over the data per chunk.

    Args:
        model: the model, as ``objective.inner`` takes it.
        inputs: the inputs of the samples that the objective was built from, as for
            ``block_loader``.
        objective: the problem.
        chunk_size: the number of samples per closure, or of blocks if they have many partners.
        device: the device of the model, if the inputs are on another one.
        rank: the rank of this process, by default from ``torch.distributed``, or 0.
        world_size: the number of processes, by default from ``torch.distributed``, or 1.

    Examples:
        >>> from fcco.objectives import MultiTaskAUC
        >>> objective = MultiTaskAUC(torch.tensor([0, 1, 2, 0, 1, 2]))
        >>> closures = exact_pass(torch.nn.Linear(2, 3), torch.rand(6, 2), objective, chunk_size=4)
        >>> [closure().samples for closure in closures]
        [4, 2]
    """
    inputs = read_inputs(inputs, objective)
    _check(chunk_size)

    def call(span: Tensor) -> Probe:
        batch = filled(objective.chunk(span), inputs)
        return objective.inner(model, batch if device is None else batch.to(device))

    here = Ranks()
    size = here.size if world_size is None else world_size
    # In an exact pass all ranks reduce together, so each needs equally many closures.
    spans = _even(objective.spans(chunk_size), size)
    return [partial(call, span) for span in spans[here.rank if rank is None else rank :: size]]


def _even(spans: Sequence[Tensor], size: int) -> list[Tensor]:
    """Make the number of spans a multiple of ``size``, by cutting some in two or joining some."""
    even = list(spans)
    while len(even) % size:
        longest = max(range(len(even)), key=lambda k: len(even[k]))
        if len(even[longest]) > 1:
            even[longest : longest + 1] = even[longest].tensor_split(2)
            continue
        if len(even) < size:
            raise ValueError(f"too little data to share an exact pass among {size} ranks")
        extra = len(even) % size
        joined = [torch.cat(even[2 * k : 2 * k + 2]) for k in range(extra)]
        even = joined + even[2 * extra :]
    return even


@torch.no_grad()
def exact_value(
    model: Any,
    inputs: Any,
    objective: SampledObjective,
    *,
    chunk_size: int = 1024,
    device: Device = None,
) -> float:
    """Return F(w), the value to monitor. The arguments are those of ``exact_pass``.

    For other data than the training data, pass ``objective.on(...)`` with their labels.

    Each input passes through the model once, in eval mode. Then modes, buffers and the RNG are
    restored. If the model is a function and not a module, set its modules to eval mode yourself.
    The value is ``objective.exact`` of the outputs, if the objective has this method. Otherwise
    the means over all samples of every block are computed chunk by chunk.

    Examples:
        >>> from fcco.objectives import MultiTaskAUC
        >>> objective = MultiTaskAUC(torch.tensor([0, 1, 0, 1]))
        >>> exact_value(lambda x: torch.zeros(len(x), 2), torch.zeros(4, 1), objective)
        0.5
    """
    inputs = read_inputs(inputs, objective)
    _check(chunk_size)
    parts = model if isinstance(model, tuple) else (model,)
    modules = torch.nn.ModuleList([part for part in parts if isinstance(part, torch.nn.Module)])
    # Evaluation must not change the random numbers or buffers of the training run.
    saved = SavedState(modules.parameters(), modules)
    modes = [(module, module.training) for module in modules.modules()]
    try:
        modules.eval()
        # ``exact`` needs each input only once, while anchors would need all partners per chunk.
        if not hasattr(objective, "exact"):
            return _value(model, inputs, objective, chunk_size, device)
        views = inputs if objective.num_views == 2 else (inputs,)
        encoders = model if isinstance(model, tuple) else (model,) * len(views)
        outputs = [
            _outputs(encoder, view, chunk_size, device)
            for encoder, view in zip(encoders, views, strict=True)
        ]
        return float(objective.exact(*outputs))
    finally:
        for module, training in modes:
            module.training = training
        saved.restore()


def _outputs(model: Any, source: Any, size: int, device: Device) -> Tensor:
    """Return the outputs of ``model`` for all samples of ``source``, computed in chunks."""

    def call(rows: Tensor) -> Tensor:
        outputs: Tensor = model(each(take(source, rows), lambda part: part.to(device)))
        return outputs

    return torch.cat([call(rows) for rows in torch.arange(len(source)).split(size)])


def _value(
    model: Any, inputs: Any, objective: SampledObjective, chunk_size: int, device: Device
) -> float:
    form = Rows(objective)
    sums: RowSums | None = None
    loss = 0.0
    for span in objective.spans(chunk_size):
        batch = filled(objective.chunk(span), inputs)
        probe = objective.inner(model, batch if device is None else batch.to(device))
        rows = form.read(probe, torch.promote_types(probe.values.dtype, torch.float32))
        if sums is None:
            sums = RowSums(form, objective.num_blocks, rows.dtype, torch.device("cpu"))
        counts = probe.samples_per_row()
        sums.add(probe.blocks, rows, counts)
        if probe.loss is not None:
            # The mean loss of a chunk counts by the number of its samples.
            loss += float(probe.loss) * int(counts.sum())
    assert sums is not None
    value = form.outer(sums.means(), torch.arange(objective.num_blocks)).mean()
    return float(value) + loss / int(sums.samples.sum())


def _check(chunk_size: int) -> None:
    if whole("chunk_size", chunk_size) < 1:
        raise ValueError(f"chunk_size must be at least 1, got {chunk_size}")
