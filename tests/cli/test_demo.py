"""The demo: what it shows is what was obtained, and the claims beside its figure hold."""

import json

import pandas
import pytest
import torch
from lifelines import CoxPHFitter
from PIL import Image
from typer.testing import CliRunner

from fcco_lab.cli.app import app
from fcco_lab.demo import PARTS, batch_sizes
from fcco_lab.demo.batch_sizes import COX, F1
from fcco_lab.demo.methods import METHODS


def quiet(done, objective):
    assert 0 <= done <= 1


def run(output, *arguments):
    result = CliRunner().invoke(app, ["demo", "--output", str(output), *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_it_writes_a_table_a_figure_and_the_numbers(tmp_path):
    printed = run(tmp_path, "--share", "0.01")
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
        assert f"{record['objective'][-1]:.2g}" in printed
        assert len(record["cost"]) == len(record["objective"]) > 1


def test_interrupted_it_shows_what_was_finished(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setitem(F1.contenders, "fcco F1Loss", interrupted)
    assert "interrupted" in run(tmp_path, "--share", "0.01")
    assert len(json.loads((tmp_path / "demo.json").read_text())) == 1


def test_the_optimum_is_that_of_lifelines():
    x, times, events = batch_sizes.load_patients()
    table = pandas.DataFrame(x.numpy()).assign(time=times.numpy(), event=events.numpy())
    fitted = CoxPHFitter().fit(table, "time", "event")
    mean = -fitted.log_likelihood_ / int(events.sum())
    assert batch_sizes.cox()[1]["best"] == pytest.approx(mean, abs=1e-6)


@pytest.mark.parametrize(
    "part", [pytest.param(F1, marks=pytest.mark.slow), COX], ids=lambda part: part.title
)
def test_the_loss_of_one_sample_teaches_nothing(part):
    of_batch, ours = (fit(0, 0.2, quiet) for fit in part.contenders.values())
    assert ours.cost == of_batch.cost == [64, 16, 4, 1]
    assert ours.objective[-1] < 0.7 * of_batch.objective[-1]
    torch.manual_seed(0)
    problem = batch_sizes.patients() if part is COX else batch_sizes.rare_digits()
    model = torch.nn.Linear(problem.x.shape[1], 1)
    before = problem.exact(model(problem.x)[:, 0].detach())
    assert of_batch.objective[-1] == pytest.approx(before, rel=0.02)


def test_the_least_share_is_enough_for_a_curve():
    for fit in METHODS.contenders.values():
        assert fit(0, 0.001, quiet).objective


@pytest.mark.slow
def test_the_claims_beside_the_figure():
    for part in (F1, COX):
        of_batch, ours = (fit(1, 1.0, quiet) for fit in part.contenders.values())
        assert max(ours.objective) < 0.7 * max(of_batch.objective)
        assert ours.objective[-1] < 1.4 * ours.objective[0]
    lbfgs, sox, *ours = (fit(1, 1.0, quiet) for fit in METHODS.contenders.values())
    for anchored in ours:
        assert anchored.objective[-1] < 0.1 * sox.objective[-1]
        assert len(lbfgs.cost) < len(anchored.cost)
