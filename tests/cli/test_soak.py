"""The soak benchmark: what it reports is right, and a minute of it is flat."""

import json
import math
import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import scipy.stats

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "soak.py"


def summary(*, growth=0.0, slowdown=1.0, left_open=0):
    """And verdict on ten minutes that grow by so many MB a minute and slow down to this factor."""
    names, chance = runpy.run_path(str(SCRIPT)), numpy.random.default_rng(0)
    seconds = numpy.arange(1.0, 601.0)
    memory = 700 + growth * seconds / 60 + chance.normal(size=600)
    steps = 0.002 * (1 + (slowdown - 1) * (seconds > 300))
    handles = 9 + left_open * (seconds > 300)
    samples = numpy.stack([seconds, memory, handles, steps, steps / 0.0015], axis=1).tolist()
    found = names["summarize"](samples)
    truth = scipy.stats.linregress(seconds / 3600, memory)
    assert found["megabytes_an_hour"] == pytest.approx(truth.slope)
    assert found["standard_error"] == pytest.approx(truth.stderr)
    return found, list(names["faults"](found))


def test_growth_and_slowdown_are_seen():
    found, faults = summary()
    assert (found["step_last_to_first"], faults) == (1, [])
    _, faults = summary(growth=1.2)
    assert faults == ["memory grows by more than 1 MB a minute"]
    found, faults = summary(slowdown=1.2)
    assert found["step_last_to_first"] == pytest.approx(1.2)
    assert faults == ["steps have slowed down by more than 10 %"]
    assert summary(growth=0.8, slowdown=1.05)[1] == []
    assert summary(left_open=1)[1] == ["files or threads are left open"]


@pytest.mark.slow
def test_a_minute_is_flat(tmp_path):
    done = subprocess.run(
        [sys.executable, SCRIPT, "--minutes=1", "--checkpoint-seconds=15", "--output=soak.json"],
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "soak.json").read_text())
    assert found["blocks"] == 10**7
    assert found["checkpoints"] >= 3
    assert len(found["samples"]) > 30
    assert all(math.isfinite(value) for sample in found["samples"] for value in sample)
