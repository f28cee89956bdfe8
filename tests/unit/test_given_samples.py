"""Data sets of tuples and dicts, and batches of given samples."""

import itertools
import pickle
from functools import partial

import pytest
import torch
from objectives.test_zoo import exact_inner, unscaled
from objectives.zoo import CASES, EVENTS, GROUPS, TARGETS, TIMES, N, X, Y, Z
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, TensorDataset

import fcco
from fcco import data as D
from fcco import objectives as O
from fcco.data import block_loader, exact_pass, exact_value
from fcco.data.inputs import take
from fcco.problem.batches import EmptyBatch, NoBlocks

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
OBJECTIVES = {
    "tasks": O.MultiTaskAUC(Y.bool()),
    "precision": O.AveragePrecision(Y),
    "survival": O.Cox(TIMES, EVENTS),
    "groups": O.SoftmaxPooling(GROUPS, torch.tensor([1, 0, 1])),
    "views": O.GlobalContrastive(N, temperature=0.1),
}


class Shifted(Sum):
    """The bias counts once for each input: with the sum of two as one input it counts twice."""

    def forward(self, given):
        two = isinstance(given, tuple | list | dict)
        return super().forward(given) - (2 if two else 1) * self.linear.bias


@pytest.mark.parametrize("kind", OBJECTIVES)
@pytest.mark.parametrize("source", SOURCES)
def test_tuples_and_dicts_are_as_good_as_a_tensor(source, kind):
    inputs, same = SOURCES[source]
    objective, model = OBJECTIVES[kind], Shifted()
    data, plain = ((one, one) if kind == "views" else one for one in (inputs, same))

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
    rows = torch.tensor([0, 1, 2, 4, 5])
    got, wanted = (objective.batch(take(one, rows), rows) for one in (data, plain))
    close(objective.inner(model, got), objective.inner(model, wanted))


def test_dicts_are_read_by_workers_and_moved():
    inputs, objective = D.Inputs(Dicts(), input=["x", "z"]), OBJECTIVES["tasks"]
    options = {"blocks_per_step": 1, "samples_per_block": 4, "num_steps": 3}
    batches = [list(block_loader(inputs, objective, num_workers=k, **options)) for k in (0, 1)]
    for here, there in zip(*batches, strict=True):
        assert here.inputs["z"].equal(there.inputs["z"])
    assert here.to("meta").inputs["x"].device.type == "meta"
    assert here.blocks.dtype == torch.int64


def test_sequences_of_several_lengths():
    texts = [(torch.arange(1, 2 + i % 4).double(), i % 2) for i in range(8)]

    def pad(some):
        return pad_sequence(some, batch_first=True), torch.tensor([len(one) for one in some])

    class Mean(nn.Module):
        def forward(self, given):
            padded, lengths = given
            return padded.sum(1) / lengths

    objective = O.MultiTaskAUC(torch.tensor([y for _, y in texts]).bool())
    means = torch.stack([text.mean() for text, _ in texts])
    expected = exact_value(nn.Identity(), means, objective)
    inputs = D.Inputs(texts, input=0, collate_fn=pad)
    found = exact_value(Mean(), inputs, objective, chunk_size=3)
    assert found == pytest.approx(expected, abs=1e-12)


def test_a_namedtuple_moves_with_what_it_holds():
    from collections import namedtuple

    Pair = namedtuple("Pair", "a b")
    batch = fcco.Batch(torch.tensor([0]), Pair(torch.zeros(1), "text")).to("meta")
    assert batch.inputs.a.device.type == "meta"
    assert batch.inputs.b == "text"


def test_samples_that_are_no_tensors_are_refused_with_a_way_out():
    with pytest.raises(ValueError, match=r"samples must be tensors .*fcco\.data\.Inputs"):
        exact_value(Sum(), Tuples(), OBJECTIVES["tasks"])


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


def batch_of(case, rows):
    """As any loader gives them: the samples, and their positions."""
    rows = torch.as_tensor(rows)
    return case.objective.batch(take(case.inputs, rows), rows)


