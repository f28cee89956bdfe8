"""Random sequences of runs, kills and meddling in one output directory.

Whatever was done to the directory, a command ends with the weights and looks of a clean run of the
same command, or it is refused; and what belongs to another run stays as it is.

``python identity_storm.py DIRECTORY SEQUENCES SEED [command]`` prints a report as JSON. Runs are
forked from this process, or started by the real command.
"""

import fcntl
import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
import warnings
import zlib
from collections import Counter
from itertools import product
from pathlib import Path

import numpy
import torch
from cli.command import assert_same_run, finish, start
from cli.storm import arm

from fcco_lab.training import Config, Training, objectives
from fcco_lab.training.problem import load_problem

STEPS = 5
TRAPS = ("fsync", "replace", "unlink", "half a checkpoint", "look")
CONTENT = {"data": "a", "copy": "a", "others": "b"}
"""Data directories, two of which hold the same."""


def make_data(directory):
    for place, content in CONTENT.items():
        chance = numpy.random.default_rng(ord(content))
        arrays = {
            f"{key}_{part}": value
            for part, size in (("train", 40), ("test", 20))
            for key, value in (
                ("x", chance.integers(0, 256, (size, 4, 4), dtype=numpy.uint8)),
                ("y", numpy.arange(size) % 3),
            )
        }
        (directory / place).mkdir()
        numpy.savez(directory / place / "usps.npz", **arrays)


def make_config(seed, lr):
    fixed = {"network": "linear", "blocks_per_step": 2, "samples_per_block": 4, "evaluations": 2}
    return Config(data="usps", seed=seed, lr=lr, steps=STEPS, **fixed)


class Forked:
    """Runs in children of this process, which has imported torch already."""

    def __init__(self, directory, *, quick=True):
        config = make_config(0, 0.1)
        if quick:  # metrics take most of the time of such a run
            for kind in (objectives.MultiTaskAUC, objectives.AveragePrecision):
                kind.metric = lambda objective, scores: 0.5
        self.problems = {place: load_problem(config, directory / place) for place in CONTENT}
        # The first run imports much of torch, which no child should do again.
        Training(config, problem=self.problems["data"], output=directory / "first").run()

    def __call__(self, output, run, *, restart, every, trap):
        """(exit code, what was said); -9: it was killed."""
        seed, lr, place = run
        read, write = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads: none holds a lock
            process = os.fork()
        if process == 0:
            code = 1
            try:
                warnings.simplefilter("ignore")  # that a checkpoint is spoiled
                training = Training(
                    make_config(seed, lr),
                    output=output,
                    problem=self.problems[place],
                    checkpoint_seconds=every,
                    restart=restart,
                )
                if trap is not None:
                    arm(trap[0], trap[1], after=trap[2])
                training.run()
                code = 0
            except (ValueError, OSError) as error:
                os.write(write, f"fcco: {error}".encode())
            except BaseException:
                os.write(write, traceback.format_exc().encode())
            finally:
                os._exit(code)
        os.close(write)
        with os.fdopen(read) as pipe:
            said = pipe.read()
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), said


class Commands:
    """The command, as a user types it."""

    def __init__(self, directory):
        self.directory = directory

    def __call__(self, output, run, *, restart, every, trap):
        seed, lr, place = run
        config = make_config(seed, lr).as_record()
        flags = [f"--set={key}={value}" for key, value in config.items()]
        words = [*flags, f"--data-dir={self.directory / place}", f"--output={output}"]
        more = ["--no-tensorboard", f"--checkpoint-every={every}", *(["--restart"] * restart)]
        process = start(self.directory, "train", *words, *more)
        if trap is not None:
            steps = output / "metrics.jsonl"
            before = steps.stat().st_mtime_ns if steps.exists() else None
            while process.poll() is None:  # until it trains
                if steps.exists() and steps.stat().st_mtime_ns != before:
                    process.send_signal(signal.SIGKILL)
                    break
                time.sleep(0.005)
        done = finish(process)
        return done.code, done.err


class Sequence:
    """One of them, in a directory of its own."""

    def __init__(self, directory, clean, runner, chance):
        self.output, self.clean, self.runner = directory / "run", clean, runner
        self.directory, self.chance = directory, chance
        self.kept = []
        """(directory, whose, its bytes) of what was linked in."""
        self.run = self.any_run()
        self.meddled, self.started = False, set()
        self.counts = Counter()

    def any_run(self):
        return self.chance.choice(list(product((0, 1), (0.1, 0.2), CONTENT)))

    def whole(self, length):
        for _ in range(length):
            act = self.chance.choice(
                (self.train, self.train, self.train, self.change, self.meddle, self.meddle)
            )
            act()
        self.train(end=True)
        for place, whose, before in self.kept:
            if whose not in self.started:
                assert contents(place) == before, f"{place} is not ours to change"
        return self.counts

    def change(self):
        self.run = self.any_run()

    def train(self, *, end=False):
        chance, restart = self.chance, self.chance.random() < 0.25
        trap = (chance.choice(TRAPS), chance.randint(1, 8), chance.random() < 0.5)
        trap = None if end or chance.random() < 0.4 else trap
        code, said = self.runner(
            self.output, self.run, restart=restart, every=chance.choice((0.0, 30.0)), trap=trap
        )
        self.counts["killed" if code == -9 else "refused" if code else "finished"] += 1
        if code == 1:
            assert "Traceback" not in said, said
            assert said.split("fcco: ")[-1].strip(), "it says why"
            assert self.meddled or not self.mine(restart), f"the same command goes on: {said}"
            return
        assert code in (0, -9), said
        self.started.add(identity(self.run))
        if restart and code == 0:  # killed, it may have left some of what it was to remove
            self.meddled = self.meddled and (self.output / "checkpoints").is_symlink()
        if code == 0:
            assert_same_run(self.output, self.clean[identity(self.run)])
            record = json.loads((self.output / "record.json").read_text())
            assert record["status"] == "finished"
            assert record["config"] == make_config(*self.run[:2]).as_record()

    def mine(self, restart):
        """Whether nothing was there that could be another run's."""
        return restart or self.started <= {identity(self.run)}

    def meddle(self):
        if self.output.exists():
            self.meddled = True
            act = self.chance.choice(MEDDLING)
            act(self)
            self.counts[act.__name__] += 1

    def another(self):
        """A clean run, perhaps this one."""
        whose = self.chance.choice(list(self.clean))
        return whose, self.clean[whose]

    def checkpoints(self):
        return sorted((self.output / "checkpoints").glob("step-*.pt"))


