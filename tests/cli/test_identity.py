"""A run continues itself and nothing else, whatever is found in its directory."""

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import zlib
from pathlib import Path

import numpy
import pytest
import torch
from cli.command import SMALL, assert_same_run, call, finish, saved_steps, start, wait_for_step
from cli.identity_storm import contents, make_data

import fcco_lab
from fcco_lab.files import beside
from fcco_lab.training import Config, Training
from fcco_lab.training.crew import Crew
from fcco_lab.training.directory import claimed
from fcco_lab.training.identity import fingerprint
from fcco_lab.training.problem import load_problem

CONFIG = Config(network="linear", steps=8, evaluations=2, samples_per_block=4)
OTHER = Config.of(CONFIG.as_record() | {"lr": 0.5})
PROBLEM = load_problem(CONFIG)
FLAGS = [f"--set={key}={value}" for key, value in CONFIG.as_record().items()]


def run(output, config=CONFIG, *, at=None, **more):
    """A run; with ``at``, one that is killed there, with the checkpoints of the last two steps."""
    training = Training(config, output=output, problem=PROBLEM, checkpoint_seconds=0.0, **more)
    step = training.learner.step

    def killed():
        if training.step == at:
            raise KeyboardInterrupt
        return step()

    if at is None:
        training.run()
        return
    training.learner.step = killed
    with pytest.raises(KeyboardInterrupt):
        training.run()


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


def test_checkpoints_of_another_run_are_refused(stopped, other):
    for path in (other / "checkpoints").iterdir():
        shutil.copy(path, stopped / "checkpoints")
    before = contents(stopped)
    foreign = (
        r"checkpoint .*step-0000000008-\w+.pt is of another run \(lr is 0.5 there, 0.01 here\)"
    )
    with pytest.raises(ValueError, match=foreign):
        run(stopped)
    assert contents(stopped / "checkpoints") == {
        path: data for path, data in before.items() if path.parent.name == "checkpoints"
    }


def test_an_older_checkpoint_of_another_run_is_refused_too(stopped, tmp_path):
    """Else the run would remove it as one of its own."""
    run(tmp_path / "early", OTHER, at=2)
    (foreign,) = (tmp_path / "early" / "checkpoints").glob("step-0000000002*")
    shutil.copy(foreign, stopped / "checkpoints")
    with pytest.raises(ValueError, match=r"step-0000000002.* is of another run"):
        run(stopped)
    assert (stopped / "checkpoints" / foreign.name).exists()


def test_a_damaged_identity_is_damage(stopped, other, calm):
    (newest,) = (other / "checkpoints").glob("step-0000000008*")
    shutil.copy(newest, stopped / "checkpoints" / "step-0000000008-00000000.pt")
    with pytest.warns(UserWarning, match=r"is spoiled .*one before"):
        run(stopped)
    assert_same_run(stopped, calm)


def test_restart_leaves_what_a_link_points_to(stopped, other, calm):
    shutil.rmtree(stopped / "checkpoints")
    (stopped / "checkpoints").symlink_to(other / "checkpoints")
    before = contents(other)
    with pytest.raises(ValueError, match="is of another run"):
        run(stopped)
    run(stopped, restart=True)
    assert_same_run(stopped, calm)
    assert contents(other) == before
    assert not (stopped / "checkpoints").is_symlink()


def test_restart_removes_the_run_and_no_more(stopped, tmp_path):
    (stopped / "checkpoints" / "step-best.pt").write_text("the user's own")
    run(stopped, OTHER, restart=True)
    run(tmp_path / "fresh", OTHER, restart=True)
    assert_same_run(stopped, tmp_path / "fresh")
    assert (stopped / "checkpoints" / "step-best.pt").exists()


@pytest.mark.parametrize("restart", [False, True])
def test_without_a_config_nobody_knows_whose_it_is(stopped, restart):
    (stopped / "config.json").unlink()
    before = contents(stopped)
    with pytest.raises(ValueError, match=r"metrics.jsonl is there, but no config.json"):
        run(stopped, restart=restart)
    (stopped / "metrics.jsonl").unlink()
    with pytest.raises(ValueError, match=r"step-0000000006-\w+.pt is there, but no config.json"):
        run(stopped, restart=restart)
    assert contents(stopped).items() <= before.items()


def test_data_counts_by_content_not_by_place(tmp_path, capsys):
    make_data(tmp_path)
    flags = ("--data=usps", *SMALL, "--output", tmp_path / "run")
    assert call(capsys, "train", *flags, "--data-dir", tmp_path / "data").code == 0
    again = call(capsys, "train", *flags, "--data-dir", tmp_path / "copy")
    assert again.code == 0
    assert "this run had finished before" in again.err
    before = contents(tmp_path / "run")
    refused = call(capsys, "train", *flags, "--data-dir", tmp_path / "others")
    assert refused.code == 1
    said = r"holds another run \(training_data is '40 samples, sha256 \w+' there, '40 samples"
    assert re.search(said, refused.err), refused.err
    assert contents(tmp_path / "run") == before


