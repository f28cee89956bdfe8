"""``torchrun -m fcco_lab train``: one run, however many processes share it or are killed."""

import fcntl
import os
import shutil
import signal

import pytest
import torch
from cli.command import flags
from distributed.launch import (
    alive,
    evaluations,
    finish,
    saved,
    started,
    torchrun,
    wait_for_step,
    weights,
    workers,
)

from fcco_lab.training import Config, Training

STEPS = 40
CONFIG = Config(
    network="mlp",
    update="plain",
    lr=0.5,
    blocks_per_step=4,
    samples_per_block=8,
    shares=2,
    steps=STEPS,
    evaluations=4,
)
FOUR = Config(
    network="mlp",
    objective="ap",
    update="plain",
    lr=0.02,
    train_size=400,
    blocks_per_step=8,
    samples_per_block=8,
    shares=4,
    steps=STEPS,
    evaluations=4,
)
"""The anchors of average precision: more blocks than there are tasks, so that four ranks share."""


def words(config, *more):
    told = Config().as_record()
    changed = {k: v for k, v in config.as_record().items() if v != told[k] or k == "objective"}
    return [
        "train",
        *flags(changed),
        "--no-tensorboard",
        "--checkpoint-every=0",
        "--output=run",
        *more,
    ]


def alone(config, output):
    """The same config in one process, which is this one."""
    Training(config, output=output, checkpoint_seconds=0.0).run()
    return output


def assert_same(one, two):
    """Bit for bit."""
    left, right = weights(one), weights(two)
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)
    assert evaluations(one) == evaluations(two)


def assert_close(one, two, *, apart=()):
    """But for the order in which sums are rounded."""
    left, right = weights(one), weights(two)
    assert list(left) == list(right)
    for name in left:
        assert type(left[name]) is type(right[name]) is torch.Tensor
        torch.testing.assert_close(left[name], right[name], rtol=1e-5, atol=1e-5)
    counts = {"step", "samples", "values", "gradients", "work"} - set(apart)
    assert len(evaluations(one)) == len(evaluations(two))
    for here, there in zip(evaluations(one), evaluations(two), strict=True):
        assert {k: here[k] for k in counts} == {k: there[k] for k in counts}
        assert here["objective"] == pytest.approx(there["objective"], rel=1e-5)
        assert here["auc"] == pytest.approx(there["auc"], abs=1e-3), "a rank may change places"


def scores(done):
    """The lines of the final score, which the progress bar shows too."""
    return [line for line in done.text.splitlines() if line.startswith("test AUC 0.")]


