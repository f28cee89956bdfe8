"""Run by two ranks: faults that all ranks see, calls that exchange nothing, and what DDP sends."""

import copy
import sys
import warnings
from contextlib import contextmanager

import pytest
import torch
import torch.distributed as dist
from distributed.cluster import join
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from fcco import losses as L
from fcco import objectives as O
from fcco.distributed import Ranks
from fcco.problem import Probe

LABELS = torch.arange(20) % 3 == 0


def scores(count, bad=None):
    made = torch.arange(float(count)) / 7
    if bad is not None:
        made[1] = bad
    return made.requires_grad_()


@contextmanager
def unchanged(criterion):
    before = copy.deepcopy(criterion.state_dict())
    yield
    for name, tensor in criterion.state_dict().items():
        assert tensor.equal(before[name]), name


@contextmanager
def words():
    """The bytes of every collective of this rank."""
    sent, plain = [], dist.all_gather

    def counting(parts, part, group=None):
        sent.append(part.numel() * part.element_size())
        return plain(parts, part, group=group)

    dist.all_gather = counting
    try:
        yield sent
    finally:
        dist.all_gather = plain


def faults(rank):
    """Rank 1 has the fault; both raise, nothing is written, and training goes on."""
    here = rank == 1
    auc, dro = L.AUCLoss(LABELS), L.GroupDROLoss(3, temperature=1.0)
    pairs = L.ContrastiveLoss(20, temperature=0.1)
    table = L.TableLoss(O.GroupDRO(torch.arange(5), temperature=1.0))
    near = L.NCALoss(LABELS.long())
    index, e = torch.arange(4) + 4 * rank, torch.rand(4, 3)

    def probe(*blocks):
        return Probe(torch.tensor(blocks), torch.ones(len(blocks), 1))

    cases = [
        (auc, (scores(4), index + 20 * here), ValueError, "samples"),
        (auc, (scores(4, torch.nan if here else 0.0), index), FloatingPointError, "finite"),
        (auc, (scores(5 if here else 4), index), ValueError, "shape"),
        (dro, (scores(4), index % (4 + here)), ValueError, r"groups \[\d"),
        (pairs, (e, e / (0.0 if here else 1.0), index), FloatingPointError, "second of samples"),
        (near, (e, index - 9 * here), ValueError, "outside"),
        (table, (probe(0, 0) if here else probe(0, 1),), ValueError, "probed twice"),
        (table, (None if here else probe(2),), TypeError, "must be a Probe"),
    ]
    for criterion, given, kind, message in cases:
        with unchanged(criterion):
            if criterion is dro and not here:
                given = (given[0], given[1].clamp(max=2))
            expected = (kind, message) if here else (RuntimeError, "another rank found a fault")
            with pytest.raises(expected[0], match=expected[1]):
                criterion(*given)
    for make, message in (
        (lambda: auc(scores(4).double() if here else scores(4), index), r"\[12, 16\] bytes"),
        (lambda: auc(scores(4), index, torch.ones(4) if here else None), r"\[12, 20\] bytes"),
        (lambda: pairs(e[:, : 2 + here], e[:, : 2 + here], index), "bytes per sample"),
        # As many bytes per sample, but other columns: they must not be taken for one another.
        (lambda: _same_width(here, index), r"\[24, 24\] bytes"),
        (lambda: L.AUCLoss(LABELS ^ here)(scores(4), index), "built from other labels"),
        (lambda: pairs(e[:1], e[:1], torch.tensor([7])), "this batch holds 1"),
        (lambda: near(e[:0], e[:0, 0].long()), "this batch holds 0"),
    ):
        with unchanged(auc), unchanged(pairs), pytest.raises(ValueError, match=message):
            make()
    auc(scores(4), index).backward()
    assert auc.seen.nonzero().flatten().tolist() == list(range(8))
    pairs(e[:1].requires_grad_(), e[:1], index[:1]).backward()  # two samples of all ranks
    assert pairs.table.visited.nonzero().flatten().tolist() == [0, 4, 20, 24]


def _same_width(here, index):
    """float32 scores of two tasks with a weight, and float64 scores without one."""
    labels = torch.stack([LABELS, ~LABELS], 1)
    two = torch.ones(4, 2, dtype=torch.float64 if here else torch.float32)
    L.AUCLoss(labels)(two, index, None if here else torch.ones(4))


def silence(rank):
    """One rank alone may look, and ranks need not train together."""
    auc, dro = L.AUCLoss(LABELS), L.GroupDROLoss(3, temperature=1.0)
    with words() as sent, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that these are not validation losses
        if rank == 0:
            with torch.no_grad():
                auc(scores(4), torch.arange(4))
                dro(torch.ones(3), torch.arange(3))
            auc.eval()(scores(4), torch.arange(4))
            dro.eval()(torch.ones(3), torch.arange(3))
            alone = L.AUCLoss(LABELS)
            alone.ranks = Ranks.alone()
            copy.deepcopy(alone)(scores(4), torch.arange(4))
            alone(scores(4), torch.arange(4)).backward()
            assert alone.num_seen == 4
    assert sent == []


def refreshed(rank):
    """A call of all ranks, in eval mode and without gradients too, each with its own samples."""
    auc = L.AUCLoss(LABELS).eval()
    for mode in (torch.no_grad, torch.enable_grad):
        with words() as sent, mode():
            auc.refresh(scores(4) + rank, torch.arange(4) + 4 * rank)
        assert len(sent) == 2
        assert not auc.training
    expected = torch.cat([scores(4).detach(), scores(4).detach() + 1])
    assert auc.scores[:8, 0].equal(expected)
    assert auc.num_seen == 8


