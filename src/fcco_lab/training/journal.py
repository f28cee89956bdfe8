"""What a run writes as it goes: its looks as JSON lines, and TensorBoard events."""

import json
from pathlib import Path
from typing import Any

from fcco_lab.files import append, write

__all__ = ["Journal"]


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
        write(self.path, "".join(json.dumps(look) + "\n" for look in looks))
        self._events: Any = None
        if tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            # From here on a reader forgets what a run that was killed had written before.
            onwards = looks[-1]["step"] + 1 if looks else 0
            self._events = SummaryWriter(directory / "tensorboard", purge_step=onwards)

    def add(self, look: dict[str, Any]) -> None:
        """Append; it is on the disk when this returns."""
        append(self.path, json.dumps(look))
        if self._events is not None:
            for name, value in look.items():
                if name != "step":
                    self._events.add_scalar(name, value, look["step"])
            self._events.flush()

    def close(self) -> None:
        """Finish the events file."""
        if self._events is not None:
            self._events.close()
