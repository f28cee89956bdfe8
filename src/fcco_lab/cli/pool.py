"""Running independent jobs on the cores there are, with progress, each kept when it is done."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from types import FrameType
from typing import Any, TypeVar

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from fcco_lab.results import Results

__all__ = ["Interrupted", "run_jobs"]

Job = TypeVar("Job")


class Interrupted(Exception):
    """Not all jobs were done; what was done is kept."""


def run_jobs(
    jobs: Sequence[Job],
    work: Callable[[Job], dict[str, Any]],
    results: Results,
    *,
    console: Console,
    workers: int | None,
    what: str = "measuring",
) -> None:
    """Do every job in a process with one thread; an interruption loses only what was under way.

    Raises:
        Interrupted: after Ctrl-C or SIGTERM, or if a worker was ended.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    context = multiprocessing.get_context("spawn")
    count = min(workers or os.cpu_count() or 1, max(1, len(jobs)))
    before = signal.signal(signal.SIGTERM, _raise_interrupt)
    try:
        with (
            Progress(*columns, console=console) as progress,
            ProcessPoolExecutor(count, mp_context=context, initializer=_begin) as pool,
        ):
            task = progress.add_task(what, total=len(jobs))
            futures = [pool.submit(_do, work, job) for job in jobs]
            try:
                for future in as_completed(futures):
                    results.add(future.result())
                    progress.advance(task)
            except BaseException as error:
                for future in futures:
                    future.cancel()
                for child in multiprocessing.active_children():
                    child.terminate()  # a training run saves itself first
                if isinstance(error, KeyboardInterrupt | BrokenProcessPool):
                    raise Interrupted("interrupted; the same command goes on from here") from error
                raise
    finally:
        signal.signal(signal.SIGTERM, before)


def _raise_interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _do(work: Callable[[Job], dict[str, Any]], job: Job) -> dict[str, Any]:
    record = work(job)
    if record.get("status") == "running":
        # A signal ended the job, which has saved itself. The worker must not take up another.
        os.kill(os.getpid(), signal.SIGTERM)
    return record


def _begin() -> None:
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; one decides
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A worker whose parent was killed would wait for jobs for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
