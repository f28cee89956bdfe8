"""Running ``fcco`` as a user would, and reading what a run has left."""

import contextlib
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass

import pytest
import torch

from fcco_lab import cli
from fcco_lab.results import Results

SMALL = ("--network", "linear", "--steps", "20", "--evaluations", "2", "--no-tensorboard")
"""A run of a moment."""


def flags(settings):
    """Settings as words of a command."""
    words = []
    for key, value in settings.items():
        name = key.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{name}" if value else f"--no-{name}")
        else:
            words.append(f"--{name}={value}")
    return words


@dataclass(frozen=True)
class Done:
    """What a command printed and how it ended."""

    code: int
    out: str
    err: str


def call(capsys, *words):
    """``fcco words`` in this process, through the same door as the command."""
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        patch.setattr(sys, "argv", ["fcco", *map(str, words)])
        patch.setattr("warnings.showwarning", None)  # which the command sets; undone at the end
        patch.setenv("COLUMNS", "300")
        ended = stack.enter_context(pytest.raises(SystemExit))
        capsys.readouterr()
        cli.main()
    code, said = ended.value.code, capsys.readouterr()
    if isinstance(code, str):  # sys.exit("...") prints it on the way out
        return Done(1, said.out, said.err + code + "\n")
    return Done(code or 0, said.out, said.err)


def run_jobs(jobs, work, path, **_):
    """As that of ``fcco_lab.pool``, but in this process: others take seconds to start."""
    results = Results(path)
    for name, job in jobs.items():
        if name not in results:
            results.add(work(job))
    return [results.records[name] for name in jobs]


def start(directory, *words, **environment):
    """``fcco words`` as a process in ``directory``, with nothing read ahead of the clock."""
    return subprocess.Popen(
        [sys.executable, "-m", "fcco_lab", *map(str, words)],
        cwd=directory,
        env=os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "300"} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process, *, seconds=600):
    """Wait for it."""
    out, err = process.communicate(timeout=seconds)
    return Done(process.returncode, out, err)


def wait_for_step(process, output, step, *, seconds=120):
    """Until the run in ``output`` has a checkpoint of this step or a later one."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        if any(found >= step for found in saved_steps(output)):
            return
        time.sleep(0.005)
    process.kill()
    raise AssertionError(f"no checkpoint of step {step} in {output}: {finish(process)}")


def saved_steps(output):
    """Of the checkpoints that are there."""
    return sorted(int(path.stem.split("-")[1]) for path in output.glob("checkpoints/step-*.pt"))


def evaluations(output):
    """The lines of metrics.jsonl without what a clock decides."""
    lines = map(json.loads, (output / "metrics.jsonl").read_text().splitlines())
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def assert_same_run(one, two):
    """Bit-identical weights, the same evaluations, and each step evaluated once."""
    left, right = (torch.load(path / "model.pt", weights_only=True) for path in (one, two))
    assert left.keys() == right.keys()
    for name in left:
        assert torch.equal(left[name], right[name]), f"{name} differs"
    assert evaluations(one) == evaluations(two)
    steps = [point["step"] for point in evaluations(one)]
    assert steps == sorted(set(steps))
    assert steps[0] == 0
