"""Starting ``fcco train`` with torchrun, as a user would, and looking at its processes."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from distributed.cluster import TORCHS_OWN


@dataclass(frozen=True)
class Done:
    """What torchrun and its processes printed, and how it ended."""

    code: int
    text: str

    @property
    def ours(self):
        """The lines that ``fcco`` ended with."""
        return [line for line in self.text.splitlines() if line.startswith("fcco: ")]


def torchrun(directory, ranks, *words, restarts=0, warnings="error"):
    """``torchrun -m fcco_lab words`` as a process in ``directory``."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    again = [f"--max-restarts={restarts}", "--monitor-interval=0.05", "--no-python"]
    # Not of the launcher, which is torch's own.
    ours = [sys.executable, "-W", warnings, *TORCHS_OWN, "-m", "fcco_lab", *words]
    return subprocess.Popen(
        [sys.executable, *launcher, *again, *ours],
        cwd=directory,
        env=os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "300"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process, *, seconds=300):
    """Wait for it; it is ended if that takes too long."""
    try:
        text, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)  # which it passes on
        raise AssertionError(f"it hangs: {process.communicate(timeout=60)[0]}") from None
    return Done(process.returncode, text)


def workers(process):
    """The ids of its ranks, in their order."""
    tasks = Path(f"/proc/{process.pid}/task").glob("*/children")
    ids = sorted({int(word) for task in tasks for word in task.read_text().split()})
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
        lines = {one: Path(f"/proc/{one}/cmdline").read_bytes().split(b"\0") for one in ids}
        return [one for one, line in lines.items() if b"fcco_lab" in line]
    return []


def started(process, ranks, *, seconds=120):
    """The same, as soon as all are there."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        if len(ids := workers(process)) == ranks:
            return ids
        time.sleep(0.01)
    process.terminate()
    raise AssertionError(f"no {ranks} ranks: {process.communicate()[0]}")


def alive(ids):
    """Those that are still there."""
    return [one for one in ids if Path(f"/proc/{one}").exists()]


def saved(output):
    """The steps of the checkpoints of several ranks that are there."""
    found = output.glob("checkpoints/step-*")
    return sorted(int(path.name.split("-")[1]) for path in found if path.is_dir())


def wait_for_step(process, output, step, *, seconds=120):
    """Until there is a checkpoint of this step or a later one."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        if any(found >= step for found in saved(output)):
            return
        time.sleep(0.005)
    process.terminate()
    raise AssertionError(f"no checkpoint of step {step}: {process.communicate()[0]}")


def evaluations(output):
    """The lines of metrics.jsonl without what a clock decides."""
    lines = map(json.loads, (output / "metrics.jsonl").read_text().splitlines())
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def weights(output):
    """Of the finished run, as anybody would read them."""
    return torch.load(output / "model.pt", weights_only=True)
