"""Checkpoints that are spoiled or cannot be written; those of several ranks."""

import errno
import os
import pickle
import subprocess
import sys

import pytest
import torch
from cli.command import assert_same_run, saved_steps
from cli.stopped_runs import FLAGS, contents, run

from fcco_lab.training import checkpoints
from fcco_lab.training.checkpoints import Checkpoints


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """The run that nobody stopped."""
    output = tmp_path_factory.mktemp("calm") / "run"
    run(output)
    return output


@pytest.fixture
def stopped(tmp_path):
    """The same, killed after the checkpoints of steps 6 and 7."""
    run(tmp_path / "run", at=7)
    assert saved_steps(tmp_path / "run") == [6, 7], "the last two are kept"
    return tmp_path / "run"


def truncated(path):
    os.truncate(path, path.stat().st_size // 2)


def flipped(path):
    """One bit of a weight, which torch.load would not notice."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0b1000
    path.write_bytes(data)


def emptied(path):
    path.write_bytes(b"")


def garbled(path):
    path.write_bytes(os.urandom(path.stat().st_size))


class Command:
    """What an attacker puts into a pickle."""

    def __reduce__(self):
        return os.mkdir, ("attacked",)


def unsafe(path):
    torch.save({"state": Command()}, path)


@pytest.mark.parametrize("spoil", [truncated, flipped, emptied, garbled, unsafe])
def test_a_spoiled_checkpoint_is_passed_over(stopped, calm, spoil):
    newest = stopped / "checkpoints" / "step-0000000007.pt"
    spoil(newest)
    with pytest.warns(UserWarning, match=r"step-0000000007.pt cannot be read .*one before") as all:
        record = run(stopped)
    (warning,) = all
    assert str(stopped) in str(warning.message)
    assert len(str(warning.message).splitlines()) == 1
    assert record["status"] == "finished"
    assert_same_run(stopped, calm)
    assert not os.path.exists("attacked")


def test_both_spoiled_start_anew(stopped, calm):
    for path in (stopped / "checkpoints").iterdir():
        emptied(path)
    with pytest.warns(UserWarning, match="cannot be read") as all:
        run(stopped)
    assert len(all) == 2
    assert_same_run(stopped, calm)


@pytest.mark.parametrize("count", [1, 2])
def test_spoiled_ones_do_not_crowd_out_the_new(stopped, count):
    """A second crash, before the run is past the step of the spoiled ones, must not lose more."""
    places = Checkpoints(stopped / "checkpoints")
    for path in places.newest_first()[:count]:
        truncated(path)
    with pytest.warns(UserWarning, match="cannot be read"):
        state = places.load()
    step = 0 if state is None else state["learner"]["steps"]
    assert step == (6 if count == 1 else 0)
    places.save({"step": step}, step=step)
    assert places.load() == {"step": step}, "and no warning: it is the newest"


def test_files_of_others_are_left(tmp_path):
    (tmp_path / "step-best.pt").write_bytes(b"the user's own")
    for step in (8, 9, 10, 11):
        Checkpoints(tmp_path).save({"weights": torch.full((3,), 1.0 * step)}, step=step)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["step-0000000010.pt", "step-0000000011.pt", "step-best.pt"]
    assert Checkpoints(tmp_path).load()["weights"].tolist() == [11.0] * 3


def full(*arguments):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("place", ["write", "fsync", "replace"])
def test_a_full_disk_leaves_what_there_was(tmp_path, monkeypatch, place):
    places = Checkpoints(tmp_path / "checkpoints")
    for step in (1, 2):
        places.save({"step": step}, step=step)
    before = contents(tmp_path)
    if place == "write":
        # /dev/full is such a disk: it takes no byte.
        real = type(tmp_path).open
        monkeypatch.setattr(
            type(tmp_path), "open", lambda path, *mode: real(type(path)("/dev/full"), *mode)
        )
    else:
        monkeypatch.setattr(os, place, full)
    with pytest.raises(OSError, match=r"cannot write a checkpoint to .*: No space left on device"):
        places.save({"step": 3, "weights": torch.zeros(10**6)}, step=3)
    monkeypatch.undo()
    assert contents(tmp_path) == before
    assert places.load() == {"step": 2}


def test_what_cannot_be_pickled_leaves_what_there_was(tmp_path):
    places = Checkpoints(tmp_path)
    places.save({"step": 1}, step=1)
    before = contents(tmp_path)
    with pytest.raises((AttributeError, pickle.PicklingError), match="lambda"):
        places.save({"weights": torch.zeros(10**6), "step": lambda: 2}, step=2)
    assert contents(tmp_path) == before


LIMITED = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)),) * 2)
from fcco_lab.cli import main
main()
"""


@pytest.mark.slow
def test_the_command_on_a_full_disk(stopped):
    """A limit on the size of a file that metrics keep and a checkpoint does not."""
    before = contents(stopped / "checkpoints")
    limit = max(map(len, before.values())) // 2
    command = [sys.executable, "-Bc", LIMITED, str(limit), "train", "--output", "run", *FLAGS]
    done = subprocess.run(
        [*command, "--no-tensorboard", "--checkpoint-every", "0"],
        cwd=stopped.parent,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last == "fcco: cannot write a checkpoint to run/checkpoints: File too large"
    assert "Traceback" not in done.stderr
    assert contents(stopped / "checkpoints") == before


STATE = {
    "step": 7,
    "curve": [{"step": 0, "objective": 0.1 + 0.2}],
    "model": {"0.weight": torch.arange(6.0).view(2, 3), "count": torch.tensor(3)},
    "opt": {
        "state": {0: {"z": torch.ones(2, 3)}, 1: {}},
        "param_groups": [{"lr": 0.1, "params": [0, 1], "shared": {"rows": torch.rand(5, 2)}}],
    },
}


def assert_same(found, kept):
    assert type(found) is type(kept)
    if isinstance(kept, dict | list):
        pairs = kept.items() if isinstance(kept, dict) else enumerate(kept)
        assert len(found) == len(kept)
        for key, part in pairs:
            assert_same(found[key], part)
    elif isinstance(kept, torch.Tensor):
        assert found.dtype == kept.dtype
        assert torch.equal(found, kept)
    else:
        assert found == kept


@pytest.fixture
def sharded(tmp_path):
    """A directory as several ranks write it, after the file of one process."""
    Checkpoints(tmp_path).save({"step": 6}, step=6)
    with pytest.warns(UserWarning, match="in a single process"):
        checkpoints._write_shards(tmp_path / "step-0000000007", STATE)
    return tmp_path


def test_a_directory_of_shards_is_read_by_one_process(sharded):
    assert_same(Checkpoints(sharded).load(), STATE)
    Checkpoints(sharded).save({"step": 8}, step=8)
    assert sorted(path.name for path in sharded.iterdir()) == [
        "step-0000000007",
        "step-0000000008.pt",
    ]
    assert Checkpoints(sharded).load() == {"step": 8}


@pytest.mark.parametrize("name", ["*.distcp", ".metadata", "index.pt"])
@pytest.mark.parametrize("spoil", [truncated, emptied, os.unlink])
def test_a_spoiled_directory_is_passed_over(sharded, name, spoil):
    (file,) = (sharded / "step-0000000007").glob(name)
    spoil(file)
    with pytest.warns(UserWarning, match=r"step-0000000007 cannot be read .*one before"):
        assert Checkpoints(sharded).load() == {"step": 6}


def test_shards_on_a_full_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", full)
    with (
        pytest.warns(UserWarning, match="in a single process"),
        pytest.raises(OSError, match="No space left"),
    ):
        checkpoints._write_shards(tmp_path / "step-0000000007", STATE)
    assert not Checkpoints(tmp_path).newest_first()
