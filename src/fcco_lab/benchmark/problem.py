"""A problem of the benchmark: an objective, a model, its inputs, and how F is evaluated."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from fcco.problem.probe import Probe
from fcco.problem.sampled import SampledObjective

__all__ = [
    "Problem",
    "evaluate",
    "l2_penalty",
    "parameters_of",
    "penalized",
    "probe_all",
    "values_of_blocks",
]

_PAIRS_AT_ONCE = 4_000_000
"""Pairs of a block and a sample that an exact pass holds in memory at a time."""


@dataclass(frozen=True, eq=False)
class Problem:
    """F(w) = (1/m) sum_i f_i(g_i(w)) + (penalty/2) |w|^2, on one data set.

    Args:
        inputs: of all samples, in float64; a pair of tensors for two views.
        objective: builds the objective from the labels; each run has its own.
        model: builds the model with the weights that every run starts from; it is called with
            torch's seed set.
        convex: whether the optimum can be certified; else targets refer to the best value that any
            solver found.
        optimum: F*, if it is known in closed form.
        penalty: the factor of |w|^2 / 2.
        sampling: what a step of fcco's optimizers draws: "blocks" with inner samples of their own,
            or "samples", all of which are blocks and compared with one another. The latter sees
            more pairs, and is right where every block is one sample (or there is one block).
        paired: builds the same objective with ``Probe.pair``, if its slopes are affine, for the
            fresh pair.
        loss: builds a remembering loss, (outputs, index) to a scalar; None: ``ScoreLoss`` or
            ``TableLoss`` of the objective.
        labels: what the objective was built from, for solvers of other libraries.

    Examples:
        >>> from fcco.objectives import PNormPush
        >>> problem = Problem(torch.rand(4, 2), lambda: PNormPush(torch.tensor([1, 0, 0, 1])),
        ...                   lambda: nn.Linear(2, 1), convex=True)
        >>> problem.rows
        4
    """

    inputs: Any
    objective: Callable[[], SampledObjective]
    model: Callable[[], nn.Module]
    convex: bool = False
    optimum: float | None = None
    penalty: float = 0.0
    sampling: Literal["blocks", "samples"] = "blocks"
    paired: Callable[[], SampledObjective] | None = None
    loss: Callable[[], Callable[..., Tensor]] | None = None
    labels: tuple[Tensor, ...] = ()

    @property
    def views(self) -> tuple[Tensor, ...]:
        """The inputs as a tuple of one or two tensors."""
        return self.inputs if isinstance(self.inputs, tuple) else (self.inputs,)

    @property
    def rows(self) -> int:
        """Inputs that one exact pass sends through the model."""
        return sum(len(view) for view in self.views)

    def start(self) -> tuple[nn.Module, SampledObjective]:
        """The model as every run starts from it, and an objective of its own."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = self.model()
        return model, self.objective()


def parameters_of(model: nn.Module, objective: SampledObjective) -> list[Tensor]:
    """The parameters of the model, and those of the objective (a threshold) if it has any."""
    more = objective.parameters() if isinstance(objective, nn.Module) else ()
    return [*model.parameters(), *more]


def values_of_blocks(objective: Any, probe: Probe) -> Tensor:
    """f_i of the probed values themselves, without a table."""
    if probe.log_scale is None:
        values: Tensor = objective.outer(probe.values, probe.blocks)
    else:
        values = objective.scaled_outer(probe.values, probe.log_scale, probe.blocks)
    return values


def l2_penalty(params: Iterable[Tensor], factor: float) -> Tensor | None:
    """(factor/2) |w|^2, or None if the factor is 0."""
    if factor == 0:
        return None
    return 0.5 * factor * sum((p.square().sum() for p in params), start=torch.zeros(()))


def probe_all(objective: SampledObjective, outputs: tuple[Tensor, ...]) -> Probe:
    """Exact inner values of all blocks, from the outputs of all samples.

    ``fcco.data.exact_pass`` sends all partners through the model once per chunk of blocks. Here
    the model is asked once, so that an exact pass costs what the benchmark calls a pass; chunks
    of blocks look their scores up, and are computed again in the backward pass to save memory.
    """
    size = max(1, _PAIRS_AT_ONCE // objective.num_samples)
    spans = list(objective.spans(size))
    if sum(map(len, spans)) != objective.num_blocks:  # spans are samples, blocks would be cut
        spans = list(objective.spans(objective.num_samples))

    def part(span: Tensor, *scores: Tensor) -> Probe:
        batch = objective.chunk(span)
        look_up: Any = tuple(score.__getitem__ for score in scores)
        if len(scores) == 1:
            return objective.inner(look_up[0], batch)
        return objective.inner(look_up, replace(batch, inputs=(batch.inputs,) * len(scores)))

    if len(spans) == 1:
        return part(spans[0], *outputs)
    probes = [checkpoint(part, span, *outputs, use_reentrant=False) for span in spans]
    scales = [probe.log_scale for probe in probes]
    return Probe(
        torch.cat([probe.blocks for probe in probes]),
        torch.cat([probe.values for probe in probes]),
        samples=torch.cat([probe.samples_per_row() for probe in probes]),
        log_scale=None if scales[0] is None else torch.cat(scales),
    )


def evaluate(problem: Problem, model: nn.Module, objective: Any) -> Tensor:
    """F(w) with the penalty, differentiable."""
    outputs = tuple(model(view) for view in problem.views)
    if hasattr(objective, "exact"):
        value: Tensor = objective.exact(*outputs)
    else:
        value = values_of_blocks(objective, probe_all(objective, outputs)).mean()
    penalty = l2_penalty(model.parameters(), problem.penalty)
    return value if penalty is None else value + penalty


def penalized(probe: Probe, model: nn.Module, factor: float) -> Probe:
    """The probe with the penalty as its ordinary loss."""
    penalty = l2_penalty(model.parameters(), factor)
    return probe if penalty is None else replace(probe, loss=penalty)
