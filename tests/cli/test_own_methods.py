"""Methods and objectives of a user: as ``module:name`` in a command, as objects in Python."""

import dataclasses
import json
import sys

import numpy as np
import pytest
import torch
from cli.command import SMALL, call, run_jobs

import fcco
import fcco_lab
from fcco.methods import REGISTRY
from fcco_lab.comparison import parse_contenders
from fcco_lab.presentation.naming import in_order
from fcco_lab.presentation.styles import styles
from fcco_lab.runs import read_runs
from fcco_lab.training.config import choices_of
from fcco_lab.tuning import tuned_keys

MINE = """
import fcco
from fcco.methods import Method, WeightRow, Weights


TWIN = Method("twin", inner=fcco.methods.SOX.inner, gradient=fcco.methods.SOX.gradient)
NUMBER = 3


class TwinAUC(fcco.objectives.MultiTaskAUC):
    pass


def objective(train):
    return fcco.objectives.MultiTaskAUC(train.classes)


def both(train):
    return train.inputs.clone(), objective(train)


def three(train):
    return train.inputs, None, objective(train)


class Unsampled(fcco.Objective):
    def __init__(self, labels):
        self.num_blocks, self.inner_dim = labels.shape[1], 1

    def outer(self, u, blocks):
        return u[:, 0]
"""


@pytest.fixture
def here(tmp_path, monkeypatch, request):
    """A directory with a module of its own name, as another test may have imported one."""
    name = f"mine_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return name


def test_an_own_twin_trains_like_the_original(tmp_path, capsys, here):
    runs = {
        "sox": ("--method", "sox"),
        "method": ("--method", f"{here}:TWIN"),
        "class": ("--method", "sox", "--objective", f"{here}:TwinAUC"),
        "function": ("--method", "sox", "--objective", f"{here}:objective"),
        "inputs too": ("--method", "sox", "--objective", f"{here}:both"),
    }
    for name, words in runs.items():
        objective = () if "--objective" in words else ("--objective", "auc")
        done = call(capsys, "train", *SMALL, *words, *objective, "--output", tmp_path / name)
        assert done.code == 0, done.err
        first, other = (
            torch.load(tmp_path / run / "model.pt", weights_only=True) for run in ("sox", name)
        )
        assert all(torch.equal(first[key], other[key]) for key in first)
    # Changed code is another run.
    (tmp_path / f"{here}.py").write_text(MINE + "# changed")
    words = (
        "train",
        *SMALL,
        "--objective",
        "auc",
        *runs["method"],
        "--output",
        tmp_path / "method",
    )
    done = call(capsys, *words)
    assert (done.code, "holds another run (method_source is" in done.err) == (1, True), done.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--method", "gone:X"), "method 'gone:X': cannot import 'gone' from"),
        (
            ("--method", "{}:TWINE"),
            "method '{}:TWINE': the module has no 'TWINE' (did you mean 'TWIN",
        ),
        (
            ("--method", "{}:NUMBER"),
            "method '{}:NUMBER' must be a fcco.methods.Method or Entry, got",
        ),
        (("--objective", "{}:NUMBER"), "objective {}:NUMBER must be a subclass of fcco.Objective"),
        (
            ("--objective", "{}:three"),
            "objective {}:three: tuple does not know the samples of its blocks",
        ),
        (
            ("--objective", "{}:Unsampled"),
            "objective {}:Unsampled: Unsampled does not know the samples of its blocks",
        ),
    ],
)
def test_what_is_wrong_with_a_name_is_said(tmp_path, capsys, here, words, message):
    done = call(capsys, "train", *SMALL, *(word.format(here) for word in words))
    assert done.code == 1
    assert done.err.splitlines()[-1].startswith(f"fcco: {message.format(here)}")


def test_a_step_rule_may_follow_a_name(here):
    found = parse_contenders([f"{here}:TWIN", f"{here}:TWIN:plain", "sox:plain"], "adam")
    assert found == [(f"{here}:TWIN", "adam"), (f"{here}:TWIN", "plain"), ("sox", "plain")]