def test_a_test_set_counts_too(tmp_path, capsys):
    make_data(tmp_path)
    flags = ("--data=usps", "--data-dir", tmp_path / "data", *SMALL, "--output", tmp_path / "run")
    assert call(capsys, "train", *flags).code == 0
    file = tmp_path / "data" / "usps.npz"
    arrays = dict(numpy.load(file))
    arrays["y_test"][:2] = arrays["y_test"][1::-1]
    numpy.savez(file, **arrays)
    assert "holds another run (test_data is" in call(capsys, "train", *flags).err


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


def test_ranks_must_read_the_same(monkeypatch):
    monkeypatch.setattr(Crew, "gathered", lambda self, value: [value, {"training_data": "none"}])
    with pytest.raises(ValueError, match="rank 1 reads other data than rank 0"):
        Training(CONFIG, problem=PROBLEM)


def test_what_does_not_count_does_not_refuse(stopped, calm):
    config = json.loads((stopped / "config.json").read_text())
    (stopped / "config.json").write_text(json.dumps(config | {"device": "cuda"}))
    run(stopped, tensorboard=True)
    assert_same_run(stopped, calm)


def as_0_1_0(path):
    """A checkpoint as version 0.1.0 wrote it."""
    state = torch.load(path)["state"] | {"config": CONFIG.as_record()}
    path.unlink()
    vouched(path, state)


def vouched(path, content):
    """Save under the name that vouches for the bytes."""
    torch.save(content, path)
    total = zlib.crc32(path.read_bytes())
    path.rename(path.with_name(f"{path.name[:15]}-{total:08x}.pt"))


def test_what_0_1_0_wrote_is_refused_by_name(stopped):
    config = stopped / "config.json"
    now = config.read_text()
    config.write_text(json.dumps(CONFIG.as_record()))
    with pytest.raises(ValueError, match=r"holds another run \(fcco 0.1.0 wrote it"):
        run(stopped)
    config.write_text(now)
    for path in list((stopped / "checkpoints").iterdir()):
        as_0_1_0(path)
    with pytest.raises(ValueError, match=r"checkpoint .* is of another run \(fcco 0.1.0 wrote it"):
        run(stopped)


def without_the_model(state):
    del state["model"]


def without_a_weight(state):
    state["model"].popitem()


def without_the_state_of_a_parameter(state):
    del state["learner"]["opt"]["state"][0]


def with_another_shape(state):
    state["model"] = {name: value.tile(2) for name, value in state["model"].items()}


def without_everything(state):
    state.clear()


def without_the_curve(state):
    del state["curve"]


PARTS = (
    without_the_model,
    without_a_weight,
    without_the_state_of_a_parameter,
    with_another_shape,
    without_everything,
    without_the_curve,
)


@pytest.mark.parametrize("change", PARTS, ids=lambda change: change.__name__)
@pytest.mark.parametrize("method", ["msvrm-v2", "cross-entropy"])
def test_a_checkpoint_that_lacks_parts_is_passed_over(tmp_path, change, method):
    config = Config.of(CONFIG.as_record() | {"method": method})
    run(tmp_path / "calm", config)
    run(tmp_path / "run", config, at=6)
    (newest,) = (tmp_path / "run" / "checkpoints").glob("step-0000000006*")
    content = torch.load(newest)
    change(content.get("state", content))
    newest.unlink()
    vouched(newest, content)
    with pytest.warns(UserWarning, match=r"spoiled \(parts of it are missing.*one before"):
        run(tmp_path / "run", config)
    assert_same_run(tmp_path / "run", tmp_path / "calm")


def test_a_checkpoint_must_have_what_the_run_has(stopped, calm):
    """Even if it is whole: saved by a version with another network, say."""
    training = Training(CONFIG, output=stopped, problem=PROBLEM)
    state = training.checkpoints.load()
    state["model"] = {name: value[:1].clone() for name, value in state["model"].items()}
    training.checkpoints.save(state, step=7)
    with pytest.warns(UserWarning, match=r"step-0000000007-\w+.pt is spoiled .*one before"):
        training.run()
    assert_same_run(stopped, calm)


WAITS = """
import sys
from cli.test_identity import run
import warnings
warnings.simplefilter("ignore")
from pathlib import Path
run(Path(sys.argv[1]))
"""


