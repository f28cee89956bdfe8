"""The part of a sequence that one rank holds."""

from dataclasses import dataclass
from functools import cached_property

__all__ = ["Share"]


@dataclass(frozen=True)
class Share:
    """The contiguous part of ``total`` positions that one of ``size`` ranks holds.

    Every rank holds ceil(total / size) positions, and the last ranks hold what is left. torch's
    ``Shard(0)`` divides in the same way. So ``torch.distributed.checkpoint`` can join the parts and
    divide them again for another number of ranks.

    Examples:
        >>> [(s.start, s.stop) for s in (Share(10, rank, 4) for rank in range(4))]
        [(0, 3), (3, 6), (6, 9), (9, 10)]
    """

    total: int
    rank: int = 0
    size: int = 1

    @cached_property
    def max_count(self) -> int:
        """The number of positions that the first rank holds."""
        # The ceiling of total / size in whole numbers.
        return -(-self.total // self.size)

    @cached_property
    def start(self) -> int:
        """The first position of this rank."""
        return min(self.rank * self.max_count, self.total)

    @cached_property
    def stop(self) -> int:
        """The position after the last one of this rank."""
        return min(self.start + self.max_count, self.total)

    @cached_property
    def count(self) -> int:
        """The number of positions of this rank."""
        return self.stop - self.start

    @cached_property
    def min_count(self) -> int:
        """The number of positions that the last rank holds."""
        return Share(self.total, self.size - 1, self.size).count

    @cached_property
    def weight(self) -> float:
        """The factor of a mean over this share that makes the mean over ranks the mean over all.

        It is 1 if all shares are equal.
        """
        return self.count * self.size / self.total

    def owner(self, position: int) -> int:
        """Return the rank that holds ``position``."""
        return position // self.max_count
