"""``fcco data``: which data sets are there, which are missing, and what each is used for."""

import os
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table

from fcco_lab.cli.options import DataDir

if TYPE_CHECKING:
    from fcco_lab.datasets import Found

__all__ = ["data", "sizes", "uses"]

DIGITS = "1,437 + 360 of 8 x 8"

_FIGURES = {"cifar100": ["figure 2"], "svhn": ["figure 3"], "fashion_mnist": ["figure 4"]}
_OTHERS = {"digits": ["demo, quick runs"], "tinyimagenet100": ["reproduce: 100 tasks"]}


def data(data_dir: DataDir = None) -> None:
    """Which data sets are there, which are missing, and where to put them."""
    from fcco_lab.datasets import available

    console = Console(highlight=False)
    directory = data_dir or os.environ.get("FCCO_DATA")
    sets = available(data_dir)
    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0))
    for heading in ("name", "kind", "found", "train + test", "used by"):
        table.add_column(heading, no_wrap=heading in ("name", "kind"), overflow="fold")
    for found in sets:
        there = "[dim]missing[/dim]" if found.path is None else _completeness(found)
        table.add_row(found.name, found.kind, there, sizes(found), uses(found.name))
    console.print(table)
    missing = [found for found in sets if found.path is None]
    for found in missing:
        console.print(f"{found.name}: {_remedy(found)}", soft_wrap=True, markup=False)
    where = f"looked in {directory}" if directory else "no directory was named"
    console.print(
        f"{len(sets) - len(missing)} of {len(sets)} are there; {where}; name "
        f"{'another' if directory else 'one'} with --data-dir or the variable FCCO_DATA",
        soft_wrap=True,
        markup=False,
    )


def sizes(found: "Found") -> str:
    """How many samples of which shape, if that is written in the head of a file."""
    from fcco_lab.datasets.headers import npz_shapes

    if found.name == "digits":
        return DIGITS
    if found.path is None or found.path.suffix != ".npz":
        return ""
    try:
        shapes = npz_shapes(found.path)
        (train, *shape), (test, *_) = shapes["x_train"], shapes["x_test"]
    except (KeyError, ValueError):
        return "cannot be read"  # loading it says why
    text = f"{train:,} + {test:,} of {' x '.join(map(str, shape))}"
    if found.kind == "ranking" and "q_train" in shapes:
        text += f", {shapes['q_train'][0]:,} + {shapes['q_test'][0]:,} queries"
    return text


def uses(name: str) -> str:
    """Which experiments read a set: the paper's, those we add, else which objectives fit it.

    Examples:
        >>> uses("svhn")
        'paper: tables, figure 1, figure 3'
        >>> uses("surv_gbsg")
        'train: cox'
    """
    from fcco_lab.datasets.catalogue import kind_of_name
    from fcco_lab.reproduction.scales import PAPER_SETS
    from fcco_lab.training.objectives import OBJECTIVES

    parts = []
    if name in PAPER_SETS:
        parts.append(", ".join(["paper: tables", "figure 1", *_FIGURES.get(name, ())]))
    parts += _OTHERS.get(name, [])
    if not parts:
        kind = kind_of_name(name)
        parts.append("train: " + ", ".join(o for o, (k, _) in OBJECTIVES.items() if k == kind))
    return "; ".join(parts)


def _completeness(found: "Found") -> str:
    assert found.path is not None
    return found.note if found.name == "digits" else f"{found.path.name} ({found.note})"


def _remedy(found: "Found") -> str:
    """What to put where."""
    from fcco_lab.datasets.catalogue import STEMS
    from fcco_lab.datasets.official_layouts import LAYOUTS

    keys = " ".join(f"{stem}_{part}" for part in ("train", "test") for stem in STEMS[found.kind])
    files = [f"{found.name}.npz with {keys}", *map(str, LAYOUTS.get(found.name, ()))]
    note = found.note
    if found.name == "digits":
        return note
    return f"{note}, and put into the directory {'; or '.join(files)}"
