"""Running independent jobs on the cores there are, with progress, each kept when it is done."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TypeVar

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from fcco_lab.results import Results
from fcco_lab.runs import Record

__all__ = ["Interrupted", "run_jobs"]

Job = TypeVar("Job")


class Interrupted(Exception):
    """Not all jobs were done; what was done is kept."""


def run_jobs(
    jobs: Mapping[str, Job],
    work: Callable[[Job], Record],
    path: Path,
    *,
    workers: int | None,
    what: str,
) -> list[Record]:
    """Do every job that has no record yet, or one of an error, in a process with one thread.

    An interruption loses only what was under way.

    Args:
        jobs: by the name of their record.
        work: from a job to its record.
        path: the file of records, where each is added when it is made.
        workers: the number of processes, by default that of cores.
        what: before the progress bar.

    Returns:
        The records of all jobs.

    Raises:
        Interrupted: after Ctrl-C or SIGTERM, or if a worker was ended.
    """
    results = Results(path)
    done = {name for name, record in results.records.items() if record.get("status") != "error"}
    missing = [job for name, job in jobs.items() if name not in done]
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    context = multiprocessing.get_context("spawn")
    count = min(workers or os.cpu_count() or 1, max(1, len(missing)))
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with (
            Progress(*columns) as progress,
            ProcessPoolExecutor(count, mp_context=context, initializer=_begin) as pool,
        ):
            task = progress.add_task(what, total=len(missing))
            futures = [pool.submit(_do, work, job) for job in missing]
            try:
                for future in as_completed(futures):
                    results.add(future.result())
                    progress.advance(task)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                for child in multiprocessing.active_children():
                    child.terminate()  # a training run saves itself first
                raise
    except (KeyboardInterrupt, BrokenProcessPool) as error:
        raise Interrupted("interrupted; the same command goes on from here") from error
    finally:
        signal.signal(signal.SIGTERM, before)
    return [results.records[name] for name in jobs]


def _do(work: Callable[[Job], Record], job: Job) -> Record:
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
