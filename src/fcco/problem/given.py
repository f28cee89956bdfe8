"""Functions that read and check what users pass in; errors name the argument."""

import operator
from typing import Any

import torch
from torch import Tensor

__all__ = ["absent", "as_inputs", "hint", "positions", "structure", "tensor", "whole"]

_KINDS = {
    "binary": "0 or 1",
    "whole": "whole numbers that are not negative",
    "real": "finite numbers",
    "positive": "finite numbers above 0",
}
_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)


def tensor(name: str, given: Any) -> Tensor:
    """Return a tensor from a tensor, an array, a pandas column or table, or a list.

    Examples:
        >>> tensor("labels", ["cat", "dog"])
        Traceback (most recent call last):
        ValueError: labels must be a tensor or an array of numbers: too many dimensions 'str'
    """
    try:
        if hasattr(given, "filled") and given.mask.any():  # a masked array of NumPy
            raise ValueError("some of its entries are masked")
        if hasattr(given, "__array__") and not isinstance(given, Tensor):
            given = given.__array__()
            # torch needs writable memory, native byte order and no negative strides. A read-only
            # memory map is not copied, because it may be larger than the memory.
            mine = given.flags.writeable or hasattr(given, "filename")
            if not (mine and given.dtype.isnative and min(given.strides, default=0) >= 0):
                given = given.astype(given.dtype.newbyteorder("="), order="C")
        found = torch.as_tensor(given)
        if found.is_floating_point() and not hasattr(given, "__array__"):
            return torch.as_tensor(given, dtype=torch.float64)  # the precision of Python's floats
        return found
    except (AttributeError, OverflowError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a tensor or an array of numbers: {error}") from error


def as_inputs(inputs: Any) -> Any:
    """Return arrays as tensors; objects that read samples one by one stay unchanged.

    Examples:
        >>> import numpy
        >>> as_inputs(numpy.zeros((2, 3))).shape
        torch.Size([2, 3])
        >>> as_inputs(3)
        Traceback (most recent call last):
        ValueError: inputs must be a dense tensor, an array or a sequence of samples, got 3
    """
    if hasattr(inputs, "__array__"):
        inputs = tensor("inputs", inputs)
    dense = not isinstance(inputs, Tensor) or (inputs.ndim > 0 and inputs.layout == torch.strided)
    if not dense or not hasattr(inputs, "__len__") or not hasattr(inputs, "__getitem__"):
        raise ValueError(
            f"inputs must be a dense tensor, an array or a sequence of samples, got {inputs!r}"
        )
    return inputs


def structure(name: str, given: Any, count: int | None, *, kind: str) -> Tensor:
    """Return a copy of one label per sample, a CPU tensor of shape (count,), after checking it.

    Args:
        name: the name of the argument in errors.
        given: a tensor or an array.
        count: the number of samples, or None if any number is allowed.
        kind: the allowed values: "binary" (0 or 1, returned as booleans), "whole" (not negative),
            "real" (finite) or "positive" (finite and above 0).

    Examples:
        >>> structure("labels", torch.tensor([0, -1]), 2, kind="binary")
        Traceback (most recent call last):
        ValueError: labels must be 0 or 1, got -1 at 1
    """
    values, real = tensor(name, given).detach().cpu(), kind in ("real", "positive")
    if values.ndim != 1 or (count is not None and len(values) != count):
        size = "N" if count is None else count
        raise ValueError(
            f"{name} must have shape ({size},), got {tuple(values.shape)}{hint(values)}"
        )
    if values.is_complex() or (kind == "whole" and values.is_floating_point()):
        raise ValueError(f"{name} must be {_KINDS[kind]}, got {values.dtype}")
    if values.dtype in _UNSIGNED:  # torch supports few operations for these types
        values = values.long()
        if (values < 0).any():
            raise ValueError(f"{name} must be {_KINDS[kind]}, and below 2**63")
    elif real and values.dtype == torch.bool:
        values = values.double()
    wrong = {
        "binary": (values != 0) & (values != 1),
        "whole": values < 0,
        "real": ~values.isfinite(),
        "positive": ~(values.isfinite() & (values > 0)),
    }[kind]
    if wrong.any():
        place = int(wrong.nonzero()[0])
        raise ValueError(f"{name} must be {_KINDS[kind]}, got {values[place].item()} at {place}")
    # A copy: the caller may change the array later.
    kept = values.dtype if real else torch.bool if kind == "binary" else torch.int64
    return values.to(kept, copy=True)


def hint(values: Tensor) -> str:
    """Return what to tell a user of version 0.2 who passes a number in place of labels.

    Examples:
        >>> hint(torch.tensor(5))
        '; since 0.3 objectives are built from labels, one per sample, not from their number'
        >>> hint(torch.tensor([5]))
        ''
    """
    if values.ndim:
        return ""
    return "; since 0.3 objectives are built from labels, one per sample, not from their number"


def positions(name: str, given: Any, count: int) -> Tensor:
    """Return positions among ``count`` samples as a CPU tensor, after checking them.

    Examples:
        >>> positions("rows", [2, 0], 3), positions("rows", [3], 3)
        Traceback (most recent call last):
        ValueError: rows must lie in 0..2, got 3
    """
    given = tensor(name, given)
    if given.ndim != 1:
        raise ValueError(f"{name} must have shape (B,), got {tuple(given.shape)}")
    if not given.numel():
        raise ValueError(f"there are no {name}")
    places = structure(name, given, None, kind="whole")
    if given.dtype == torch.bool:
        raise ValueError(f"{name} must be positions in inputs, got booleans")
    if int(places.max()) >= count:
        raise ValueError(f"{name} must lie in 0..{count - 1}, got {int(places.max())}")
    return places.contiguous()  # torch.searchsorted warns about other layouts


def absent(names: Tensor, count: int) -> list[int]:
    """Return the first ids below ``count`` that are missing in the sorted ``names``, at most ten.

    Examples:
        >>> absent(torch.tensor([0, 2, 10**12]), 10**12 + 1)[:3]
        [1, 3, 4]
    """
    near = torch.arange(min(count, len(names) + 10))
    return near[~torch.isin(near, names)][:10].tolist()


def whole(name: str, value: Any) -> int:
    """Return a whole number as an int; numpy's integers are accepted.

    Examples:
        >>> whole("seed", torch.tensor(3)), whole("num_steps", 2.5)
        Traceback (most recent call last):
        ValueError: num_steps must be a whole number, got 2.5
    """
    try:
        return operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be a whole number, got {value!r}") from None