@pytest.mark.parametrize(("objective", "inputs"), [("auc", 8), ("ap", 5 + 8)])
def test_work_is_that_of_the_steps_of_sox_also_with_fewer_blocks_than_a_step_may_have(
    tmp_path, objective, inputs
):
    """Two classes are one AUC task: a step passes 8 inputs, not 5 x 8; of AP 5 anchors and 8."""
    x, y = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 2
    np.savez(tmp_path / "two.npz", x=x, y=y)
    settings = {"network": "linear", "samples_per_block": 8, "steps": 7, "objective": objective}
    methods = ["sox", "msvrm-v2"]
    one, two = fcco_lab.compare(methods, str(tmp_path / "two.npz"), seeds=1, **settings)
    assert one["config"]["work"] == 7 * 3 * inputs
    assert (one["curve"][-1]["step"], one["curve"][-1]["work"]) == (7, 7 * 3 * inputs)
    assert two["curve"][-1]["work"] >= 7 * 3 * inputs > two["curve"][-2]["work"]


def test_compare_from_python_returns_records_that_report_draws(tmp_path, capsys):
    (x, y), (x_test, y_test) = fcco.data.load_digits()
    objective = fcco.objectives.MultiTaskAUC(y)
    problem = fcco_lab.Problem(
        name="mine",
        train_inputs=x,
        objective=objective,
        network=lambda config: torch.nn.Linear(64, 10),
        test_inputs=x_test,
        measure=lambda scores: {"auc": objective.on(y_test).metric(scores)},
    )
    settings = {"seeds": 2, "work": 3000, "evaluations": 2}
    methods = ["sox", fcco.methods.MSVRM_V2]
    records = fcco_lab.compare(methods, problem, output=tmp_path / "kept", **settings)
    assert [r["status"] for r in records] == ["finished"] * 4
    assert [r["config"]["seed"] for r in records] == [0, 1, 0, 1]
    assert all(r["curve"][-1]["work"] >= 3000 > r["curve"][-2]["work"] for r in records)
    again = fcco_lab.compare(methods, problem, **settings)
    assert [r["auc"] for r in again] == [r["auc"] for r in records], "seeds decide all"
    assert len({r["auc"] for r in records}) == 4
    fcco_lab.write_report(records, tmp_path / "page.html", title="t")
    assert "MSVRM-v2" in (tmp_path / "page.html").read_text().replace("msvrm-v2 Adam", "MSVRM-v2")
    assert read_runs([tmp_path / "kept"]) == [json.loads(json.dumps(r)) for r in records]
    del records[1]["curve"][0]["samples"]
    with pytest.raises(ValueError, match=r"evaluation 0 of .* has None for samples"):
        fcco_lab.write_report(records, tmp_path / "page.html", title="t")


def test_a_registered_method_appears_everywhere(tmp_path, capsys, monkeypatch):
    twin = dataclasses.replace(fcco.methods.SOX, name="twin")
    monkeypatch.setitem(REGISTRY, "twin", fcco.methods.Entry(twin))
    assert "twin" in choices_of("method")
    done = call(capsys, "train", *SMALL, "--method", "twin", "--output", tmp_path / "run")
    assert done.code == 0, done.err
    assert parse_contenders(["twin:plain"], "adam") == [("twin", "plain")]
    assert tuned_keys("twin") == ("lr", "alpha", "beta")
    assert {"twin", "Adatwin", "twin Adam"} <= set(styles(["SOX", "twin", "Adatwin", "twin Adam"]))
    assert in_order(["zeta", "twin Adam", "twin", "MARS"]) == ["MARS", "twin", "twin Adam", "zeta"]
    fcco_lab.write_report(read_runs([tmp_path / "run"]), tmp_path / "page.html", title="t")
    assert "twin Adam" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("key", ["method", "objective"])
def test_compare_refuses_records_of_changed_code(tmp_path, capsys, here, monkeypatch, key):
    monkeypatch.setattr("fcco_lab.comparison.run_jobs", run_jobs)
    for drawing in ("plot_axes", "write_report"):
        monkeypatch.setattr(f"fcco_lab.cli.compare.{drawing}", lambda *_, **__: None)
    own = {"method": f"{here}:TWIN", "objective": f"{here}:objective"}[key]
    names = {"methods": "sox", "objective": "auc"} | {key.replace("method", "methods"): own}
    words = ("compare", "--methods", names["methods"], "--objective", names["objective"])
    words += ("--seeds", 1, "--network", "linear", "--steps", 2, "--evaluations", 1)
    words += ("--output", tmp_path)
    for _ in range(2):
        done = call(capsys, *words)
        assert done.code == 0, done.err
    (tmp_path / f"{here}.py").write_text(MINE + "# changed")
    done = call(capsys, *words)
    assert done.code == 1
    assert f"{own} has changed since {tmp_path / 'runs.jsonl'} was written" in done.err
