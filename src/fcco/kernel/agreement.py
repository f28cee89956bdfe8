"""How ranks agree on a step, so that either all of them write it or all of them raise."""

import torch
from torch import Tensor

from fcco.distributed import Ranks
from fcco.kernel.checks import Checks

__all__ = ["agree", "require_equal_counts"]


def agree(
    checks: Checks, ranks: Ranks, count: int, mean: Tensor, sums: Tensor | None = None
) -> tuple[int, float, list[float]]:
    """Read the errors of all ranks in one transfer, and raise on every rank if there is one.

    Args:
        checks: the checks of this rank.
        ranks: the processes that share the blocks, of which there are several.
        count: the number of blocks that this rank probed.
        mean: the mean of f over these blocks.
        sums: (n,), further sums of this rank in float64, or None.

    Returns:
        The number of samples that all ranks probed, the mean of f over all their blocks, and
        ``sums`` added up over all ranks.
    """
    # All numbers go into one all-reduce in float64, which holds counts exactly.
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
    if faults:  # some rank has an error, or a sum that overflowed
        ranks.together(mean.device, checks.raise_if_invalid)
    # By Cauchy-Schwarz, (sum n)^2 = size * sum n^2 only if all counts n are equal.
    if total * total != ranks.size * squares:
        raise ValueError(
            f"every rank must probe equally many blocks in a step; this one probed {count}, and "
            f"all {ranks.size} together {int(total)}"
        )
    return int(samples), summed / ranks.size, seen


def require_equal_counts(closures: int, ranks: Ranks, device: torch.device, reason: str) -> None:
    """Raise on every rank unless all ranks have equally many closures.

    Args:
        closures: the number of closures of this rank.
        ranks: the processes that share the blocks.
        device: the device of the numbers that the ranks exchange.
        reason: the start of the error message.
    """
    words = ranks.sum(torch.tensor([closures, closures * closures], device=device))
    total, squares = words.tolist()
    if total * total != ranks.size * squares:
        raise ValueError(
            f"{reason}, so every rank must bring equally many closures; this one brought "
            f"{closures}, and all {ranks.size} together {total}"
        )
