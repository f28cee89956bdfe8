"""An Optuna study in a file that several processes share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fcco_lab.training import Config

if TYPE_CHECKING:
    import optuna

__all__ = ["begin_study", "open_study", "trials_over"]


def open_study(config: Config, output: Path, *, place: int = 0) -> optuna.Study:
    """The search of ``config`` in ``output``, created if it does not exist.

    Its name contains all settings that are not tuned, so one directory may hold several searches.

    Args:
        config: the config; lr, alpha and beta are ignored.
        output: an existing directory.
        place: the number of the next trial; each trial has a random stream of its own.
    """
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    bare = replace(config, lr=Config.lr, alpha=Config.alpha, beta=Config.beta)
    return optuna.create_study(
        study_name=bare.name,
        storage=JournalStorage(JournalFileBackend(str(_journal(output)))),
        # Every trial makes a new sampler; with one seed all of them would draw the same.
        sampler=optuna.samplers.TPESampler(seed=(config.seed * 1_000_003 + place) % 2**32),
        pruner=optuna.pruners.MedianPruner(n_warmup_steps=config.evaluations // 4),
        direction="maximize",
        load_if_exists=True,
    )


def begin_study(config: Config, output: Path) -> optuna.Study:
    """Open the study for exclusive use, and queue interrupted trials again."""
    from optuna.trial import TrialState

    output.mkdir(parents=True, exist_ok=True)
    _mend(_journal(output))
    study = open_study(config, output)
    for trial in study.get_trials(states=(TrialState.RUNNING,)):
        study.tell(trial.number, state=TrialState.FAIL)
        if trial.params:
            study.enqueue_trial(trial.params)  # it continues from its checkpoint
    return study


def trials_over(study: optuna.Study) -> list[optuna.trial.FrozenTrial]:
    """The trials that ran to the end or were pruned, not those that were interrupted."""
    from optuna.trial import TrialState

    return study.get_trials(states=(TrialState.COMPLETE, TrialState.PRUNED))


def _journal(output: Path) -> Path:
    return output / "study.log"


def _mend(journal: Path) -> None:
    """Remove the remains of a killed process: its lock and an incomplete line."""
    journal.with_name(f"{journal.name}.lock").unlink(missing_ok=True)
    if journal.exists() and not (lines := journal.read_bytes()).endswith(b"\n"):
        with journal.open("r+b") as file:
            file.truncate(lines.rfind(b"\n") + 1)
