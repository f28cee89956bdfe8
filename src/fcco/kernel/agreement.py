"""How ranks come to one view of a step: all commit it, or all raise."""

import torch
from torch import Tensor

from fcco.distributed import Ranks
from fcco.kernel.checks import Checks

__all__ = ["agree", "require_equal_counts"]


def agree(
    checks: Checks, ranks: Ranks, count: int, mean: Tensor, sums: Tensor | None = None
) -> tuple[int, float, list[float]]:
    """Read the faults of all ranks in one transfer, and raise on every rank if there is one.

    Return the samples that all ranks probed, the mean of f over all their blocks, and ``sums``
    over all ranks.

    Args:
        checks: of what this rank saw.
        ranks: the processes that share the blocks, several.
        count: the blocks this rank probed.
        mean: of f over them.
        sums: (n,), of what this rank saw, float64.
    """
    weight = checks.share.weight
    numbers = [count, count * count, checks.samples, checks.flag(), mean * weight]
    words = torch.stack(
        [
            n.double() if isinstance(n, Tensor) else mean.new_full((), n, dtype=torch.float64)
            for n in numbers
        ]
    )
    words = ranks.sum(words if sums is None else torch.cat([words, sums]))
    total, squares, samples, faults, summed, *seen = words.tolist()
    if faults:  # or a sum that overflowed
        ranks.together(mean.device, checks.raise_if_invalid)
    if total * total != ranks.size * squares:
        raise ValueError(
            f"every rank must probe equally many blocks in a step; this one probed {count}, and "
            f"all {ranks.size} together {int(total)}"
        )
    return int(samples), summed / ranks.size, seen


def require_equal_counts(closures: int, ranks: Ranks, device: torch.device, reason: str) -> None:
    """Raise on every rank unless all brought equally many closures: asked before the first is run.

    Args:
        closures: how many this rank brought.
        ranks: the processes that share the blocks.
        device: of the word the ranks exchange.
        reason: the start of the error message.
    """
    words = ranks.sum(torch.tensor([closures, closures * closures], device=device))
    total, squares = words.tolist()
    if total * total != ranks.size * squares:
        raise ValueError(
            f"{reason}, so every rank must bring equally many closures; this one brought "
            f"{closures}, and all {ranks.size} together {total}"
        )
