"""Run by both of two ranks: every operation fails on both, and leaves nothing behind."""

import os
import sys

import torch
import torch.distributed as dist
from distributed.cluster import RECOVERING, Run, join
from support.faults import FailAt, Fault
from support.job import assert_unchanged, capture


def fail_each(case, parallel):
    """In a snapshot, where there is one, and in a step; returns how many operations there were."""
    run, twin = (Run(case, parallel).run(1, 4) for _ in range(2))
    total = 0
    for act in (Run.snapshot, lambda run: run.opt.step(lambda: run.inner(run.draw(5)))):
        if act is Run.snapshot and not run.opt.method.anchored:
            continue
        before, k = capture(run.module, run.opt), 1
        while True:
            mode = FailAt(k, aligned=True)
            try:
                with mode:
                    act(run)
            except Fault:
                assert_unchanged(before, run.module, run.opt)
            else:
                break
            k += 1
        act(twin)
        total += mode.count
    for name in ("params", "z"):
        for a, b in zip(run.run(6, 7).result()[name], twin.run(6, 7).result()[name], strict=True):
            assert torch.equal(a, b), name
    return total


if __name__ == "__main__":
    directory, *cases = sys.argv[1:]
    rank, _ = join(directory)
    for case in cases:
        for parallel in RECOVERING:
            count = fail_each(case, parallel)
            sys.stdout.write(f"{case} {parallel}: {count} operations\n")
            sys.stdout.flush()
    # Collectives of the steps that failed were never waited for, and torch may abort at exit while
    # their threads live. All checks have passed on both ranks, so the processes end at once.
    dist.barrier()
    os._exit(0)
