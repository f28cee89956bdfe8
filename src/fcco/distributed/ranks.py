"""The processes a problem is spread over, and the few words they exchange."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from fcco.distributed.reduction import Reduction
from fcco.distributed.share import Share

__all__ = ["Ranks"]

T = TypeVar("T")


class Ranks:
    """The ranks of a process group; a single one where ``torch.distributed`` is not set up.

    Every rank owns an equal share of the blocks: it samples them, probes them and keeps their rows.
    What a step exchanges is the gradient, which DDP or FSDP2 averages, and one vector of five
    numbers, by which the ranks agree that no one found a fault.

    Args:
        group: of the ranks that share the blocks (the data-parallel ones, where others hold parts
            of the model); None: all.
        defer: reduce gradients once per step, at the last backward pass, instead of at each point.
            Under FSDP2 that keeps a whole gradient in memory between the points.

    Examples:
        >>> Ranks().size
        1
    """

    def __init__(self, group: Any = None, *, defer: bool = True) -> None:
        active = _active()
        self.group = group
        self.rank: int = dist.get_rank(group) if active else 0
        self.size: int = dist.get_world_size(group) if active else 1
        if self.rank < 0:
            raise ValueError("Ranks: this process is not in the group")
        self.reduction = Reduction(active=active, defer=defer)
        self._meshes: dict[str, Any] = {}

    @classmethod
    def alone(cls) -> "Ranks":
        """This process by itself, whatever others there are."""
        ranks = cls.__new__(cls)
        ranks.group, ranks.rank, ranks.size = None, 0, 1
        ranks.reduction, ranks._meshes = Reduction(active=_active()), {}
        return ranks

    def share(self, total: int) -> Share:
        """This rank's part of ``total`` things."""
        return Share(total, self.rank, self.size)

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over ranks, in place."""
        if self.size > 1:
            dist.all_reduce(tensor, group=self.group)
        return tensor

    def any(self, here: bool, device: torch.device) -> bool:
        """Whether it holds on some rank."""
        if self.size == 1:
            return here
        return bool(self.sum(torch.tensor(int(here), device=device)))

    def together(self, device: torch.device, call: Callable[[], T]) -> T:
        """What ``call`` returns; if it raises on one rank, all raise.

        Args:
            device: of the word the ranks exchange.
            call: exchanges nothing itself.
        """
        if self.size == 1:
            return call()
        error: Exception | None = None
        try:
            result = call()
        except Exception as raised:
            error = raised
        if self.any(error is not None, device):
            raise error or RuntimeError("another rank found a fault, and says which")
        return result

    def gather(self, part: Tensor) -> list[Tensor]:
        """The same-sized tensors of all ranks, in their order."""
        if self.size == 1:
            return [part]
        parts = [torch.empty_like(part) for _ in range(self.size)]
        dist.all_gather(parts, part.contiguous(), group=self.group)
        return parts

    def whole(self, part: Tensor, total: int) -> Tensor:
        """The rows of all ranks, put together from each one's share of ``total``."""
        if self.size == 1:
            return part
        padded = part.new_zeros(self.share(total).max_count, *part.shape[1:])
        padded[: len(part)] = part
        return torch.cat(self.gather(padded))[:total]

    def sharded(self, part: Tensor, total: int) -> Tensor:
        """This rank's rows as its share of one DTensor, which torch's checkpoints can re-cut."""
        from torch.distributed.tensor import DTensor, Shard

        shape = torch.Size((total, *part.shape[1:]))
        stride = torch.empty(shape, device="meta").stride()
        wrapped: Tensor = DTensor.from_local(
            part, self._mesh(part.device), [Shard(0)], run_check=False, shape=shape, stride=stride
        )
        return wrapped

    def _mesh(self, device: torch.device) -> Any:
        """Of the kind the tensor lies on, or it would be moved."""
        from torch.distributed.device_mesh import DeviceMesh

        group: Any = dist.group.WORLD if self.group is None else self.group
        if device.type not in self._meshes:
            self._meshes[device.type] = DeviceMesh.from_group(group, device.type)
        return self._meshes[device.type]

    def __deepcopy__(self, memo: Any) -> "Ranks":
        # A process group is not copied, and the modules of the copy are other ones.
        ranks = Ranks.alone()
        ranks.group, ranks.rank, ranks.size = self.group, self.rank, self.size
        ranks.reduction.defer = self.reduction.defer
        return ranks

    def __reduce__(self) -> tuple[Any, ...]:
        # A process group belongs to its process: what is unpickled finds the default one.
        return _restored, (self.rank, self.size, self.reduction.defer)


def _restored(rank: int, size: int, defer: bool) -> Ranks:
    ranks = Ranks(defer=defer) if size > 1 else Ranks.alone()
    ranks.reduction.defer = defer
    if (ranks.rank, ranks.size) != (rank, size):
        raise ValueError(
            f"an optimizer of rank {rank} of {size} was unpickled by rank {ranks.rank} of "
            f"{ranks.size}: use torch.distributed.checkpoint to go on with other ranks"
        )
    return ranks


def _active() -> bool:
    return dist.is_available() and dist.is_initialized()
