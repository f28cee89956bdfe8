"""``fcco tune``: the grid, Optuna's trials, what is chosen, and going on after an interruption."""

import json
import signal
from itertools import product

import optuna
import pytest

from fcco_lab.cli.tune import show_tune
from fcco_lab.datasets import load_classes
from fcco_lab.training import Config, Training, read_toml
from fcco_lab.training.compositional import Compositional
from fcco_lab.training.problem import load_problem
from fcco_lab.tuning.settings import for_tuning, grid
from fcco_lab.tuning.study import open_study
from fcco_lab.tuning.trial import run_trial, trials_to_run

TINY = Config(network="linear", steps=10, evaluations=5, samples_per_block=8)
PAPER_LRS, PAPER_WEIGHTS = (1e-4, 1e-3, 2e-3, 5e-3, 1e-2), (0.1, 0.5, 0.9, 1.0)


def tune(output, config=TINY, *, search="grid", trials=0, **grids):
    show_tune(
        config, search=search, trials=trials, data_dir=None, output=output, workers=1, **grids
    )


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def trials_of(output, config=TINY):
    return open_study(for_tuning(config), output).trials


def test_grid_is_the_papers_over_the_coefficients_that_a_method_has():
    settings = {(point.lr, point.alpha, point.beta) for point in grid(TINY)}
    assert settings == set(product(PAPER_LRS, PAPER_WEIGHTS, PAPER_WEIGHTS))
    for method, fixed in (("soap", "alpha"), ("bsgd", "beta")):
        points = grid(Config(method=method, alpha=0.3, beta=0.3))
        assert len(points) == 20
        assert {getattr(point, fixed) for point in points} == {0.3}
    for method in ("cross-entropy", "min-max"):
        assert [point.lr for point in grid(Config(method=method))] == list(PAPER_LRS)
    assert len(grid(TINY, lrs=(0.1, 0.1), alphas=(1,), betas=(1,))) == 1


@pytest.mark.filterwarnings("ignore:.*is analysed for beta <= 1/2 only")
@pytest.mark.parametrize("blocks", [5, 10])
def test_grid_leaves_out_exactly_what_the_optimizer_refuses(blocks):
    base = Config(network="linear", steps=2, evaluations=1, gamma="theory", blocks_per_step=blocks)
    kept = {point.beta for point in grid(base, num_blocks=10)}
    for beta in (0.9, 1.0):
        point = Config.of(base.as_record() | {"beta": beta})
        if beta in kept:
            assert Training(point).run()["status"] == "finished"
        else:
            with pytest.raises(ValueError, match="singular at beta=1"):
                Training(point).run()


def test_grid_chooses_the_best_of_its_records_and_resumes(tmp_path, capsys):
    config = Config.of(TINY.as_record() | {"gamma": "theory"})
    grids = {"lrs": (1e-3, 0.1, 3e38), "alphas": (0.5,), "betas": (0.1, 1.0)}
    tune(tmp_path, config, **grids)
    shown = capsys.readouterr().out
    records = lines_of(tmp_path / "runs.jsonl")
    assert [record["config"]["beta"] for record in records] == [0.1] * 3
    assert "left out beta=1:" in shown
    assert "3 settings: 1 diverged, 2 finished" in " ".join(shown.split())
    auc, lr = max((r["auc"], r["config"]["lr"]) for r in records if r["status"] == "finished")
    assert shown.splitlines()[-1] == f"best: lr={lr:g} alpha=0.5 beta=0.1 held-out AUC {auc:.4f}"
    given = read_toml(tmp_path / "best.toml")
    wanted = config.as_record() | {"lr": lr, "beta": 0.1}
    assert Config.of(given).as_record() == wanted
    assert given.pop("objective") == "auc", "of which a command has a default of its own"
    assert all(value != getattr(Config(), key) for key, value in given.items())
    before = (tmp_path / "runs.jsonl").read_text()
    tune(tmp_path, config, **grids)
    assert (tmp_path / "runs.jsonl").read_text() == before, "nothing was run twice"
    assert {path.name for path in tmp_path.iterdir()} == {"runs.jsonl", "best.toml"}


