"""The command line, as a user would type it."""

import itertools
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import fcco
from fcco_lab import cli
from fcco_lab.cli.app import app
from fcco_lab.demo import CONTENDERS, demo
from fcco_lab.runs import read_runs


def run(*arguments):
    return CliRunner().invoke(app, arguments)


def test_demo_prints_a_table_and_writes_a_plot(tmp_path):
    result = run("demo", "--work", "20000", "--output", str(tmp_path / "out"))
    assert result.exit_code == 0, result.output
    for words in ("cross-entropy", "AdaMSVRM-v3", "test AUC", "queries", "demo.png"):
        assert words in result.output.replace("\n", "")
    assert (tmp_path / "out" / "demo.png").read_bytes().startswith(b"\x89PNG")
    records = read_runs([tmp_path / "out"])
    assert len(records) == len(CONTENDERS) == 13
    for record in records:
        last = record["curve"][-1]
        work = last["values"] + 2 * last["gradients"]
        # an input of an exact pass counts once for all ten tasks, but is asked for by each
        assert last["work"] == work or record["config"]["method"] == "msvrm-v3"
        assert 20000 <= last["work"] <= work
        assert 0 < record["auc"] <= 1


def test_demo_interrupted_shows_what_was_finished(tmp_path, monkeypatch):
    def interrupted(**arguments):
        yield next(demo(**arguments))
        raise KeyboardInterrupt

    monkeypatch.setattr("fcco_lab.cli.demo.run_demo", interrupted)
    result = run("demo", "--work", "20000", "--output", str(tmp_path))
    assert result.exit_code == 0
    assert "interrupted" in result.output
    assert len(read_runs([tmp_path])) == 1


def test_demo_is_deterministic():
    def values():
        records = demo(work=20000, seed=3, report=lambda standing: None)
        for record in itertools.islice(records, 5):  # each method once
            yield [{**look, "seconds": None} for look in record["curve"]]

    assert list(values()) == list(values())


def test_version_and_help():
    assert run("--version").output.strip() == f"fcco {fcco.__version__}"
    assert "demo" in run("--help").output
    done = subprocess.run(
        [sys.executable, "-m", "fcco_lab", "demo", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "--work" in done.stdout


def test_without_the_extras_it_names_the_one_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "typer", None)
    monkeypatch.delitem(sys.modules, "fcco_lab.cli.app")
    with pytest.raises(SystemExit, match=r"needs typer.*pip install 'fcco\[lab\]'"):
        cli.main()
