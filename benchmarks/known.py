"""Results of a benchmark, in a file that is written as soon as one is known."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from fcco_lab.files import write

__all__ = ["Known", "arguments"]


class Known:
    """Results by key; what the file has is not computed again.

    Args:
        path: a JSON file, or where it will be.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.results = json.loads(path.read_text()) if path.exists() else {}

    def of(self, key: str, compute: Callable[[], Any]) -> Any:
        """The result of ``key``, computed if it is not known."""
        if key not in self.results:
            self.results[key] = compute()
            write(self.path, json.dumps(self.results, indent=0))
        return self.results[key]


def arguments(description: str | None) -> argparse.Namespace:
    """``--output`` as ``known``, and ``--data-dir``; the process has one thread from here on."""
    parser = argparse.ArgumentParser(description=(description or "").split("\n")[0])
    parser.add_argument("--data-dir", type=Path, help="default: FCCO_DATA")
    parser.add_argument(
        "--output", type=lambda path: Known(Path(path)), dest="known", required=True
    )
    torch.set_num_threads(1)
    return parser.parse_args()
