"""A run continues itself and nothing else, whatever is found in its directory."""

import fcntl
import json
import re
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import numpy
import pytest
import torch
from cli.command import SMALL, assert_same_run, call, finish, saved_steps, start, wait_for_step
from cli.stopped_runs import CONFIG, FLAGS, PROBLEM, contents, run

import fcco_lab
from fcco_lab.training.directory import claim
from fcco_lab.training.problem import fingerprint

OTHER = replace(CONFIG, lr=0.5)


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    output = tmp_path_factory.mktemp("calm") / "run"
    run(output)
    return output


@pytest.fixture
def stopped(tmp_path):
    """This run, killed at step 6."""
    run(tmp_path / "run", at=6)
    return tmp_path / "run"


@pytest.fixture
def other(tmp_path):
    """Another run, further on."""
    run(tmp_path / "other", OTHER)
    return tmp_path / "other"


def test_another_run_in_the_directory(stopped, capsys):
    before = contents(stopped)
    done = call(capsys, "train", *FLAGS, "--lr=0.5", "--output", stopped)
    assert done.code == 1
    assert "holds another run (lr is 0.01 there, 0.5 here)" in done.err
    (stopped / "config.json").write_text(
        (stopped / "config.json").read_text().replace('"version": "', '"version": "old ')
    )
    with pytest.raises(ValueError, match=r"holds another run \(version is 'old "):
        run(stopped)
    assert set(contents(stopped)) == set(before), "nothing was overwritten"


def test_checkpoints_of_another_run_are_refused(stopped, other):
    shutil.copytree(other / "checkpoints", stopped / "checkpoints", dirs_exist_ok=True)
    before = contents(stopped / "checkpoints")
    with pytest.raises(ValueError, match=r"is of another run \(lr is 0.5 there, 0.01 here\)"):
        run(stopped)
    assert contents(stopped / "checkpoints") == before


def test_restart_removes_the_run_and_no_more(stopped, other):
    (stopped / "checkpoints" / "step-best.pt").write_text("the user's own")
    (stopped / "notes.txt").write_text("the user's own")
    run(stopped, OTHER, restart=True)
    assert_same_run(stopped, other)
    assert (stopped / "checkpoints" / "step-best.pt").exists()
    assert (stopped / "notes.txt").exists()


@pytest.mark.parametrize("restart", [False, True])
def test_without_a_config_nobody_knows_whose_it_is(stopped, restart):
    (stopped / "config.json").unlink()
    before = contents(stopped)
    with pytest.raises(ValueError, match=r"metrics.jsonl is there, but no config.json"):
        run(stopped, restart=restart)
    (stopped / "metrics.jsonl").unlink()
    with pytest.raises(ValueError, match=r"step-0000000006.pt is there, but no config.json"):
        run(stopped, restart=restart)
    assert contents(stopped).items() <= before.items()


@pytest.mark.parametrize("text", ["{", "[]", json.dumps({"name": "a web site"})])
def test_a_config_that_is_not_of_a_run(tmp_path, capsys, text):
    (tmp_path / "config.json").write_text(text)
    (tmp_path / "thesis.tex").write_text("years of work")
    for more in ((), ("--restart",)):
        done = call(capsys, "train", *SMALL, "--output", tmp_path, *more)
        assert done.code == 1
        assert f"{tmp_path / 'config.json'} is not the config of a run" in done.err
        assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "thesis.tex"]


def test_an_output_that_cannot_be_written(tmp_path, capsys):
    (tmp_path / "file").write_text("not a directory")
    done = call(capsys, "train", *SMALL, "--output", tmp_path / "file" / "run")
    assert done.code == 1
    assert done.err.splitlines()[-1].startswith(f"fcco: cannot write to {tmp_path / 'file'}")
    assert "Not a directory" in done.err


def write_data(directory, seed):
    chance = numpy.random.default_rng(seed)
    arrays = {}
    for part, size in (("train", 40), ("test", 20)):
        arrays[f"x_{part}"] = chance.integers(0, 256, (size, 4, 4), dtype=numpy.uint8)
        arrays[f"y_{part}"] = numpy.arange(size) % 3
    directory.mkdir()
    numpy.savez(directory / "usps.npz", **arrays)


