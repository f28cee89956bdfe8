"""The stream of training batches, loaded in this process or by worker processes."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from fcco.data.inputs import read_inputs, take
from fcco.data.sampler import BlockSampler
from fcco.problem.batches import Batch
from fcco.problem.given import whole
from fcco.problem.sampled import SampledObjective

__all__ = ["BlockLoader", "block_loader", "filled"]


class BlockLoader:
    """An iterable over the batches of a sampler, with ``num_steps`` batches per epoch.

    An interrupted iteration continues where it stopped. After the end of an epoch, the next
    iteration begins a new epoch with new draws. ``state_dict`` holds the position of the last
    returned batch, even if workers have read ahead. Use ``block_loader`` to make one.
    """

    def __init__(
        self,
        inputs: Any,
        sampler: BlockSampler,
        *,
        num_workers: int = 0,
        pin_memory: bool = False,
    ) -> None:
        if whole("num_workers", num_workers) < 0:
            raise ValueError(f"num_workers must not be negative, got {num_workers}")
        self.inputs = inputs
        self.sampler = sampler
        self.num_workers = num_workers
        self.pin_memory = pin_memory

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[Any]:
        if self.num_workers == 0 and not self.pin_memory:
            end = self.sampler.end
            while self.sampler.step < end:
                # A batch that could not be read is not counted, so the next iteration repeats it.
                batch = filled(self.sampler.at(self.sampler.step + 1), self.inputs)
                self.sampler.step += 1
                yield batch
            return
        loader: Iterable[Batch] = DataLoader(
            _Filling(self.inputs),
            batch_size=None,
            sampler=_Ahead(self.sampler),
            num_workers=self.num_workers,
            pin_memory=self.pin_memory,
        )
        # DataLoader draws the seed of its workers from the global RNG, which the model uses too.
        with torch.random.fork_rng(devices=[]):
            batches = iter(loader)
        for batch in batches:
            # The position advances when a batch is returned, not when a worker reads it.
            self.sampler.step += 1
            yield batch

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the stream."""
        return self.sampler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved position."""
        self.sampler.load_state_dict(state)


def filled(batch: Batch, inputs: Any) -> Batch:
    """Return the batch with samples of ``inputs`` in place of their positions."""
    return batch.filled(take(inputs, batch.inputs))


class _Filling(Dataset[Batch]):
    """A data set that reads the samples of a batch of positions, in a worker process."""

    def __init__(self, inputs: Any) -> None:
        self.inputs = inputs

    def __getitem__(self, batch: Batch) -> Batch:
        return filled(batch, self.inputs)


class _Ahead:
    """An iterable over the next batches of the sampler that does not change its position."""

    def __init__(self, sampler: BlockSampler) -> None:
        self.sampler = sampler

    def __len__(self) -> int:
        return self.sampler.end - self.sampler.step

    def __iter__(self) -> Iterator[Batch]:
        return map(self.sampler.at, range(self.sampler.step + 1, self.sampler.end + 1))


def block_loader(
    inputs: Any,
    objective: SampledObjective,
    *,
    blocks_per_step: int,
    samples_per_block: int,
    num_steps: int,
    seed: int = 0,
    replacement: bool = True,
    num_workers: int = 0,
    pin_memory: bool = False,
    shares: int = 1,
    rank: int | None = None,
    world_size: int | None = None,
) -> BlockLoader:
    """Return a loader of batches for ``objective.inner``, with distinct blocks and inner samples.

    Args:
        inputs: the inputs of the samples that the objective was built from, in their order. They
            are a tensor, an array, a data set (see ``Inputs`` for tuples and dicts), or a pair of
            these for two views.
        objective: the problem, built from labels; it knows the samples of every block.
        blocks_per_step: B1, the number of blocks per step of all ranks together.
        samples_per_block: the number of inner samples per block.
        num_steps: the number of batches per epoch, which is one iteration over the loader.
        seed: the seed of the stream, which depends on nothing else.
        replacement: whether a sample may occur twice for a block.
        num_workers: the number of processes that read ahead, for samples that are slow to read.
        pin_memory: whether to use pinned memory, for faster copies to a GPU.
        shares: the number of parts into which the blocks are divided. Any number of ranks that
            divides it gets the same stream, see ``BlockSampler``.
        rank: the rank of this process, by default from ``torch.distributed``, or 0.
        world_size: the number of processes, by default from ``torch.distributed``, or 1.

    Examples:
        >>> from fcco.objectives import MultiTaskAUC
        >>> objective = MultiTaskAUC(torch.tensor([0, 1, 2, 0, 1, 2]))
        >>> loader = block_loader(torch.zeros(6, 2), objective, blocks_per_step=2,
        ...                       samples_per_block=4, num_steps=5)
        >>> [batch.inputs.shape[0] for batch in loader]
        [8, 8, 8, 8, 8]
    """
    inputs = read_inputs(inputs, objective)
    sampler = BlockSampler(
        objective,
        blocks_per_step=blocks_per_step,
        samples_per_block=samples_per_block,
        num_steps=num_steps,
        seed=seed,
        replacement=replacement,
        shares=shares,
        rank=rank,
        world_size=world_size,
    )
    return BlockLoader(inputs, sampler, num_workers=num_workers, pin_memory=pin_memory)