def identity(run):
    return (*run[:2], CONTENT[run[2]])


def contents(directory):
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def without_config(sequence):
    (sequence.output / "config.json").unlink(missing_ok=True)


def with_half_a_config(sequence):
    if (file := sequence.output / "config.json").exists():
        os.truncate(file, file.stat().st_size // 2)


def with_anothers_config(sequence):
    shutil.copy(sequence.another()[1] / "config.json", sequence.output)


def with_anothers_checkpoints(sequence):
    source, target = sequence.another()[1] / "checkpoints", sequence.output / "checkpoints"
    if sequence.chance.random() < 0.5 and not target.is_symlink():
        shutil.rmtree(target, ignore_errors=True)
    if target.resolve() not in [place.resolve() for place, *_ in sequence.kept]:
        shutil.copytree(source, target, dirs_exist_ok=True)


def with_a_link(sequence):
    whose, source = sequence.another()
    place, link = sequence.directory / f"kept-{len(sequence.kept)}", sequence.output / "checkpoints"
    shutil.copytree(source / "checkpoints", place)
    sequence.kept.append((place, whose, contents(place)))
    if link.is_symlink():
        link.unlink()
    shutil.rmtree(link, ignore_errors=True)
    link.symlink_to(place)


def with_a_spoiled_checkpoint(sequence):
    for path in sequence.checkpoints()[-1:]:
        if path.is_file() and not linked(sequence):
            data = bytearray(path.read_bytes()) or bytearray(1)
            data[sequence.chance.randrange(len(data))] ^= 1 << sequence.chance.randrange(8)
            path.write_bytes(data[: sequence.chance.choice((0, len(data) // 2, len(data)))])


def with_a_part_missing(sequence):
    """In a checkpoint that its name vouches for."""
    for path in sequence.checkpoints()[-1:]:
        if linked(sequence) or not path.is_file():
            continue
        try:
            content = torch.load(path, weights_only=True)
        except Exception:
            continue
        state = content.get("state", content)
        if not isinstance(state.get("model"), dict) or "learner" not in state:
            continue
        name = sequence.chance.choice(["model", "learner", "curve", "rng", "of opt", "shape"])
        if name == "of opt":
            state["learner"]["opt"]["state"].pop(0, None)
        elif name == "shape":
            state["model"] = {key: value.tile(2) for key, value in state["model"].items()}
        else:
            del state[name]
        torch.save(content, path)
        total = zlib.crc32(path.read_bytes())
        path.rename(path.with_name(f"{path.name[:15]}-{total:08x}.pt"))


def with_a_fifo(sequence):
    folder = sequence.output / "checkpoints"
    if folder.is_dir() and not linked(sequence):
        os.mkfifo(folder / f"step-{sequence.chance.randrange(10**9):010d}-0123abcd.pt")


def with_a_lock(sequence):
    """Whoever comes meanwhile is told so."""
    with (sequence.output / "run.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = contents(sequence.output)
        code, said = sequence.runner(
            sequence.output, sequence.run, restart=True, every=0.0, trap=None
        )
        assert code == 1, said
        assert "is in use by" in said or "config" in said, said
        assert contents(sequence.output) == before


def linked(sequence):
    return (sequence.output / "checkpoints").is_symlink()


MEDDLING = (
    without_config,
    with_half_a_config,
    with_anothers_config,
    with_anothers_checkpoints,
    with_anothers_checkpoints,
    with_a_link,
    with_a_spoiled_checkpoint,
    with_a_part_missing,
    with_a_fifo,
    with_a_lock,
)


def storm(directory, *, sequences, seed, runner):
    """All of them; what happened, counted."""
    make_data(directory)
    run, forked = runner(directory), Forked(directory, quick=runner is Forked)
    clean, counts = {}, Counter()
    for one in product((0, 1), (0.1, 0.2), ("data", "others")):
        clean[identity(one)] = directory / f"clean-{len(clean)}"
        code, said = forked(clean[identity(one)], one, restart=False, every=0.0, trap=None)
        assert code == 0, said
    before = {place: contents(place) for place in clean.values()}
    for number in range(sequences):
        place, chance = directory / f"sequence-{number}", random.Random(1000 * seed + number)
        place.mkdir()
        try:
            counts += Sequence(place, clean, run, chance).whole(chance.randint(2, 8))
        except BaseException as error:
            raise AssertionError(f"sequence {number} of seed {seed}: {error}") from error
        shutil.rmtree(place)
    assert {place: contents(place) for place in clean.values()} == before
    return counts


if __name__ == "__main__":
    torch.set_num_threads(1)
    given, count, first, *how = sys.argv[1:]
    found = storm(
        Path(given),
        sequences=int(count),
        seed=int(first),
        runner=Commands if how else Forked,
    )
    sys.stdout.write(json.dumps(found))