def test_data_counts_by_content_not_by_place(tmp_path, capsys):
    for name, seed in (("data", 0), ("copy", 0), ("others", 1)):
        write_data(tmp_path / name, seed)
    flags = ("--data=usps", *SMALL, "--output", tmp_path / "run")
    assert call(capsys, "train", *flags, "--data-dir", tmp_path / "data").code == 0
    again = call(capsys, "train", *flags, "--data-dir", tmp_path / "copy")
    assert again.code == 0
    assert "this run had finished before" in again.err
    before = contents(tmp_path / "run")
    refused = call(capsys, "train", *flags, "--data-dir", tmp_path / "others")
    assert refused.code == 1
    message = r"holds another run \(training_data is '40 samples, sha256 \w+' there, '40 samples"
    assert re.search(message, refused.err), refused.err
    file = tmp_path / "data" / "usps.npz"
    arrays = dict(numpy.load(file))
    arrays["y_test"][:2] = arrays["y_test"][1::-1]
    numpy.savez(file, **arrays)
    changed = call(capsys, "train", *flags, "--data-dir", tmp_path / "data")
    assert "holds another run (test_data is" in changed.err
    assert contents(tmp_path / "run") == before


def test_a_fingerprint_is_of_the_content():
    inputs, classes = torch.rand(3000, 2, 3), torch.arange(3000)
    first = fingerprint(inputs, classes)
    assert first == fingerprint(inputs.mT.contiguous().mT, classes.clone()), "not of the strides"
    flipped = inputs.clone().view(torch.int32)
    flipped[2500, 1, 1] ^= 1
    others = [
        (flipped.view(torch.float32), classes),
        (inputs.mT, classes),
        (inputs, classes.flip(0)),
    ]
    assert len({first, *(fingerprint(*other) for other in others)}) == 4


def test_what_does_not_count_does_not_refuse(stopped, calm):
    config = json.loads((stopped / "config.json").read_text())
    (stopped / "config.json").write_text(json.dumps(config | {"device": "cuda"}))
    run(stopped, tensorboard=True)
    assert_same_run(stopped, calm)


def test_a_directory_in_use_is_refused(tmp_path, capsys):
    """And SIGKILL gives it free."""
    words = ("train", *FLAGS, "--output", "run", "--no-tensorboard", "--checkpoint-every=0")
    process = start(tmp_path, *words, "--steps=100000", "--evaluations=1")
    wait_for_step(process, tmp_path / "run", 1)
    try:
        for more in ((), ("--restart",)):
            taken = ("--steps=100000", "--evaluations=1", "--output", tmp_path / "run")
            refused = call(capsys, "train", *FLAGS, *taken, *more)
            assert refused.code == 1
            assert "run is in use by another process: wait for it" in refused.err
        assert process.poll() is None, "it goes on"
    finally:
        process.send_signal(signal.SIGKILL)
        finish(process)
    assert saved_steps(tmp_path / "run"), "restart has removed nothing"
    assert call(capsys, "train", *FLAGS, "--output", tmp_path / "run", "--restart").code == 0


def test_what_killed_processes_left_is_removed(stopped, calm, monkeypatch):
    ours = [
        stopped / ".model.pt.123.part",
        stopped / "checkpoints" / ".step-0000000003.pt.9.part",
        stopped / "checkpoints" / ".step-0000000004.part",
    ]
    for path in ours[:2]:
        path.write_text("half")
    ours[2].mkdir()
    (ours[2] / "__0_0.distcp").write_text("half")
    (stopped / "notes.part").write_text("the user's own")
    run(stopped)
    assert not any(path.exists() for path in ours)
    assert (stopped / "notes.part").exists()
    assert_same_run(stopped, calm)


def test_a_file_system_without_locks(stopped, calm, monkeypatch):
    def flock(file, how):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    run(stopped)
    assert_same_run(stopped, calm)


def test_a_run_that_claims_between_two_checks(tmp_path, monkeypatch):
    """Two commands find an empty directory; one is done before the other takes the lock."""
    whole, mine = fcntl.flock, CONFIG.as_record() | PROBLEM.content

    def late(file, how):
        monkeypatch.setattr(fcntl, "flock", whole)
        run(tmp_path / "run", OTHER)
        whole(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(ValueError, match=r"lr is 0.5 there"), claim(tmp_path / "run", mine):
        pass


def test_one_writer_of_files():
    """Everything that is kept is written by ``fcco_lab.files``, whole or not at all."""
    writes = re.compile(
        r"write_text\(|write_bytes\(|mkstemp|open\([^)]*[\"'][wx]b?[\"']|savefig\((path|folder|str)"
    )
    home = Path(fcco_lab.__file__).parent
    code = {
        p.name: re.sub(r"^ *(>>>|\.\.\.).*", "", p.read_text(), flags=re.M)
        for p in home.rglob("*.py")
    }
    assert [name for name, text in code.items() if writes.search(text)] == ["files.py"]


def test_processes_with_other_data_are_refused(monkeypatch):
    """Another rank has another digest; the others are asked for the largest and the least."""
    other = 2**32
    monkeypatch.setattr(
        "fcco_lab.training.engine.all_reduce_max", lambda device, *mine: [other, mine[1]]
    )
    with pytest.raises(ValueError, match="different data or settings"):
        fcco_lab.training.Training(CONFIG)
