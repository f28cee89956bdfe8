"""The processes that share a problem, and the operations between them."""

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
    """The ranks of a process group, or a single rank if ``torch.distributed`` is not initialized.

    Every rank owns an equal share of the blocks: it samples them, probes them and stores their
    rows. In a step, ranks exchange the gradient, which DDP or FSDP2 averages. They also exchange
    one vector of a few numbers, by which they agree that no rank found an error.

    Args:
        group: the process group of the ranks that share the blocks, by default all ranks. If other
            ranks hold parts of the model, it is the group of the data-parallel ones.
        defer: whether to reduce gradients once per step, at the last backward pass, instead of at
            each point. Under FSDP2 this keeps a whole gradient in memory between the points.

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
        self.reduction = Reduction(active=active, defer=defer, group=group)
        self._meshes: dict[str, Any] = {}

    @classmethod
    def alone(cls) -> "Ranks":
        """Return ranks that consist of this process only, whatever others there are."""
        ranks = cls.__new__(cls)
        ranks.group, ranks.rank, ranks.size = None, 0, 1
        ranks.reduction, ranks._meshes = Reduction(active=_active()), {}
        return ranks

    def share(self, total: int) -> Share:
        """Return this rank's part of ``total`` things."""
        return Share(total, self.rank, self.size)

    def sum(self, tensor: Tensor) -> Tensor:
        """Add up a tensor over the ranks in place, and return it."""
        if self.size > 1:
            dist.all_reduce(tensor, group=self.group)
        return tensor

    def any(self, here: bool, device: torch.device) -> bool:
        """Return whether a condition holds on some rank."""
        if self.size == 1:
            return here
        return bool(self.sum(torch.tensor(int(here), device=device)))

    def together(self, device: torch.device, call: Callable[[], T]) -> T:
        """Call a function and return its result; if it raises on one rank, all ranks raise.

        Args:
            device: the device of the flag that the ranks exchange.
            call: the function, which must not communicate itself.
        """
        if self.size == 1:
            return call()
        # A rank that raised alone would leave the others waiting for it in their next exchange.
        error: Exception | None = None
        try:
            result = call()
        except Exception as raised:
            error = raised
        if self.any(error is not None, device):
            raise error or RuntimeError("another rank found a fault: see its error message")
        return result

    def gather(self, part: Tensor) -> list[Tensor]:
        """Return the tensors of all ranks, which have the same size, in the order of ranks."""
        if self.size == 1:
            return [part]
        parts = [torch.empty_like(part) for _ in range(self.size)]
        dist.all_gather(parts, part.contiguous(), group=self.group)
        return parts

    def whole(self, part: Tensor, total: int) -> Tensor:
        """Return the rows of all ranks, joined from each rank's share of ``total``."""
        if self.size == 1:
            return part
        # all_gather needs equal sizes. Only the last shares are shorter, so the padding of all
        # ranks together is at the end.
        padded = part.new_zeros(self.share(total).max_count, *part.shape[1:])
        padded[: len(part)] = part
        return torch.cat(self.gather(padded))[:total]

    def sharded(self, part: Tensor, total: int) -> Tensor:
        """Return this rank's rows as its part of a DTensor, which torch's checkpoints can split."""
        from torch.distributed.tensor import DTensor, Shard

        shape = torch.Size((total, *part.shape[1:]))
        # from_local would otherwise infer the shape from equal parts, but the last may be shorter.
        stride = torch.empty(shape, device="meta").stride()
        wrapped: Tensor = DTensor.from_local(
            part, self._mesh(part.device), [Shard(0)], run_check=False, shape=shape, stride=stride
        )
        return wrapped

    def _mesh(self, device: torch.device) -> Any:
        """Return a device mesh of the tensor's device type; with another one it would be moved."""
        from torch.distributed.device_mesh import DeviceMesh

        group: Any = dist.group.WORLD if self.group is None else self.group
        if device.type not in self._meshes:
            self._meshes[device.type] = DeviceMesh.from_group(group, device.type)
        return self._meshes[device.type]

    def __deepcopy__(self, memo: Any) -> "Ranks":
        # A process group cannot be copied, and the copy will be used with other modules.
        ranks = Ranks.alone()
        ranks.group, ranks.rank, ranks.size = self.group, self.rank, self.size
        ranks.reduction.defer, ranks.reduction.group = self.reduction.defer, self.group
        return ranks

    def __reduce__(self) -> tuple[Any, ...]:
        # A process group belongs to its process, so the unpickled object uses the default one.
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
