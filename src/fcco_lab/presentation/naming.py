"""Names in figures and tables, and their order."""

import re
from collections.abc import Callable, Iterable

from fcco_lab.presentation.methods import contender_name, contenders
from fcco_lab.runs import Record

__all__ = ["DATA_SETS", "contender", "data_of", "grouped", "in_order", "short"]

DATA_SETS = ("usps", "mnist", "fashion_mnist", "cifar10", "svhn", "cifar100", "tinyimagenet100")
"""Data sets in the order of the columns of a table."""


def contender(record: Record) -> str:
    """The name of a record's method with its step rule."""
    return contender_name(record["config"])


def data_of(record: Record) -> str:
    """The name of a record's data set."""
    return str(record["config"]["data"])


def in_order(names: Iterable[str]) -> list[str]:
    """Known contenders or data sets in their order, then the others, sorted naturally.

    What follows a comma does not count for the first order.

    Examples:
        >>> in_order(["MSVRM-v1", "Unknown", "AdaSOX", "BSGD", "SOX", "cross-entropy"])
        ['cross-entropy', 'SOX', 'AdaSOX', 'BSGD', 'MSVRM-v1', 'Unknown']
        >>> in_order(["10 blocks", "9 blocks", "2 blocks"])
        ['2 blocks', '9 blocks', '10 blocks']
        >>> in_order(["BSGD", "SOX, B1=10", "SOX, B1=2"])
        ['SOX, B1=2', 'SOX, B1=10', 'BSGD']
    """
    ranks = {name: rank for rank, name in enumerate((*contenders(), *DATA_SETS))}

    def key(name: str) -> tuple[int, str]:
        natural = re.sub("[0-9]+", lambda digits: digits[0].zfill(20), name.lower())
        return ranks.get(name.partition(",")[0], len(ranks)), natural

    return sorted(set(names), key=key)


def grouped(records: Iterable[Record], by: Callable[[Record], str]) -> dict[str, list[Record]]:
    """Records grouped by ``by``, the groups in order.

    Examples:
        >>> runs = [{"config": {"data": name}} for name in ("mnist", "usps", "mnist")]
        >>> {k: len(v) for k, v in grouped(runs, lambda run: run["config"]["data"]).items()}
        {'usps': 1, 'mnist': 2}
    """
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(by(record), []).append(record)
    return {name: groups[name] for name in in_order(groups)}


def short(number: float) -> str:
    """Three digits and a unit.

    Examples:
        >>> short(1_234_567), short(50_000), short(31.44), short(0)
        ('1.23M', '50k', '31.4', '0')
    """
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(number) >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.3g}"
