"""One run of a solver on a problem: what the solver may use, and the record it leaves."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from fcco.data import BlockSampler, block_loader
from fcco.losses import ScoreLoss, TableLoss
from fcco.objectives import ScoreObjective
from fcco.problem.batches import Batch
from fcco.problem.probe import Closure
from fcco.problem.sampled import SampledObjective
from fcco_lab.benchmark.meter import Diverged, Meter
from fcco_lab.benchmark.problem import (
    Problem,
    evaluate,
    l2_penalty,
    parameters_of,
    penalized,
    probe_all,
    values_of_blocks,
)
from fcco_lab.benchmark.solver import Solver

__all__ = ["Task", "run_solver", "sizes_of_step"]

_ENDLESS = 2**40


class Task:
    """What a solver gets: a model to change, batches until the budget is spent, and losses of them.

    Args:
        problem: the problem.
        known: what is known of it, see ``fcco_lab.benchmark.optimum.know``.
        batch: inputs that an ordinary step sends through the model.
        seed: of the batches.
        passes: the budget in full gradients.
        seconds: the budget in seconds of CPU time.
        paired: whether the objective must report pairs.
    """

    def __init__(
        self,
        problem: Problem,
        known: Mapping[str, Any],
        *,
        batch: int,
        seed: int = 0,
        passes: float = 30.0,
        seconds: float = 60.0,
        paired: bool = False,
    ) -> None:
        self.problem, self.batch, self.seed = problem, batch, seed
        self.lr_unit = 1 / known["curvature"]
        """A step size: the inverse of the largest curvature of F at the start."""
        self.model, self.objective = problem.start()
        self._paired = paired
        if paired:
            assert problem.paired is not None
            self.objective = problem.paired()
        self.params = parameters_of(self.model, self.objective)
        """What is learned: the weights of the model, and of the objective if it has any."""
        self._generator = torch.Generator().manual_seed(seed)

        def gap() -> float:
            value = float(self.full_loss())
            return float((value - known["best"]) / (known["first"] - known["best"]))

        self.meter = Meter(
            self.model,
            self.params,
            problem.rows,
            gap,
            known=known["known"],
            passes=passes,
            seconds=seconds,
        )

    def goes_on(self) -> bool:
        """Whether there is work left; to be asked between two steps."""
        return self.meter.goes_on()

    @property
    def passes(self) -> float:
        """Work so far, in full gradients."""
        return self.meter.passes

    def decayed(self, lr: float, decay: float) -> float:
        """lr / (1 + passes / decay), the schedule of all solvers that step; it needs no horizon."""
        return lr / (1 + self.passes / decay)

    # Batches of blocks, for fcco's optimizers -----------------------------------------------------

    def batches(self, factor: int = 1) -> Iterator[Batch]:
        """Batches for ``objective.inner``, until the budget is spent; see ``Problem.sampling``."""
        if self.problem.sampling == "samples" and not self._paired:
            for index in self.samples(factor):
                yield self.objective.batch(self.inputs(index), index)
            return
        blocks, samples = sizes_of_step(self.objective, factor * self.batch, paired=self._paired)
        loader = block_loader(
            self.problem.inputs,
            self.objective,
            blocks_per_step=blocks,
            samples_per_block=samples,
            num_steps=_ENDLESS,
            seed=self.seed,
        )
        for batch in loader:
            if not self.goes_on():
                return
            yield batch

    def closure(self, batch: Batch) -> Closure:
        """The closure of a step."""
        return lambda: penalized(
            self.objective.inner(self.model, batch), self.model, self.problem.penalty
        )

    def exact(self) -> Closure:
        """The closure of an exact pass, for ``opt.snapshot``; it costs one pass."""
        return lambda: penalized(
            probe_all(self.objective, tuple(map(self.model, self.problem.views))),
            self.model,
            self.problem.penalty,
        )

    # Batches of samples, for losses and torch's optimizers ----------------------------------------

    def samples(self, factor: int = 1) -> Iterator[Tensor]:
        """Positions of ``factor * batch`` samples in shuffled epochs, until the budget is spent.

        As a ``DataLoader`` does with ``drop_last``, an epoch leaves out what fills no batch.
        """
        number = self.objective.num_samples
        count = min(factor * self.batch, number)
        while True:
            order = torch.randperm(number, generator=self._generator)
            for index in order[: number - number % count].split(count):
                if not self.goes_on():
                    return
                yield index

    def inputs(self, index: Tensor) -> Any:
        """The inputs of some samples."""
        views = tuple(view[index] for view in self.problem.views)
        return views if len(views) > 1 else views[0]

    def loss_of_batch(self, index: Tensor) -> Tensor:
        """The objective of some samples alone, compared with one another, and the penalty."""
        batch = self.objective.batch(self.inputs(index), index)
        if not len(batch):  # no block among them; a user's loop sends them through the model too
            for view in self.problem.views:
                self.model(view[index])
            return self.with_penalty(torch.zeros(()))
        probe = self.objective.inner(self.model, batch)
        return self.with_penalty(values_of_blocks(self.objective, probe).mean())

    def remembering_loss(self, index: Tensor) -> Tensor:
        """The loss of some samples by a loss of fcco that remembers the others, and the penalty."""
        if isinstance(self._criterion, TableLoss):
            batch = self.objective.batch(self.inputs(index), index)
            if not len(batch):
                return self.loss_of_batch(index)
            return self.with_penalty(self._criterion(self.objective.inner(self.model, batch)))
        outputs = tuple(self.model(view[index]) for view in self.problem.views)
        return self.with_penalty(self._criterion(*outputs, index))

    @cached_property
    def _criterion(self) -> Any:
        if self.problem.loss is not None:
            return self.problem.loss()
        if isinstance(self.objective, ScoreObjective):
            return ScoreLoss(self.objective)
        return TableLoss(self.objective)

    def full_loss(self) -> Tensor:
        """F of all samples, for full-batch methods; it costs one pass with its gradient."""
        return evaluate(self.problem, self.model, self.objective)

    def with_penalty(self, value: Tensor) -> Tensor:
        """A loss and the penalty of the problem."""
        penalty = l2_penalty(self.model.parameters(), self.problem.penalty)
        return value if penalty is None else value + penalty


def sizes_of_step(
    objective: SampledObjective, batch: int, *, paired: bool = False
) -> tuple[int, int]:
    """Blocks and samples per block of a step that sends at most ``batch`` inputs, if possible.

    Half of the inputs are blocks, or as many as there are; the samples fill the rest. Pairs need
    more samples, in multiples of 4: two halves of two classes.

    Examples:
        >>> from fcco.objectives import Cox, GroupDRO
        >>> sizes_of_step(Cox(torch.rand(50), torch.ones(50)), 16)
        (8, 8)
        >>> sizes_of_step(GroupDRO(torch.arange(50) % 4, temperature=1.0), 16)
        (4, 4)
    """
    least = 4 if paired else 1
    blocks = max(1, min(objective.num_blocks, batch // max(2, least)))
    for samples in range(batch - batch % least, least, -least):
        try:
            sampler = BlockSampler(
                objective, blocks_per_step=blocks, samples_per_block=samples, num_steps=1
            )
            if len(sampler.at(1).inputs) <= batch:
                return blocks, samples
        except ValueError:  # the objective needs another number, such as an even one
            continue
    return blocks, least


def run_solver(solver: Solver, task: Task, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Run to the end of the budget; returns what is recorded of it.

    An error of the solver is recorded too, so that the other runs go on; it is tried again when the
    benchmark is resumed.
    """
    found: dict[str, Any] = {}
    meter = task.meter
    try:
        solver.run(task, **settings)
        meter.finish()
    except (Diverged, FloatingPointError, OverflowError):
        meter.status = "diverged"
    except Exception as error:
        meter.status = "error"
        found["error"] = f"{type(error).__name__}: {error}"[:300]
    return {
        "status": meter.status,
        "passes": float(f"{meter.passes:.4g}"),
        "seconds": float(f"{meter.seconds:.3g}"),
        "gaps": [float(f"{gap:.4g}") for gap in meter.gaps],
        **found,
    }
