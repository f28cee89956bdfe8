"""Ranks that differ in what they bring: all of them raise and nothing changes, or tables are equal.

Ranks are threads here, which takes milliseconds; processes are in ``tests/distributed``.
"""

import copy
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.distributed as dist
from conformance.every_criterion import EVERY
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fcco import losses as L
from fcco import objectives as O
from fcco.distributed import Ranks
from fcco.problem import Probe

# Calls in eval mode and without gradients are what these tests are about; they warn.
pytestmark = pytest.mark.filterwarnings("ignore:.*it is not a validation loss")

SIZE, N = 2, 12
LABELS = torch.arange(N) % 3 == 0
E = torch.randn(N, 4, generator=torch.Generator().manual_seed(0))


class Meeting:
    """Where threads hand over tensors."""

    def __init__(self):
        self.barrier = threading.Barrier(SIZE, timeout=20)
        self.parts = [None] * SIZE

    def gather(self, rank, part):
        self.parts[rank] = part.clone()
        self.barrier.wait()
        found = list(self.parts)
        self.barrier.wait()
        return found


class ThreadRanks(Ranks):
    """One of ``SIZE`` threads."""

    def __init__(self, rank, meeting):
        vars(self).update(vars(Ranks.alone()))
        self.rank, self.size, self.meeting = rank, SIZE, meeting

    def gather(self, part):
        shapes = self.meeting.gather(self.rank, torch.tensor(part.shape))
        assert all(shape.equal(shapes[0]) for shape in shapes), "a collective needs equal shapes"
        return self.meeting.gather(self.rank, part)


@pytest.fixture(autouse=True)
def _no_process_group(monkeypatch):
    monkeypatch.setattr(dist, "get_backend", lambda group=None: "gloo")


def together(criteria, calls):
    """What each rank got: the loss, or an error."""
    meeting = Meeting()

    def work(rank):
        criteria[rank].ranks = ThreadRanks(rank, meeting)
        try:
            return calls[rank](criteria[rank])
        except Exception as error:
            return error

    with ThreadPoolExecutor(SIZE) as pool:
        found = list(pool.map(work, range(SIZE)))
    assert not meeting.barrier.broken, "a rank waited for another"
    return found


def states(criteria):
    return [copy.deepcopy(criterion.state_dict()) for criterion in criteria]


def same(one, other):
    return all(one[key].equal(other[key]) for key in one)


# What a rank may bring: how its criterion is built, and how it is called with some samples.
SCORED = {
    "auc": lambda: L.AUCLoss(LABELS),
    "auc of other labels": lambda: L.AUCLoss(~LABELS),
    "auc of other order": lambda: L.AUCLoss(LABELS.roll(1)),
    "auc, cold": lambda: L.AUCLoss(LABELS, temperature=0.5),
    "average precision": lambda: L.APLoss(LABELS),
}
SAMPLES = st.lists(st.integers(0, N - 1), max_size=4)
BRING = st.fixed_dictionaries({
    "build": st.sampled_from(["auc"] * 5 + sorted(SCORED)),
    "dtype": st.sampled_from([torch.float32] * 4 + [torch.float64, torch.bfloat16]),
    "weighted": st.sampled_from([False] * 4 + [True]),
    "samples": SAMPLES,
    "broken": st.sampled_from([False] * 6 + [True]),
})  # fmt: skip


def scores_of(given):
    scores = E[given["samples"], 0].to(given["dtype"])
    return scores * torch.nan if given["broken"] else scores


def bring(*parts):
    """A call with the samples of one rank, or of several together."""

    def call(criterion):
        index = torch.cat([torch.tensor(given["samples"]).long() for given in parts])
        scores = torch.cat([scores_of(given).to(width(given["dtype"])) for given in parts])
        if len(parts) == 1:
            scores = scores_of(parts[0])
        weight = torch.ones(len(index)) if parts[0]["weighted"] else None
        loss = criterion(scores.requires_grad_(), index, weight)
        loss.backward()
        return loss.item()

    return call


def width(dtype):
    return torch.promote_types(dtype, torch.float32)


def check(ranks):
    criteria = [SCORED[given["build"]]() for given in ranks]
    before = states(criteria)
    found = together(criteria, [bring(given) for given in ranks])
    first, second = ranks
    alike = all(first[key] == second[key] for key in ("build", "weighted"))
    alike = alike and width(first["dtype"]) == width(second["dtype"])
    alike = alike and not any(given["broken"] and given["samples"] for given in ranks)
    if not alike:
        assert all(isinstance(got, Exception) for got in found), found
        for criterion, state in zip(criteria, before, strict=True):
            assert same(criterion.state_dict(), state)
        return
    assert found[0] == found[1], found
    assert same(*states(criteria))
    joint = SCORED[first["build"]]()
    assert bring(*ranks)(joint) == pytest.approx(found[0], rel=1e-6, abs=1e-7)
    assert same(joint.state_dict(), criteria[0].state_dict())


