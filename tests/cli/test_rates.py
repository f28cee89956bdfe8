"""``fcco rates``: it measures, resumes, fits and judges."""

import json

import pytest
import torch
from typer.testing import CliRunner

from fcco_lab.cli.app import app
from fcco_lab.cli.rates import cells
from fcco_lab.results import Results
from fcco_lab.theory.questions import QUESTIONS, Cell, Fit, fit, measure
from fcco_lab.theory.verdicts import judge, verdicts


def test_fit_finds_a_known_exponent_and_its_interval():
    generator = torch.Generator().manual_seed(0)
    xs = [float(2**k) for k in range(8, 14)]
    hits = 0
    for _ in range(60):
        values = [
            x**-0.4 * torch.randn(32, generator=generator, dtype=torch.float64).mul(0.3).exp()
            for x in xs
        ]
        fitted = fit(xs, values)
        assert abs(fitted.slope + 0.4) < 0.1
        hits += fitted.low <= -0.4 <= fitted.high
    assert 50 <= hits <= 60, "a 95 % interval covers about 57 of 60"


def test_measuring_is_deterministic_and_seeds_differ():
    one, two = (measure(Cell("norm-4", 64, 4)) for _ in range(2))
    values, again = one.pop("values"), two.pop("values")
    assert one == two
    # A reduction's order depends on where in memory its tensor lies: the last digit may differ.
    assert values[0] == pytest.approx(again[0], rel=1e-12)
    assert len(set(values[0])) == 4


@pytest.mark.sweep(3)
@pytest.mark.parametrize("key", QUESTIONS)
def test_every_question_can_be_asked(key):
    question = QUESTIONS[key]
    size = {"T": 32, "m": 8, "stages": 2, "accuracy": 1}[question.size]
    record = measure(Cell(key, size, 2))
    assert len(record["xs"]) == len(record["values"])
    assert all(len(values) == 2 for values in record["values"])


def test_verdicts():
    assert judge(QUESTIONS["norm-4"], Fit(-0.31, -0.4, -0.2)) == "appears"
    assert judge(QUESTIONS["norm-4"], Fit(-0.5, -0.6, -0.4)) == "faster"
    assert judge(QUESTIONS["norm-4"], Fit(-0.1, -0.2, 0.0)) == "slower"
    assert judge(QUESTIONS["track-4-m"], Fit(0.9, 0.8, 1.0)) == "steeper"
    assert judge(QUESTIONS["track-4-storm"], Fit(-0.3, -0.4, -0.2)) == "falls: no control"
    assert judge(QUESTIONS["gap-9"], Fit(-2.0, -3.0, -1.0)) == "linear"
    records = [
        {"key": "norm-1", "xs": [x], "values": [[x**-0.25] * 3]} for x in (64.0, 128.0, 256.0)
    ]
    (verdict,) = verdicts(records)
    assert verdict.word == "appears"
    assert verdicts(records[:2]) == []


def test_results_survive_a_line_cut_short(tmp_path):
    path = tmp_path / "deep" / "cells.jsonl"
    results = Results(path)
    results.add({"name": "a", "value": 1})
    with path.open("a") as file:
        file.write('{"name": "b", "val')  # the power went
    again = Results(path)
    assert "a" in again
    assert "b" not in again
    again.add({"name": "b", "value": 2})
    assert Results(path).records == {
        "a": {"name": "a", "value": 1},
        "b": {"name": "b", "value": 2},
    }


def test_command_resumes_and_writes_figures(tmp_path, monkeypatch):
    wanted = [Cell("track-1", x, 2) for x in (16, 32, 64)]
    monkeypatch.setattr("fcco_lab.cli.rates.cells", lambda quick, only: wanted)
    arguments = ["rates", "--output", str(tmp_path), "--workers", "1"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "3/3" in result.output
    before = (tmp_path / "cells.jsonl").read_text()
    again = CliRunner().invoke(app, arguments)
    assert again.exit_code == 0
    assert (tmp_path / "cells.jsonl").read_text() == before, "nothing was run twice"
    (record,) = json.loads((tmp_path / "rates.json").read_text())
    assert record["key"] == "track-1"
    assert (tmp_path / "track-1.png").read_bytes().startswith(b"\x89PNG")


def test_cells_cover_every_question():
    assert {cell.key for cell in cells(quick=True, only=[])} == set(QUESTIONS)
    full = cells(quick=False, only=["norm-4"])
    assert max(c.x for c in full) / min(c.x for c in full) == 2**5
    assert all(cell.runs >= 16 for cell in full)
    with pytest.raises(ValueError, match="unknown question 'norm-40'"):
        cells(quick=True, only=["norm-40"])
