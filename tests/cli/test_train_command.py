"""``fcco train`` as a user meets it: what it prints, keeps and says when something is wrong."""

import json
import re
import subprocess
import sys

import pytest
import torch
from cli.command import SMALL, assert_same_run, call, evaluations, finish, saved_steps, start
from sklearn.metrics import average_precision_score, roc_auc_score
from torch.nn.functional import one_hot

from fcco.data import load_digits
from fcco.methods import REGISTRY
from fcco_lab.entries import BASELINES
from fcco_lab.networks import build_network
from fcco_lab.training import Config, Training
from fcco_lab.training.checkpoints import Checkpoints
from fcco_lab.training.config import choices_of
from fcco_lab.training.engine import Diverged
from fcco_lab.training.problem import load_problem


def scores_of(output, network):
    """scikit-learn's macro AUC and AP of the log-odds by model.pt, on digits' test set."""
    problem = load_problem(Config())
    model = build_network(network, (1, 8, 8), 10, seed=5)
    model.load_state_dict(torch.load(output / "model.pt", weights_only=True))
    with torch.no_grad():
        scores = model.eval()(problem.test_inputs).double().softmax(1).logit().numpy()
    labels = one_hot(load_digits(seed=0)[1][1]).numpy()
    return (
        roc_auc_score(labels, scores, average="macro"),
        average_precision_score(labels, scores, average="macro"),
    )


@pytest.mark.parametrize("network", ["mlp", "cnn"])
def test_the_last_lines_are_the_test_scores(tmp_path, capsys, network):
    done = call(
        capsys, "train", *SMALL, "--network", network, "--lr", "0.003", "--output", tmp_path / "run"
    )
    assert done.code == 0, done.err
    auc, ap = scores_of(tmp_path / "run", network)
    assert 0.6 < auc < 0.9999, "neither chance nor perfect, or this shows little"
    assert done.out.splitlines()[-2:] == [f"test AUC {auc:.4f}", f"test AP {ap:.4f}"]
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert (record["auc"], record["ap"]) == pytest.approx((auc, ap), abs=1e-6)
    assert str(tmp_path / "run") in done.err


def test_a_finished_run_prints_the_same_at_once(tmp_path, capsys, monkeypatch):
    output = tmp_path / "a [strange] name"  # which a terminal library would take for markup
    first = call(capsys, "train", *SMALL, "--output", output)
    assert first.code == 0, first.err
    assert f"weights, metrics and record: {output}\n" in first.err

    def step(learner):
        raise AssertionError("there is no step to take")

    monkeypatch.setattr("fcco_lab.training.learners.Compositional.step", step)
    again = call(capsys, "train", *SMALL, "--output", output)
    assert (again.code, again.out) == (0, first.out)


def test_restart_begins_anew_and_spares_what_is_not_the_runs(tmp_path, capsys):
    output = tmp_path / "run"
    assert call(capsys, "train", *SMALL, "--output", output).code == 0
    (output / "notes.txt").write_text("mine")
    refused = call(capsys, "train", *SMALL, "--seed", "1", "--output", output)
    assert "holds another run (seed is 0 there, 1 here)" in refused.err
    before = {path: path.read_bytes() for path in output.rglob("*") if path.is_file()}
    for wrong in (("--method", "min-max", "--update", "amsgrad"), ("--data", "usps")):
        done = call(capsys, "train", *SMALL, *wrong, "--restart", "--output", output)
        assert done.code == 1
        assert {path: path.read_bytes() for path in before} == before, "nothing was lost for it"
    again = call(capsys, "train", *SMALL, "--seed", "1", "--restart", "--output", output)
    assert again.code == 0
    assert json.loads((output / "config.json").read_text())["seed"] == 1
    assert len(evaluations(output)) == 3
    assert (output / "notes.txt").read_text() == "mine"


def test_the_same_seed_gives_the_same_bits(tmp_path, capsys):
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        words = ("--network", "cnn", "--seed", seed, "--output", tmp_path / name)
        assert call(capsys, "train", *SMALL, *words).code == 0
    assert_same_run(tmp_path / "a", tmp_path / "b")
    one, other = (torch.load(tmp_path / name / "model.pt", weights_only=True) for name in "ac")
    assert not torch.equal(one["0.weight"], other["0.weight"])


