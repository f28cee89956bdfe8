"""Run by every rank: all cases under one kind of parallelism; rank 0 writes what came out."""

import sys

import torch
import torch.distributed as dist
from cluster import CASES, Run, join

directory, parallel, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
rank, world = join(directory)
results = {}
for case in sys.argv[4:] or CASES:
    results[case] = Run(case, parallel).run(1, steps).result()
if rank == 0:
    torch.save(results, f"{directory}/{parallel}.pt")
dist.barrier()
dist.destroy_process_group()
