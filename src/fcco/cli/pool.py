"""Running independent jobs on the cores there are, with progress, each kept when it is done."""

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any, TypeVar

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from fcco.experiments.results import Results

__all__ = ["run_jobs"]

Job = TypeVar("Job")


def run_jobs(
    jobs: Sequence[Job],
    work: Callable[[Job], dict[str, Any]],
    results: Results,
    *,
    console: Console,
    workers: int | None,
) -> None:
    """Do every job in a process with one thread; an interruption loses only what was under way."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    context = multiprocessing.get_context("spawn")
    count = workers or os.cpu_count() or 1
    with (
        Progress(*columns, console=console) as progress,
        ProcessPoolExecutor(count, mp_context=context, initializer=_one_thread) as pool,
    ):
        task = progress.add_task("measuring", total=len(jobs))
        futures = [pool.submit(work, job) for job in jobs]
        try:
            for future in as_completed(futures):
                results.add(future.result())
                progress.advance(task)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            console.print("interrupted; the same command goes on from here")


def _one_thread() -> None:
    torch.set_num_threads(1)
