"""The runs of the benchmark: which there are, and one of them in a process of its own."""

import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

import fcco
from fcco_lab.benchmark.optimum import know
from fcco_lab.benchmark.problem import Problem
from fcco_lab.benchmark.problems import PROBLEMS
from fcco_lab.benchmark.ranges import settings_to_try
from fcco_lab.benchmark.solver import Solver
from fcco_lab.benchmark.solvers import solvers
from fcco_lab.benchmark.task import Task, run_solver
from fcco_lab.choices import choose
from fcco_lab.named_objects import is_named, load_named

__all__ = ["Job", "Preparation", "find_problem", "find_solver", "jobs_of", "measure", "prepare"]

VERSIONS = f"{fcco.__version__}, {torch.__version__}, {platform.python_version()}"
"""Of fcco, torch and Python."""


@lru_cache(maxsize=1)
def find_problem(word: str, data_dir: Path | None) -> Problem:
    """The problem of a name, or of a user's function as ``module:name``; the last one is kept."""
    if not is_named(word):
        choose("problem", word, PROBLEMS, otherwise="; or module:name")
    load = load_named("problem", word) if is_named(word) else PROBLEMS[word]
    problem: Problem = load(data_dir)
    return problem


def find_solver(word: str) -> Solver:
    """The solver of a name, or a user's ``Solver`` as ``module:name``."""
    if is_named(word):
        solver: Solver = load_named("solver", word)
        return solver
    choose("solver", word, solvers(), otherwise="; or module:name")
    return solvers()[word]


@dataclass(frozen=True)
class Preparation:
    """Find out what is known of a problem."""

    problem: str
    data_dir: Path | None

    @property
    def name(self) -> str:
        """The key of its record."""
        return f"problem {self.problem}"


@dataclass(frozen=True)
class Job:
    """One run of a solver on a problem.

    Args:
        problem: a name or module:name.
        solver: a name or module:name.
        batch: inputs per step.
        setting: its number; 0 is the default.
        tuned: the number of settings besides the default.
        seed: of the batches.
        passes: the budget in full gradients.
        seconds: the budget in seconds of CPU time.
        data_dir: the directory of the data sets.
        known: the curvature, F at the start and F at the optimum.
    """

    problem: str
    solver: str
    batch: int
    setting: int
    tuned: int
    seed: int
    passes: float
    seconds: float
    data_dir: Path | None
    known: tuple[float, float, float] = (1.0, 1.0, 0.0)

    @property
    def name(self) -> str:
        """The key of its record."""
        return f"{self.problem} {self.solver} {self.batch} {self.setting} {self.seed}"


@contextmanager
def _in_float64() -> Iterator[None]:
    """Gaps of 1e-6 need it."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def prepare(job: Preparation) -> dict[str, Any]:
    """The record of a problem."""
    with _in_float64():
        problem = find_problem(job.problem, job.data_dir)
        found = know(problem, iterations=3000 if problem.convex else 300)
    return {"name": job.name, "problem": job.problem, **found, "versions": VERSIONS}


def measure(job: Job) -> dict[str, Any]:
    """The record of a run; an error is recorded too, and the other runs go on."""
    with _in_float64():
        problem, solver = find_problem(job.problem, job.data_dir), find_solver(job.solver)
        settings = settings_to_try(solver.ranges, solver.default, job.tuned)[job.setting]
        curvature, *reference = job.known
        torch.manual_seed(job.seed)
        task = Task(
            problem,
            batch=job.batch,
            seed=job.seed,
            curvature=curvature,
            reference=(reference[0], reference[1]),
            passes=job.passes,
            seconds=job.seconds,
            paired=solver.paired,
        )
        found = run_solver(solver, task, settings)
    return {"name": job.name, "settings": settings, **found, "versions": VERSIONS}


def jobs_of(
    problems: Sequence[str],
    names: Sequence[str],
    batches: Sequence[int],
    *,
    tuned: int,
    seeds: int,
    passes: float,
    seconds: float,
    data_dir: Path | None,
) -> Iterator[Job]:
    """Large batches first, because they are cheap; then problem after problem."""
    for batch in sorted(batches, reverse=True):
        for word in problems:
            problem = find_problem(word, data_dir)
            for name in names:
                solver = find_solver(name)
                if not solver.applies(problem):
                    continue
                tried = len(settings_to_try(solver.ranges, solver.default, tuned))
                for seed in range(seeds):
                    for setting in range(tried):
                        yield Job(
                            word, name, batch, setting, tuned, seed, passes, seconds, data_dir
                        )
