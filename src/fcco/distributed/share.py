"""The part of a row of things that one rank holds."""

from dataclasses import dataclass
from functools import cached_property

__all__ = ["Share"]


@dataclass(frozen=True)
class Share:
    """An even cut: ceil(total / size) neighbours each, and what is left for the last ranks.

    It is the cut of torch's ``Shard(0)``, so that ``torch.distributed.checkpoint`` can put the
    shares together and cut them anew for another number of ranks.

    Examples:
        >>> [(s.start, s.stop) for s in (Share(10, rank, 4) for rank in range(4))]
        [(0, 3), (3, 6), (6, 9), (9, 10)]
    """

    total: int
    rank: int = 0
    size: int = 1

    @cached_property
    def max_count(self) -> int:
        """The number that the first rank holds."""
        return -(-self.total // self.size)

    @cached_property
    def start(self) -> int:
        """The first position of this rank."""
        return min(self.rank * self.max_count, self.total)

    @cached_property
    def stop(self) -> int:
        """The first position after those of this rank."""
        return min(self.start + self.max_count, self.total)

    @cached_property
    def count(self) -> int:
        """The number of positions of this rank."""
        return self.stop - self.start

    @cached_property
    def min_count(self) -> int:
        """The number that the last rank holds."""
        return Share(self.total, self.size - 1, self.size).count

    @cached_property
    def weight(self) -> float:
        """What a mean over this share counts in the mean over ranks, so that it is that over all.

        1 if all shares are equal.
        """
        return self.count * self.size / self.total

    def owner(self, position: int) -> int:
        """The rank that holds ``position``."""
        return position // self.max_count
