"""What a table was built from, as one number that travels with it."""

import hashlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["fingerprint"]


def fingerprint(*made_of: Any) -> Tensor:
    """A number that differs, in all likelihood, for other labels, their order, or other settings.

    Learned parameters do not count, nor do functions.

    Examples:
        >>> from fcco.objectives import AUC
        >>> labels = torch.tensor([1, 0, 0])
        >>> first, second = (AUC(labels, temperature=t) for t in (1.0, 0.1))
        >>> bool(fingerprint(first) == fingerprint(second))
        False
    """
    digest = hashlib.sha256()
    for part in _parts(made_of):
        digest.update(part)
    number = int.from_bytes(digest.digest()[:8], "little", signed=True)
    return torch.tensor(number, dtype=torch.int64)


def _parts(thing: Any) -> Iterator[bytes]:
    if isinstance(thing, nn.Parameter) or (callable(thing) and not hasattr(thing, "__dict__")):
        return
    if isinstance(thing, Tensor):
        # Not contiguous(): it leaves the stride of a single element as it is, and view fails then.
        flat = thing.detach().cpu().clone(memory_format=torch.contiguous_format)
        yield f"{flat.dtype}{tuple(flat.shape)}".encode()
        yield flat.flatten().view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    elif isinstance(thing, str | int | float | bool | None):
        yield repr(thing).encode()
    elif isinstance(thing, list | tuple):
        for part in thing:
            yield from _parts(part)
    elif type(thing).__module__.startswith("fcco") or hasattr(thing, "num_blocks"):
        yield type(thing).__qualname__.encode()
        # Names that begin with "_" are derived from the others, and a mode is no setting.
        settings = vars(thing).keys() - {"training"}
        for name in sorted(name for name in settings if not name.startswith("_")):
            yield name.encode()
            yield from _parts(vars(thing)[name])
