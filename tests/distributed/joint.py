"""Run by every rank, and by one process: losses whose batches are spread over ranks."""

import sys
from functools import partial

import torch
import torch.distributed as dist
from distributed.cluster import join
from losses import criteria, row_criteria
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

import fcco
from fcco import losses as L
from fcco import objectives as O
from fcco.problem import Probe
from fcco.problem.batches import GroupBatch

SCORES = {case.name: case for case in criteria.CASES}
ROWS = {case.name: case for case in row_criteria.CASES}
X = torch.randn(45, 6, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
BAGS = torch.arange(45) % 7


class Own(fcco.Objective):
    """f_i(u) = u_1 u_2 of two outputs for each sample: every sample is a block."""

    num_blocks, inner_dim = 45, 2

    def outer(self, u, blocks):
        return u.prod(1)


def own(criterion, model, index):
    """With an ordinary loss beside it, a mean over the samples."""
    outputs = model(X[index])
    return criterion(Probe(index, outputs[:, :2], loss=outputs.square().mean()))


def spread(criterion, model, index):
    """Each rank has some samples of a bag."""
    blocks, owner, counts = BAGS[index].unique(return_inverse=True, return_counts=True)
    scores = (lambda x: model(x)[:, :1]) if criterion.objective.inner_dim == 1 else model
    batch = GroupBatch(blocks, X[index], owner, counts, targets=index)
    return criterion(criterion.objective.inner(scores, batch))


def scored(case, criterion, model, index, weighted=False):
    scores = model(X[index])[:, : case.tasks]
    return criterion(scores, index, (0.5 + index % 3) if weighted else None)


def _jobs():
    """name: (N, how a criterion is built, how it is called, whether a batch may be odd)."""
    for name, case in SCORES.items():
        if "T=" not in name and "p=2" not in name:
            yield name, (45, case.criterion, partial(scored, case), True)
    case = SCORES["pauc, 3 tasks"]
    yield "weighted", (45, case.criterion, partial(scored, case, weighted=True), True)
    for name, case in ROWS.items():
        yield name, (row_criteria.N, case.criterion, case.call, True)

    def f1(criterion, model, index):
        return criterion(model(X[index])[:, 0].sigmoid(), index % 2)

    yield "f1", (45, lambda: L.F1Loss().double(), f1, True)

    def table(objective):
        return lambda: L.TableLoss(objective, beta=0.3).double()

    yield "table, own blocks", (45, table(Own()), own, False)
    bags = O.SoftmaxPooling(BAGS, torch.arange(7) % 2, temperature=0.05)
    yield "table, scaled", (45, table(bags), spread, False)
    dro = O.GroupDRO(BAGS, temperature=0.5, loss=lambda outputs, _: outputs[:, 0].square())
    yield "table, shared blocks", (45, table(dro), spread, False)


JOBS = dict(_jobs())


def schedule(size, world, *, odd):
    """Steps, each a list of samples for every rank."""
    order = torch.Generator().manual_seed(world)
    steps = []
    for epoch in range(2):
        each = []
        for rank in range(world):
            sampler = DistributedSampler(range(size), world, rank, seed=3)
            sampler.set_epoch(epoch)
            each.append(torch.tensor(list(sampler)).split(5))  # the last ones are ragged
        steps += [list(parts) for parts in zip(*each, strict=True)]
    for _ in range(3):  # batches of other sizes on every rank
        drawn = torch.randperm(size, generator=order)
        steps.append(list(drawn[: 3 * world + 2].split([3 + 2 * (r == 1) for r in range(world)])))
    for _ in range(3):  # one sample on each
        steps.append(list(torch.randperm(size, generator=order)[:world].split(1)))
    if odd:  # no sample at all on a rank, or one that comes several times
        steps.append([torch.tensor([4, 9, 2][: 3 * (r != 1)]).long() for r in range(world)])
        steps.append([torch.tensor([8, 1 + r, 8, 3]) for r in range(world)])
    return steps


def run(name, world, parallel):
    """Weights, tables and losses after all steps; ``parallel`` "alone" sees what all ranks do."""
    size, build, call, odd = JOBS[name]
    torch.manual_seed(0)
    module = model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 5)).double()
    if parallel == "ddp":
        model = DistributedDataParallel(module)
    elif parallel == "fsdp":
        fully_shard(module[0])
        fully_shard(module)
    criterion = build()
    rank = None if parallel == "alone" else dist.get_rank()
    optimizer = torch.optim.SGD([*model.parameters(), *criterion.parameters()], 0.01, 0.5)
    values = []
    for parts in schedule(size, world, odd=odd):
        loss = call(criterion, model, torch.cat(parts) if rank is None else parts[rank])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        values.append(loss.item())
    weights = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in module.parameters()]
    return {
        "weights": [p.detach().clone() for p in weights],
        "state": criterion.state_dict(),
        "values": values,
    }


def main(directory, parallel, *names):
    rank, world = join(directory)
    results = {name: run(name, world, parallel) for name in names}
    torch.save(results, f"{directory}/{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
