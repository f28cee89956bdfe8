"""Checkpoints that are spoiled, cannot be written, or belong to another run."""

import errno
import gc
import json
import os
import pickle
import resource
import signal
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
import torch
from cli.command import SMALL, assert_same_run, call, saved_steps

from fcco_lab.files import beside
from fcco_lab.training import Config, Training
from fcco_lab.training.checkpoints import Checkpoints
from fcco_lab.training.problem import load_problem

CONFIG = Config(network="linear", steps=12, evaluations=3, samples_per_block=4)
PROBLEM = load_problem(CONFIG)
FLAGS = [f"--set={key}={value}" for key, value in CONFIG.as_record().items()]


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    output = tmp_path_factory.mktemp("calm") / "run"
    Training(CONFIG, output=output, problem=PROBLEM).run()
    return output


def stopped(output, *, at=7):
    """A run in ``output`` that was killed after the checkpoints of steps ``at`` - 1 and ``at``."""
    training = Training(CONFIG, output=output, problem=PROBLEM, checkpoint_seconds=0.0)
    step = training.learner.step

    def killed():
        if training.step == at:
            raise KeyboardInterrupt
        return step()

    training.learner.step = killed
    with pytest.raises(KeyboardInterrupt):
        training.run()
    assert saved_steps(output) == [at - 1, at], "the last two are kept"
    return sorted((output / "checkpoints").iterdir())


class Command:
    """What an attacker puts into a pickle."""

    def __reduce__(self):
        return os.system, ("exit 1",)


