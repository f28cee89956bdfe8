"""One run of a comparison, in a process of its own."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from fcco_lab.files import file_name
from fcco_lab.named_objects import is_named
from fcco_lab.runs import Record
from fcco_lab.training import Config, Diverged, Training
from fcco_lab.training.config import OF_OBJECTIVE
from fcco_lab.training.problem import Problem, load_problem

__all__ = ["RunJob", "finish", "run_job"]


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
    of_the_data = ("data", "target", "drop", "train_size", "holdout", "objective", "device")
    keys = [*of_the_data, *OF_OBJECTIVE, *(["method"] if is_named(job.config.method) else [])]
    return _problem(tuple((key, getattr(job.config, key)) for key in keys), job.data_dir)


def run_job(job: RunJob) -> Record:
    """Run to the end; an interruption leaves a checkpoint."""
    output = job.scratch / file_name(job.config.name)
    training = Training(job.config, output=output, problem=_read_once(job))
    record = finish(training)
    if record["status"] != "running" and training.checkpoints is not None:
        training.checkpoints.clear()
    return record


def finish(training: Training) -> Record:
    """Run to the end; divergence is a result."""
    try:
        record = training.run()
    except Diverged as error:
        record = training.record("diverged", str(error))
    record["curve"] = [
        {key: _short(value) for key, value in look.items()} for look in record["curve"]
    ]
    return record


def _short(value: float) -> float:
    """Six digits for numbers that are not counts: more than a figure shows."""
    return value if isinstance(value, int) else float(f"{value:.6g}")
