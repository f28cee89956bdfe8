"""The runs of the benchmark: which there are, and one of them in a process of its own."""

import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
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
from fcco_lab.named_objects import is_named, load_named, source_of_named
from fcco_lab.results import Results
from fcco_lab.training.directory import difference

__all__ = [
    "Budget",
    "Job",
    "check_records",
    "find_problem",
    "find_solver",
    "in_float64",
    "jobs_of",
    "measure",
    "prepare",
    "sources_of",
]

VERSIONS = f"{fcco.__version__}, {torch.__version__}, {platform.python_version()}"
"""Of fcco, torch and Python."""


@lru_cache(maxsize=1)
def find_problem(word: str, data_dir: Path | None) -> Problem:
    """The problem of a name, or of a user's function as ``module:name``; the last one is kept."""
    if not is_named(word):
        choose("problem", word, PROBLEMS, otherwise="; or module:name")
    load = load_named("problem", word) if is_named(word) else PROBLEMS[word]
    if not callable(load):
        raise ValueError(f"problem {word} must be a function, got {type(load).__name__}")
    problem = load(data_dir)
    if not isinstance(problem, Problem):
        raise ValueError(f"problem {word} must return a Problem, got {type(problem).__name__}")
    return problem


def find_solver(word: str) -> Solver:
    """The solver of a name, or a user's ``Solver`` as ``module:name``."""
    if is_named(word):
        solver = load_named("solver", word)
        if not isinstance(solver, Solver):
            raise ValueError(f"solver {word} must be a Solver, got {type(solver).__name__}")
        return solver
    choose("solver", word, solvers(), otherwise="; or module:name")
    return solvers()[word]


@dataclass(frozen=True)
class Budget:
    """What every run may use.

    Args:
        passes: work, in full gradients.
        seconds: CPU time.
        tuned: settings of each solver besides its default.
        seeds: seeds of every setting.
        data_dir: the directory of the data sets.
    """

    passes: float = 30.0
    seconds: float = 60.0
    tuned: int = 8
    seeds: int = 1
    data_dir: Path | None = None


@dataclass(frozen=True)
class Job:
    """One run of a solver on a problem.

    Args:
        problem: a name or module:name.
        solver: a name or module:name.
        batch: inputs per step.
        setting: its number; 0 is the default.
        seed: of the batches.
        budget: of the run.
        known: what is known of the problem, as ``prepare`` found it.
    """

    problem: str
    solver: str
    batch: int
    setting: int
    seed: int
    budget: Budget
    known: dict[str, Any]

    @property
    def name(self) -> str:
        """The key of its record."""
        return f"{self.problem} {self.solver} {self.batch} {self.setting} {self.seed}"

    @property
    def terms(self) -> dict[str, Any]:
        """What its name does not say: the budget, and the code of an own problem and solver."""
        budget = {"passes": self.budget.passes, "seconds": self.budget.seconds}
        return budget | sources_of(problem=self.problem, solver=self.solver)


def sources_of(**words: str) -> dict[str, str]:
    """The code of a user's own objects, which have been loaded, by what they are."""
    named = {what: word for what, word in words.items() if is_named(word)}
    return {f"{what}_source": source_of_named(word) for what, word in named.items()}


def check_records(terms: Mapping[str, Mapping[str, Any]], file: Path) -> None:
    """Raise a ``ValueError`` if a record that would be used again was made under other terms.

    Args:
        terms: of each record, by name; of a record that does not say its own nothing is known.
        file: of the records.
    """
    for name, record in Results(file).records.items():
        there = record.get("terms")
        # One of an error is made again.
        if name not in terms or not isinstance(there, dict) or record.get("status") == "error":
            continue
        if what := difference(there, terms[name]):
            raise ValueError(f"{name!r} in {file} was made otherwise ({what}): name another output")


@contextmanager
def in_float64() -> Iterator[None]:
    """Gaps of 1e-6 need it."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def prepare(place: tuple[str, Path | None]) -> dict[str, Any]:
    """The record of a problem, given by its name and the directory of the data sets."""
    word, data_dir = place
    with in_float64():
        problem = find_problem(word, data_dir)
        found = know(problem, iterations=3000 if problem.convex else 300)
    return {"name": word, **found, "terms": sources_of(problem=word), "versions": VERSIONS}


def measure(job: Job) -> dict[str, Any]:
    """The record of a run."""
    budget = job.budget
    with in_float64():
        problem, solver = find_problem(job.problem, budget.data_dir), find_solver(job.solver)
        settings = settings_to_try(solver.ranges, solver.default, budget.tuned)[job.setting]
        torch.manual_seed(job.seed)
        task = Task(
            problem,
            job.known,
            batch=job.batch,
            seed=job.seed,
            passes=budget.passes,
            seconds=budget.seconds,
            paired=solver.paired,
        )
        found = run_solver(solver, task, settings)
    about = {"name": job.name, "settings": settings, "terms": job.terms}
    return {**about, **found, "versions": VERSIONS}


def jobs_of(
    known: Mapping[str, dict[str, Any]],
    names: Sequence[str],
    batches: Sequence[int],
    budget: Budget,
) -> Iterator[Job]:
    """All runs on the problems that are known: large batches first, because they are cheap."""
    for batch in sorted(batches, reverse=True):
        for word, facts in known.items():
            problem = find_problem(word, budget.data_dir)
            for name in names:
                solver = find_solver(name)
                if not solver.applies(problem):
                    continue
                tried = len(settings_to_try(solver.ranges, solver.default, budget.tuned))
                for seed, setting in product(range(budget.seeds), range(tried)):
                    yield Job(word, name, batch, setting, seed, budget, facts)
