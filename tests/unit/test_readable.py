"""A step stays readable: it runs through few functions of few files."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import calls


def test_one_steady_step_is_short():
    counted = calls.count(calls.msvrm_v2_adam)
    files = {file for file, _ in counted}
    assert counted.total() <= 120, sorted(counted.items())
    assert len(files) <= 16, sorted(files)
    assert "kernel/step.py" in files
