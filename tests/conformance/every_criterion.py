"""Every criterion by name, as a function of one tensor, for tests that hold for all of them."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from losses import criteria, row_criteria

from fcco import losses as L
from fcco import objectives as O
from fcco.problem import Probe

TWENTY, TARGETS = torch.arange(20), torch.arange(20) % 2
PROBABILITIES = torch.linspace(0.05, 0.95, 20, dtype=torch.float64)


class Entry(NamedTuple):
    """How a criterion is built, called with one tensor, and such a tensor, one row per sample."""

    build: Callable[[], L.ScoreLoss | L.RowLoss]
    call: Callable[..., torch.Tensor]
    x: torch.Tensor


def square(u):
    return u[..., 0].square()


def _probed(criterion, p):
    return criterion(Probe(TWENTY, p[:, None], loss=p.square().sum()))


def _entries():
    for case in criteria.CASES:
        everyone = torch.arange(case.size)
        yield case.name, Entry(case.criterion, lambda c, h, i=everyone: c(h, i), case.scores())
    everyone = torch.arange(row_criteria.N)
    calls = {
        "contrastive": lambda c, e: c(e, e.flip(0) + 2 * e, everyone),
        "nca": lambda c, e: c(e, everyone),
        "group": lambda c, e: c(e.square().mean(1), row_criteria.CLASSES),
    }
    for case in row_criteria.CASES:
        e = torch.randn(row_criteria.N, 5, dtype=torch.float64, generator=criteria.generator())
        kind = case.name.split(",")[0].split()[0]
        yield case.name, Entry(case.criterion, calls[kind], e)
    wide, p = TARGETS.double(), PROBABILITIES
    yield "f1", Entry(lambda: L.F1Loss().double(), lambda c, p: c(p, TARGETS), p)
    yield (
        "dice",
        Entry(lambda: L.DiceLoss().double(), lambda c, p: c(p[:, None], TARGETS[:, None]), p),
    )
    yield "correlation", Entry(L.CorrelationLoss, lambda c, p: c(p, wide), p)
    yield (
        "concordance",
        Entry(lambda: L.CorrelationLoss(concordance=True), lambda c, p: c(p, wide), p),
    )
    yield (
        "parity",
        Entry(lambda: L.ParityLoss(2, squared=True).double(), lambda c, p: c(p, TARGETS), p),
    )
    yield "means", Entry(lambda: L.MeansLoss(square, 1).double(), lambda c, p: c(p[:, None]), p)
    groups = O.GroupDRO(TWENTY, temperature=1.0)
    yield "table", Entry(lambda: L.TableLoss(groups).double(), _probed, p)


EVERY: dict[str, Entry] = dict(_entries())
