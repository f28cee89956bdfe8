"""Nested states: changing every leaf of one, and listing them by name."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

__all__ = ["flat", "layout", "mapped"]


def mapped(tree: Any, change: Callable[[str, Any], Any], name: str = "") -> Any:
    """``tree`` with ``change(name, leaf)`` in the place of everything that is no container.

    Examples:
        >>> mapped({"step": 3, "curve": [{"auc": 0.5}]}, lambda name, leaf: name)
        {'step': '/step', 'curve': [{'auc': '/curve/0/auc'}]}
    """
    if isinstance(tree, Mapping):
        return {key: mapped(part, change, f"{name}/{key}") for key, part in tree.items()}
    if isinstance(tree, list):
        return [mapped(part, change, f"{name}/{k}") for k, part in enumerate(tree)]
    return change(name, tree)


def flat(tree: Any) -> dict[str, Any]:
    """The leaves by name."""
    found: dict[str, Any] = {}
    mapped(tree, found.setdefault)
    return found


def layout(tree: Any) -> dict[str, list[int] | None]:
    """The shape of every leaf that is a tensor; None for the others."""
    found = flat(tree).items()
    return {name: list(leaf.shape) if isinstance(leaf, Tensor) else None for name, leaf in found}
