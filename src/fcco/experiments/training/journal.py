"""What a run writes as it goes: its looks as JSON lines, and TensorBoard events."""

import json
import os
from pathlib import Path
from typing import Any

__all__ = ["Journal", "write_text"]


def write_text(path: Path, text: str) -> None:
    """Write a whole file or nothing: beside, then moved into place."""
    beside = path.with_name(f".{path.name}.writing")
    with beside.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


class Journal:
    """Appends looks to ``metrics.jsonl``.

    A run that goes on from an earlier step first drops the looks after it, for it makes them again.

    Args:
        directory: of the run.
        looks: those up to the step that the run goes on from.
        tensorboard: also write events, in ``tensorboard/``.
    """

    def __init__(self, directory: Path, looks: list[dict[str, Any]], *, tensorboard: bool) -> None:
        self.path = directory / "metrics.jsonl"
        write_text(self.path, "".join(json.dumps(look) + "\n" for look in looks))
        self._events: Any = None
        if tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            last = looks[-1]["step"] if looks else 0
            self._events = SummaryWriter(directory / "tensorboard", purge_step=last + 1)

    def add(self, look: dict[str, Any]) -> None:
        """Append; it is on the disk when this returns."""
        with self.path.open("a") as file:
            file.write(json.dumps(look) + "\n")
            file.flush()
            os.fsync(file.fileno())
        if self._events is not None:
            for name, value in look.items():
                if name != "step":
                    self._events.add_scalar(name, value, look["step"])
            self._events.flush()

    def close(self) -> None:
        """Finish the events file."""
        if self._events is not None:
            self._events.close()
