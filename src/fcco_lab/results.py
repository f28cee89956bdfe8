"""Results that survive interruption: one JSON line per record, appended and flushed."""

import json
from pathlib import Path
from typing import Any

from fcco_lab.files import append

__all__ = ["Results"]


class Results:
    """An append-only file of records, each with a unique ``name``.

    A line that a crash left incomplete is skipped, so its record is made again; ``broken`` has the
    numbers of all lines that are no record.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: dict[str, dict[str, Any]] = {}
        self.broken: list[int] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_bytes() if path.exists() else b""
        self._cut_short = bool(text) and not text.endswith(b"\n")
        for number, line in enumerate(text.split(b"\n"), 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line.decode())
                name = record["name"]
            except (ValueError, KeyError, TypeError, RecursionError):
                name = None
            if isinstance(name, str):
                self.records[name] = record
            else:  # missing, or no text: it is of no record of ours
                self.broken.append(number)

    def __contains__(self, name: str) -> bool:
        return name in self.records

    def add(self, record: dict[str, Any]) -> None:
        """Append a record; it is on disk when this returns."""
        if self._cut_short:
            append(self.path, "")  # end the line that a crash left open
            self._cut_short = False
        append(self.path, json.dumps(record))
        self.records[record["name"]] = record
