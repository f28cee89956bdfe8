"""The choice of blocks and samples for each step, reproducible on any number of ranks."""

import math
from collections.abc import Iterator
from typing import Any

import torch

from fcco.distributed import Ranks, Share
from fcco.problem.batches import Batch
from fcco.problem.draws import distinct
from fcco.problem.given import whole
from fcco.problem.sampled import SampledObjective

__all__ = ["BlockSampler"]


class BlockSampler:
    """A sampler that draws B1 distinct blocks per step uniformly, with their inner samples.

    Step t uses a generator seeded by (seed, t). So the stream depends on nothing else, the position
    is one number, and loaders may read ahead.

    ``shares`` divides the blocks into equal parts, and each part contributes equally to B1. A rank
    draws only from its own parts. Any number of ranks that divides ``shares``, including one, gets
    the same stream.

    Args:
        objective: the problem, which knows the samples of every block.
        blocks_per_step: B1, the number of blocks per step of all ranks together.
        samples_per_block: the number of inner samples per block.
        num_steps: the number of batches per epoch, which is one iteration.
        seed: the seed of the stream.
        replacement: whether a sample may occur twice for a block.
        shares: the number of parts. It is raised to a multiple of the number of ranks, and if it
            is larger than that number, it must divide m.
        rank: the rank of this process, by default from ``torch.distributed``, or 0.
        world_size: the number of processes, by default from ``torch.distributed``, or 1.

    Examples:
        >>> from fcco.objectives import MultiTaskAUC
        >>> objective = MultiTaskAUC(torch.tensor([0, 1, 2, 0, 1, 2]))
        >>> sampler = BlockSampler(objective, blocks_per_step=2, samples_per_block=4, num_steps=5)
        >>> next(iter(sampler)).inputs.shape  # positions in the data set
        torch.Size([8])
    """

    def __init__(
        self,
        objective: SampledObjective,
        *,
        blocks_per_step: int,
        samples_per_block: int,
        num_steps: int,
        seed: int = 0,
        replacement: bool = True,
        shares: int = 1,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        blocks_per_step = whole("blocks_per_step", blocks_per_step)
        samples_per_block = whole("samples_per_block", samples_per_block)
        num_steps, shares = whole("num_steps", num_steps), whole("shares", shares)
        if not 1 <= blocks_per_step <= objective.num_blocks:
            raise ValueError(
                f"blocks_per_step must lie in 1..{objective.num_blocks}, got {blocks_per_step}"
            )
        objective.check_draw(samples_per_block, replacement=replacement)
        if num_steps < 0:
            raise ValueError(f"num_steps must not be negative, got {num_steps}")
        if shares < 1:
            raise ValueError(f"shares must be at least 1, got {shares}")
        here = Ranks()
        self.rank = here.rank if rank is None else whole("rank", rank)
        self.world_size = here.size if world_size is None else whole("world_size", world_size)
        if not 0 <= self.rank < self.world_size:
            raise ValueError(f"rank must lie in 0..{self.world_size - 1}, got {self.rank}")
        self.shares = self._cut(objective.num_blocks, blocks_per_step, shares)
        """The parts of the blocks that this rank draws from."""
        self.objective = objective
        self.blocks_per_step = blocks_per_step
        self.samples_per_block = samples_per_block
        self.num_steps = num_steps
        self.seed = whole("seed", seed)
        self.replacement = replacement
        self.step = 0
        """Number of batches returned so far, in all epochs."""

    def _cut(self, num_blocks: int, blocks_per_step: int, shares: int) -> list[Share]:
        """Return the parts of the blocks that this rank owns."""
        size = math.lcm(shares, self.world_size)
        if blocks_per_step % size:
            raise ValueError(
                f"blocks_per_step={blocks_per_step} is not a multiple of the {size} shares "
                f"({self.world_size} ranks)"
            )
        if size != self.world_size and num_blocks % size:
            # Equally many draws from unequal parts favour the blocks of the smaller part. The
            # optimizer corrects this between ranks, but not between parts of one rank.
            raise ValueError(f"{num_blocks} blocks cannot be divided into {size} equal shares")
        each = size // self.world_size
        mine = [Share(num_blocks, self.rank * each + k, size) for k in range(each)]
        if mine[0].min_count < blocks_per_step // size:
            raise ValueError(
                f"the smallest of {size} shares has {mine[0].min_count} blocks, fewer than the "
                f"{blocks_per_step // size} that it has to give per step"
            )
        return mine

    def __len__(self) -> int:
        return self.num_steps

    @property
    def end(self) -> int:
        """The last step of the epoch that the next batch belongs to."""
        return (self.step // self.num_steps + 1) * self.num_steps if self.num_steps else 0

    def __iter__(self) -> Iterator[Batch]:
        end = self.end
        while self.step < end:
            # A batch that could not be formed is not counted, so the next iteration repeats it.
            batch = self.at(self.step + 1)
            self.step += 1
            yield batch

    def at(self, step: int) -> Batch:
        """Return the batch of one step, counted from 1, with positions in place of samples."""
        count = self.blocks_per_step // self.shares[0].size
        common = torch.Generator().manual_seed(_mixed(self.seed, step))
        blocks, uniform = [], []
        for share in self.shares:
            # Each part has its own generator, so that a rank need not draw for the others. The
            # samples that all blocks share come from the common one.
            own = common
            if share.size > 1:
                own = torch.Generator().manual_seed(_mixed(_mixed(self.seed, step), share.rank))
            blocks.append(distinct(share.count, count, own) + share.start)
            size = count, self.samples_per_block
            uniform.append(torch.rand(size, generator=own, dtype=torch.float64))
        shared = torch.rand(self.samples_per_block, generator=common, dtype=torch.float64)
        return self.objective.draw(
            torch.cat(blocks), torch.cat(uniform), shared, replacement=self.replacement
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the stream."""
        return {"step": self.step, "seed": self.seed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved position."""
        if not {"step", "seed"} <= state.keys():
            raise ValueError(f"the state of a sampler has a step and a seed, got {list(state)}")
        step, seed = whole("step", state["step"]), whole("seed", state["seed"])
        if step < 0:
            raise ValueError(f"step must be at least 0, got {step}")
        self.step, self.seed = step, seed


def _mixed(seed: int, step: int) -> int:
    """Hash two numbers into one; neighbouring seeds and steps become unrelated (splitmix64)."""
    x = (seed * 0x9E3779B97F4A7C15 + step * 0xD1B54A32D192ED03 + 1) % 2**64
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> shift)) * factor % 2**64
    return (x ^ (x >> 31)) % 2**63
