"""Checks of the arguments of losses that are functions of means."""

from typing import Any

import torch
from torch import Tensor

from fcco.objectives.score import widened
from fcco.problem.given import tensor

__all__ = ["check_fractions", "read_columns", "read_floats", "read_masks", "read_targets"]


def read_floats(name: str, given: Any) -> Tensor:
    """Return ``given`` after checking that it is a tensor of floats.

    Examples:
        >>> read_floats("scores", torch.tensor([1, 0]))
        Traceback (most recent call last):
        ValueError: scores must be a tensor of floats, got torch.int64
    """
    if not isinstance(given, Tensor) or not given.is_floating_point():
        kind = given.dtype if isinstance(given, Tensor) else type(given).__name__
        raise ValueError(f"{name} must be a tensor of floats, got {kind}")
    return given


def check_fractions(name: str, given: Tensor) -> Tensor:
    """Return ``given`` after checking that its entries lie in [0, 1].

    Examples:
        >>> check_fractions("targets", torch.tensor([0.5, 3.0]))
        Traceback (most recent call last):
        ValueError: targets must lie in [0, 1], got 0.5 to 3
    """
    if given.numel():
        least, most = given.detach().aminmax()
        if least.isnan():  # aminmax propagates it
            raise FloatingPointError(f"{name} has entries that are NaN")
        if not (least >= 0 and most <= 1):
            hint = ": apply sigmoid or softmax to logits" if name == "probabilities" else ""
            raise ValueError(
                f"{name} must lie in [0, 1], got {least.item():.3g} to {most.item():.3g}{hint}"
            )
    return given


def read_columns(name: str, given: Any, count: int) -> Tensor:
    """Return ``given`` as (B, count) in at least float32.

    Examples:
        >>> read_columns("scores", torch.zeros(3), 1).shape
        torch.Size([3, 1])
    """
    given = read_floats(name, given)
    columns = given.unsqueeze(1) if given.ndim == 1 and count == 1 else given
    if columns.ndim != 2 or columns.shape[1] != count:
        wanted = "(B,) or (B, 1)" if count == 1 else f"(B, {count})"
        raise ValueError(f"{name} must have shape {wanted}, got {tuple(given.shape)}")
    return widened(columns)


def read_targets(given: Any, p: Tensor) -> Tensor:
    """Return targets, 1 or 0, and -1 or NaN where missing, in the shape and dtype of ``p``.

    Examples:
        >>> read_targets([1, -1], torch.zeros(2, 1))
        tensor([[ 1.],
                [-1.]])
    """
    y = tensor("targets", given).to(p.device).double()
    y = y.unsqueeze(1) if y.ndim == 1 and p.shape[1] == 1 else y
    if y.shape != p.shape:
        hint = f": of class numbers, one_hot(targets, {p.shape[1]})" if y.ndim == 1 else ""
        raise ValueError(f"targets must have shape {tuple(p.shape)}, got {tuple(y.shape)}{hint}")
    strange = ~((y == 0) | (y == 1) | (y == -1) | y.isnan())
    if strange.any():
        raise ValueError(
            f"targets must be 0 or 1, or -1 or NaN where missing, got {y[strange][0].item()}"
        )
    return y.to(p.dtype)


def read_masks(given: Any, p: Tensor) -> Tensor:
    """Return masks (B, C, ...) of 0 and 1, given masks or class numbers.

    Examples:
        >>> read_masks([[1], [0]], torch.zeros(2, 2, 1)).flatten(1)
        tensor([[0., 1.],
                [1., 0.]])
    """
    y = tensor("targets", given).to(p.device)
    if y.shape == p.shape:
        return y.to(widened(p).dtype)
    if p.shape[1] == 1 and y.shape == (p.shape[0], *p.shape[2:]):
        return y.unsqueeze(1).to(widened(p).dtype)  # with one class, this is the mask itself
    numbers = y.squeeze(1) if y.ndim == p.ndim and y.shape[1] == 1 else y
    if numbers.shape != (p.shape[0], *p.shape[2:]) or y.is_floating_point():
        raise ValueError(
            f"targets must have shape {tuple(p.shape)}, or be class numbers of shape "
            f"{(p.shape[0], *p.shape[2:])}, got {y.dtype} of shape {tuple(y.shape)}"
        )
    numbers = numbers.long()
    if numbers.numel() and not 0 <= int(numbers.min()) <= int(numbers.max()) < p.shape[1]:
        raise ValueError(f"targets must be class numbers in 0..{p.shape[1] - 1}")
    masks = torch.nn.functional.one_hot(numbers, p.shape[1]).movedim(-1, 1)
    return masks.to(widened(p).dtype)