def test_what_is_not_a_file_is_not_waited_for(stopped, calm):
    os.mkfifo(stopped / "checkpoints" / "step-0000000009-0123abcd.pt")
    (stopped / "checkpoints" / "step-0000000010-0123abcd.pt").symlink_to("/dev/zero")
    subprocess.run(
        [sys.executable, "-c", WAITS, str(stopped)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
        timeout=120,
    )
    assert_same_run(stopped, calm)


def test_a_config_that_is_not_a_file(tmp_path):
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(ValueError, match=r"config.json is not the config of a run"):
        run(tmp_path)


def test_a_directory_in_use_says_by_whom(tmp_path, capsys):
    """And SIGKILL gives it free."""
    words = ("train", *FLAGS, "--output", "run", "--no-tensorboard", "--checkpoint-every=0")
    process = start(tmp_path, *words, "--set=steps=100000", "--set=evaluations=1")
    wait_for_step(process, tmp_path / "run", 1)
    try:
        for more in ((), ("--restart",)):
            taken = ("--set=steps=100000", "--set=evaluations=1", "--output", tmp_path / "run")
            refused = call(capsys, "train", *FLAGS, *taken, *more)
            assert refused.code == 1
            said = f"run is in use by process {process.pid} on {os.uname().nodename}: wait"
            assert said in refused.err
        assert process.poll() is None, "it goes on"
    finally:
        process.send_signal(signal.SIGKILL)
        finish(process)
    assert saved_steps(tmp_path / "run"), "restart has removed nothing"
    assert call(capsys, "train", *FLAGS, "--output", tmp_path / "run", "--restart").code == 0


def test_a_directory_is_free_after_a_run(stopped, calm):
    first = Training(CONFIG, output=stopped, problem=PROBLEM)
    second = Training(CONFIG, output=stopped, problem=PROBLEM)
    first.run()
    second.run()
    assert_same_run(stopped, calm)


def left_behind(output):
    """Temporary files: two of a killed process of the run, and others that are not the run's."""
    ours = [beside(output / "checkpoints" / "step-0000000003.pt"), beside(output / "model.pt")]
    others = [
        beside(output / "report.html"),
        output / "checkpoints" / ".writing-12345",
        output / "checkpoints" / ".step-1.part",
    ]
    for path in (*ours, *others):
        path.write_text("half")
    shards = beside(output / "checkpoints" / "step-0000000004")
    shards.mkdir()
    (shards / "__0_0.distcp").write_text("half")
    return [*ours, shards], others


def test_only_what_the_run_left_behind_is_removed(stopped):
    ours, others = left_behind(stopped)
    run(stopped)
    assert not any(path.exists() for path in ours)
    assert all(path.exists() for path in others)


def test_without_locks_nothing_is_removed(stopped, calm, monkeypatch):
    """A file system that has none; somebody may be writing."""
    ours, others = left_behind(stopped)

    def flock(file, how):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.warns(UserWarning, match=r"cannot be locked \(No locks available\)"):
        run(stopped)
    assert all(path.exists() for path in (*ours, *others))
    assert_same_run(stopped, calm)


def test_temporary_names_are_not_of_a_process():
    names = {beside(Path("a")).name for _ in range(100)}
    assert len(names) == 100
    assert not any(str(os.getpid()) == name.split(".")[2] for name in names)


def test_a_run_that_claims_between_two_looks(tmp_path, monkeypatch):
    """Two commands find an empty directory; one is done before the other takes the lock."""
    whole, mine = fcntl.flock, CONFIG.as_record() | PROBLEM.content

    def late(file, how):
        monkeypatch.setattr(fcntl, "flock", whole)
        run(tmp_path / "run", OTHER)
        whole(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(ValueError, match=r"lr is 0.5 there"), claimed(tmp_path / "run", mine):
        pass


def test_one_writer_of_files():
    """Everything that is kept is written by ``fcco_lab.files``, whole or not at all."""
    writes = re.compile(
        r"write_text\(|write_bytes\(|mkstemp|open\([^)]*[\"'][wax]b?[\"']|savefig\((path|folder|str)"
    )
    home = Path(fcco_lab.__file__).parent
    found = [p.name for p in home.rglob("*.py") if writes.search(p.read_text())]
    assert found == ["files.py"]


def rage(directory, count, seed, *how):
    storm = Path(__file__).with_name("identity_storm.py")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(storm), str(directory), str(count), str(seed), *how],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_storm_over_identity(tmp_path):
    found = rage(tmp_path, 15, 0)
    assert min(found["finished"], found["refused"], found["killed"]) > 2, found


@pytest.mark.slow
def test_a_thousand_sequences(tmp_path):
    found = rage(tmp_path, 1000, 1)
    assert min(found["finished"], found["refused"], found["killed"]) > 300, found


@pytest.mark.slow
def test_fifty_sequences_of_commands(tmp_path):
    found = rage(tmp_path, 50, 2, "command")
    assert min(found["finished"], found["refused"], found["killed"]) > 15, found