def test_flags_win_over_the_file(tmp_path, capsys, monkeypatch):
    seen = []

    def stop(config, data_dir):
        seen.append(config)
        raise SystemExit

    monkeypatch.setattr("fcco_lab.training.engine.load_problem", stop)
    file = tmp_path / "run.toml"
    file.write_text('lr = 0.5\nalpha = 0.25\nbeta = 0.125\nmethod = "sox"\nsafeguard = false\n')
    settings = ("--alpha", "0.75", "--snapshot-every", "9")
    done = call(capsys, "train", "--config", file, *settings, "--lr", "0.0625", "--gamma", "2")
    assert done.code == 0, done.err
    (config,) = seen
    assert (config.lr, config.alpha, config.beta) == (0.0625, 0.75, 0.125)
    assert (config.method, config.safeguard, config.snapshot_every) == ("sox", False, 9)
    assert (config.gamma, config.network) == (2, "auto")


ERRORS = {
    "a key of the file": (
        ["--config", "FILE"],
        "lernrate = 1",
        r"FILE.*unknown setting 'lernrate'",
    ),
    "near a key": (["--config", "FILE"], "aplha = 1", r"'aplha' \(did you mean 'alpha'\?\)"),
    "type": (["--config", "FILE"], 'lr = "fast"', "FILE: lr must be a number, got 'fast'"),
    "truth": (["--config", "FILE"], "steps = true", "steps must be a whole number, got True"),
    "not TOML": (["--config", "FILE"], "lr : 3", "FILE: Expected '=' after a key"),
    "no file": (["--config", "none.toml"], "", "there is no config file none.toml"),
    "words": (["--config", "FILE"], 'safeguard = "no"', "safeguard must be true or false, got 'no"),
    "method": (["--method", "msvrm-2"], "", r"'msvrm-2' \(did you mean 'msvrm-v2'\?\)"),
    "gamma": (["--gamma", "aeg"], "", r"\(did you mean 'age'\?\); there are: age, .* or a number"),
    "holdout": (["--holdout", "1"], "", r"holdout must lie in \[0, 1\), got 1.0"),
    "nan": (["--lr", "nan"], "", "lr must be positive, got nan"),
    "update": (["--update", "adan"], "", r"'adan' \(did you mean 'adam'\?\)"),
    "data": (["--data", "usp"], "", "did you mean 'usps'"),
    "no directory": (["--data", "usps"], "", "data.dir.*FCCO_DATA"),
    "wrong directory": (["--data", "usps", "--data-dir", "EMPTY"], "", "no usps in EMPTY"),
    "negative": (["--lr", "-1"], "", "lr must be positive, got -1"),
    "no limit": (["--steps", "0"], "", "steps or work"),
    "slopes": (
        ["--method", "bsgd", "--updated-slopes"],
        "",
        "bsgd has no variant with updated slo",
    ),
    "empty output": (["--output", ""], "", "nothing was given for --output"),
    "empty output, in one word": (["--output="], "", "nothing was given for --output"),
    "empty directory": (["--data-dir", ""], "", "nothing was given for --data-dir"),
    "empty config": (["--config", ""], "", "nothing was given for --config"),
    "config of a directory": (["--config", "EMPTY"], "", "EMPTY: Is a directory"),
    "no such device": (["--device", "mars"], "", "Expected one of cpu"),
    "seed": (["--seed", str(2**70)], "", "seed must be below"),
    "nothing to train on": (["--holdout", "0.9999"], "", "have no training sample: holdout"),
    "nothing to test on": (["--holdout", "1e-9"], "", "have no test sample: holdout"),
    "too few": (["--train-size", "5"], "", r"digits: classes \[0, 2.* have no training sample"),
    "rule": (["--method", "cross-entropy", "--update", "normalized"], "", "adam or plain"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_an_error_is_one_line_that_names_the_culprit(tmp_path, capsys, monkeypatch, case):
    words, text, message = ERRORS[case]
    file, empty = tmp_path / "run.toml", tmp_path / "empty"
    file.write_text(text)
    empty.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FCCO_DATA", raising=False)
    places = {"FILE": str(file), "EMPTY": str(empty)}
    done = call(capsys, "train", *(places.get(word, word) for word in words))
    for name, place in places.items():
        message = message.replace(name, re.escape(place))
    assert done.code == 1
    assert not done.out
    (line,) = done.err.splitlines()
    assert line.startswith("fcco: ")
    assert re.search(message, line), line
    assert sorted(tmp_path.iterdir()) == [empty, file], "nothing was begun"


@pytest.mark.parametrize("method", [m for m in choices_of("method") if m not in BASELINES])
def test_a_method_is_built_with_what_it_has_a_use_for(method):
    opt = Training(Config(network="linear", method=method, gamma=0.25)).learner.opt
    assert opt.method == REGISTRY[method].method
    assert (opt.safeguard is not None) == bool(opt.method.gradient.points)
    assert (opt.snapshot_every is not None) == opt.method.anchored
    assert opt.param_groups[0]["gamma"] == (0.25 if opt.method.corrected else 0)


def test_slopes_are_taken_where_the_config_says():
    for method in ("sox", "soap", "msvrm-v1", "msvrm-v2", "mars"):
        config = Config(network="linear", method=method, updated_slopes=True, steps=3)
        training = Training(config)
        assert training.learner.opt.method == REGISTRY[method].method.updated()
        assert training.run()["status"] == "finished"


def test_divergence_names_the_coefficient_and_keeps_the_last_good(tmp_path, capsys):
    wild = ("--update", "plain", "--lr", "1e30", "--steps", "30", "--decay", "none")
    output = tmp_path / "run"
    done = call(capsys, "train", *SMALL, "--network", "mlp", *wild, "--output", output)
    assert done.code == 1
    (line,) = [line for line in done.err.splitlines() if line.startswith("fcco: ")]
    assert re.search(r"diverged at step \d+: .*; lower lr \(it is 1e\+30; try 1e\+29\)", line)
    assert not (output / "model.pt").exists()
    state = Checkpoints(output / "checkpoints").load()
    assert all(value.isfinite().all() for value in state["model"].values())
    record = json.loads((output / "record.json").read_text())
    assert (record["status"], record["reason"]) == ("diverged", line.removeprefix("fcco: "))


def test_an_evaluation_that_overflows_is_divergence_too():
    """It comes first where a step leaves finite weights whose outputs are not."""
    training = Training(Config(network="linear", steps=3))
    for p in training.model.parameters():
        p.data.fill_(1e38)
    with pytest.raises(Diverged, match=r"diverged at step 0: .* not finite; lower lr"):
        training._evaluate()


def test_debug_shows_where_an_error_came_from(tmp_path):
    words = ("train", "--data", "usps", "--output", "run")
    plain, debug = (start(tmp_path, *words, *more, FCCO_DATA="") for more in ((), ("--debug",)))
    plain, debug = finish(plain), finish(debug)
    assert plain.code != 0
    assert debug.code != 0
    assert "Traceback" not in plain.err
    assert len(plain.err.splitlines()) == 1
    assert "Traceback (most recent call last)" in debug.err
    assert "catalogue.py" in debug.err


def test_events_for_tensorboard_have_each_step_once(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    config = Config(network="linear", steps=12, evaluations=4)
    output = tmp_path / "run"

    def run(*, die):
        """Die at the evaluation of step ``die``, after its events and before a save."""
        training = Training(config, output=output, tensorboard=True, checkpoint_seconds=1e9)
        save = training.save

        def killed():
            if len(training.curve) and training.step == die:
                raise KeyboardInterrupt
            save()

        step = training.learner.step
        training.save = killed

        def counted():
            if training.step == die:
                raise KeyboardInterrupt
            return step()

        training.learner.step = counted
        return training.run()

    for die in (0, 6):  # before there is a checkpoint, and after two more evaluations
        with pytest.raises(KeyboardInterrupt):
            run(die=die)
    assert saved_steps(output) == [0]
    run(die=-1)
    events = EventAccumulator(str(output / "tensorboard"))
    events.Reload()
    lines = list(map(json.loads, (output / "metrics.jsonl").read_text().splitlines()))
    assert {"objective", "auc", "ap"} <= set(events.Tags()["scalars"])
    for tag in ("objective", "auc", "ap"):
        found = [(event.step, event.value) for event in events.Scalars(tag)]
        assert [step for step, _ in found] == [0, 3, 6, 9, 12]
        assert [value for _, value in found] == pytest.approx([line[tag] for line in lines])


BLOCKED = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocker())
import fcco
print(fcco.MSVRM.__name__, flush=True)
from fcco_lab.cli import main
sys.argv = ["fcco", "train"]
main()
"""


@pytest.mark.parametrize("name", ["typer", "rich", "sklearn"])
def test_without_the_extras(tmp_path, name):
    # typer itself needs rich, and either may be the first to be missed.
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED.format(names={name})],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "MSVRM\n", "the library itself needs torch alone"
    assert done.returncode == 1
    assert f"this needs {name}" in done.stderr
    assert "pip install 'fcco[lab]'" in done.stderr
    assert "Traceback" not in done.stderr