@pytest.mark.parametrize("examples", [150, pytest.param(4000, marks=pytest.mark.slow)])
def test_ranks_agree_by_content(examples):
    options = {"suppress_health_check": list(HealthCheck), "phases": [Phase.generate]}
    run = settings(max_examples=examples, deadline=None, derandomize=True, **options)
    run(given(st.tuples(BRING, BRING))(check))()


def test_a_fault_of_one_rank_is_told_to_the_other():
    good = {"dtype": torch.float32, "weighted": False, "samples": [0, 1], "broken": False}
    calls = [bring(good | {"broken": True}), bring(good)]
    here, there = together([L.AUCLoss(LABELS), L.AUCLoss(LABELS)], calls)
    assert isinstance(here, FloatingPointError)
    assert isinstance(there, RuntimeError)
    assert "another rank found a fault" in str(there)


INDEX = torch.arange(N)
OTHERS = {
    "contrastive": (lambda T: L.ContrastiveLoss(N, temperature=T),
                    lambda c, i: c(E[i], E[i] + 1, i)),
    "nca": (lambda T: L.NCALoss(LABELS.long(), temperature=T), lambda c, i: c(E[i], i)),
    "nca of classes": (lambda T: L.NCALoss((INDEX % 2).roll(int(10 * T))),
                       lambda c, i: c(E[i], i)),
    "group dro": (lambda T: L.GroupDROLoss(3, temperature=T), lambda c, i: c(E[i, 0], i % 3)),
    "f1": (lambda T: L.F1Loss(recall_weight=T),
           lambda c, i: c(E[i, 0].sigmoid(), LABELS[i].long())),
    "micro": (lambda T: L.F1Loss(2 if T == 0.5 else 3, average="micro"),
              lambda c, i: c(E[i, : c.num_tasks].sigmoid(),
                             LABELS[i, None].expand(-1, c.num_tasks))),
    "correlation": (lambda T: L.CorrelationLoss(concordance=T == 0.5),
                    lambda c, i: c(E[i, 0], E[i, 1])),
    "parity": (lambda T: L.ParityLoss(2, squared=T == 0.5), lambda c, i: c(E[i, 0], i % 2)),
    "table": (lambda T: L.TableLoss(O.GroupDRO(torch.arange(N), temperature=T), beta=0.5),
              lambda c, i: c(Probe(i, E[i, :1]))),
    "cox": (lambda T: L.CoxLoss(INDEX, LABELS, ties="efron" if T == 0.5 else "breslow"),
            lambda c, i: c(E[i, 0], i)),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_losses_built_from_other_things(name):
    """Equal batches are exchanged; but a loss that was built otherwise is an error on all ranks."""
    build, call = OTHERS[name]
    calls = [lambda c, i=INDEX[k::SIZE]: call(c, i).item() for k in range(SIZE)]
    criteria = [build(0.5), build(0.5)]
    found = together(criteria, calls)
    assert found[0] == found[1]
    assert same(*states(criteria))
    criteria = [build(0.5), build(0.25)]
    before = states(criteria)
    found = together(criteria, calls)
    for got in found:
        assert isinstance(got, ValueError)
        assert "built from other labels or settings" in str(got)
    assert all(map(same, before, states(criteria)))


class Met(Exception):
    """Somebody exchanged something."""


class LoneRank(Ranks):
    """One of two ranks, the other of which never comes."""

    def __init__(self):
        vars(self).update(vars(Ranks.alone()))
        self.size = 2

    def gather(self, part):
        raise Met

    sum = whole = gather


@pytest.mark.parametrize("name", EVERY)
def test_every_exchange_is_documented(name, recwarn):
    """A rank alone may do anything with a criterion but what says that all ranks must."""
    build, _, x = EVERY[name]
    call = EVERY[name].all_rows
    criterion = build()
    criterion.ranks = LoneRank()
    with pytest.raises(Met):
        call(criterion, x)
    assert "rank" in " ".join(kind.__doc__ or "" for kind in type(criterion).__mro__[:-2])
    call(criterion.eval(), x)
    with torch.no_grad():
        call(criterion.train(), x)
    criterion.load_state_dict(copy.deepcopy(criterion).state_dict())
    criterion.float().double()
    if isinstance(criterion, L.ScoreLoss):
        criterion.exact(x)
        for mode in (criterion.train, criterion.eval):
            with torch.no_grad(), pytest.raises(Met):
                mode().refresh(x)
        assert "all ranks must call it" in L.ScoreLoss.refresh.__doc__
    criterion.ranks = Ranks.alone()
    call(criterion.train(), x)  # without the others, if they do not train together
    recwarn.clear()
