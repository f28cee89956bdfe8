"""Run by every rank: some cases under one kind of parallelism; rank 0 writes what came out."""

import sys

import torch
import torch.distributed as dist
from distributed.cluster import Run, join


def main(directory, parallel, steps, *cases):
    rank, _ = join(directory)
    results = {case: Run(case, parallel).run(1, int(steps)).result() for case in cases}
    if rank == 0:
        torch.save(results, f"{directory}/{parallel}.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
