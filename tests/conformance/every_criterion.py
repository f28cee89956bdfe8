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
    """How a criterion is built, called with some rows of a tensor, and such a tensor.

    A row of it belongs to a sample; ``call`` takes the criterion, rows and their numbers.
    """

    build: Callable[[], L.ScoreLoss | L.RowLoss]
    call: Callable[..., torch.Tensor]
    x: torch.Tensor

    def all_rows(self, criterion, x):
        """The loss of all samples."""
        return self.call(criterion, x, torch.arange(len(self.x)))


def square(u):
    return u[..., 0].square()


def _by_index(criterion, x, index):
    return criterion(x, index)


def _views(criterion, e, index):
    return criterion(e, e.flip(1) + 2 * e, index)


def _grouped(criterion, e, index):
    return criterion(e.square().mean(1), row_criteria.CLASSES[index])


def _masks(criterion, p, index):
    return criterion(p[:, None], TARGETS[index, None])


def _targets(criterion, p, index):
    return criterion(p, TARGETS[index])


def _numbers(criterion, p, index):
    return criterion(p, TARGETS[index].double())


def _lines(criterion, p, index):
    return criterion(p[:, None])


def _probed(criterion, p, index):
    return criterion(Probe(index, p[:, None], loss=p.square().sum()))


def _entries():
    for case in criteria.CASES:
        yield case.name, Entry(case.criterion, _by_index, case.scores())
    calls = {"contrastive": _views, "nca": _by_index, "group": _grouped}
    for case in row_criteria.CASES:
        e = torch.randn(row_criteria.N, 5, dtype=torch.float64, generator=criteria.generator())
        yield case.name, Entry(case.criterion, calls[case.name.split(",")[0].split()[0]], e)
    groups = O.GroupDRO(TWENTY, temperature=1.0)
    for name, build, call in (
        ("f1", lambda: L.F1Loss().double(), _targets),
        ("dice", lambda: L.DiceLoss().double(), _masks),
        ("correlation", L.CorrelationLoss, _numbers),
        ("concordance", lambda: L.CorrelationLoss(concordance=True), _numbers),
        ("parity", lambda: L.ParityLoss(2, squared=True).double(), _targets),
        ("means", lambda: L.MeansLoss(square, 1).double(), _lines),
        ("table", lambda: L.TableLoss(groups).double(), _probed),
    ):
        yield name, Entry(build, call, PROBABILITIES)


EVERY: dict[str, Entry] = dict(_entries())
