"""The command line, as a user would type it."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

import fcco
from fcco_lab import cli
from fcco_lab.cli.app import app


def run(*arguments):
    return CliRunner().invoke(app, arguments)


def test_version_and_help():
    assert run("--version").output.strip() == f"fcco {fcco.__version__}"
    assert "demo" in run("--help").output
    done = subprocess.run(
        [sys.executable, "-m", "fcco_lab", "demo", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "--share" in done.stdout


def test_without_the_extras_it_names_the_one_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "typer", None)
    monkeypatch.delitem(sys.modules, "fcco_lab.cli.app")
    with pytest.raises(SystemExit, match=r"needs typer.*pip install 'fcco\[lab\]'"):
        cli.main()
