"""Data sets of tuples and dicts, and batches of given samples."""

import itertools
import pickle
from dataclasses import fields
from functools import partial

import pytest
import torch
from objectives.test_zoo import exact_inner, unscaled
from objectives.zoo import CASES, EVENTS, GROUPS, TARGETS, TIMES, N, X, Y, Z
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

import fcco
from fcco import data as D
from fcco import objectives as O
from fcco.data import block_loader, exact_pass, exact_value

# Tuples and dicts -------------------------------------------------------------------------------


class Tuples(Dataset):
    def __len__(self):
        return N

    def __getitem__(self, i):
        return X[i], Z[i], int(Y[i])


class Dicts(Tuples):
    def __getitem__(self, i):
        return {"x": X[i], "z": Z[i], "label": int(Y[i])}


class Sum(nn.Module):
    """Takes a tensor, a tuple of two tensors or a dict of them."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(3, 1).double()

    def forward(self, given):
        if isinstance(given, dict):
            given = given["x"], given["z"]
        parts = given if isinstance(given, tuple | list) else (given,)
        return sum(self.linear(part) for part in parts)


SOURCES = {
    "tuple": (D.Inputs(Tuples(), input=0), X),
    "tuple of two": (D.Inputs(Tuples(), input=[0, 1]), X + Z),
    "dict": (D.Inputs(Dicts(), input="z"), Z),
    "dict of two": (D.Inputs(Dicts(), input=["x", "z"]), X + Z),
    "whole dict": (D.Inputs(Dicts()), X + Z),
    "function": (D.Inputs(Tuples(), input=lambda sample: sample[0] + sample[1]), X + Z),
    "collate_fn": (
        D.Inputs(Tuples(), collate_fn=lambda some: torch.stack([x + z for x, z, _ in some])),
        X + Z,
    ),
}
BUILD = {
    "tasks": (lambda x: D.TaskData.binary(x, Y), O.MultiTaskAUC(1)),
    "precision": (lambda x: D.AnchorData.average_precision(x, Y), O.AveragePrecision(3, N)),
    "survival": (lambda x: D.AnchorData.survival(x, TIMES, EVENTS), O.Cox(6, N)),
    "groups": (lambda x: D.GroupData(x, GROUPS), O.SoftmaxPooling(torch.tensor([1, 0, 1]), 4)),
    "views": (lambda x: D.ViewData(x, x, two_way=True), O.GlobalContrastive(N, two_way=True)),
}


class Shifted(Sum):
    """The bias counts once for each input: with the sum of two as one input it counts twice."""

    def forward(self, given):
        two = isinstance(given, tuple | list | dict)
        return super().forward(given) - (2 if two else 1) * self.linear.bias


@pytest.mark.parametrize("kind", BUILD)
@pytest.mark.parametrize("source", SOURCES)
def test_tuples_and_dicts_are_as_good_as_a_tensor(source, kind):
    inputs, same = SOURCES[source]
    build, objective = BUILD[kind]
    data, plain, model = build(inputs), build(same), Shifted()

    def close(found, expected):
        assert found.blocks.equal(expected.blocks)
        torch.testing.assert_close(found.values, expected.values)

    value = exact_value(model, data, objective, chunk_size=4)
    assert value == pytest.approx(exact_value(model, plain, objective), abs=1e-12)
    options = {"blocks_per_step": 1, "samples_per_block": 4, "num_steps": 2}
    for got, wanted in zip(
        *(block_loader(one, objective, **options) for one in (data, plain)), strict=True
    ):
        close(objective.inner(model, got), objective.inner(model, wanted))
    for got, wanted in zip(
        *(exact_pass(model, one, objective, chunk_size=4) for one in (data, plain)), strict=True
    ):
        close(got(), wanted())
    rows = [0, 1, 2, 4, 5]
    close(objective.inner(model, data.batch(rows)), objective.inner(model, plain.batch(rows)))


def test_dicts_are_read_by_workers_and_moved():
    data = D.TaskData.binary(D.Inputs(Dicts(), input=["x", "z"]), Y)
    options = {"blocks_per_step": 1, "samples_per_block": 4, "num_steps": 3}
    batches = [
        list(block_loader(data, O.MultiTaskAUC(1), num_workers=k, **options)) for k in (0, 1)
    ]
    for here, there in zip(*batches, strict=True):
        assert here.inputs["z"].equal(there.inputs["z"])
    assert here.to("meta").inputs["x"].device.type == "meta"
    assert here.blocks.dtype == torch.int64


def test_sequences_of_several_lengths():
    texts = [(torch.arange(1, 2 + i % 4).double(), i % 2) for i in range(8)]

    def pad(some):
        return pad_sequence(some, batch_first=True), torch.tensor([len(one) for one in some])

    data = D.TaskData.binary(D.Inputs(texts, input=0, collate_fn=pad), [y for _, y in texts])

    class Mean(nn.Module):
        def forward(self, given):
            padded, lengths = given
            return padded.sum(1) / lengths

    means = torch.stack([text.mean() for text, _ in texts])
    plain = D.TaskData.binary(means, [y for _, y in texts])
    objective = O.MultiTaskAUC(1)
    expected = exact_value(nn.Identity(), plain, objective)
    assert exact_value(Mean(), data, objective, chunk_size=3) == pytest.approx(expected, abs=1e-12)


def test_a_namedtuple_moves_with_what_it_holds():
    from collections import namedtuple

    Pair = namedtuple("Pair", "a b")
    batch = fcco.Batch(torch.tensor([0]), Pair(torch.zeros(1), "text")).to("meta")
    assert batch.inputs.a.device.type == "meta"
    assert batch.inputs.b == "text"


def test_samples_that_are_no_tensors_are_refused_with_a_way_out():
    data = D.TaskData.binary(Tuples(), Y)
    with pytest.raises(ValueError, match=r"samples must be tensors .*fcco\.data\.Inputs"):
        data.batch([0, 1])


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (D.Inputs(Dicts(), input="image"), r"input='image' does not fit .*\['x', 'z', 'label'\]"),
        (D.Inputs(Tuples(), input=3), "input=3 does not fit the samples: tuple"),
        (D.Inputs(Dicts(), input=["x", "image"]), r"input=\['x', 'image'\] does not fit"),
    ],
)
def test_a_part_that_is_missing_is_named(inputs, message):
    with pytest.raises(ValueError, match=message):
        inputs[0]


# Batches of given samples -----------------------------------------------------------------------

every = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@every
def test_values_of_uniform_samples_are_unbiased(case):
    """Over all sets of 4 samples: the mean of each block, where it is not left out, is g_i."""
    model, m = case.model(), case.objective.num_blocks
    exact = exact_inner(case, model).detach()
    sums, counts = torch.zeros_like(exact), torch.zeros(m, 1, dtype=torch.float64)
    with torch.no_grad():
        for rows in itertools.combinations(range(N), 4):
            batch = case.dataset.batch(list(rows))
            if not len(batch):
                continue
            probe = case.objective.inner(model, batch)
            sums.index_add_(0, probe.blocks, unscaled(case, probe))
            counts.index_add_(0, probe.blocks, torch.ones(len(batch), 1, dtype=torch.float64))
    assert (counts > 0).all()
    torch.testing.assert_close(sums / counts, exact, rtol=1e-9, atol=1e-12)


@every
def test_all_samples_give_the_exact_values(case):
    model = case.model()
    probe = case.objective.inner(model, case.dataset.batch(range(N)))
    values = torch.zeros_like(exact_inner(case, model)).index_copy(
        0, probe.blocks, unscaled(case, probe)
    )
    torch.testing.assert_close(values, exact_inner(case, model), rtol=1e-10, atol=1e-12)


@every
def test_a_sample_that_comes_twice_counts_once(case):
    once, twice = case.dataset.batch([1, 4, 2, 6]), case.dataset.batch([1, 4, 1, 2, 6, 6, 4])
    model = case.model()
    first, second = (case.objective.inner(model, batch) for batch in (once, twice))
    order = [probe.blocks.argsort() for probe in (first, second)]
    assert first.blocks[order[0]].equal(second.blocks[order[1]])
    values = [
        unscaled(case, probe)[some] for probe, some in zip((first, second), order, strict=True)
    ]
    torch.testing.assert_close(*values, rtol=1e-12, atol=1e-14)


EMPTY = {
    "tasks": (D.TaskData.binary(X, Y), [0, 2, 3]),
    "precision": (D.AnchorData.average_precision(X, Y), [0, 2, 3]),
    "precision, alone": (D.AnchorData.average_precision(X, Y), [1]),
    "positives": (D.AnchorData.positives(X, Y), [1, 4]),
    "negatives": (D.AnchorData.negatives(X, Y), [0, 2]),
    "survival": (D.AnchorData.survival(X, TIMES, EVENTS), [3, 4, 7]),
    "lists": (D.ListData(X, torch.ones(N), torch.tensor([4, 2, 3])), [0, 5]),
    "views": (D.ViewData(X, Z, two_way=True), [3]),
}


@pytest.mark.parametrize("name", EMPTY)
def test_a_batch_without_blocks_is_left_out(name):
    data, rows = EMPTY[name]
    batch = data.batch(rows)
    assert len(batch) == 0
    assert all(
        len(getattr(batch, field.name)) == 0 for field in fields(batch) if field.name == "blocks"
    )
    full = data.batch(range(N))
    assert list(filter(len, [batch, full, batch])) == [full]


def test_points_say_how_many_samples():
    batch = D.PointData(X).batch([2, 5, 2], samples=7)
    assert batch.blocks.tolist() == [2, 5]
    assert batch.samples == 7
    assert batch.inputs.equal(X[[2, 5]])


@pytest.mark.parametrize("name", EMPTY)
def test_rows_are_checked(name):
    data, _ = EMPTY[name]
    with pytest.raises(ValueError, match=r"rows must lie in 0\.\.8, got 9"):
        data.batch([0, 9])
    with pytest.raises(ValueError, match="rows must be whole numbers that are not negative"):
        data.batch([0, -1])
    with pytest.raises(ValueError, match="there are no rows"):
        data.batch([])


def test_any_loader_of_positions_will_do():
    """Shuffled, in epochs, batches of 3, one positive among 9 samples at the end: it learns."""
    labels = Y.clone()
    data = D.AnchorData.average_precision(X, labels)
    objective, model = O.AveragePrecision(3, N), nn.Linear(3, 1).double()
    torch.manual_seed(0)
    loader = DataLoader(range(N), batch_size=3, shuffle=True, collate_fn=data.batch)
    opt = fcco.SOX(model, objective, lr=0.05, alpha=0.2, beta=0.5)
    before, blocks = exact_value(model, data, objective), []
    for _ in range(60):
        for batch in loader:
            value = opt.step(lambda batch=batch: objective.inner(model, batch))
            blocks.append(len(batch))
            assert (value == 0) == (len(batch) == 0)
    assert 0 in blocks, "some batches had no positive"
    assert exact_value(model, data, objective) < before - 0.05


NO_POSITIVE = (Y == 0).nonzero().flatten()


class Noisy(nn.Module):
    """What a forward pass would leave behind: statistics, and draws of the RNG."""

    def __init__(self):
        super().__init__()
        layers = nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.3), nn.Linear(4, 1)
        self.layers = nn.Sequential(*layers).double()

    def forward(self, x):
        return self.layers(x)


@pytest.mark.parametrize("build", [fcco.SOX, partial(fcco.MSVRM, version=2), fcco.BSGD])
@pytest.mark.parametrize("verb", ["step", "estimate"])
def test_an_empty_batch_changes_nothing(build, verb):
    data = D.AnchorData.average_precision(X, Y)
    objective, none, some = O.AveragePrecision(3, N), NO_POSITIVE, list(range(N))
    found = []
    for rows in ([some, none, some, none], [some, some]):
        torch.manual_seed(0)
        model = Noisy()
        opt = build(model, objective, lr=0.05)
        for part in rows:
            getattr(opt, verb)(partial(objective.inner, model, data.batch(part).to("cpu")))
        grads = [p.grad for p in model.parameters()]
        state = {key: part for key, part in opt.state_dict().items() if key != "param_groups"}
        found.append((model.state_dict(), state, torch.get_rng_state()))
        assert (grads[0] is None) == (verb == "step" or rows[-1] is none)
    torch.testing.assert_close(*found, rtol=0, atol=0)


def test_an_empty_batch_among_others_and_an_empty_probe_are_errors():
    data = D.AnchorData.average_precision(X, Y)
    objective, model = O.AveragePrecision(3, N), nn.Linear(3, 1).double()
    opt = fcco.SOX(model, objective, lr=0.05)
    closures = [
        partial(objective.inner, model, data.batch(rows)) for rows in (range(N), NO_POSITIVE)
    ]
    with pytest.raises(ValueError, match="no sample of this batch belongs to a block"):
        opt.step(closures)
    nothing = fcco.Probe(torch.zeros(0, dtype=torch.int64), torch.zeros(0, 2).double())
    with pytest.raises(ValueError, match=r"Probe\.blocks is empty"):
        opt.step(lambda: nothing)
    assert opt.queries.work == 0
    copy = pickle.loads(pickle.dumps(data.batch(NO_POSITIVE)))  # a worker sends it
    assert len(copy) == 0


def test_targets_come_along():
    batch = D.GroupData(X, GROUPS, TARGETS).batch([8, 0, 2])
    assert batch.targets.tolist() == TARGETS[[8, 0, 2]].tolist()
    assert batch.counts.tolist() == [2, 1]


def test_a_data_set_of_ones_own_says_what_it_lacks():
    class Own(D.PointData):
        among = D.BlockData.among

    with pytest.raises(TypeError, match=r"Own defines no among\(rows\)"):
        Own(X).batch([0])