def test_optuna_goes_on_to_exactly_as_many_trials(tmp_path, capsys):
    for job in trials_to_run(for_tuning(TINY), trials=3, output=tmp_path, data_dir=None):
        run_trial(job)  # in this process, to save the start of another
    assert [trial.state.is_finished() for trial in trials_of(tmp_path)] == [True] * 3
    tune(tmp_path, search="optuna", trials=5)
    trials = trials_of(tmp_path)
    assert [trial.state.is_finished() for trial in trials] == [True] * 5
    assert len({trial.params["lr"] for trial in trials}) == 5
    assert all(
        1e-4 <= t.params["lr"] <= 1 and min(t.params["alpha"], t.params["beta"]) >= 0.05
        for t in trials
    )
    assert len(lines_of(tmp_path / "trials.jsonl")) == 2
    best = max((t for t in trials if t.state.name == "COMPLETE"), key=lambda trial: trial.value)
    chosen = Config.of(read_toml(tmp_path / "best.toml"))
    for key, value in best.params.items():
        assert getattr(chosen, key) == pytest.approx(value, rel=0.005)
    assert chosen.holdout == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith(f"AUC {best.value:.4f}")


def one_trial(output, trials=1, config=TINY):
    jobs = trials_to_run(for_tuning(config), trials=trials, output=output, data_dir=None)
    return run_trial(jobs[0])


def at_step(number, what, monkeypatch):
    """Do ``what`` once, at this step of a run."""
    step, seen = Compositional.step, []

    def stepping(self):
        seen.append(None)
        if len(seen) == number:
            what()
        return step(self)

    monkeypatch.setattr(Compositional, "step", stepping)


def test_an_interrupted_trial_goes_on_where_it_was(tmp_path, monkeypatch):
    whole = one_trial(tmp_path / "whole")
    at_step(5, lambda: signal.raise_signal(signal.SIGTERM), monkeypatch)
    assert one_trial(tmp_path)["status"] == "running"
    with (tmp_path / "study.log").open("a") as file:
        file.write('{"op_code": 4, "wor')  # the power went, too
    (tmp_path / "study.log.lock").symlink_to("nobody")
    again = one_trial(tmp_path)
    assert again["name"] == whole["name"]
    for mine, theirs in zip(again["curve"], whole["curve"], strict=True):
        assert mine | {"seconds": 0} == theirs | {"seconds": 0}
    states = [trial.state.name for trial in trials_of(tmp_path)]
    assert states == ["FAIL", "COMPLETE"]
    assert trials_to_run(for_tuning(TINY), trials=1, output=tmp_path, data_dir=None) == []


def test_divergence_is_a_pruned_trial(tmp_path, monkeypatch):
    def overflow():
        raise FloatingPointError("z is not finite")

    at_step(4, overflow, monkeypatch)
    record = one_trial(tmp_path)
    assert record["status"] == "diverged"
    assert "lower lr" in record["reason"]
    assert [trial.state.name for trial in trials_of(tmp_path)] == ["PRUNED"]
    with pytest.raises(ValueError, match="none of 1 settings came to an end: diverged at step 4"):
        tune(tmp_path, search="optuna", trials=1)


def test_a_trial_below_the_median_is_pruned(tmp_path):
    one_trial(tmp_path)
    study = open_study(for_tuning(TINY), tmp_path)
    lr = optuna.distributions.FloatDistribution(1e-4, 1.0, log=True)
    for _ in range(6):
        perfect = optuna.trial.create_trial(
            value=1.0,
            params={"lr": 0.1},
            distributions={"lr": lr},
            intermediate_values=dict.fromkeys(range(1, 6), 1.0),
            user_attrs={"record": {}},
        )
        study.add_trial(perfect)
    record = one_trial(tmp_path, trials=8)
    assert record["status"] == "pruned"
    assert 1 < len(record["curve"]) < 1 + TINY.evaluations
    assert not list((tmp_path / "unfinished-trials").iterdir())


def test_tuning_sees_a_part_of_the_training_set_and_nothing_of_the_test_set():
    train, test = load_classes("digits")
    problem = load_problem(for_tuning(TINY))

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


def test_what_cannot_be_done_is_said_before_anything_runs(tmp_path):
    with pytest.raises(ValueError, match="search must be grid or optuna, got 'random'"):
        tune(tmp_path, search="random")
    with pytest.raises(ValueError, match="did you mean 'digits'"):
        tune(tmp_path, Config(data="digit"))
    with pytest.raises(FileNotFoundError, match="no usps in"):
        show_tune(
            Config(data="usps"),
            search="grid",
            trials=0,
            data_dir=tmp_path,
            output=tmp_path,
            workers=1,
        )
    assert not list(tmp_path.iterdir())
