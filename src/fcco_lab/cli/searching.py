"""Running a search for settings on the cores there are: a grid, or Optuna's trials."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from fcco_lab.cli.pool import Interrupted, run_jobs
from fcco_lab.jobs import RunJob, run_job
from fcco_lab.results import Results
from fcco_lab.runs import Record
from fcco_lab.training import Config
from fcco_lab.training.problem import load_problem
from fcco_lab.tuning.settings import LRS, WEIGHTS, grid, refusal
from fcco_lab.tuning.trial import finished_trials, run_trial, trials_to_run

__all__ = ["Place", "grid_search", "optuna_search"]


@dataclass(frozen=True)
class Place:
    """Where a search reads, writes, runs and talks.

    Args:
        data_dir: where data sets are.
        output: where runs are kept; the same place resumes.
        workers: processes of one thread each; None: all cores.
        console: for progress.
    """

    data_dir: Path | None
    output: Path
    workers: int | None
    console: Console


def grid_search(
    config: Config,
    place: Place,
    *,
    lrs: Sequence[float] = LRS,
    alphas: Sequence[float] = WEIGHTS,
    betas: Sequence[float] = WEIGHTS,
) -> list[Record]:
    """Run what is missing of the grid, kept in ``runs.jsonl``; says which settings are left out.

    Raises:
        Interrupted: see ``run_jobs``.
    """
    blocks = None
    if doubtful := [beta for beta in betas if refusal(replace(config, beta=beta))]:
        # It depends on the data, which is read for this alone.
        blocks = load_problem(config, place.data_dir).objective.num_blocks
        for beta in doubtful:
            if why := refusal(replace(config, beta=beta), blocks):
                place.console.print(f"left out beta={beta:g}: {why}", soft_wrap=True, markup=False)
    points = grid(config, lrs=lrs, alphas=alphas, betas=betas, num_blocks=blocks)
    results, scratch = Results(place.output / "runs.jsonl"), place.output / "unfinished-runs"
    jobs = [RunJob(point, place.data_dir, scratch) for point in points if point.name not in results]
    run_jobs(jobs, run_job, results, console=place.console, workers=place.workers, what="tuning")
    records = [results.records[point.name] for point in points if point.name in results]
    _check_all_done(records, len(points))
    shutil.rmtree(scratch, ignore_errors=True)  # all of it is in the results
    return records


def optuna_search(config: Config, place: Place, *, trials: int) -> list[Record]:
    """Run what is missing of ``trials`` that end or are pruned; returns their records.

    The study is in ``study.log``, and what became of each trial; ``trials.jsonl`` has the curves.

    Raises:
        Interrupted: see ``run_jobs``.
    """
    jobs = trials_to_run(config, trials=trials, output=place.output, data_dir=place.data_dir)
    results = Results(place.output / "trials.jsonl")
    run_jobs(jobs, run_trial, results, console=place.console, workers=place.workers, what="tuning")
    records = finished_trials(config, place.output)
    _check_all_done(records, trials)
    shutil.rmtree(place.output / "unfinished-trials", ignore_errors=True)
    return records


def _check_all_done(records: Sequence[Record], wanted: int) -> None:
    """A signal may have reached a worker alone; the best of a part is not the best."""
    if len(records) < wanted:
        raise Interrupted("a run was interrupted; the same command goes on from here")
