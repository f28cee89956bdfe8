"""Changes that are prepared first and then made all at once, so that nothing is left half done."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import call

import torch
from torch import Tensor, nn

__all__ = ["Write", "Writes", "commit", "way_back"]

Write = Callable[[], object]
"""One change: a ``functools.partial`` of a compiled method, on tensors or dictionaries that exist
and were checked, so that it cannot fail."""

Writes = list[Write]

_WITHOUT_RNG = {"cpu", "meta"}
"""Devices that have no RNG state of their own; that of the CPU is kept in any case."""


@torch.no_grad()
def commit(writes: Iterable[Write]) -> None:
    """Make all changes, in their order.

    Python handles signals between two of its own instructions. Here it runs none: the changes are
    compiled methods, and so is what calls them one after the other. Ctrl-C takes effect before or
    after.

    Examples:
        >>> u, visits = torch.zeros(2), {}
        >>> commit([partial(u.fill_, 3.0), partial(visits.update, last=1)])
        >>> u, visits
        (tensor([3., 3.]), {'last': 1})
    """
    deque(map(call, writes), maxlen=0)


def way_back(params: Iterable[Tensor], source: Sequence[Tensor] | nn.Module) -> Writes:
    """Changes that undo what a forward pass does besides computing its outputs.

    It draws random numbers, and writes to buffers or replaces them (``self.n = self.n + 1``).

    Args:
        params: tells the devices whose RNG is used.
        source: the buffers, or a module: then replaced ones are put back too.

    Examples:
        >>> back = way_back([], [])
        >>> first = torch.rand(3)
        >>> commit(back)
        >>> bool((torch.rand(3) == first).all())
        True
    """
    writes: dict[object, Write] = {}
    for p in params:
        if p.device.type not in _WITHOUT_RNG and p.device not in writes:
            rng = getattr(torch, p.device.type)
            writes[p.device] = partial(rng.set_rng_state, rng.get_rng_state(p.device), p.device)
    writes["cpu"] = partial(torch.default_generator.set_state, torch.get_rng_state())
    if isinstance(source, nn.Module):
        buffers: list[Tensor] = []
        for module in source.modules():
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    buffers.append(buffer)
                    writes[id(module), name] = partial(module._buffers.update, {name: buffer})
    else:
        buffers = list(source)
    for buffer in buffers:
        writes[id(buffer)] = partial(buffer.copy_, buffer.detach().clone())
    return list(writes.values())
