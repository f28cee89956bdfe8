"""``fcco tune``: the sequence, what is chosen, and going on after an interruption."""

import json

import pytest
import torch
from cli.command import call

from fcco_lab.datasets import load_classes
from fcco_lab.training import Config, read_toml
from fcco_lab.training.problem import load_problem
from fcco_lab.tuning import best_first, for_tuning, sobol

TINY = ("--network", "linear", "--steps", "10", "--evaluations", "2", "--workers", "1")


def test_the_sequence_covers_the_ranges_evenly():
    points = sobol(Config(), 64)
    assert points[:20] == sobol(Config(), 20), "more trials go on where fewer ended"
    assert points != sobol(Config(seed=1), 64)
    for key in ("alpha", "beta"):
        values = torch.tensor([getattr(point, key) for point in points])
        assert 0.05 <= values.min() < values.max() <= 0.95
        counts = torch.histc(values, 4, 0.05, 0.95)
        assert (counts == 16).all(), "a quarter in each quarter"
    logs = torch.tensor([point.lr for point in points]).log10()
    assert (torch.histc(logs, 4, -4, 0) == 16).all()
    plain = sobol(Config(update="plain"), 64)
    assert max(point.lr for point in plain) > 10
    assert all(point.alpha == 0.3 for point in sobol(Config(method="soap", alpha=0.3), 4))


@pytest.mark.slow
def test_the_best_is_kept_and_more_trials_go_on(tmp_path, capsys):
    words = ("tune", *TINY, "--method", "sox", "--objective", "auc", "--output", tmp_path)
    done = call(capsys, *words, "--trials", 2)
    assert done.code == 0, done.err
    before = (tmp_path / "runs.jsonl").read_text()
    done = call(capsys, *words, "--trials", 4)
    text = (tmp_path / "runs.jsonl").read_text()
    assert text.startswith(before), "nothing was run twice"
    records = [json.loads(line) for line in text.splitlines()]
    assert len(records) == 4
    best = max(records, key=lambda record: record["auc"])
    config = Config.from_dict(best["config"])
    settings = f"lr={config.lr:g} alpha={config.alpha:g} beta={config.beta:g}"
    assert done.out.splitlines()[-1] == f"best: {settings} held-out AUC {best['auc']:.4f}"
    assert "4 settings: 4 finished" in " ".join(done.out.split())
    given = read_toml(tmp_path / "best.toml")
    assert Config.from_dict(given).as_record() == best["config"] | {"holdout": 0.0}
    assert given.pop("objective") == "auc", "of which a command has a default of its own"
    assert all(value != getattr(Config(), key) for key, value in given.items())


def test_what_diverged_is_never_the_best():
    config = {"seed": 0}
    records = [
        {"status": "finished", "auc": 0.9, "objective": 0.2, "config": config},
        {"status": "finished", "auc": 0.9, "objective": 0.1, "config": config},
        {"status": "finished", "auc": float("nan"), "objective": 0.0, "config": config},
        {"status": "diverged", "auc": 1.0, "objective": 0.0, "config": config},
    ]
    assert best_first(records) == [records[1], records[0]]


def test_tuning_sees_a_part_of_the_training_set_and_nothing_of_the_test_set():
    train, test = load_classes("digits")
    problem = load_problem(for_tuning(Config()))

    def pixels(inputs):
        """As counts from 0 to 16 again, whatever they were standardised by."""
        low, high = inputs.min(), inputs.max()
        return {
            tuple(row) for row in ((inputs - low) / (high - low) * 16).round().flatten(1).tolist()
        }

    held_out, fitted = pixels(problem.test_inputs), pixels(problem.train_inputs)
    assert held_out | fitted == pixels(train.inputs)
    assert not held_out & fitted
    assert not held_out & pixels(test.inputs)
    assert len(problem.test_inputs) == round(0.2 * len(train))
    assert (problem.classes.bincount() > 80).all(), "every class has its share"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--data", "digit"), "did you mean 'digits'"),
        (("--data", "usps", "--data-dir", "."), "no usps in"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_runs(
    tmp_path, capsys, monkeypatch, words, message
):
    monkeypatch.chdir(tmp_path)
    done = call(capsys, "tune", *words)
    assert done.code == 1
    assert message in done.err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_nothing_but_divergence_is_an_error(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("fcco_lab.cli.tune.sobol", lambda config, trials: [diverging(config)])
    done = call(capsys, "tune", *TINY, "--update", "plain", "--output", tmp_path)
    assert done.code == 1
    assert "none of 1 settings came to an end: diverged at step" in done.err


def diverging(config):
    return Config.from_dict(config.as_record() | {"lr": 3e38, "network": "mlp"})
