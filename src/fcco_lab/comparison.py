"""Several methods and seeds on one problem, with the same work for each."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from fcco.methods import Entry, Method
from fcco_lab.choices import choose
from fcco_lab.entries import adopt, entry_of
from fcco_lab.files import file_name, remove
from fcco_lab.named_objects import is_named
from fcco_lab.pool import run_jobs
from fcco_lab.results import Results
from fcco_lab.runs import Record, flaw_of
from fcco_lab.training import Config, Diverged, Training
from fcco_lab.training.config import choices_of
from fcco_lab.training.learners import inputs_of_a_step
from fcco_lab.training.problem import Problem, load_problem

__all__ = ["compare", "make_configs", "parse_contenders", "run_configs"]

_OF_CONTENT = ("data", "target", "drop", "train_size", "holdout", "objective")
"""The settings that say what the data are."""


def compare(
    methods: Sequence[str | Method | Entry],
    problem: Problem | str = "digits",
    seeds: int = 3,
    work: int = 0,
    *,
    data_dir: Path | str | None = None,
    output: Path | str | None = None,
    **settings: Any,
) -> list[Record]:
    """Train with each method and seed under equal work; ``fcco compare`` from Python.

    The records are what ``fcco_lab.write_report`` draws, and ``fcco report`` if ``output`` is
    given; ``fcco_lab.runs`` describes them. A run that diverged has a record that says so.

    Args:
        methods: names ("sox", "msvrm-v2:normalized"), ``module:name``, methods or entries.
        problem: a ``Problem``, the name of a data set, or a file.
        seeds: runs of each.
        work: inputs passed forward + 2 x inputs passed backward, for each run; 0: as much as
            ``steps`` steps of SOX cost.
        data_dir: the directory of the named data sets.
        output: a directory in which each record is added to ``runs.jsonl`` when it is made.
        settings: further settings of ``Config``, such as ``lr``.

    Examples:
        >>> import fcco
        >>> records = compare(
        ...     ["sox", fcco.methods.MSVRM_V2], seeds=1, work=5000, network="linear", evaluations=2
        ... )
        >>> [(record["config"]["method"], record["status"]) for record in records]
        [('sox', 'finished'), ('python:msvrm-v2', 'finished')]
    """
    about = {"data": problem}
    if isinstance(problem, Problem):
        kind = type(problem.objective).__name__
        about = {"data": problem.name, "objective": f"python:{kind}"}
    config = Config.from_dict(settings | about | {"work": work})
    words = [word if isinstance(word, str) else adopt(word) for word in methods]
    contenders = parse_contenders(words, config.update)
    if not isinstance(problem, Problem):
        problem = load_problem(config, None if data_dir is None else Path(data_dir))
    results = None if output is None else Results(Path(output) / "runs.jsonl")
    records = []
    for one in make_configs(config, contenders, seeds, problem):
        record = _finish(Training(one, problem=problem))
        if record["status"] == "running":  # a signal ended it
            raise KeyboardInterrupt
        records.append(record)
        if results is not None:
            results.add(record)
    return records


def make_configs(
    config: Config, contenders: Iterable[tuple[str, str]], seeds: int, problem: Problem
) -> list[Config]:
    """One config for each contender and each seed, all with the same work.

    Examples:
        >>> config = Config(steps=10)
        >>> contenders = parse_contenders(["sox", "msvrm-v2"], "adam")
        >>> configs = make_configs(config, contenders, 2, load_problem(config))
        >>> [(one.method, one.seed, one.work) for one in configs][1:3]
        [('sox', 1, 4800), ('msvrm-v2', 0, 4800)]
    """
    # As much as the steps of SOX cost: each input forward and backward.
    work = config.work or 3 * config.steps * inputs_of_a_step(config, problem)
    return [
        replace(config, method=method, update=update, seed=config.seed + seed, steps=0, work=work)
        for method, update in contenders
        for seed in range(seeds)
    ]


def parse_contenders(words: Iterable[str], update: str) -> list[tuple[str, str]]:
    """Methods with their step rules, from "sox", "msvrm-v2:normalized" or "module:name:plain".

    Examples:
        >>> parse_contenders(["sox", "msvrm-v2:plain", "fcco.methods:MARS"], "adam")
        [('sox', 'adam'), ('msvrm-v2', 'plain'), ('fcco.methods:MARS', 'adam')]
    """
    methods, updates = choices_of("method"), choices_of("update")
    pairs = []
    for word in words:
        method, _, rule = word.partition(":")
        if is_named(word) and method not in methods and rule not in updates:
            name, _, rule = rule.partition(":")
            method = f"{method}:{name}"
            entry_of(method)  # or say what is wrong before any run
        else:
            choose("method", method, methods, otherwise="; or your own as module:name")
        rule = rule or ("plain" if method == "min-max" else update)
        choose("update", rule, updates)
        pairs.append((method, rule))
    return pairs


def run_configs(
    configs: Iterable[Config], path: Path, *, data_dir: Path | None, workers: int | None, what: str
) -> list[Record]:
    """Train with every config that has no record in the file yet; the records of all.

    The other arguments are those of ``run_jobs``.

    Raises:
        ValueError: a record in the file is of other data or code than what is there now.
    """
    scratch = path.parent / "unfinished-runs"
    work = partial(_run_config, data_dir=data_dir, scratch=scratch)
    jobs = {config.name: config for config in configs}
    _check_records(jobs, path, data_dir)
    records = run_jobs(jobs, work, path, workers=workers, what=what)
    for name in jobs:
        remove(scratch / file_name(name))
    with suppress(OSError):  # another command may be running there
        scratch.rmdir()
    return records


def _check_records(jobs: Mapping[str, Config], path: Path, data_dir: Path | None) -> None:
    """Records must be of the present data and code: a name says little about either."""
    records = Results(path).records
    for name in jobs.keys() & records.keys():
        if flaw := flaw_of(records[name]):
            raise ValueError(f"a record of {path}: {flaw}: remove it, or name another output")
    for about in dict.fromkeys(_part_of(config, *_OF_CONTENT) for config in jobs.values()):
        kept = [record for record in records.values() if _is_about(record, about)]
        content = load_problem(about, data_dir).content if kept else {}
        for record in kept:
            subjects = dict.fromkeys(("training_data", "test_data"), about.data)
            subjects["objective_source"] = about.objective
            if record["config"].get("method") == about.method:
                subjects["method_source"] = about.method
            for key, what in subjects.items():
                here = content.get(key)
                if (there := record["content"].get(key, here)) != here:
                    raise ValueError(
                        f"{what} has changed since {path} was written "
                        f"({there} there, {here} here): name another output"
                    )


def _is_about(record: Record, about: Config) -> bool:
    """Whether a record says what its content was, and has the settings that decide on it."""
    config = record.get("config")
    if not isinstance(config, dict) or not isinstance(record.get("content"), dict):
        return False
    return all(config.get(key) == getattr(about, key) for key in _OF_CONTENT)


def _part_of(config: Config, *keys: str) -> Config:
    """A config with some of the settings, and a method of a user."""
    kept = (*keys, "method") if is_named(config.method) else keys
    return Config(**{key: getattr(config, key) for key in kept})


def _run_config(config: Config, data_dir: Path | None, scratch: Path) -> Record:
    """Run to the end in a worker; an interruption leaves a checkpoint."""
    output = scratch / file_name(config.name)
    # All that the data and the objective depend on, so that runs on one data set read it once.
    about = _part_of(config, *_OF_CONTENT, "temperature", "cross_entropy", "device")
    problem = _load(about, data_dir)
    record = _finish(Training(config, output=output, problem=problem))
    if record["status"] != "running":
        remove(output)
    return record


_load = lru_cache(maxsize=2)(load_problem)


def _finish(training: Training) -> Record:
    """Run to the end; divergence is a result."""
    try:
        return training.run()
    except Diverged as error:
        return training.record("diverged", str(error))
