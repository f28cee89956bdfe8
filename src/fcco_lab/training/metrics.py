"""What a run writes as it goes: its evaluations as JSON lines, and TensorBoard events."""

import json
from pathlib import Path
from typing import Any

from fcco_lab.files import append, write

__all__ = ["MetricsFile"]


class MetricsFile:
    """Appends evaluations to ``metrics.jsonl``.

    A run that goes on from an earlier step first drops the evaluations after it, for it makes them
    again.

    Args:
        directory: of the run.
        curve: the evaluations up to the step that the run goes on from.
        tensorboard: also write events, in ``tensorboard/``.
    """

    def __init__(self, directory: Path, curve: list[dict[str, Any]], *, tensorboard: bool) -> None:
        self.path = directory / "metrics.jsonl"
        write(self.path, "".join(json.dumps(point) + "\n" for point in curve))
        self._events: Any = None
        if tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            # From here on a reader forgets what a run that was killed had written before.
            onwards = curve[-1]["step"] + 1 if curve else 0
            self._events = SummaryWriter(directory / "tensorboard", purge_step=onwards)

    def add(self, point: dict[str, Any]) -> None:
        """Append; it is on the disk when this returns."""
        append(self.path, json.dumps(point))
        if self._events is not None:
            for name, value in point.items():
                self._events.add_scalar(name, value, point["step"])
            self._events.flush()
