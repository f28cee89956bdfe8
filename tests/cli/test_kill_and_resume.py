"""However a run is stopped, the same command goes on and ends as if nothing had been."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli.command import (
    assert_same_run,
    evaluations,
    finish,
    flags,
    saved_steps,
    start,
    wait_for_step,
)
from cli.storm import PLACES

from fcco_lab.entries import BASELINES
from fcco_lab.training import Config, Training
from fcco_lab.training.config import choices_of
from fcco_lab.training.problem import load_problem

STEPS = 90
SETTINGS = {
    "objective": "auc",
    "steps": STEPS,
    "evaluations": 15,
    "samples_per_block": 4,
    "train_size": 400,
}
KILLS = {"msvrm-v2": 24, "msvrm-v3": 4, "cross-entropy": 3, "min-max": 3}
"""In the fast suite: 24 on a network with BatchNorm and Adam's state, fewer on the others."""


def settings(method):
    update = "plain" if method == "min-max" else "adam"
    network = "mlp" if method in BASELINES else "cnn"
    return SETTINGS | {
        "method": method,
        "update": update,
        "network": network,
        "snapshot_every": 7,
    }


def rage(directory, kills, **changes):
    """Run the storm over several methods, in a process of its own."""
    orders = [
        {
            "config": settings(method) | changes.get(method, {}),
            "output": str(directory / method),
            "kills": count,
            "seed": seed,
            "longest": 0.15,
        }
        for seed, (method, count) in enumerate(kills.items())
    ]
    storm = Path(__file__).with_name("storm.py")
    done = subprocess.run(
        [sys.executable, str(storm), json.dumps(orders)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(kills, json.loads(done.stdout), strict=True))


@pytest.mark.slow
def test_a_storm_of_kills_changes_nothing(tmp_path):
    for method, report in rage(tmp_path, KILLS).items():
        assert report["calm"] == report["exit"] == 0, report
        assert report["kills"] == KILLS[method], report
        if method == "msvrm-v2":
            missed = [place for place in ("a moment", *PLACES) if not report["where"][place]]
            assert not missed, "each of these places was to be hit"
        assert_same_run(tmp_path / method / "calm", tmp_path / method / "stormy")
        assert evaluations(tmp_path / method / "stormy")[-1]["step"] == STEPS
        left = [path.name for path in (tmp_path / method / "stormy").rglob(".*")]
        assert not left, "files of killed processes are still there"


@pytest.mark.slow
def test_a_hundred_kills_of_every_method(tmp_path):
    kills = dict.fromkeys(choices_of("method"), 100)
    # Their steps take a millisecond, and a run must not end before its hundredth kill.
    longer = {method: {"steps": 10 * STEPS} for method in BASELINES}
    for method, report in rage(tmp_path, kills, **longer).items():
        assert report["exit"] == 0, (method, report)
        assert report["kills"] == 100, (method, report)
        assert_same_run(tmp_path / method / "calm", tmp_path / method / "stormy")


def words(method):
    return [
        "train",
        *flags(settings(method)),
        "--output",
        "run",
        "--no-tensorboard",
        "--checkpoint-every=0",
    ]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The directory of a run of MSVRM-v3 that nobody stopped."""
    output = tmp_path_factory.mktemp("undisturbed")
    assert (
        Training(Config.from_dict(settings("msvrm-v3")), output=output).run()["status"]
        == "finished"
    )
    return output


@pytest.mark.slow
def test_the_command_killed_and_stopped(tmp_path, undisturbed):
    """SIGKILL while it trains and while it starts, SIGTERM and SIGINT within a snapshot period."""
    chance, run, stops = random.Random(0), tmp_path / "run", []
    for number, least in (
        (signal.SIGKILL, 1),
        (signal.SIGTERM, STEPS // 3),
        (signal.SIGKILL, 0),
        (signal.SIGINT, STEPS // 2),
    ):
        process = start(tmp_path, *words("msvrm-v3"))
        wait_for_step(process, run, least)
        time.sleep(chance.uniform(0, 0.05))
        process.send_signal(number)
        done = finish(process)
        assert not (run / "model.pt").exists(), "it was stopped too late to show anything"
        assert not done.out, "there are no scores yet"
        assert "Traceback" not in done.err
        if number == signal.SIGKILL:
            assert done.code == -number
            continue
        stops.append(saved_steps(run)[-1])
        assert done.code == 128 + number
        said = f"{number.name}: saved at step {stops[-1]}; the same command goes on from here"
        assert said in done.err
    assert stops[0] < stops[1] < STEPS
    done = finish(start(tmp_path, *words("msvrm-v3")))
    assert done.code == 0
    assert done.out.splitlines()[-2].startswith("test AUC 0.")
    assert_same_run(run, undisturbed)


@pytest.mark.slow
def test_a_stop_at_every_place_of_a_snapshot_period(tmp_path, undisturbed):
    output, steps = tmp_path / "run", []

    class Stopped(Training):
        def __init__(self, *arguments, **more):
            super().__init__(*arguments, **more)
            self.step_of_learner, self.learner.step = self.learner.step, self.step_and_stop

        def step_and_stop(self):
            value = self.step_of_learner()
            signal.raise_signal(signal.SIGTERM)
            return value

    config = Config.from_dict(settings("msvrm-v3"))
    problem = load_problem(config)
    for _ in range(2 * config.snapshot_every):
        training = Stopped(config, output=output, problem=problem)
        record = training.run()
        assert (record["status"], training.signal) == ("running", signal.SIGTERM)
        steps.append(training.step)
    assert steps == list(range(1, len(steps) + 1)), "each start takes one step and stops"
    assert Training(config, output=output).run()["status"] == "finished"
    assert_same_run(output, undisturbed)
