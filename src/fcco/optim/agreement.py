"""How the ranks of a step come to one view of it: all commit, or all raise."""

import torch
from torch import Tensor

from fcco.distributed import Ranks
from fcco.optim.observation import Observation

__all__ = ["agree"]


def agree(seen: Observation, ranks: Ranks, mean: Tensor) -> tuple[int, Tensor]:
    """Read the faults of all ranks in one transfer, and raise on every rank if there is one.

    Returns the samples that all ranks probed, and the mean of f over all their blocks.

    Args:
        seen: what this rank saw.
        ranks: the processes that share the blocks.
        mean: of f over the blocks this rank probed.
    """
    if ranks.size == 1:
        return seen.faults.settle(seen.samples), mean
    count, samples = seen.count, seen.samples
    numbers = [count, count * count, samples, seen.faults.flag(), mean * seen.share.weight]
    device = mean.device
    words = ranks.sum(
        torch.stack([torch.as_tensor(n, dtype=torch.float64, device=device) for n in numbers])
    )
    total, squares, all_samples, faults, _ = words.tolist()
    if faults:
        seen.faults.settle()
        raise RuntimeError("another rank found a fault in this step, and says which")
    if total * total != ranks.size * squares:
        raise ValueError(
            f"every rank must probe equally many blocks in a step; this one probed {count}, and "
            f"all {ranks.size} together {int(total)}"
        )
    return int(all_samples), (words[-1] / ranks.size).to(mean.dtype)
