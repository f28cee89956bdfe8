"""One run of a comparison, in a process of its own."""

import re
import zlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from fcco_lab.runs import Record
from fcco_lab.training import Config, Diverged, Training
from fcco_lab.training.engine import clear
from fcco_lab.training.problem import Problem, load_problem

__all__ = ["RunJob", "run_job"]


@dataclass(frozen=True)
class RunJob:
    """A config, the directory of its data, and a directory for checkpoints."""

    config: Config
    data_dir: Path | None
    scratch: Path


@lru_cache(maxsize=2)
def _problem(key: tuple[tuple[str, object], ...], data_dir: Path | None) -> Problem:
    return load_problem(Config.of(dict(key)), data_dir)


def _read_once(job: RunJob) -> Problem:
    """A worker runs many configs on one data set."""
    of_the_data = ("data", "train_size", "holdout", "objective", "device")
    record = job.config.as_record()
    return _problem(tuple((key, record[key]) for key in of_the_data), job.data_dir)


def run_job(job: RunJob) -> Record:
    """Run to the end; divergence is a result, and an interruption leaves a checkpoint."""
    output = job.scratch / _directory(job.config.name)
    training = Training(job.config, output=output, problem=_read_once(job))
    try:
        record = training.run()
    except Diverged as error:
        record = training.record("diverged", str(error))
    if record["status"] != "running":
        clear(output)
    record["curve"] = [
        {key: _short(value) for key, value in look.items()} for look in record["curve"]
    ]
    return record


def _directory(name: str) -> str:
    """A valid file name: the beginning of the name of the run, and a checksum of all of it."""
    words = re.sub(r"[^A-Za-z0-9=.-]+", "_", name)[:80]
    return f"{words}-{zlib.crc32(name.encode()):08x}"


def _short(value: float) -> float:
    """Six digits for numbers that are not counts: more than a figure shows."""
    return value if isinstance(value, int) else float(f"{value:.6g}")
