"""One run of a comparison, in a process of its own."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from fcco_lab.files import file_name, remove
from fcco_lab.named_objects import is_named
from fcco_lab.runs import Record
from fcco_lab.training import Config, Diverged, Training
from fcco_lab.training.config import OF_OBJECTIVE
from fcco_lab.training.problem import Problem, load_problem

__all__ = ["RunJob", "finish", "read_problem", "run_job"]


@dataclass(frozen=True)
class RunJob:
    """A config, the directory of its data, and a directory for unfinished runs."""

    config: Config
    data_dir: Path | None
    scratch: Path


@lru_cache(maxsize=2)
def _load(key: tuple[tuple[str, object], ...], data_dir: Path | None) -> Problem:
    return load_problem(Config.from_dict(dict(key)), data_dir)


def read_problem(config: Config, data_dir: Path | None) -> Problem:
    """The problem of a config, which a worker reads once for many configs on one data set."""
    keys = ["data", "target", "drop", "train_size", "holdout", "objective", "device", *OF_OBJECTIVE]
    if is_named(config.method):
        keys.append("method")
    return _load(tuple((key, getattr(config, key)) for key in keys), data_dir)


def run_job(job: RunJob) -> Record:
    """Run to the end; an interruption leaves a checkpoint."""
    output = job.scratch / file_name(job.config.name)
    problem = read_problem(job.config, job.data_dir)
    record = finish(Training(job.config, output=output, problem=problem))
    if record["status"] != "running":
        remove(output)
    return record


def finish(training: Training) -> Record:
    """Run to the end; divergence is a result."""
    try:
        record = training.run()
    except Diverged as error:
        record = training.record("diverged", str(error))
    record["curve"] = [
        {key: _short(value) for key, value in point.items()} for point in record["curve"]
    ]
    return record


def _short(value: float) -> float:
    """Six digits for numbers that are not counts: more than a figure shows."""
    return value if isinstance(value, int) else float(f"{value:.6g}")
