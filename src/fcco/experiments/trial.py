"""One training run under a budget of oracle work, with the exact objective along the way."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn

from fcco.data import TaskData, block_loader, exact_pass, exact_value
from fcco.experiments.contender import Contender
from fcco.objectives import MultiTaskAUC
from fcco.queries import Queries

__all__ = ["Sizes", "Trial", "one_vs_rest", "run_contender", "run_cross_entropy"]

Report = Callable[[int, float], None]
"""Told the work done so far and the objective, some hundred times a run."""


@dataclass(frozen=True)
class Sizes:
    """What a step looks at, and how much work there is."""

    work: int
    blocks_per_step: int = 5
    samples_per_block: int = 128
    chunk_size: int = 512
    points: int = 40


@dataclass
class Trial:
    """What a run left behind; ``seconds`` is training alone, without the monitoring."""

    name: str
    queries: Queries
    seconds: float
    curve: list[tuple[int, float]] = field(default_factory=list)


class _Monitor:
    """Evaluates the exact objective at evenly spaced amounts of work, outside the clock."""

    def __init__(
        self,
        model: Callable[[Tensor], Tensor],
        data: TaskData,
        objective: MultiTaskAUC,
        sizes: Sizes,
        report: Report,
    ) -> None:
        self.model, self.data, self.objective = model, data, objective
        self.sizes, self.report = sizes, report
        self.curve: list[tuple[int, float]] = []
        self.seconds = 0.0
        self.look(0)
        self.started = time.perf_counter()

    def look(self, work: int) -> None:
        value = exact_value(self.model, self.data, self.objective)
        self.curve.append((work, value))
        self.report(work, value)

    def after_step(self, work: int) -> bool:
        """Returns whether work is left."""
        done = work >= self.sizes.work
        if done or work >= len(self.curve) * self.sizes.work / self.sizes.points:
            self.seconds += time.perf_counter() - self.started
            self.look(work)
            self.started = time.perf_counter()
        return not done


def run_contender(
    contender: Contender,
    model: nn.Module,
    data: TaskData,
    sizes: Sizes,
    *,
    seed: int,
    report: Report = lambda work, value: None,
) -> Trial:
    """Train ``model`` until the work is used up; snapshots are paid for like everything else."""
    objective = MultiTaskAUC(num_tasks=data.num_blocks)
    opt = contender.build(model, objective)
    loader = block_loader(
        data,
        objective,
        blocks_per_step=sizes.blocks_per_step,
        samples_per_block=sizes.samples_per_block,
        num_steps=sizes.work,  # never reached: a step costs more than one unit
        seed=seed,
    )
    monitor = _Monitor(model, data, objective, sizes, report)
    for batch in loader:
        if opt.snapshot_due:
            opt.snapshot(exact_pass(model, data, objective, chunk_size=sizes.chunk_size))
        opt.step(partial(objective.inner, model, batch))
        if not monitor.after_step(opt.queries.work):
            break
    return Trial(contender.name, opt.queries, monitor.seconds, monitor.curve)


def one_vs_rest(model: nn.Module) -> Callable[[Tensor], Tensor]:
    """Scores of a softmax model as log-odds of each class against the rest.

    Their sigmoid is the softmax probability, which is how its user would rank.

    Examples:
        >>> scores = one_vs_rest(nn.Identity())(torch.tensor([[1.0, 2.0, 3.0]]))
        >>> bool(torch.allclose(scores.sigmoid(), torch.tensor([[1.0, 2.0, 3.0]]).softmax(1)))
        True
    """

    def scores(inputs: Tensor) -> Tensor:
        logits: Tensor = model(inputs)
        own = torch.eye(logits.shape[1], dtype=torch.bool, device=logits.device)
        rest = logits.unsqueeze(1).masked_fill(own, -torch.inf).logsumexp(2)
        return logits - rest

    return scores


def run_cross_entropy(
    model: nn.Module,
    data: TaskData,
    sizes: Sizes,
    *,
    lr: float,
    seed: int,
    report: Report = lambda work, value: None,
) -> Trial:
    """What a user would do instead: softmax cross-entropy and Adam, batches of the same size.

    A sample passed forward and backward counts as one value and one gradient.
    """
    generator = torch.Generator().manual_seed(seed)
    opt = torch.optim.Adam(model.parameters(), lr=lr)
    loss = nn.CrossEntropyLoss()
    classes = data.labels.long().argmax(1)
    batch_size = sizes.blocks_per_step * sizes.samples_per_block
    objective = MultiTaskAUC(num_tasks=data.num_blocks)
    monitor = _Monitor(one_vs_rest(model), data, objective, sizes, report)
    seen = 0
    while True:
        rows = torch.randint(len(data), (batch_size,), generator=generator)
        opt.zero_grad()
        loss(model(data.inputs[rows]), classes[rows]).backward()
        opt.step()
        seen += batch_size
        if not monitor.after_step(Queries(seen, seen).work):
            return Trial("cross-entropy adam", Queries(seen, seen), monitor.seconds, monitor.curve)
