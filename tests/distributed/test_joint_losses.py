"""A loss on several ranks is the loss of one process that sees their batches together."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from distributed.cluster import finish, start
from distributed.joint import JOBS, run

HERE, SLOW = Path(__file__).parent, pytest.mark.slow


@pytest.mark.parametrize(
    ("world", "parallel", "every"),
    [
        (2, "ddp", 2),
        *(pytest.param(w, p, 1, marks=SLOW) for w in (2, 4) for p in ("ddp", "fsdp")),
    ],
)
def test_ranks_equal_one_process(world, parallel, every, tmp_path):
    # The three tables of any objective differ more from each other than the named losses do.
    names = [name for k, name in enumerate(JOBS) if k % every == 0 or name.startswith("table")]
    finish(start(HERE / "joint.py", world, tmp_path, parallel, *names))
    ranks = [torch.load(tmp_path / f"{rank}.pt") for rank in range(world)]
    for name in names:
        expected = run(name, world, "alone")
        first = ranks[0][name]
        for result in (one[name] for one in ranks):
            assert result["values"] == pytest.approx(expected["values"], rel=1e-12, abs=1e-12), name
            for mine, other in zip(result["weights"], expected["weights"], strict=True):
                torch.testing.assert_close(
                    mine, other, rtol=1e-12, atol=1e-12, msg=lambda m, n=name: f"{n}: {m}"
                )
            for key, tensor in result["state"].items():
                assert tensor.equal(first["state"][key]), (name, key)  # bit by bit on all ranks
                # Sums of steep exponentials hold fewer digits than the scores they are of.
                torch.testing.assert_close(
                    tensor,
                    expected["state"][key],
                    rtol=1e-10,
                    atol=1e-10,
                    msg=lambda m, n=name, k=key: f"{n}, {k}: {m}",
                )


def test_faults_wrappers_and_words(tmp_path):
    finish(start(HERE / "joint_faults.py", 2, tmp_path), timeout=120)


@pytest.mark.slow
def test_lightning_with_two_processes(tmp_path):
    """As a user starts it: one script, of which Lightning starts the second process."""
    pytest.importorskip("pytorch_lightning")
    done = subprocess.run(
        [sys.executable, str(HERE / "lightning_inside.py"), str(tmp_path)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "both trained" in done.stdout
