"""A trial of an Optuna search, in a process of its own."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from fcco_lab.files import file_name
from fcco_lab.runs import Record, main_metric
from fcco_lab.training import Config, Diverged, Progress, Training
from fcco_lab.training.problem import load_problem
from fcco_lab.tuning.settings import refusal, tuned_keys
from fcco_lab.tuning.study import begin_study, open_study, trials_over

if TYPE_CHECKING:
    import optuna

__all__ = ["TrialJob", "finished_trials", "run_trial", "trials_to_run"]

_problem = lru_cache(maxsize=1)(load_problem)  # a worker runs many trials on one data set


@dataclass(frozen=True)
class TrialJob:
    """One trial of a search.

    Args:
        config: the config of every trial, except for the coefficients.
        data_dir: the directory of the data sets.
        output: the directory of the search, with the study and unfinished runs.
        place: the number of the trial, see ``open_study``.
    """

    config: Config
    data_dir: Path | None
    output: Path
    place: int


def trials_to_run(
    config: Config, *, trials: int, output: Path, data_dir: Path | None
) -> list[TrialJob]:
    """The missing ones of ``trials``; interrupted trials are run again first.

    Only one search at a time may use ``output``.
    """
    study = begin_study(config, output)
    place, missing = len(study.trials), trials - len(trials_over(study))
    return [TrialJob(config, data_dir, output, place + k) for k in range(missing)]


def run_trial(job: TrialJob) -> Record:
    """Ask the study for a setting, run it until it ends or is pruned, and tell the study.

    A setting that diverged counts as pruned. A trial that a signal interrupted is not reported.
    """
    import optuna

    study = open_study(job.config, job.output, place=job.place)
    trial = study.ask()
    config = _suggest(trial, job.config)
    scratch = job.output / "unfinished-trials" / file_name(config.name)
    training = Training(config, output=scratch, problem=_problem(job.config, job.data_dir))
    try:
        record = training.run(_judge(trial, training))
    except optuna.TrialPruned:
        record = training.record("pruned", "worse than the median of the others so far")
    except Diverged as error:
        record = training.record("diverged", str(error))
    if record["status"] == "running":
        return record
    trial.set_user_attr("record", {key: record[key] for key in record if key != "curve"})
    if record["status"] == "finished":
        study.tell(trial, record[main_metric(record)])
    else:
        study.tell(trial, state=optuna.trial.TrialState.PRUNED)
    shutil.rmtree(scratch, ignore_errors=True)
    return record


def finished_trials(config: Config, output: Path) -> list[Record]:
    """The record of each finished trial, without the curve."""
    return [trial.user_attrs["record"] for trial in trials_over(open_study(config, output))]


def _suggest(trial: optuna.Trial, config: Config) -> Config:
    # Gradients are small, so good plain step sizes may be far above 1.
    ranges = {
        "lr": (1e-4, 30.0 if config.update == "plain" else 1.0),
        "alpha": (0.05, 1.0),
        "beta": (0.05, 0.95 if refusal(replace(config, beta=1.0)) else 1.0),
    }
    settings = {}
    for key in tuned_keys(config.method):
        drawn = trial.suggest_float(key, *ranges[key], log=key == "lr")
        settings[key] = float(f"{drawn:.3g}")  # more digits make no difference
    return Config.of(config.as_record() | settings)


def _judge(trial: optuna.Trial, training: Training) -> Callable[[Progress], None]:
    """Report every evaluation after the first to the study; a bad trial is pruned here."""
    import optuna

    told = 0

    def report(progress: Progress) -> None:
        nonlocal told
        # A run that continued from a checkpoint has earlier evaluations.
        while told + 1 < len(training.curve):
            told += 1
            look = training.curve[told]
            trial.report(look[main_metric(look)], told)
            if progress.fraction < 1 and trial.should_prune():
                raise optuna.TrialPruned

    return report
