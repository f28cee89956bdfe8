"""A method in a file outside the repository runs through the conformance suite."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

MINE = """
import dataclasses
from fcco.methods import SOX, Entry, register

twin = dataclasses.replace(SOX, name="twin")
register(Entry(twin, "twin", values={values}, gradients=1, colours=("#000000", "#ffffff")))
"""


def run_suite(directory, *, values):
    (directory / "mine.py").write_text(MINE.format(values=values))
    words = ["-q", "-p", "mine", "tests/conformance/test_conformance.py"]
    command = [sys.executable, "-m", "pytest", *words, "-k", "twin and calls_and_queries"]
    env = os.environ | {"PYTHONPATH": str(directory)}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True).stdout


def test_own_method(tmp_path):
    assert "1 passed" in run_suite(tmp_path, values=1)
    assert "1 failed" in run_suite(tmp_path, values=2)  # a wrong cost is found
