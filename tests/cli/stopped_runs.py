"""A small run that is killed at a step of its own, for the tests of its directory."""

import pytest
from cli.command import flags

from fcco_lab.training import Config, Training
from fcco_lab.training.problem import load_problem

SETTINGS = {"network": "linear", "steps": 12, "evaluations": 3, "samples_per_block": 4}
CONFIG = Config(**SETTINGS)
PROBLEM = load_problem(CONFIG)
FLAGS = [*flags(SETTINGS), "--objective=auc"]


def run(output, config=CONFIG, *, at=None, **more):
    """A run; with ``at``, one that is killed there, with the checkpoints of the last two steps."""
    training = Training(config, output=output, problem=PROBLEM, checkpoint_seconds=0.0, **more)
    step = training.learner.step

    def killed():
        if training.step == at:
            raise KeyboardInterrupt
        step()

    training.learner.step = killed
    if at is None:
        return training.run()
    with pytest.raises(KeyboardInterrupt):
        training.run()
    return None


def contents(directory):
    """The bytes of every file by path."""
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
