"""Functions that turn uniform numbers into positions, for many populations at once."""

import torch
from torch import Tensor

__all__ = ["distinct", "draw"]


def draw(spread: Tensor, sizes: Tensor, *, replacement: bool) -> Tensor:
    """Return positions below ``sizes``, row by row, computed from uniform numbers in [0, 1).

    Args:
        spread: (b, k), uniform numbers in float64, so that the floor is uniform for any size that
            fits in memory.
        sizes: (b,), the population size of each row, at least k if without replacement.
        replacement: whether a position may occur twice in a row.

    Examples:
        >>> spread = torch.tensor([[0.0, 0.9], [0.5, 0.5]], dtype=torch.float64)
        >>> draw(spread, torch.tensor([10, 2]), replacement=True).tolist()
        [[0, 9], [1, 1]]
        >>> draw(spread, torch.tensor([10, 2]), replacement=False).sort(1).values.tolist()
        [[0, 9], [0, 1]]
    """
    sizes = sizes.unsqueeze(1)
    if replacement:
        return (spread * sizes).long()
    # Floyd's algorithm, one column at a time for all rows. It is uniform over subsets, and needs
    # O(k) memory per row instead of a permutation of the population.
    count = spread.shape[1]
    chosen = torch.full(spread.shape, -1, dtype=torch.int64)
    for k in range(count):
        last = sizes - count + k
        position = (spread[:, k : k + 1] * (last + 1)).long()
        taken = (chosen[:, :k] == position).any(1, keepdim=True)
        chosen[:, k : k + 1] = torch.where(taken, last, position)
    # The set is uniform but its order is not. The low digits of the same numbers, which are
    # independent of the high ones, shuffle it.
    return chosen.gather(1, (spread * 2**26 % 1).argsort(1))


def distinct(num_blocks: int, count: int, generator: torch.Generator) -> Tensor:
    """Draw ``count`` distinct ids below ``num_blocks`` uniformly, in O(count) if it is small.

    Examples:
        >>> ids = distinct(10**9, 5, torch.Generator().manual_seed(0))
        >>> len(ids.unique())
        5
    """
    if 4 * count > num_blocks:
        return torch.randperm(num_blocks, generator=generator)[:count]
    # Take the first distinct ids of a stream of uniform draws. Repetitions are rare here, because
    # at most a quarter of all ids is drawn.
    ids: dict[int, None] = {}
    while len(ids) < count:
        ids.update(dict.fromkeys(torch.randint(num_blocks, (count,), generator=generator).tolist()))
    return torch.tensor(list(ids)[:count])
