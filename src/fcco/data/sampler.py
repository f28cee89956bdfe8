"""Which blocks and samples a step looks at: reproducible, resumable anywhere, on any rank."""

from collections.abc import Iterator
from typing import Any

import torch

from fcco.batch import Batch
from fcco.data.blocks import BlockData
from fcco.data.draws import distinct

__all__ = ["BlockSampler"]


class BlockSampler:
    """B1 distinct blocks a step, uniformly, and inner samples for each.

    Step t draws from a generator seeded by (seed, t), so the stream depends on nothing else, the
    position is one number, and loaders may run ahead of it. With several ranks, all draw the same
    B1 blocks and each takes every world_size-th: together they see what one process would.

    Args:
        dataset: the samples and their blocks.
        blocks_per_step: B1, of all ranks together.
        samples_per_block: inner samples for each block.
        num_steps: batches in all.
        seed: of the stream.
        replacement: whether a sample may come twice for a block.
        rank: of this process; None: ``torch.distributed``'s if it is set up, else 0.
        world_size: likewise.

    Examples:
        >>> from fcco.data import TaskData
        >>> data = TaskData.from_classes(torch.zeros(6, 2), torch.tensor([0, 1, 2, 0, 1, 2]))
        >>> sampler = BlockSampler(data, blocks_per_step=2, samples_per_block=4, num_steps=5)
        >>> next(iter(sampler)).inputs.shape  # positions in the data set
        torch.Size([8])
    """

    def __init__(
        self,
        dataset: BlockData[Any],
        *,
        blocks_per_step: int,
        samples_per_block: int,
        num_steps: int,
        seed: int = 0,
        replacement: bool = True,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        if not 1 <= blocks_per_step <= dataset.num_blocks:
            raise ValueError(
                f"blocks_per_step must lie in 1..{dataset.num_blocks}, got {blocks_per_step}"
            )
        dataset.check(samples_per_block, replacement=replacement)
        if num_steps < 0:
            raise ValueError(f"num_steps must not be negative, got {num_steps}")
        here, size = _place()
        self.rank = here if rank is None else rank
        self.world_size = size if world_size is None else world_size
        if not 0 <= self.rank < self.world_size:
            raise ValueError(f"rank must lie in 0..{self.world_size - 1}, got {self.rank}")
        if blocks_per_step % self.world_size:
            raise ValueError(
                f"blocks_per_step={blocks_per_step} is not a multiple of the {self.world_size} "
                "ranks"
            )
        self.dataset = dataset
        self.blocks_per_step = blocks_per_step
        self.samples_per_block = samples_per_block
        self.num_steps = num_steps
        self.seed = seed
        self.replacement = replacement
        self.step = 0
        """Batches handed out so far."""

    def __len__(self) -> int:
        return self.num_steps

    def __iter__(self) -> Iterator[Batch]:
        while self.step < self.num_steps:
            self.step += 1
            yield self.at(self.step)

    def at(self, step: int) -> Batch:
        """The batch of one step, counted from 1, as positions in the data set."""
        generator = torch.Generator().manual_seed(_mixed(self.seed, step))
        blocks = distinct(self.dataset.num_blocks, self.blocks_per_step, generator)
        size = self.blocks_per_step, self.samples_per_block
        spread = torch.rand(size, generator=generator, dtype=torch.float64)
        shared = torch.rand(size[1], generator=generator, dtype=torch.float64)
        mine = slice(self.rank, None, self.world_size)
        batch: Batch = self.dataset.draw(
            blocks[mine], spread[mine], shared, replacement=self.replacement
        )
        return batch

    def state_dict(self) -> dict[str, Any]:
        """Where the stream stands."""
        return {"step": self.step, "seed": self.seed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.step, self.seed = state["step"], state["seed"]


def _place() -> tuple[int, int]:
    group = torch.distributed
    if group.is_available() and group.is_initialized():
        return group.get_rank(), group.get_world_size()
    return 0, 1


def _mixed(seed: int, step: int) -> int:
    """One number of two; neighbouring seeds and steps have nothing in common (splitmix64)."""
    x = (seed * 0x9E3779B97F4A7C15 + step * 0xD1B54A32D192ED03 + 1) % 2**64
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> shift)) * factor % 2**64
    return (x ^ (x >> 31)) % 2**63
