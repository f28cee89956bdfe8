"""The stream of batches: B1 distinct blocks a step, fresh each time, resumable anywhere."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from fcco.batch import TaskBatch
from fcco.data.tasks import TaskData
from fcco.objective import Objective

__all__ = ["BlockLoader", "block_loader", "distinct"]


class BlockLoader:
    """Iterates over ``num_steps`` batches; an interrupted iteration goes on where it stopped.

    It draws from a generator of its own, so neither the model nor anything else changes its
    stream; ``state_dict`` holds the generator and the position. See ``block_loader``.
    """

    def __init__(
        self,
        dataset: TaskData,
        *,
        blocks_per_step: int,
        samples_per_block: int,
        num_steps: int,
        seed: int = 0,
    ) -> None:
        if not 1 <= blocks_per_step <= dataset.num_blocks:
            raise ValueError(
                f"blocks_per_step must lie in 1..{dataset.num_blocks}, got {blocks_per_step}"
            )
        if samples_per_block < 2:
            raise ValueError(
                f"samples_per_block must be at least 2 (a positive and a negative), got "
                f"{samples_per_block}"
            )
        if num_steps < 0:
            raise ValueError(f"num_steps must not be negative, got {num_steps}")
        self.dataset = dataset
        self.blocks_per_step = blocks_per_step
        self.samples_per_block = samples_per_block
        self.num_steps = num_steps
        self._generator = torch.Generator().manual_seed(seed)
        self._step = 0

    def __len__(self) -> int:
        return self.num_steps

    def __iter__(self) -> Iterator[TaskBatch]:
        while self._step < self.num_steps:
            self._step += 1
            blocks = distinct(self.dataset.num_blocks, self.blocks_per_step, self._generator)
            yield self.dataset.draw(blocks, self.samples_per_block, self._generator)

    def state_dict(self) -> dict[str, Any]:
        """Where the stream stands."""
        return {"step": self._step, "generator": self._generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self._step = state["step"]
        self._generator.set_state(state["generator"])


def distinct(num_blocks: int, count: int, generator: torch.Generator) -> Tensor:
    """``count`` distinct ids below ``num_blocks``, uniformly, in O(count) when that is few.

    Examples:
        >>> ids = distinct(10**9, 5, torch.Generator().manual_seed(0))
        >>> len(ids.unique())
        5
    """
    if 4 * count > num_blocks:
        return torch.randperm(num_blocks, generator=generator)[:count]
    # The first distinct ids of an endless stream of uniform draws; a repetition is rare here.
    ids: dict[int, None] = {}
    while len(ids) < count:
        ids.update(dict.fromkeys(torch.randint(num_blocks, (count,), generator=generator).tolist()))
    return torch.tensor(list(ids)[:count])


def block_loader(
    dataset: TaskData,
    objective: Objective,
    *,
    blocks_per_step: int,
    samples_per_block: int,
    num_steps: int,
    seed: int = 0,
) -> BlockLoader:
    """Batches for ``objective.inner``: distinct blocks, half positives and half negatives each.

    Args:
        dataset: the samples and their tasks.
        objective: the problem; its blocks must be the data set's.
        blocks_per_step: B1.
        samples_per_block: inner samples for each block.
        num_steps: batches in all.
        seed: of the loader's own generator.

    Examples:
        >>> from fcco.objectives import MultiTaskAUC
        >>> data = TaskData.from_classes(torch.zeros(6, 2), torch.tensor([0, 1, 2, 0, 1, 2]))
        >>> loader = block_loader(data, MultiTaskAUC(3), blocks_per_step=2, samples_per_block=4,
        ...                       num_steps=5)
        >>> [batch.inputs.shape[0] for batch in loader]
        [8, 8, 8, 8, 8]
    """
    if objective.num_blocks != dataset.num_blocks:
        raise ValueError(
            f"the objective has {objective.num_blocks} blocks, the data set {dataset.num_blocks}"
        )
    return BlockLoader(
        dataset,
        blocks_per_step=blocks_per_step,
        samples_per_block=samples_per_block,
        num_steps=num_steps,
        seed=seed,
    )
