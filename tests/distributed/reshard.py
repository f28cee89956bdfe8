"""Run by every rank: some steps of a case, saved or loaded with torch.distributed.checkpoint."""

import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from distributed.cluster import Run, join
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)


def state_of(run):
    return {
        "model": get_model_state_dict(run.model),
        "opt": get_optimizer_state_dict(run.model, run.opt),
    }


def save(run, place, steps):
    run.run(1, steps)
    dcp.save(state_of(run), checkpoint_id=place)


def load(run, place, steps):
    state = state_of(run)
    dcp.load(state, checkpoint_id=place)
    set_model_state_dict(run.model, state["model"])
    set_optimizer_state_dict(run.model, run.opt, state["opt"])
    run.run(steps + 1, steps + 20)


def main(directory, parallel, verb, steps, *cases):
    rank, _ = join(directory)
    results = {}
    for case in cases:
        run = Run(case, parallel)
        {"save": save, "load": load}[verb](run, f"{directory}/../saved/{case}", int(steps))
        results[case] = run.result()
    if rank == 0:
        torch.save(results, f"{directory}/results.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