def truncated(path):
    os.truncate(path, path.stat().st_size // 2)


def flipped(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0b1000
    path.write_bytes(data)


def emptied(path):
    path.write_bytes(b"")


def garbled(path):
    path.write_bytes(os.urandom(path.stat().st_size))


def with_checksum(path, data):
    """Replace it by bytes that its name vouches for."""
    path.unlink()
    path.with_name(f"{path.name[:15]}-{zlib.crc32(data):08x}.pt").write_bytes(data)


def pickled(path):
    with_checksum(path, pickle.dumps(Command()))


def unsafe(path):
    torch.save({"model": Command()}, path)
    with_checksum(path, path.read_bytes())


def of_something_else(path):
    torch.save([1, 2, 3], path)
    with_checksum(path, path.read_bytes())


SPOILERS = (truncated, flipped, emptied, garbled, pickled, unsafe, of_something_else)


@pytest.mark.parametrize("spoil", SPOILERS, ids=lambda spoil: spoil.__name__)
def test_a_spoiled_checkpoint_is_passed_over(tmp_path, calm, spoil):
    _, newest = stopped(tmp_path / "run")
    spoil(newest)
    training = Training(CONFIG, output=tmp_path / "run", problem=PROBLEM)
    with pytest.warns(UserWarning, match=r"step-0000000007-\w+\.pt is spoiled .*one before") as all:
        record = training.run()
    (warning,) = all
    assert warning.filename == __file__
    assert str(tmp_path / "run") in str(warning.message)
    assert len(str(warning.message).splitlines()) == 1
    assert record["status"] == "finished"
    assert_same_run(tmp_path / "run", calm)


def test_both_spoiled_start_anew(tmp_path, calm):
    for path in stopped(tmp_path / "run"):
        emptied(path)
    with pytest.warns(UserWarning, match="is spoiled") as all:
        Training(CONFIG, output=tmp_path / "run", problem=PROBLEM).run()
    assert [str(w.message).split("; ")[-1] for w in all] == [
        "going back to the one before",
        "starting anew",
    ]
    assert_same_run(tmp_path / "run", calm)


@pytest.mark.parametrize("count", [1, 2])
def test_spoiled_ones_do_not_crowd_out_the_new(tmp_path, count):
    """A second crash, before the run is past the step of the spoiled ones, must not lose more."""
    for path in stopped(tmp_path / "run")[-count:]:
        truncated(path)
    checkpoints = Checkpoints(tmp_path / "run" / "checkpoints")
    with pytest.warns(UserWarning, match="is spoiled"):
        state = checkpoints.load()
    step = 0 if state is None else state["step"]
    assert step == (6 if count == 1 else 0)
    checkpoints.save({"step": step}, step=step)
    assert checkpoints.load()["step"] == step, "and no warning: it is the newest"


def test_names_say_the_step_and_the_bytes(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for step in (8, 9, 10, 11):
        path = checkpoints.save({"step": step, "weights": torch.full((3,), 1.0 * step)}, step=step)
        assert path.name == f"step-{step:010d}-{zlib.crc32(path.read_bytes()):08x}.pt"
    assert [path.name[:15] for path in sorted(tmp_path.iterdir())] == [
        "step-0000000010",
        "step-0000000011",
    ]
    assert checkpoints.load()["weights"].tolist() == [11.0] * 3


def test_files_of_others_are_left(tmp_path):
    (tmp_path / "step-best.pt").write_bytes(b"the user's own")
    half = beside(tmp_path / "step-0000000001.pt")
    half.write_bytes(b"somebody may be writing it")
    for step in range(4):
        Checkpoints(tmp_path).save({}, step=step)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert len(names) == 4
    assert (names[0], names[-1]) == (half.name, "step-best.pt")


@pytest.mark.parametrize("place", ["write", "fsync", "replace"])
def test_a_full_disk_leaves_what_there_was(tmp_path, monkeypatch, place):
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    for step in (1, 2):
        checkpoints.save({"step": step}, step=step)
    before = {path: path.read_bytes() for path in checkpoints.directory.iterdir()}

    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if place == "write":
        # /dev/full is such a disk: it takes no byte.
        real = type(tmp_path).open
        monkeypatch.setattr(
            type(tmp_path), "open", lambda path, *mode: real(type(path)("/dev/full"), *mode)
        )
    else:
        monkeypatch.setattr(os, place, full)
    with pytest.raises(OSError, match=r"cannot write a checkpoint to .*: No space left on device"):
        checkpoints.save({"step": 3}, step=3)
    monkeypatch.undo()
    assert {path: path.read_bytes() for path in checkpoints.directory.iterdir()} == before
    assert checkpoints.load() == {"step": 2}


def test_what_cannot_be_pickled_leaves_what_there_was(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    path = checkpoints.save({"step": 1}, step=1)
    with pytest.raises((AttributeError, pickle.PicklingError), match="lambda"):
        checkpoints.save({"weights": torch.zeros(10**6), "step": lambda: 2}, step=2)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="to see what is mapped")
@pytest.mark.parametrize("method", ["msvrm-v2", "msvrm-v3", "cross-entropy", "min-max"])
def test_a_resumed_run_does_not_live_in_the_file(tmp_path, method):
    """A file that is mapped and then cut short would end the process with SIGBUS."""
    update = "plain" if method == "min-max" else "adam"
    config = Config.of(CONFIG.as_record() | {"method": method, "update": update})
    Training(config, output=tmp_path, problem=PROBLEM).run()
    training = Training(config, output=tmp_path, problem=PROBLEM)
    maps = Path("/proc/self/maps")
    state = training.checkpoints.load()
    assert str(tmp_path) in maps.read_text(), "it is mapped while it is looked at"
    del state
    training.run()
    assert training.step == config.steps
    gc.collect()
    assert str(tmp_path) not in maps.read_text()


LIMITED = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)),) * 2)
from fcco_lab.cli import main
main()
"""


def test_the_command_on_a_full_disk(tmp_path):
    """A limit on the size of a file that metrics keep and a checkpoint does not."""
    _, newest = stopped(tmp_path / "run")
    before = {path: path.read_bytes() for path in newest.parent.iterdir()}
    limit, environment = newest.stat().st_size // 2, os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-Bc", LIMITED, str(limit), "train", "--output", "run", *FLAGS]
    done = subprocess.run(
        [*command, "--no-tensorboard", "--checkpoint-every", "0"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last == "fcco: cannot write a checkpoint to run/checkpoints: File too large"
    assert "Traceback" not in done.stderr
    assert {path: path.read_bytes() for path in newest.parent.iterdir()} == before
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != limit, "ours is as it was"
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_an_output_that_cannot_be_written(tmp_path, capsys):
    (tmp_path / "file").write_text("not a directory")
    done = call(capsys, "train", *SMALL, "--output", tmp_path / "file" / "run")
    assert done.code == 1
    assert done.err.splitlines()[-1].startswith(f"fcco: cannot write to {tmp_path / 'file'}")
    assert "Not a directory" in done.err


def test_another_run_in_the_directory(tmp_path, capsys):
    stopped(tmp_path / "run")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    done = call(capsys, "train", *FLAGS, "--set=lr=0.5", "--output", tmp_path / "run")
    assert done.code == 1
    assert "holds another run (lr is 0.01 there, 0.5 here)" in done.err
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("text", ["{", "[]", json.dumps({"name": "a web site"})])
def test_a_config_that_is_not_of_a_run(tmp_path, capsys, text):
    (tmp_path / "config.json").write_text(text)
    (tmp_path / "thesis.tex").write_text("years of work")
    for more in ((), ("--restart",)):
        done = call(capsys, "train", *SMALL, "--output", tmp_path, *more)
        assert done.code == 1
        assert f"{tmp_path / 'config.json'} is not the config of a run" in done.err
        assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "thesis.tex"]


def test_a_config_that_cannot_run_does_not_keep_the_place(tmp_path, capsys):
    wrong = {
        ("--network", "cnnn"): "unknown network 'cnnn' (did you mean 'cnn'?)",
        ("--method", "min-max", "--update", "amsgrad"): "min-max",  # known when the run is built
    }
    for words, message in wrong.items():
        done = call(capsys, "train", *SMALL, *words, "--output", tmp_path / "run")
        assert done.code == 1
        assert message in done.err
        assert not (tmp_path / "run").exists()
