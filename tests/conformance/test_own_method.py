"""A method in a file outside the repository runs through the conformance suite."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

MINE = """
import dataclasses
from fcco.methods import SOX, Entry, register

register(Entry(dataclasses.replace(SOX, name="twin"), defaults={{"beta": "auto"}}))

from support.reference import EQUATIONS  # the catalogue lists what is registered by now

EQUATIONS["twin"] = {equations}
"""


def run_suite(directory, equations):
    (directory / "mine.py").write_text(MINE.format(equations=equations))
    words = ["-q", "-p", "mine", "tests/conformance/test_conformance.py", "tests/trajectory"]
    words += ["-m", "", "-k", "twin and (calls or plain-linear-4-3)"]
    command = [sys.executable, "-m", "pytest", *words]
    path = os.pathsep.join(map(str, (directory, ROOT / "src", ROOT / "tests")))
    env = os.environ | {"PYTHONPATH": path}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True).stdout


@pytest.mark.slow
def test_own_method(tmp_path):
    right, wrong = {"u": "SOXE", "z": "momentum"}, {"u": "MSVR", "z": "momentum"}
    said = run_suite(tmp_path, right)
    assert " passed" in said, said
    assert " failed" not in said, said
    assert " failed" in run_suite(tmp_path, wrong | {"gamma": 0.7})  # wrong equations are found