@pytest.mark.sweep(3)
@every
def test_values_of_uniform_samples_are_unbiased(case):
    """Over all sets of 4 samples: the mean of each block, where it is not left out, is g_i."""
    model, m = case.model(), case.objective.num_blocks
    exact = exact_inner(case, model).detach()
    sums, counts = torch.zeros_like(exact), torch.zeros(m, 1, dtype=torch.float64)
    with torch.no_grad():
        for rows in itertools.combinations(range(N), 4):
            batch = batch_of(case, rows)
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
    probe = case.objective.inner(model, batch_of(case, range(N)))
    values = torch.zeros_like(exact_inner(case, model)).index_copy(
        0, probe.blocks, unscaled(case, probe)
    )
    torch.testing.assert_close(values, exact_inner(case, model), rtol=1e-10, atol=1e-12)


@every
def test_a_sample_that_comes_twice_counts_once(case):
    once, twice = (batch_of(case, rows) for rows in ([1, 4, 2, 6], [1, 4, 1, 2, 6, 6, 4]))
    model = case.model()
    first, second = (case.objective.inner(model, batch) for batch in (once, twice))
    order = [probe.blocks.argsort() for probe in (first, second)]
    assert first.blocks[order[0]].equal(second.blocks[order[1]])
    values = [
        unscaled(case, probe)[some] for probe, some in zip((first, second), order, strict=True)
    ]
    torch.testing.assert_close(*values, rtol=1e-12, atol=1e-14)


@every
def test_inputs_keep_the_order_in_which_they_are_given(case):
    """However the samples are ordered, the blocks have the same values."""
    model, values = case.model(), []
    for rows in ([1, 4, 2, 6, 8], [8, 2, 6, 1, 4]):
        probe = case.objective.inner(model, batch_of(case, rows))
        order = probe.blocks.argsort()
        values.append((probe.blocks[order], unscaled(case, probe)[order]))
    assert values[0][0].equal(values[1][0])
    torch.testing.assert_close(values[0][1], values[1][1], rtol=1e-12, atol=1e-14)


EMPTY = {
    "tasks": (O.MultiTaskAUC(Y.bool()), [0, 2, 3]),
    "auc": (O.AUC(Y), [1, 4]),
    "precision": (O.AveragePrecision(Y), [0, 2, 3]),
    "precision, alone": (O.AveragePrecision(Y), [1]),
    "partial auc": (O.PartialAUC(Y, temperature=1.0), [1, 4]),
    "sensitive": (O.PartialAUC(Y, temperature=1.0, min_tpr=0.5), [0, 2]),
    "push": (O.PNormPush(Y), [0, 2]),
    "survival": (O.Cox(TIMES, EVENTS), [3, 4, 7]),
    "lists": (O.NDCG(torch.ones(N), torch.tensor([4, 2, 3])), [0, 5]),
    "points": (O.NCA(GROUPS), [3]),
    "views": (O.GlobalContrastive(N, temperature=0.1), [3]),
}


def inputs_of(objective):
    return (X, Z) if objective.num_views == 2 else X


@pytest.mark.parametrize("name", EMPTY)
def test_a_batch_without_blocks_is_left_out(name):
    objective, rows = EMPTY[name]
    inputs = inputs_of(objective)
    batch = objective.batch(take(inputs, torch.tensor(rows)), rows)
    assert isinstance(batch, EmptyBatch)
    assert len(batch) == len(batch.blocks) == 0
    full = objective.batch(inputs, range(N))
    assert list(filter(len, [batch, full, batch])) == [full]
    with pytest.raises(NoBlocks, match="no sample of this batch belongs to a block"):
        objective.inner(nn.Identity(), batch)


def test_points_say_how_many_samples():
    batch = O.IWAE(N).batch(X[[2, 5, 2]], [2, 5, 2], samples=7)
    assert batch.blocks.tolist() == [2, 5]
    assert batch.samples == 7
    assert batch.inputs.equal(X[[2, 5]])


@pytest.mark.parametrize("name", EMPTY)
def test_an_index_is_checked(name):
    objective, _ = EMPTY[name]
    for index, message in (
        ([0, 9], r"index must lie in 0\.\.8, got 9"),
        ([0, -1], "index must be whole numbers that are not negative"),
        ([0.5, 1.0], "index must be whole numbers that are not negative, got torch.float64"),
        ([True, False], "index must be positions in inputs, got booleans"),
        ([[0, 1]], r"index must have shape \(B,\), got \(1, 2\)"),
        (3, r"index must have shape \(B,\), got \(\)"),
        ([], "there are no index"),
    ):
        with pytest.raises(ValueError, match=message):
            objective.batch(take(inputs_of(objective), torch.tensor([0, 1])), index)


