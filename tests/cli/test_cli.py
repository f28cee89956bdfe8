"""The command line, as a user would type it."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import fcco
from fcco import cli
from fcco.cli.app import app
from fcco.experiments.demo import CONTENDERS, demo


def run(*arguments):
    return CliRunner().invoke(app, arguments)


def test_demo_prints_a_table_and_writes_a_plot(tmp_path):
    result = run("demo", "--work", "20000", "--output", str(tmp_path / "out"))
    assert result.exit_code == 0, result.output
    for words in ("cross-entropy adam", "msvrm-v3 normalized", "test AUC", "queries", "demo.png"):
        assert words in result.output.replace("\n", "")
    assert (tmp_path / "out" / "demo.png").read_bytes().startswith(b"\x89PNG")
    records = json.loads((tmp_path / "out" / "demo.json").read_text())
    assert len(records) == len(CONTENDERS) + 1 == 13
    for record in records:
        queries = record["trial"]["queries"]
        work = queries["values"] + 2 * queries["gradients"]
        assert work >= 20000
        assert record["trial"]["curve"][-1][0] == work
        assert 0 < record["auc"] <= 1


def test_demo_interrupted_shows_what_was_finished(tmp_path, monkeypatch):
    def interrupted(**arguments):
        yield next(demo(**arguments))
        raise KeyboardInterrupt

    monkeypatch.setattr("fcco.cli.demo.demo", interrupted)
    result = run("demo", "--work", "20000", "--output", str(tmp_path))
    assert result.exit_code == 0
    assert "interrupted" in result.output
    assert len(json.loads((tmp_path / "demo.json").read_text())) == 1


def test_demo_is_deterministic():
    def values():
        outcomes = demo(work=20000, seed=3, report=lambda work, value: None)
        return [(o.trial.curve, o.auc, o.ap) for o in outcomes]

    assert values() == values()


def test_version_and_help():
    assert run("--version").output.strip() == f"fcco {fcco.__version__}"
    assert "demo" in run("--help").output
    done = subprocess.run(
        [sys.executable, "-m", "fcco", "demo", "--help"], capture_output=True, text=True, check=True
    )
    assert "--work" in done.stdout


def test_without_the_extras_it_names_the_one_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "typer", None)
    monkeypatch.delitem(sys.modules, "fcco.cli.app")
    with pytest.raises(SystemExit, match=r"needs typer.*pip install 'fcco\[experiments\]'"):
        cli.main()