def stopped(directory, ranks, config, *more, at):
    """A run that a signal to torchrun ended after step ``at``; what was said."""
    process = torchrun(directory, ranks, *words(config, *more))
    wait_for_step(process, directory / "run", at)
    ids = workers(process)
    assert len(ids) == ranks, ids
    process.send_signal(signal.SIGTERM)
    done = finish(process)
    assert not alive(ids)
    assert not (directory / "run" / "model.pt").exists(), "it was stopped too late"
    return done


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    return alone(CONFIG, tmp_path_factory.mktemp("one") / "run")


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Two ranks that nothing disturbed."""
    directory = tmp_path_factory.mktemp("two")
    done = finish(torchrun(directory, 2, *words(CONFIG)))
    assert done.code == 0, done.text
    assert len(scores(done)) == 1, "one rank speaks for all"
    return directory / "run"


@pytest.fixture(scope="module")
def halted(tmp_path_factory):
    """Two ranks that SIGTERM to torchrun ended, and what they said."""
    directory = tmp_path_factory.mktemp("halted")
    return directory / "run", stopped(directory, 2, CONFIG, at=STEPS // 4)


def copy(run, directory):
    shutil.copytree(run, directory / "run")
    return directory / "run"


@pytest.mark.slow
def test_two_ranks_follow_one_process(one, two):
    assert_close(two, one)
    assert saved(two) == [STEPS - 1, STEPS], "the last two are kept"
    assert not list(two.rglob("*.part"))


@pytest.mark.slow
def test_a_signal_to_torchrun_saves_and_stops(halted):
    run, done = halted
    assert done.code != 0
    step = saved(run)[-1]
    assert STEPS // 4 <= step < STEPS
    said = f"SIGTERM: saved at step {step}; the same command goes on from here"
    assert done.text.count(said) == 1, done.text
    assert not scores(done)


@pytest.mark.slow
def test_one_process_goes_on_from_two(halted, one, tmp_path):
    run = copy(halted[0], tmp_path)
    assert_close(alone(CONFIG, run), one)


@pytest.mark.slow
def test_two_go_on_from_before_a_spoiled_checkpoint(halted, two, tmp_path):
    run = copy(halted[0], tmp_path)
    before, newest = saved(run)
    (spoiled,) = run.glob(f"checkpoints/step-*{newest}")
    file = next(spoiled.glob("__1_*"))
    os.truncate(file, file.stat().st_size // 2)
    assert before == newest - 1, "so there is a step to make again"
    done = finish(torchrun(tmp_path, 2, *words(CONFIG), warnings="default"))
    assert done.code == 0, done.text
    (line,) = done.ours
    assert f"checkpoint run/checkpoints/{spoiled.name} cannot be read" in line
    assert "going back to the one before" in line
    assert_same(run, two)


@pytest.mark.slow
def test_a_killed_rank_is_started_again(two, tmp_path):
    process = torchrun(tmp_path, 2, *words(CONFIG), restarts=3)
    wait_for_step(process, tmp_path / "run", STEPS // 4)
    first = workers(process)
    os.kill(first[1], signal.SIGKILL)
    done = finish(process)
    assert done.code == 0, done.text
    assert "Traceback" not in done.text
    assert not alive(first)
    assert_same(tmp_path / "run", two)


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_two_go_on_from_one_process(one, parallel, tmp_path):
    class Stopped(Training):
        def __init__(self, *arguments, **more):
            super().__init__(*arguments, **more)
            self.step_of_learner, self.learner.step = self.learner.step, self.step_and_stop

        def step_and_stop(self):
            if self.step == STEPS // 2:
                signal.raise_signal(signal.SIGTERM)
            return self.step_of_learner()

    run = tmp_path / "run"
    assert Stopped(CONFIG, output=run).run()["status"] == "running"
    assert saved(run) == []
    done = finish(torchrun(tmp_path, 2, *words(CONFIG, f"--parallel={parallel}")))
    assert done.code == 0, done.text
    assert saved(run) == [STEPS - 1, STEPS]
    assert_close(run, one)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--gamma=nought"], "unknown gamma 'nought'"),
        pytest.param(
            ["--blocks-per-step=5"],
            "blocks_per_step=5 is not a multiple of the 2 shares (2 ranks)",
            marks=pytest.mark.slow,
        ),
        pytest.param(["--method=min-max"], "min-max runs in one process", marks=pytest.mark.slow),
        pytest.param(["--parallel=dpp"], "did you mean 'ddp'?", marks=pytest.mark.slow),
        pytest.param(["--lr=1e38"], "lower lr", marks=pytest.mark.slow),
    ],
)
def test_an_error_is_said_once_and_ends_all(flags, said, tmp_path):
    process = torchrun(tmp_path, 2, *words(CONFIG, *flags))
    ids = started(process, 2)
    done = finish(process, seconds=120)
    assert not alive(ids)
    assert done.code != 0
    (line,) = done.ours
    assert said in line
    assert not (tmp_path / "run" / "model.pt").exists()


@pytest.mark.slow
def test_the_directory_of_another_run_is_left_alone(two, tmp_path):
    run = copy(two, tmp_path)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    done = finish(torchrun(tmp_path, 2, *words(CONFIG, "--lr=0.25")))
    assert done.code != 0
    (line,) = done.ours
    assert "holds another run (lr is 0.5 there, 0.25 here)" in line
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


@pytest.mark.slow
def test_a_directory_in_use_is_left_alone(tmp_path):
    (tmp_path / "run").mkdir()
    with (tmp_path / "run" / "run.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = finish(torchrun(tmp_path, 2, *words(CONFIG, "--restart")))
    assert done.code != 0
    (line,) = done.ours
    assert "run is in use by another process" in line


@pytest.mark.slow
@pytest.mark.parametrize("method", ["msvrm-v2", "msvrm-v3", "cross-entropy"])
def test_parts_of_a_network_follow_the_whole(method, tmp_path):
    """FSDP2, stopped once and going on."""
    more = {"update": "adam", "lr": 0.001} if method == "cross-entropy" else {}
    config = Config.from_dict(CONFIG.as_record() | {"method": method, "snapshot_every": 7} | more)
    expected = alone(config, tmp_path / "one")
    stopped(tmp_path, 2, config, "--parallel=fsdp", at=STEPS // 4)
    done = finish(torchrun(tmp_path, 2, *words(config, "--parallel=fsdp")))
    assert done.code == 0, done.text
    # Ranks pass backward together, also through the chunks of the first exact pass of which one
    # process sees in time that they are to come again.
    apart = ["gradients", "work"] if method == "msvrm-v3" else []
    assert_close(tmp_path / "run", expected, apart=apart)


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_any_number_of_ranks_goes_on(parallel, tmp_path):
    """Two, then four, then two with the other kind, then one."""
    expected, other = alone(FOUR, tmp_path / "one"), {"ddp": "fsdp", "fsdp": "ddp"}[parallel]
    stopped(tmp_path, 2, FOUR, f"--parallel={parallel}", at=STEPS // 8)
    stopped(tmp_path, 4, FOUR, f"--parallel={parallel}", at=STEPS // 4)
    stopped(tmp_path, 2, FOUR, f"--parallel={other}", at=STEPS // 2)
    # Every rank passes the partners of its anchors, so more ranks do more work.
    assert_close(alone(FOUR, tmp_path / "run"), expected, apart=["work"])
