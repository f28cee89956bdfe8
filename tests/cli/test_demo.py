"""The demo: what it shows is what was obtained, and the claims beside its figure hold."""

import json

import pytest
from lifelines import CoxPHFitter
from PIL import Image
from typer.testing import CliRunner

from fcco_lab.cli.app import app
from fcco_lab.demo import PARTS, survival
from fcco_lab.demo.neighbours import NEIGHBOURS
from fcco_lab.demo.survival import SURVIVAL


def quiet(done, objective):
    assert 0 <= done <= 1


def run(output, *arguments):
    result = CliRunner().invoke(app, ["demo", "--output", str(output), *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_it_writes_a_table_a_figure_and_the_numbers(tmp_path):
    printed = run(tmp_path, "--share", "0.005")
    with (
        Image.open(tmp_path / "demo.png") as wide,
        Image.open(tmp_path / "demo-narrow.png") as tall,
    ):
        assert wide.width > 2 * wide.height
        assert tall.width < 500 < 2 * tall.width < tall.height
    records = json.loads((tmp_path / "demo.json").read_text())
    names = [(part.title, label) for part in PARTS for label in part.contenders]
    assert [(record["part"], record["contender"]) for record in records] == names
    for record in records:
        assert record["contender"] in printed
        assert f"{record['metric']:.4f}" in printed
        assert record["cost"][0] == 0
        assert record["cost"] == sorted(record["cost"])
        assert len(record["cost"]) == len(record["objective"]) > 1


def test_interrupted_it_shows_what_was_finished(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    label = list(SURVIVAL.contenders)[1]
    monkeypatch.setitem(SURVIVAL.contenders, label, interrupted)
    assert "interrupted" in run(tmp_path, "--share", "0.005")
    assert len(json.loads((tmp_path / "demo.json").read_text())) == 1


def test_the_optimum_is_that_of_lifelines():
    train, _ = survival.load()
    import pandas

    table = pandas.DataFrame(train.x.double().numpy()).assign(
        time=train.times.numpy(), event=train.events.numpy()
    )
    fitted = CoxPHFitter().fit(table, "time", "event")
    mean = -fitted.log_likelihood_ / int(train.events.sum())
    assert survival.optimum() == pytest.approx(mean, abs=1e-6)


def test_the_loss_of_one_patient_has_no_gradient():
    alone, _, ours = (fit(0, 0.02, quiet) for fit in SURVIVAL.contenders.values())
    assert len(set(alone.objective)) == 1
    assert ours.objective[-1] < ours.objective[0]
    assert SURVIVAL.contenders["fcco CoxLoss, 1 patient"](0, 0.02, quiet) == ours


@pytest.mark.slow
def test_the_table_reaches_the_optimum_and_beats_the_naive_mini_batch():
    *_, ours = (fit(1, 1.0, quiet) for fit in SURVIVAL.contenders.values())
    assert ours.objective[-1] < 0.01 < 0.1 < ours.objective[0]
    naive, *fixed, tuned = (fit(1, 1.0, quiet) for fit in NEIGHBOURS.contenders.values())
    assert tuned.objective[-1] < 0.6 * naive.objective[-1]
    assert tuned.objective[-1] < 1.3 * min(outcome.objective[-1] for outcome in fixed)
