"""Data sets as plain tensors with one row per sample, checked."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

__all__ = ["Classified", "Data", "Kind", "Ranked", "Survival"]

Kind = Literal["classes", "survival", "ranking"]


@dataclass(frozen=True, eq=False)  # == on tensors has no single answer
class _Record:
    """Inputs along the first dimension, and columns of numbers of given types."""

    kind: ClassVar[Kind]
    dtypes: ClassVar[dict[str, tuple[torch.dtype, ...]]]
    inputs: Tensor

    def __post_init__(self) -> None:
        for name, dtypes in self.dtypes.items():
            _check_column(name, getattr(self, name), *dtypes, least=int(name == "lengths"))
        _check_inputs(self.inputs)
        for name in self.dtypes.keys() - {"lengths"}:
            entries = len(getattr(self, name))
            if entries != len(self):
                raise ValueError(f"{name} has {entries} entries, inputs {len(self)} rows")

    def __len__(self) -> int:
        return len(self.inputs)


def _check_inputs(inputs: Tensor) -> None:
    if not isinstance(inputs, Tensor) or inputs.is_complex():
        kind = inputs.dtype if isinstance(inputs, Tensor) else type(inputs).__name__
        raise ValueError(f"inputs must be a tensor of real numbers, got {kind}")
    if inputs.ndim == 0:
        raise ValueError("inputs must have one row per sample, got a scalar")
    # One NaN would make every weight NaN in the first step, like a step size that is too large.
    if not inputs.isfinite().all():
        row, *place = (~inputs.isfinite()).nonzero()[0].tolist()
        where = f"column {place[0]}" if len(place) == 1 else f"place {tuple(place)}"
        got = inputs[(row, *place)].item()
        raise ValueError(f"inputs must be finite, got {got} in row {row}, {where}")


def _check_column(name: str, value: Tensor, *dtypes: torch.dtype, least: int) -> None:
    if not isinstance(value, Tensor):
        raise ValueError(f"{name} must be a tensor, got {type(value).__name__}")
    if value.ndim != 1 or value.dtype not in dtypes:
        raise ValueError(
            f"{name} must be one-dimensional, of {' or '.join(map(str, dtypes))}, got "
            f"{value.dtype} of shape {tuple(value.shape)}"
        )
    # "not >=" rather than "<", so that a NaN is found too
    wrong = (~(value >= least) | value.isinf()).nonzero().flatten()
    if len(wrong):
        place = int(wrong[0])
        raise ValueError(
            f"{name} must be finite and at least {least}, got {value[place].item()} at {place}"
        )


@dataclass(frozen=True, eq=False)
class Classified(_Record):
    """Samples and their classes.

    Args:
        inputs: N samples along the first dimension.
        classes: (N,) int64, 0 and up.

    Examples:
        >>> data = Classified(torch.zeros(3, 1, 8, 8), torch.tensor([0, 1, 1]))
        >>> len(data), data.num_classes
        (3, 2)
    """

    kind = "classes"
    dtypes = {"classes": (torch.int64,)}
    classes: Tensor

    @property
    def num_classes(self) -> int:
        """One more than the largest class."""
        return int(self.classes.max()) + 1 if len(self) else 0


@dataclass(frozen=True, eq=False)
class Survival(_Record):
    """Samples with times, and whether the event was observed.

    Args:
        inputs: N samples along the first dimension.
        times: (N,) float32, float64 or int64, finite, 0 and up.
        events: (N,) booleans; False where the sample is censored at its time.

    Examples:
        >>> times, events = torch.tensor([1.5, 3.0]), torch.tensor([True, False])
        >>> data = Survival(torch.zeros(2, 5), times, events)
        >>> len(data), int(data.events.sum())
        (2, 1)
    """

    kind = "survival"
    dtypes = {"times": (torch.float32, torch.float64, torch.int64), "events": (torch.bool,)}
    times: Tensor
    events: Tensor


@dataclass(frozen=True, eq=False)
class Ranked(_Record):
    """Documents of several queries, query by query, each with a relevance grade.

    Args:
        inputs: N documents along the first dimension.
        grades: (N,) int64, 0 and up, higher is more relevant.
        lengths: int64, the number of documents of each query, at least 1; their sum is N.

    Examples:
        >>> data = Ranked(torch.zeros(5, 3), torch.tensor([0, 2, 1, 0, 4]), torch.tensor([3, 2]))
        >>> len(data), [part.tolist() for part in data.grades.split(data.lengths.tolist())]
        (5, [[0, 2, 1], [0, 4]])
    """

    kind = "ranking"
    dtypes = {"grades": (torch.int64,), "lengths": (torch.int64,)}
    grades: Tensor
    lengths: Tensor

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lengths.sum() != len(self):
            raise ValueError(
                f"lengths must sum to the {len(self)} rows of inputs, got {int(self.lengths.sum())}"
            )


Data = Classified | Survival | Ranked
