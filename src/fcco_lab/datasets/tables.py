"""Tables of a user, CSV or Parquet, as columns; errors name the file, the column and the row."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fcco_lab.choices import suggestion

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Table", "read_table"]


LARGEST = 3.4028234e38
"""The largest number that a float32 holds."""


class Table:
    """Named columns, and where each of their cells stands in the file.

    Args:
        path: the file.
        columns: the cells of each column, as numbers or texts.
        places: what a user calls each row: "line 2" of a text file, "row 0" of others.

    Examples:
        >>> table = Table(Path("my.csv"), {"age": ["61", "old"]}, ["line 2", "line 3"])
        >>> table.numbers("age")
        Traceback (most recent call last):
        ValueError: my.csv, column 'age', line 3: 'old' is not a number
    """

    def __init__(
        self, path: Path, columns: dict[str, Sequence[Any]], places: Sequence[str]
    ) -> None:
        self.path, self.columns, self.places = path, columns, places

    def __len__(self) -> int:
        return len(self.places)

    def wrong(self, column: str, row: int, what: str) -> ValueError:
        """An error on one cell."""
        return ValueError(f"{self.path}, column {column!r}, {self.places[row]}: {what}")

    def check_column(self, name: str) -> None:
        """Raise a ``ValueError`` with the nearest name if there is no such column."""
        if name not in self.columns:
            found = ", ".join(list(self.columns)[:20])
            raise ValueError(
                f"{self.path} has no column {name!r}{suggestion(name, self.columns)}; it has: "
                f"{found}{', ...' if len(self.columns) > 20 else ''}"
            )

    def numbers(self, name: str) -> NDArray[Any]:
        """A column of finite numbers, or of truth values as 0 and 1."""
        import numpy as np

        try:
            values = np.fromiter(map(float, self.columns[name]), np.float64, len(self))
        except (TypeError, ValueError):
            values = np.array(
                [_TRUTH.get(cell, math.nan) for cell in map(_word, self.columns[name])]
            )
        if not (np.abs(values) <= LARGEST).all():
            self._find_wrong(name)
        return values

    def words(self, name: str) -> list[str]:
        """A column as texts; whole numbers without a fraction, so that 1 and 1.0 are one word."""
        cells = [_word(cell) for cell in self.columns[name]]
        if "" in cells:
            raise self.wrong(name, cells.index(""), "it is empty")
        return cells

    def _find_wrong(self, name: str) -> None:
        for row, cell in enumerate(self.columns[name]):
            if not _word(cell):
                raise self.wrong(name, row, "it is empty")
            try:
                number = float(cell)
            except (TypeError, ValueError):
                raise self.wrong(name, row, f"{str(cell)!r} is not a number") from None
            if not abs(number) <= LARGEST:
                what = "too large for a float32" if math.isfinite(number) else "not finite"
                raise self.wrong(name, row, f"{cell} is {what}")


_TRUTH = {"True": 1.0, "true": 1.0, "TRUE": 1.0, "False": 0.0, "false": 0.0, "FALSE": 0.0}
"""As pandas, JSON and spreadsheets write them."""


def _word(cell: Any) -> str:
    if cell is None or cell != cell:
        return ""
    if isinstance(cell, bool):
        return str(int(cell))
    text = str(cell).strip()
    try:
        number = float(text)
    except ValueError:
        return text
    return str(int(number)) if number.is_integer() else text


def read_table(path: Path) -> Table:
    """The columns of a .csv or .parquet file."""
    return _read_csv(path) if path.suffix.lower() == ".csv" else _read_parquet(path)


def _read_csv(path: Path) -> Table:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file)
        try:
            header = [name.strip() for name in next(reader, [])]
            _check_header(path, header)
            rows, places = [], []
            for row in _full(reader):
                if len(row) != len(header):
                    raise ValueError(
                        f"{path}, line {reader.line_num}: it has {len(row)} cells, the header "
                        f"has {len(header)}"
                    )
                rows.append(row)
                places.append(f"line {reader.line_num}")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path}, after line {reader.line_num}: {error}; save it as UTF-8"
            ) from None
        except csv.Error as error:
            raise ValueError(f"{path}, after line {reader.line_num}: {error}") from None
    if not rows:
        raise ValueError(f"{path} has a header but no rows")
    return Table(path, dict(zip(header, zip(*rows, strict=True), strict=True)), places)


def _full(reader: Iterator[list[str]]) -> Iterator[list[str]]:
    return (row for row in reader if row)  # an empty line is none


def _check_header(path: Path, header: list[str]) -> None:
    if not header:
        raise ValueError(f"{path} is empty: its first line must name the columns")
    if len(header) == 1 and (other := next((c for c in ";\t|" if c in header[0]), None)):
        raise ValueError(f"{path}: columns must be separated by commas, it seems to use {other!r}")
    if all(_is_number(name) for name in header):
        raise ValueError(f"{path}: its first line must name the columns, it has numbers")
    for number, name in enumerate(header, 1):
        if not name:
            raise ValueError(
                f"{path}: column {number} has no name (pandas writes such a column of row numbers "
                "unless it is told index=False)"
            )
        if header.count(name) > 1:
            raise ValueError(f"{path}: the header names {name!r} {header.count(name)} times")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _read_parquet(path: Path) -> Table:
    try:
        from pyarrow import parquet, types
    except ModuleNotFoundError:
        raise ValueError(
            f"reading {path} needs pyarrow: pip install pyarrow, or save the table as .csv or .npz"
        ) from None
    found = parquet.read_table(path)
    if not found.num_rows:
        raise ValueError(f"{path} has no rows")
    columns: dict[str, Sequence[Any]] = {}
    for name, column in zip(found.column_names, found.columns, strict=True):
        if name.startswith("__index_level_"):
            continue  # pandas' row numbers, which it does not show as a column either
        plain = types.is_integer(column.type) or types.is_floating(column.type)
        columns[name] = column.to_numpy() if plain else column.to_pylist()
    return Table(path, columns, [f"row {row}" for row in range(found.num_rows)])
