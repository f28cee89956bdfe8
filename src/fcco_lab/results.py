"""Results that survive interruption: one JSON line per record, appended and flushed."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from fcco_lab.files import append

__all__ = ["Results"]


class Results:
    """An append-only file of records, each with a unique ``name``.

    A line that a crash left incomplete is skipped, so its record is made again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: dict[str, dict[str, Any]] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text() if path.exists() else ""
        self._cut_short = bool(text) and not text.endswith("\n")
        for line in text.splitlines():
            # A name that is no text, or missing, is of no record of ours.
            with suppress(ValueError, KeyError, TypeError, RecursionError):
                record = json.loads(line)
                self.records[record["name"]] = record

    def __contains__(self, name: str) -> bool:
        return name in self.records

    def add(self, record: dict[str, Any]) -> None:
        """Append a record; it is on disk when this returns."""
        if self._cut_short:
            append(self.path, "")  # end the line that a crash left open
            self._cut_short = False
        append(self.path, json.dumps(record))
        self.records[record["name"]] = record
