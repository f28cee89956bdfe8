"""Results that survive interruption: one JSON line per record, appended and flushed."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
        for record in self._parse(text):
            self.records[record["name"]] = record

    @staticmethod
    def _parse(text: str) -> Iterator[dict[str, Any]]:
        for line in text.splitlines():
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                continue
            if isinstance(record, dict) and "name" in record:
                yield record

    def __contains__(self, name: str) -> bool:
        return name in self.records

    def add(self, record: dict[str, Any]) -> None:
        """Append a record; it is on disk when this returns."""
        with self.path.open("a") as file:
            if self._cut_short:
                file.write("\n")  # end the line that a crash left open
                self._cut_short = False
            file.write(json.dumps(record) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.records[record["name"]] = record
