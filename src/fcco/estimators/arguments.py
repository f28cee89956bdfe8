"""Checks of the arguments of an estimator, made in ``fit`` as scikit-learn requires."""

from collections.abc import Iterable
from math import inf
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import _check_sample_weight

__all__ = ["check_arguments", "check_weight", "widths"]


def widths(hidden: Any) -> list[Any]:
    """The widths of the hidden layers; one number is one layer.

    Examples:
        >>> widths(64), widths((8, 4))
        ([64], [8, 4])
    """
    if isinstance(hidden, Integral):
        return [hidden]
    if not isinstance(hidden, Iterable) or isinstance(hidden, str):
        raise ValueError(f"hidden must be a width or a sequence of them, got {hidden!r}")
    return list(hidden)


def check_arguments(estimator: Any) -> None:
    """Raise a ``ValueError`` that names the first argument that cannot be used."""
    counts = {f"hidden[{place}]": width for place, width in enumerate(widths(estimator.hidden))}
    for name in ("max_steps", "batch_size", "patience", "partial_steps"):
        counts[name] = getattr(estimator, name)
    if getattr(estimator, "top_k", None) is not None:
        counts["top_k"] = estimator.top_k
    for name, value in counts.items():
        if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    others = {
        "C": (_number(estimator.C) > 0, "positive"),
        "learning_rate": (0 < _number(estimator.learning_rate) < inf, "positive and finite"),
        "weight_decay": (0 <= _number(estimator.weight_decay) < inf, "finite and not negative"),
        "validation_fraction": (0 < _number(estimator.validation_fraction) < 1, "in (0, 1)"),
        "early_stopping": (isinstance(estimator.early_stopping, bool | np.bool_), "True or False"),
        "max_fpr": (0 < _number(getattr(estimator, "max_fpr", 1)) <= 1, "in (0, 1]"),
        "temperature": (0 < _number(getattr(estimator, "temperature", 1)) < inf, "positive"),
    }
    for name, (fits, wanted) in others.items():
        if not fits:
            raise ValueError(f"{name} must be {wanted}, got {getattr(estimator, name)!r}")


def check_weight(
    sample_weight: ArrayLike | None, X: Any
) -> tuple[NDArray[np.float64] | None, NDArray[np.bool_] | slice]:
    """The weights above 0, and the rows of ``X`` that have them; None: all alike.

    Examples:
        >>> check_weight([1.0, 0.0, 2.0], np.eye(3))
        (array([1., 2.]), array([ True, False,  True]))
    """
    if sample_weight is None:
        return None, slice(None)
    weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    return weight[weight > 0], weight > 0


def _number(value: Any) -> float:
    return float(value) if isinstance(value, Real) else -inf
