"""Checks of what users pass to an estimator, which ``fit`` calls as scikit-learn requires."""

from collections.abc import Callable, Iterable
from math import inf
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils._missing import is_pandas_na, is_scalar_nan
from sklearn.utils.validation import _check_sample_weight

__all__ = ["check_settings", "missing", "read_sample_weight", "read_widths", "require_y", "take"]

Weight = NDArray[np.float64] | None

_COUNTS = ("max_steps", "batch_size", "patience", "partial_steps", "top_k")
_RANGES: dict[str, tuple[Callable[[float], bool], str]] = {
    "C": (lambda value: value > 0, "positive"),
    # In its first step, Adam multiplies the rate by 10, which must still be a float32.
    "learning_rate": (lambda value: 0 < value < 1e37, "positive and below 1e37"),
    "weight_decay": (lambda value: 0 <= value < inf, "finite and not negative"),
    "validation_fraction": (lambda value: 0 < value < 1, "in (0, 1)"),
    "max_fpr": (lambda value: 0 < value <= 1, "in (0, 1]"),
    "temperature": (lambda value: 0 < value < inf, "positive and finite"),
}
"""Conditions for the settings that are real numbers, with a description for the error message."""


def check_settings(estimator: Any) -> None:
    """Raise a ``ValueError`` that names the first setting that cannot be used."""
    settings = estimator.get_params(deep=False)
    widths = read_widths(settings["hidden"])
    counts = {f"hidden[{place}]": width for place, width in enumerate(widths)}
    counts |= {name: settings[name] for name in _COUNTS if settings.get(name) is not None}
    for name, value in counts.items():
        # True is an Integral in Python, but not a number of steps.
        if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    for name, (condition, wanted) in _RANGES.items():
        value = settings.get(name)
        if name in settings and not (isinstance(value, Real) and condition(float(value))):
            raise ValueError(f"{name} must be {wanted}, got {value!r}")
    if not isinstance(settings["early_stopping"], bool | np.bool_):
        got = settings["early_stopping"]
        raise ValueError(f"early_stopping must be True or False, got {got!r}")


def read_widths(hidden: Any) -> list[Any]:
    """Return the widths of the hidden layers; one number is one layer.

    Examples:
        >>> read_widths(64), read_widths((8, 4))
        ([64], [8, 4])
    """
    if isinstance(hidden, Integral):
        return [hidden]
    if not isinstance(hidden, Iterable) or isinstance(hidden, str):
        raise ValueError(f"hidden must be a width or a sequence of them, got {hidden!r}")
    return list(hidden)


def require_y(estimator: Any, y: Any) -> None:
    """Raise scikit-learn's error if there is no target."""
    if y is None:
        name = type(estimator).__name__
        raise ValueError(f"{name} requires y to be passed, but the target y is None")


def read_sample_weight(
    sample_weight: ArrayLike | None, X: Any
) -> tuple[Weight, NDArray[np.bool_] | slice]:
    """Return the weights of the rows of ``X``, or None, and which rows have a weight above 0.

    Examples:
        >>> read_sample_weight([1.0, 0.0, 2.0], np.eye(3))
        (array([1., 0., 2.]), array([ True, False,  True]))
    """
    if sample_weight is None:
        return None, slice(None)
    weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    return weight, weight > 0


def missing(cells: NDArray[Any]) -> NDArray[np.bool_]:
    """Return where an array of objects holds None, NaN or pandas' NA.

    Examples:
        >>> missing(np.array(["a", None, 3, np.nan], dtype=object))
        array([False,  True, False,  True])
    """
    found = [cell is None or is_pandas_na(cell) or is_scalar_nan(cell) for cell in cells.flat]
    return np.array(found, dtype=np.bool_).reshape(cells.shape)


def take(weight: Weight, rows: Any) -> Weight:
    """Return the weights of some rows, if there are weights."""
    return None if weight is None else weight[rows]
