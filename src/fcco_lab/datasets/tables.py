"""A user's tables, CSV or Parquet, read by pandas; errors name file, column and row."""

import csv
import math
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fcco_lab.choices import suggestion
from fcco_lab.datasets.arrays import reading

__all__ = ["Table"]

LARGEST = 3.4028234e38
"""The largest number that a float32 holds."""

_TRUTH = {"true": 1.0, "false": 0.0}


class Table:
    """The columns of a .csv or .parquet file, as numbers or as names.

    A cell that is only a name (a class, a query) is never parsed: 007 and 7 are two names, and so
    are two numbers of nineteen digits.

    Args:
        path: the file.
        names: columns that keep their text, if they are there.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "my.csv"
        ...     _ = path.write_text("age,id\\n61,007\\n62,7\\n")
        ...     table = Table(path, names=["id"])
        >>> table.numbers("age").tolist(), table.names("id")
        ([61.0, 62.0], ['007', '7'])
    """

    def __init__(self, path: Path, names: Iterable[str]) -> None:
        import pandas  # slow to import

        self.path = path
        self.is_csv = path.suffix.lower() == ".csv"
        with reading(path), warnings.catch_warnings():
            warnings.simplefilter("error")  # pandas only warns of rows longer than the header
            if self.is_csv:
                self.frame = pandas.read_csv(
                    path,
                    names=self._read_header(),
                    header=0,
                    index_col=False,
                    dtype=dict.fromkeys(names, str),
                    keep_default_na=False,
                    na_values=[""],
                    float_precision="round_trip",
                    low_memory=False,
                    skip_blank_lines=False,  # so that rows are counted as ``_line`` counts them
                    encoding="utf-8-sig",
                ).dropna(how="all")
            else:
                self.frame = pandas.read_parquet(path)
            if self.frame.empty:
                raise ValueError("it has no rows")
            self.columns = list(map(str, self.frame.columns))
            if len(set(self.columns)) < len(self.columns):
                [(twice, _)] = Counter(self.columns).most_common(1)
                raise ValueError(f"two columns are called {twice!r}")
            self.frame.columns = self.columns  # in Parquet, names may be numbers

    def _read_header(self) -> list[str]:
        """The names as they stand; pandas would rename a column without a name, or a second one."""
        with self.path.open(encoding="utf-8-sig", newline="") as file:
            header = next(csv.reader(file), None)
        columns = [name.strip() for name in header or []]
        if header is not None and columns in ([], [""]):
            raise ValueError("its first line, the header, is blank")
        if "" in columns:
            raise ValueError(
                f"column {columns.index('') + 1} has no name (pandas writes such a column of row "
                "numbers unless it is told index=False)"
            )
        return columns

    def wrong(self, column: str, row: int, what: str) -> ValueError:
        """An error on one cell."""
        place = f"line {self._line(self.frame.index[row])}" if self.is_csv else f"row {row}"
        return ValueError(f"{self.path}, column {column!r}, {place}: {what}")

    def _line(self, row: int) -> int:
        """The line in which a row begins; quoted cells before it may hold several lines."""
        with self.path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            for _ in range(row + 1):  # the header, and the rows before
                next(reader)
            return reader.line_num + 1

    def require(self, column: str, holds: Iterable[bool], what: str) -> None:
        """Raise a ``ValueError`` on the first row where it does not hold."""
        for row, good in enumerate(holds):
            if not good:
                raise self.wrong(column, row, f"{what}, got {self.frame[column].iloc[row]}")

    def check_column(self, name: str) -> None:
        """Raise a ``ValueError`` with the nearest name if there is no such column."""
        if name not in self.columns:
            near = suggestion(name, self.columns)
            raise ValueError(f"{self.path} has no column {name!r}{near}; it has: {self.listing}")

    @property
    def listing(self) -> str:
        """The names of the columns, or the first twenty of them."""
        return ", ".join(self.columns[:20]) + (", ..." if len(self.columns) > 20 else "")

    def numbers(self, name: str, *, exact: bool = False, advice: str = "") -> NDArray[Any]:
        """A column of finite numbers, or of truth values as 0 and 1, in float64.

        Args:
            name: of the column.
            exact: whole numbers that float64 would round are returned as int64.
            advice: the end of the error about a cell that holds something else.
        """
        column = self.frame[name]
        if column.dtype.kind in "biuf":
            values: NDArray[Any] = column.to_numpy(np.float64, na_value=math.nan)
        else:
            values = np.array([_number(cell) for cell in column])
        wrong = ~(np.abs(values) <= LARGEST)
        if wrong.any():
            row = int(wrong.argmax())
            if column.isna().iloc[row]:
                raise self.wrong(name, row, "it is empty")
            cell = repr(str(column.iloc[row]))
            raise self.wrong(name, row, f"{cell} is not a finite float32 number{advice}")
        if exact and column.dtype.kind != "f" and values.max() >= 2**53:
            whole = column if column.dtype.kind in "iu" else _whole_numbers(column)
            if whole is not None:
                if int(max(whole)) >= 2**63:  # a float would round 2^63 - 1
                    raise self.wrong(name, int(values.argmax()), "it is 2^63 or more")
                values = np.asarray(whole, dtype=np.int64)
        return values

    def matrix(self, names: Sequence[str]) -> NDArray[np.float64]:
        """Several features, columns of ``numbers``, side by side."""
        part = self.frame[list(names)]
        if {dtype.kind for dtype in part.dtypes} <= set("biuf"):
            # At once: a table of genes has tens of thousands of columns.
            values: NDArray[np.float64] = part.to_numpy(np.float64, na_value=math.nan)
            if (np.abs(values) <= LARGEST).all():
                return values
        advice = ": encode the column as numbers, or leave it out with drop (--drop)"
        return np.stack([self.numbers(name, advice=advice) for name in names], axis=1)

    def names(self, column: str) -> list[str]:
        """A column of names: the text of each cell, without spaces around it."""
        cells = self.frame[column]
        found: list[str] = cells.astype(str).str.strip().where(cells.notna(), "").tolist()
        if "" in found:
            raise self.wrong(column, found.index(""), "it is empty")
        return found


def _number(cell: Any) -> float:
    """The number in a cell that pandas did not read as one; NaN if there is none."""
    if isinstance(cell, str):
        cell = cell.strip().lower()
        if "_" in cell:  # Python would read 1_0 as 10
            return math.nan
    try:
        return float(_TRUTH.get(cell, cell))
    except (TypeError, ValueError):
        return math.nan


def _whole_numbers(cells: Iterable[Any]) -> list[int] | None:
    """The numbers in cells that ``_number`` can read, if all are whole and none is negative.

    Examples:
        >>> _whole_numbers(["9007199254740993 ", Decimal("2.0")]), _whole_numbers(["1.5"])
        ([9007199254740993, 2], None)
    """
    found = []
    for cell in cells:
        if isinstance(cell, str):
            word = cell.strip().lower()
            number = Decimal(_TRUTH.get(word, word))
        elif isinstance(cell, Decimal):
            number = cell
        else:
            number = Decimal(int(cell) if isinstance(cell, Integral) else float(cell))
        if number < 0 or number != number.to_integral_value():
            return None
        found.append(int(number))
    return found