@pytest.mark.parametrize("wrapped", [False, True])
def test_any_loader_will_do(wrapped):
    """Shuffled, in epochs, batches of 3, three positives among 9 samples: it learns."""
    objective, model = O.AveragePrecision(Y), nn.Linear(3, 1).double()
    torch.manual_seed(0)
    if wrapped:
        loader = DataLoader(D.WithIndex(TensorDataset(X)), batch_size=3, shuffle=True)
    else:
        rows = DataLoader(range(N), batch_size=3, shuffle=True)
        loader = ExampleLoader(rows)
    opt = fcco.SOX(model, objective, lr=0.05, alpha=0.2, beta=0.5)
    before, blocks = exact_value(model, X, objective), []
    for _ in range(60):
        for x, index in loader:
            batch = objective.batch(x, index)
            value = opt.step(lambda batch=batch: objective.inner(model, batch))
            blocks.append(len(batch))
            assert (value == 0) == (len(batch) == 0)
    assert 0 in blocks, "some batches had no positive"
    assert exact_value(model, X, objective) < before - 0.05


class ExampleLoader:
    """A loader of one's own: samples and their positions."""

    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        return ((X[rows], rows) for rows in self.rows)


def test_a_loader_may_form_batches_in_its_workers():
    objective = O.Cox(TIMES, EVENTS)
    loader = DataLoader(range(N), batch_size=3, collate_fn=partial(form, objective), num_workers=1)
    for batch, rows in zip(loader, torch.arange(N).split(3), strict=True):
        expected = objective.batch(X[rows], rows)
        assert batch.blocks.equal(expected.blocks)
        assert batch.weights.equal(expected.weights)


def form(objective, rows):
    return objective.batch(X[rows], rows)


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
    objective, none, some = O.AveragePrecision(Y), NO_POSITIVE, list(range(N))
    found = []
    for rows in ([some, none, some, none], [some, some]):
        torch.manual_seed(0)
        model = Noisy()
        opt = build(model, objective, lr=0.05)
        for part in rows:
            batch = objective.batch(X[part], part).to("cpu")
            getattr(opt, verb)(partial(objective.inner, model, batch))
        grads = [p.grad for p in model.parameters()]
        state = {key: part for key, part in opt.state_dict().items() if key != "param_groups"}
        found.append((model.state_dict(), state, torch.get_rng_state()))
        assert (grads[0] is None) == (verb == "step" or rows[-1] is none)
    torch.testing.assert_close(*found, rtol=0, atol=0)


def test_an_empty_batch_among_others_and_an_empty_probe_are_errors():
    objective, model = O.AveragePrecision(Y), nn.Linear(3, 1).double()
    opt = fcco.SOX(model, objective, lr=0.05)
    batches = [objective.batch(X[rows], rows) for rows in (torch.arange(N), NO_POSITIVE)]
    closures = [partial(objective.inner, model, batch) for batch in batches]
    with pytest.raises(ValueError, match="no sample of this batch belongs to a block"):
        opt.step(closures)
    nothing = fcco.Probe(torch.zeros(0, dtype=torch.int64), torch.zeros(0, 2).double())
    with pytest.raises(ValueError, match=r"Probe\.blocks is empty"):
        opt.step(lambda: nothing)
    assert opt.queries.work == 0
    copy = pickle.loads(pickle.dumps(batches[1]))  # a worker sends it
    assert len(copy) == 0


def test_targets_come_along():
    objective = O.GroupDRO(GROUPS, TARGETS, temperature=1.0)
    batch = objective.batch(X[[8, 0, 2]], [8, 0, 2])
    assert batch.targets.tolist() == TARGETS[[8, 0, 2]].tolist()
    assert batch.counts.tolist() == [2, 1]


def test_inputs_of_a_given_batch_may_be_a_tuple_or_a_dict():
    """A sample that comes twice is taken out of each part."""
    objective, rows = O.AveragePrecision(Y), torch.tensor([1, 0, 1, 4])
    batch = objective.batch({"x": X[rows], "z": (Z[rows], "text")}, rows)
    assert batch.inputs["x"].equal(X[[0, 1, 4]])
    assert batch.inputs["z"][0].equal(Z[[0, 1, 4]])
    assert batch.inputs["z"][1] == "text"