def sizes(rank):
    """What the guide says that a step sends: 32 bytes, and so many per sample."""
    index, e = torch.arange(4) + 4 * rank, torch.rand(4, 16)
    many = torch.stack([LABELS, ~LABELS, LABELS], 1)
    groups = O.GroupDRO(torch.arange(8), temperature=1.0)
    calls = {
        8 + 4: lambda: L.AUCLoss(LABELS)(scores(4), index),
        8 + 4 * 3: lambda: L.AUCLoss(many)(e[:, :3], index),
        8 + 4 * 3 + 8: lambda: L.AUCLoss(many)(e[:, :3], index, torch.ones(4)),
        8 + 8 * 16: lambda: L.ContrastiveLoss(20, temperature=0.1)(e, e, index),
        8 + 4 * 16: lambda: L.NCALoss(LABELS.long())(e, index),
        4 + 8: lambda: L.GroupDROLoss(3, temperature=1.0)(e[:, 0], index % 3),
        16 + 4 * 1: lambda: L.TableLoss(groups, beta=0.5)(Probe(index, e[:, :1])),
        16 + 4 * 2: lambda: L.TableLoss(groups)(Probe(index, e[:, :1])),  # and its noise
    }
    for size, call in calls.items():
        with words() as sent:
            call()
        assert sent == [32, 4 * size], (sent, size)


class Wrapped(nn.Module):
    """A criterion inside the module that DDP wraps, as in a LightningModule."""

    def __init__(self, criterion):
        super().__init__()
        self.net, self.norm, self.criterion = nn.Linear(3, 2), nn.BatchNorm1d(3), criterion

    def forward(self, x, index):
        return self.criterion(self.net(self.norm(x))[:, 0], index)


def wrappers(rank):
    """DDP broadcasts the buffers of BatchNorm before every step, but no table from step two on.

    It reads its list of buffers, from which tables are taken in the first step, before a step.
    """
    torch.manual_seed(0)
    x, results = torch.randn(20, 3), []
    for inside in (True, False):
        torch.manual_seed(1)
        module = Wrapped(L.PartialAUCLoss(LABELS, temperature=0.2))
        criterion = module.criterion
        if not inside:
            del module.criterion
            module.forward = lambda x, module=module: module.net(module.norm(x))[:, 0]
        model = DistributedDataParallel(module)
        optimizer = torch.optim.SGD(module.parameters(), 0.1)
        for t in range(5):
            index = (torch.arange(4) + 4 * rank + 3 * t) % 20
            loss = model(x[index], index) if inside else criterion(model(x[index]), index)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            tables = [name for name in model.named_module_buffers if "criterion" in name]
            assert not tables
            assert "norm.running_mean" in model.named_module_buffers
        results.append((loss, criterion.scores, *module.net.parameters()))
    for mine, other in zip(*results, strict=True):
        assert mine.equal(other)


def bare(rank):
    """A criterion inside a module without any other buffer, as a LightningModule may be."""
    builders = [
        lambda: L.AUCLoss(LABELS),
        lambda: L.APLoss(LABELS),
        lambda: L.CoxLoss(torch.arange(20), LABELS),
        lambda: L.NCALoss(LABELS.long()),
        lambda: L.F1Loss(),
    ]
    for build in builders:
        torch.manual_seed(1)
        module = Bare(build())
        model = DistributedDataParallel(module)
        optimizer = torch.optim.SGD(module.parameters(), 0.1)
        for t in range(4):
            index = (torch.arange(4) + 4 * rank + 3 * t) % 20
            loss = model(torch.ones(4, 3) * index[:, None], index)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        states = [None] * 2
        dist.all_gather_object(states, module.criterion.state_dict())
        assert all(states[0][name].equal(states[1][name]) for name in states[0])


def sharded(rank):
    """FSDP2 around a module that holds a criterion, or beside it, with BatchNorm and without."""
    torch.manual_seed(0)
    x = torch.randn(20, 3)
    for norm in (True, False):
        results = []
        for inside in (True, False):
            torch.manual_seed(1)
            criterion = L.PartialAUCLoss(LABELS, temperature=0.2)
            module = Wrapped(criterion if inside else nn.Identity())
            if not norm:
                module.norm = nn.Identity()
            if not inside:
                module.forward = lambda x, m=module: m.net(m.norm(x))[:, 0].clone()
            fully_shard(module.net)
            fully_shard(module)
            optimizer = torch.optim.SGD(module.parameters(), 0.1)
            for t in range(4):
                index = (torch.arange(4) + 4 * rank + 3 * t) % 20
                loss = module(x[index], index) if inside else criterion(module(x[index]), index)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            weights = [p.full_tensor() for p in module.net.parameters()]
            results.append((loss, criterion.scores, criterion.sums.sums, *weights))
            states = [None] * 2
            dist.all_gather_object(states, criterion.state_dict())
            assert all(states[0][name].equal(states[1][name]) for name in states[0])
        for mine, other in zip(*results, strict=True):
            assert mine.equal(other)


class Bare(nn.Module):
    def __init__(self, criterion):
        super().__init__()
        self.net, self.criterion = nn.Linear(3, 2), criterion

    def forward(self, x, index):
        outputs = self.net(x / 10)
        if isinstance(self.criterion, L.F1Loss):
            return self.criterion(outputs[:, 0].sigmoid(), LABELS[index])
        return self.criterion(outputs if isinstance(self.criterion, L.NCALoss) else outputs[:, 0],
                              index)  # fmt: skip


def main(directory):
    rank, _ = join(directory)
    for part in (faults, refreshed, silence, sizes, wrappers, bare, sharded):
        part(rank)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
