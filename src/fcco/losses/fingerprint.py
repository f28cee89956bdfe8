"""A hash of what a table was built from, which is saved with it."""

import hashlib
from collections.abc import Iterator, Mapping
from numbers import Real
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["fingerprint"]


def fingerprint(*made_of: Any) -> Tensor:
    """Return a hash of labels, of their order and of settings, as an int64 tensor.

    Learned parameters and functions are not part of the hash, but the attributes of an object that
    can be called are.

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
    """Yield the parts to hash, each with an end mark, so that (1, 23) differs from (12, 3)."""
    if isinstance(thing, nn.Parameter):
        return
    if isinstance(thing, Tensor) and thing.ndim == 0:  # a setting may be given as a tensor
        yield from _parts(thing.item())
    elif isinstance(thing, Tensor):
        # Values count, not their precision: times that come back from a file as float64 are the
        # same times, and so are whole numbers that come back as floats.
        flat = thing.detach().cpu()
        wide = torch.float64 if flat.is_floating_point() and not _is_whole(flat) else torch.int64
        flat = flat.to(wide)
        yield f"{wide} {tuple(flat.shape)};".encode()
        yield flat.contiguous().numpy().tobytes()
    elif isinstance(thing, str | bool | None):
        yield f"{thing!r};".encode()
    elif isinstance(thing, Real):  # 1, 1.0 and NumPy's numbers are the same setting
        yield f"{float(thing)};".encode()
    elif hasattr(thing, "__array__"):
        array = thing.__array__()
        yield f"{array.dtype} {array.shape};".encode()
        yield repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes()
    elif isinstance(thing, Mapping | list | tuple):
        yield f"{len(thing)} parts;".encode()
        for part in thing.items() if isinstance(thing, Mapping) else thing:
            yield from _parts(part)
    elif _has_settings(thing):
        yield f"{type(thing).__qualname__};".encode()
        # Attributes with a leading "_" are derived from the others, and ``training`` is a mode.
        settings = vars(thing).keys() - {"training"}
        for name in sorted(name for name in settings if not name.startswith("_")):
            yield f"{name}=".encode()
            yield from _parts(vars(thing)[name])


def _is_whole(numbers: Tensor) -> bool:
    """Return whether all are whole numbers that float64 does not round."""
    return bool(((numbers == numbers.round()) & (numbers.abs() < 2**53)).all())


def _has_settings(thing: Any) -> bool:
    """Return whether an object's attributes are hashed: ours, an objective's or a surrogate's."""
    if isinstance(thing, FunctionType | MethodType | type) or not hasattr(thing, "__dict__"):
        return False
    ours = type(thing).__module__.startswith("fcco")
    return ours or hasattr(thing, "num_blocks") or callable(thing)
