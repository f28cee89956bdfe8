"""The examples run as they stand, and their objective falls."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOT_INSTALLED = {"datasets", "sentence_transformers"}
"""Packages that an example may need and the tests of the other examples do not."""


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.name)
def test_example(path, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", [str(path), "--quick"])
    try:
        runpy.run_path(str(path))
    except ModuleNotFoundError as error:
        if error.name not in NOT_INSTALLED:
            raise
        pytest.skip(f"needs {error.name}")
    lines = capsys.readouterr().out.splitlines()
    numbers = [
        float(re.findall(r"(?:error|objective|AP|AUC|precision|f\(u\)) ([\d.]+)", x)[0])
        for x in lines
    ]
    assert numbers[-1] < numbers[0], "the objective fell"
