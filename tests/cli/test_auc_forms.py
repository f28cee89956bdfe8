"""AUC by exponentials, by name: what is trained and tested, in ``train`` and ``compare``."""

import json

import pytest
import torch
from cli.command import SMALL, call
from sklearn.metrics import roc_auc_score
from torch.nn.functional import one_hot

import fcco_lab
from fcco.data import load_digits
from fcco.methods import SlopeAt
from fcco_lab.networks import build_network
from fcco_lab.runs import read_runs
from fcco_lab.training import Config, Training
from fcco_lab.training.problem import load_problem

FORM = ("--objective", "auc-exp", "--temperature", "0.5", "--cross-entropy", "0.25")


def outputs(run, inputs):
    model = build_network("linear", (1, 8, 8), 10, seed=5)
    model.load_state_dict(torch.load(run / "model.pt", weights_only=True))
    with torch.no_grad():
        return model(inputs).double()


def log_odds(logits):
    p = logits.softmax(1)
    return p.log() - (1 - p).log()


def value_of(h, labels, *, temperature=0.5, share=0.25):
    """By all pairs of every task."""
    costs = []
    for task in range(labels.shape[1]):
        above, below = h[labels[:, task], task], h[~labels[:, task], task]
        pairs = ((below[:, None] - above) / temperature).exp().mean()
        cost = temperature * pairs.log1p()
        entropy = (-above.sigmoid().log().mean() - (-below).sigmoid().log().mean()) / 2
        costs.append(cost + share * entropy)
    return torch.stack(costs).mean().item()


def test_the_settings_reach_the_objective_and_the_scores(tmp_path, capsys):
    done = call(capsys, "train", *SMALL, *FORM, "--output", tmp_path / "run")
    assert done.code == 0, done.err
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    problem = load_problem(Config())
    test, train = (
        outputs(tmp_path / "run", part) for part in (problem.test_inputs, problem.train_inputs)
    )
    labels = one_hot(load_digits(seed=0)[1][1])
    wanted = value_of(log_odds(train), one_hot(problem.classes).bool())
    assert record["objective"] == pytest.approx(wanted, rel=1e-4)
    ours, others = (
        roc_auc_score(labels, make(test).numpy(), average="macro")
        for make in (log_odds, torch.clone)
    )
    assert abs(ours - others) > 1e-4, "the two rank differently, or this shows nothing"
    assert record["auc"] == pytest.approx(ours, abs=1e-6)


def test_moments_of_log_odds(tmp_path, capsys):
    """The objective of the log-odds of the model, by its definition; tested by log-odds too."""
    words = ["--objective", "auc-odds", "--output", tmp_path / "run"]
    done = call(capsys, "train", *SMALL, *words)
    assert done.code == 0, done.err
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    problem = load_problem(Config())
    h = log_odds(outputs(tmp_path / "run", problem.train_inputs)).sigmoid()
    costs = []
    for task in range(10):
        labels = problem.classes == task
        above, below = h[labels, task], h[~labels, task]
        spread = above.var(correction=0) + below.var(correction=0)
        costs.append(spread + (1 - above.mean() + below.mean()).clamp(min=0) ** 2 / 2)
    assert record["objective"] == pytest.approx(torch.stack(costs).mean().item(), rel=1e-4)
    test = log_odds(outputs(tmp_path / "run", problem.test_inputs)).numpy()
    wanted = roc_auc_score(one_hot(load_digits(seed=0)[1][1]), test, average="macro")
    assert record["auc"] == pytest.approx(wanted, abs=1e-6)


def test_the_one_logit_of_two_classes_is_their_log_odds(tmp_path):
    rows = [f"{k},{-k % 3},{int(k % 5 > 1)}" for k in range(40)]
    (tmp_path / "two.csv").write_text("\n".join(["a,b,label", *rows]))
    learner = Training(Config(data=str(tmp_path / "two.csv"), objective="auc-exp")).learner
    inputs = torch.randn(5, 2)
    assert learner.model(inputs).equal(learner.model.network(inputs))


def test_slopes_are_those_of_updated_rows_where_the_method_can():
    at = {}
    for method in ("sox", "msvrm-v2", "msvrm-v3"):
        for objective in ("auc", "auc-exp"):
            config = Config(method=method, objective=objective, network="linear")
            at[method, objective] = Training(config).learner.opt.method.slope_at
    assert at.pop(("sox", "auc-exp")) is at.pop(("msvrm-v2", "auc-exp")) is SlopeAt.UPDATED
    assert set(at.values()) == {SlopeAt.TABLE}


@pytest.mark.parametrize(
    ("words", "objective"),
    [
        ([], "auc-exp"),
        (["--method", "sox", "--temperature", "2"], "auc-exp"),
        (["--objective", "auc"], "auc"),
        (["--objective", "gap"], "gap"),
        (["--method", "msvrm-v3"], "auc-odds"),
        (["--method", "cross-entropy"], "auc"),
    ],
)
def test_the_default_is_what_suits_the_method(tmp_path, capsys, words, objective):
    done = call(capsys, "train", *SMALL, "--steps", "1", *words, "--output", tmp_path / "run")
    assert done.code == 0, done.err
    assert json.loads((tmp_path / "run" / "config.json").read_text())["objective"] == objective


@pytest.mark.slow
def test_compare_trains_the_same_and_from_python_too(tmp_path, capsys):
    words = ["--methods", "sox,cross-entropy", "--seeds", "1", "--workers", "1", *FORM]
    small = [word for word in SMALL if word != "--no-tensorboard"]
    done = call(capsys, "compare", *small, *words, "--output", tmp_path)
    assert done.code == 0, done.err
    there = {record["config"]["method"]: record for record in read_runs([tmp_path])}
    (here,) = fcco_lab.compare(
        ["sox"],
        seeds=1,
        objective="auc-exp",
        temperature=0.5,
        cross_entropy=0.25,
        **{"network": "linear", "steps": 20, "evaluations": 2},
    )
    assert there["sox"]["objective"] == here["objective"]
    assert there["cross-entropy"]["status"] == "finished"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--objective", "auc", "--temperature", "2"],
            "temperature is a setting of objective",
        ),
        (["--objective", "auc-exp", "--temperature", "0"], "temperature must be positive"),
        (["--objective", "auc-exp", "--cross-entropy", "-1"], "cross_entropy must not be negative"),
        (["--data", "FILE", "--objective", "auc-exp"], "times"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, capsys, words, message):
    file = tmp_path / "s.csv"
    file.write_text("\n".join(["a,time,event", *(f"{k % 7},{1 + k},{k % 2}" for k in range(30))]))
    words = [file if word == "FILE" else word for word in words]
    done = call(capsys, "train", *SMALL, *words, "--output", tmp_path / "run")
    assert done.code == 1
    assert message in done.err
