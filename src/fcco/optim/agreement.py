"""How ranks come to one view: all go on, or all raise."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from fcco.distributed import Ranks
from fcco.optim.observation import Observation

__all__ = ["agree", "together"]

T = TypeVar("T")


def together(ranks: Ranks, device: torch.device, call: Callable[[], T]) -> T:
    """What ``call`` returns; if it raises on one rank, all raise.

    Args:
        ranks: which all come here.
        device: of the word they exchange.
        call: exchanges nothing itself.
    """
    if ranks.size == 1:
        return call()
    error: Exception | None = None
    try:
        result = call()
    except Exception as raised:
        error = raised
    if ranks.any(error is not None, device):
        raise error or RuntimeError("another rank found a fault, and says which")
    return result


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
    words = ranks.sum(
        torch.stack(
            [
                n.double() if isinstance(n, Tensor) else mean.new_full((), n, dtype=torch.float64)
                for n in numbers
            ]
        )
    )
    total, squares, all_samples, faults, _ = words.tolist()
    if faults:  # or something to look at
        together(ranks, mean.device, seen.faults.settle)
    if total * total != ranks.size * squares:
        raise ValueError(
            f"every rank must probe equally many blocks in a step; this one probed {count}, and "
            f"all {ranks.size} together {int(total)}"
        )
    return int(all_samples), (words[-1] / ranks.size).to(mean.dtype)
