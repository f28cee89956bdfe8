"""Data sets with block structure, their sampler and their loader."""

import itertools
import math
from collections import Counter
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fcco import data as D
from fcco import objectives as O
from fcco.data import BlockSampler, block_loader, exact_pass, exact_value
from fcco.data.draws import distinct, draw
from fcco.problem.objective import Objective

N = 12
GENERATOR = torch.Generator().manual_seed(3)
X = torch.randn((N, 3), generator=GENERATOR, dtype=torch.float64)
Z = torch.randn((N, 3), generator=GENERATOR, dtype=torch.float64)
CLASSES = torch.arange(N) % 4
LABELS = torch.arange(N) % 2
GROUPS = torch.tensor([0, 1, 2, 3, 3, 2, 1, 0, 0, 1, 2, 3])
TARGETS = torch.arange(N) % 2
GRADES = torch.tensor([1, 0, 2, 1, 0, 1, 1, 2, 0, 1, 1, 3])
LENGTHS = torch.tensor([5, 4, 3])
TIMES = torch.arange(N).double() % 5

DATA = {
    "tasks": lambda x=X: D.TaskData.from_classes(x, CLASSES),
    "precision": lambda x=X: D.AnchorData.average_precision(x, LABELS),
    "survival": lambda x=X: D.AnchorData.survival(x, TIMES, LABELS, ties="efron"),
    "neighbours": lambda x=X: D.AnchorData.neighbours(x, CLASSES),
    "lists": lambda x=X: D.ListData(x, GRADES, LENGTHS),
    "groups": lambda x=X: D.GroupData(x, GROUPS, TARGETS),
    "points": lambda x=X: D.PointData(x),
    "views": lambda x=X: D.ViewData(x, Z, two_way=True),
}
every = pytest.mark.parametrize("name", DATA)


class Rows:
    """Inputs that are not a tensor: read one by one, and counted."""

    def __init__(self, tensor=X):
        self.tensor, self.reads = tensor, 0

    def __len__(self):
        return len(self.tensor)

    def __getitem__(self, i):
        assert type(i) is int
        self.reads += 1
        return self.tensor[i]


def sampler(name, **changes):
    settings = {"blocks_per_step": 4, "samples_per_block": 3, "num_steps": 20} | changes
    return BlockSampler(DATA[name](), **settings)


def same(a, b):
    """Two batches are equal, field by field."""
    assert type(a) is type(b)
    for field in fields(a):
        x, y = getattr(a, field.name), getattr(b, field.name)
        if isinstance(x, Tensor):
            assert x.dtype == y.dtype, field.name
            assert torch.equal(x, y), field.name
        else:
            assert x == y, field.name


# Draws ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "count"), [(4, 1), (4, 2), (4, 3), (3, 3), (5, 3)])
def test_floyd_is_uniform_over_subsets(size, count):
    """Every equally likely outcome of its uniform numbers: each subset comes as often."""
    axes = [[(j + 0.5) / (size - count + k + 1) for j in range(size - count + k + 1)]
            for k in range(count)]  # fmt: skip
    spread = torch.tensor(list(itertools.product(*axes)), dtype=torch.float64)
    sets = draw(spread, torch.full((len(spread),), size), replacement=False)
    assert ((sets >= 0) & (sets < size)).all()
    hits = Counter(frozenset(row) for row in sets.tolist())
    assert all(len(subset) == count for subset in hits)
    assert len(hits) == math.comb(size, count)
    assert len(set(hits.values())) == 1


def test_draws_stay_inside_populations_of_any_size():
    almost = torch.full((3, 2), 1 - 2.0**-53, dtype=torch.float64)
    sizes = torch.tensor([2, 3, 2**40 + 1])
    for replacement in (True, False):
        places = draw(almost, sizes, replacement=replacement)
        assert (places < sizes[:, None]).all()
        places = draw(torch.zeros_like(almost), sizes, replacement=replacement)
        assert (places >= 0).all()
    assert draw(almost, sizes, replacement=True)[2, 0] == 2**40


@pytest.mark.parametrize(("num_blocks", "count"), [(4, 2), (9, 2), (3, 3)])
def test_ordered_ids_are_uniform(num_blocks, count):
    """Also the order: with several ranks it says who gets which block."""
    generator, draws = torch.Generator().manual_seed(1), 4000
    hits = Counter(tuple(distinct(num_blocks, count, generator).tolist()) for _ in range(draws))
    outcomes = math.perm(num_blocks, count)
    assert len(hits) == outcomes
    chi2 = sum((h - draws / outcomes) ** 2 for h in hits.values()) * outcomes / draws
    assert chi2 < outcomes + 5 * math.sqrt(2 * outcomes)


# The sampler ------------------------------------------------------------------------------------


@every
def test_a_step_depends_on_seed_and_number_alone(name):
    one, other = sampler(name, seed=5), sampler(name, seed=5, num_steps=7)
    stream = list(one)
    assert len(stream) == len(one) == 20
    for t in (13, 2, 20, 1):
        same(other.at(t), stream[t - 1])
    other.num_steps = 20
    assert other.step == 0  # ``at`` leaves it where it stands
    foreign = sampler(name, seed=6).at(1)
    assert not torch.equal(foreign.blocks, stream[0].blocks) or not torch.equal(
        foreign.inputs, stream[0].inputs
    )
    torch.manual_seed(1)
    state = torch.get_rng_state()
    same(one.at(3), stream[2])
    assert torch.equal(torch.get_rng_state(), state)  # the model's stream is not touched


@every
def test_blocks_are_distinct_and_inside(name):
    for batch in sampler(name, num_steps=50):
        assert len(batch.blocks.unique()) == len(batch.blocks) == 4
        assert batch.blocks.min() >= 0
        assert batch.blocks.max() < DATA[name]().num_blocks
        assert batch.blocks.dtype == torch.int64


def test_blocks_and_pairs_of_blocks_are_uniform():
    hits = torch.zeros(12, 12)
    for batch in sampler("points", num_steps=3000, blocks_per_step=3):
        hits[batch.blocks[:, None], batch.blocks] += 1
    singles, pairs = hits.diagonal() / 3000, hits[~torch.eye(12, dtype=torch.bool)] / 3000
    assert (singles - 3 / 12).abs().max() < 5 * math.sqrt(3 / 12 * 9 / 12 / 3000)
    p = 3 * 2 / (12 * 11)
    assert (pairs - p).abs().max() < 5 * math.sqrt(p * (1 - p) / 3000)


@every
def test_resuming_in_the_middle(name):
    first = sampler(name, seed=2)
    stream = iter(first)
    head = [next(stream) for _ in range(7)]
    state = first.state_dict()
    assert state["step"] == 7
    second = sampler(name, seed=77)
    second.load_state_dict(state)
    whole = list(sampler(name, seed=2))
    for a, b in zip(head + list(second), whole, strict=True):
        same(a, b)
    assert second.state_dict()["step"] == 20
    assert len(list(second)) == 20, "the next epoch"
    assert second.state_dict()["step"] == 40


@every
@pytest.mark.parametrize("world", [1, 2, 4])
@pytest.mark.parametrize("replacement", [True, False])
def test_ranks_together_see_what_one_process_sees(name, world, replacement):
    data = DATA[name]()
    shares = 4 if data.num_blocks % 4 == 0 else world
    common = {"blocks_per_step": 4, "replacement": replacement, "shares": shares}
    if data.num_blocks - (world - 1) * -(-data.num_blocks // world) < 4 // world:
        with pytest.raises(ValueError, match="the smallest of 4 shares has 0 blocks, fewer"):
            sampler(name, **common, rank=0, world_size=world)
        return
    ranks = [sampler(name, **common, rank=r, world_size=world) for r in range(world)]
    alone = sampler(name, **common, rank=0, world_size=1) if data.num_blocks % 4 == 0 else None
    for t in range(1, 9):
        parts = [rank.at(t) for rank in ranks]
        seen = {}
        for rank, part in enumerate(parts):
            assert len(part.blocks) == 4 // world
            most = -(-data.num_blocks // world)
            assert all(block // most == rank for block in part.blocks.tolist())
            seen |= by_block(data, part)
        assert len(seen) == 4
        if alone is not None:
            whole = alone.at(t)
            assert torch.equal(torch.cat([part.blocks for part in parts]), whole.blocks)
            assert seen == by_block(data, whole)


def test_each_block_of_a_share_is_drawn_as_often_as_any_other():
    data = D.PointData(torch.zeros(10, 1))
    stream = D.BlockSampler(
        data, blocks_per_step=4, samples_per_block=1, num_steps=4000, rank=1, world_size=2
    )
    counts = torch.zeros(10)
    for batch in stream:
        counts[batch.blocks] += 1
    assert not counts[:5].any()
    # Binomial(4000, 2/5): five standard deviations.
    assert (counts[5:] - 1600).abs().max() < 5 * (4000 * 0.4 * 0.6) ** 0.5


def by_block(data, batch):
    """For each block what it is compared with, and how much each counts."""
    result = {}
    for b, block in enumerate(batch.blocks.tolist()):
        if isinstance(data, D.GroupData):
            rows = batch.inputs[batch.owner == b]
            result[block] = rows.tolist(), int(batch.counts[b])
        elif isinstance(data, D.TaskData):
            rows = batch.inputs.view(len(batch.blocks), -1)[b]
            result[block] = rows.tolist(), batch.positives
        elif isinstance(data, D.PointData):
            result[block] = int(batch.inputs[b]), batch.samples
        else:
            shared = batch.partners.ndim == 1
            partners = batch.inputs[batch.partners if shared else batch.partners[b]]
            anchor = int(batch.inputs[batch.anchors[b]])
            result[block] = anchor, partners.tolist(), batch.weights[b].tolist()
    return result


@pytest.mark.parametrize("name", ["precision", "survival", "neighbours", "views"])
def test_partners_are_shared_by_all_anchors(name):
    batch = sampler(name).at(1)
    partners = {tuple(row[1][:3]) for row in by_block(DATA[name](), batch).values()}
    assert len(partners) == 1


@pytest.mark.parametrize("name", [n for n in DATA if n != "points"])
def test_without_replacement_no_sample_comes_twice(name):
    twice = 0
    for replacement in (False, True):
        stream = sampler(name, replacement=replacement, num_steps=60, seed=4)
        for batch in stream:
            for got in by_block(stream.dataset, batch).values():
                drawn = got[0] if name in ("tasks", "groups") else got[1][:3]
                if replacement:
                    twice += len(set(drawn)) < len(drawn)
                else:
                    assert len(set(drawn)) == len(drawn) == 3
    assert twice > 0


def test_strata_are_drawn_evenly_and_weighed_by_size():
    labels = torch.arange(N) < 3
    batch = BlockSampler(
        D.AnchorData.average_precision(X, labels),
        blocks_per_step=1,
        samples_per_block=5,
        num_steps=1,
    ).at(1)
    drawn = batch.inputs[1:]
    assert labels[drawn].tolist() == [True, True, True, False, False]
    other = drawn != batch.inputs[0]
    expected = torch.tensor([3 / 12 / 3] * 3 + [9 / 12 / 2] * 2, dtype=torch.float64)
    torch.testing.assert_close(batch.weights[0, :5], expected * other)


# The loader -------------------------------------------------------------------------------------


class Any(Objective):
    """Has blocks; that is all a loader asks."""

    inner_dim = 1

    def __init__(self, num_blocks):
        self.num_blocks = num_blocks

    def outer(self, u, blocks):
        return u[:, 0]


def loader(name, source=X, **changes):
    data = DATA[name](source)
    settings = {"blocks_per_step": 2, "samples_per_block": 3, "num_steps": 8, "seed": 1} | changes
    return block_loader(data, Any(data.num_blocks), **settings)


@every
def test_inputs_need_not_be_a_tensor(name):
    for a, b in zip(loader(name), loader(name, Rows()), strict=True):
        same(a, b)


@every
def test_inputs_may_be_arrays_of_any_make(name):
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(X.numpy()).set_index(torch.arange(N).numpy() + 100)
    backward, big = X.flip(0).numpy()[::-1], X.numpy().astype(">f8")
    fixed = X.numpy().copy()
    fixed.flags.writeable = False
    for source in (table, backward, big, fixed, list(X.numpy())):
        for a, b in zip(loader(name), loader(name, source), strict=True):
            same(a, b)


def test_labels_of_numpy_and_pandas_are_those_of_torch():
    pandas = pytest.importorskip("pandas")
    column = pandas.Series(CLASSES.numpy(), index=range(N, 2 * N))
    given = [column, CLASSES.tolist(), CLASSES.flip(0).numpy()[::-1], np.int64(1) * CLASSES.numpy()]
    given += [CLASSES.numpy().astype(kind) for kind in ("u1", "u2", "u4", "u8", ">i4")]
    for classes in given:
        assert torch.equal(D.TaskData.from_classes(X, classes).labels, DATA["tasks"]().labels)
        assert torch.equal(D.GroupData(X, classes).groups, CLASSES)


def test_ids_far_apart_cost_nothing_where_gaps_are_left_out():
    far = CLASSES * 10**12
    tasks = D.TaskData.from_classes(X, far, drop_empty=True)
    groups = D.GroupData(X, far, drop_empty=True)
    assert tasks.tasks.tolist() == groups.names.tolist() == [k * 10**12 for k in range(4)]
    assert torch.equal(tasks.labels, DATA["tasks"]().labels)
    assert torch.equal(groups.groups, CLASSES)


def test_a_seed_may_be_a_number_of_numpy():
    for a, b in zip(loader("points", seed=7), loader("points", seed=np.int64(7)), strict=True):
        same(a, b)


@every
def test_collated_samples_are_those_of_the_positions(name):
    stream = loader(name)
    for t, batch in enumerate(stream, start=1):
        drawn = stream.sampler.at(t)
        assert torch.equal(batch.inputs, X[drawn.inputs])
        if name == "views":
            assert torch.equal(batch.second, Z[drawn.inputs])
        if name == "groups":
            assert torch.equal(batch.targets, TARGETS[drawn.inputs])
        same(batch.to("cpu"), batch)


@pytest.mark.parametrize("name", ["tasks", "survival", "views", "groups"])
@pytest.mark.parametrize("source", [X, Rows()], ids=["tensor", "rows"])
def test_workers_give_the_same_batches(name, source):
    here = list(loader(name))
    there = list(loader(name, source, num_workers=2, pin_memory=False))
    for a, b in zip(there, here, strict=True):
        same(a, b)


def test_the_state_is_that_of_the_batch_handed_out_though_workers_ran_ahead():
    whole = list(loader("survival", num_steps=12))
    first = loader("survival", Rows(), num_steps=12, num_workers=2)
    stream = iter(first)
    head = [next(stream) for _ in range(3)]
    state = first.state_dict()
    assert state["step"] == 3
    stream.close()
    for workers in (0, 2):
        second = loader("survival", seed=9, num_steps=12, num_workers=workers)
        second.load_state_dict(state)
        for a, b in zip(head + list(second), whole, strict=True):
            same(a, b)
    # The interrupted one goes on too.
    for a, b in zip(head + list(first), whole, strict=True):
        same(a, b)


def test_workers_leave_the_random_stream_of_the_model_alone():
    """Dropout must not depend on how many processes read the data."""
    states = []
    for workers in (0, 1):
        torch.manual_seed(0)
        list(loader("tasks", num_workers=workers, num_steps=2))
        states.append(torch.get_rng_state())
    assert torch.equal(*states)


# Structure --------------------------------------------------------------------------------------


def test_tasks_without_a_positive_or_a_negative_are_left_out_on_request():
    labels = torch.tensor([[1, 1, 0, 1], [0, 1, 0, 1], [0, 1, 0, 0]]).bool()
    known = torch.ones_like(labels)
    known[2, 3] = False  # takes task 3 its only negative
    with pytest.raises(ValueError, match=r"tasks \[2\] have no positive sample \(drop_empty"):
        D.TaskData(X[:3], labels)
    with pytest.raises(ValueError, match=r"tasks \[1, 3\] have no negative"):
        D.TaskData(X[:3], labels | (torch.arange(4) == 2) & (torch.arange(3) == 0)[:, None], known)
    data = D.TaskData(X[:3], labels, drop_empty=True)
    assert data.tasks.tolist() == [0, 3]
    assert data.num_blocks == 2
    assert (data.positives.tolist(), data.negatives.tolist()) == ([1, 2], [2, 1])
    assert D.TaskData(X[:3], labels, known, drop_empty=True).tasks.tolist() == [0]
    with pytest.raises(ValueError, match="no task has both"):
        D.TaskData(X[:3], labels[:, 1:3], drop_empty=True)


def test_missing_labels_are_never_drawn_and_count_for_nothing():
    labels = CLASSES[:, None] == torch.arange(3)
    known = torch.rand(labels.shape, generator=torch.Generator().manual_seed(0)) < 0.7
    data = D.TaskData(X, labels, known)
    counts = Counter()
    for batch in BlockSampler(data, blocks_per_step=3, samples_per_block=4, num_steps=200):
        rows = batch.inputs.view(3, 4)
        assert known[rows, batch.blocks[:, None]].all()
        assert (labels[rows, batch.blocks[:, None]] == torch.tensor([1, 1, 0, 0]).bool()).all()
        counts.update(zip(batch.blocks.repeat_interleave(4).tolist(), rows.flatten().tolist(),
                          strict=True))  # fmt: skip
    assert len(counts) == int(known.sum())  # and all the others are
    model = nn.Linear(3, 3).double()
    before = exact_value(model, data, O.MultiTaskAUC(3), chunk_size=5)
    wrong = D.TaskData(X, labels ^ ~known, known)
    assert exact_value(model, wrong, O.MultiTaskAUC(3), chunk_size=5) == before


def test_empty_groups_are_left_out_on_request():
    groups = torch.tensor([4, 1, 4, 1, 1])
    with pytest.raises(ValueError, match=r"groups \[0, 2, 3\] have no sample \(drop_empty"):
        D.GroupData(X[:5], groups)
    with pytest.raises(ValueError, match=r"groups \[5\] have no sample"):
        D.GroupData(X[:5], torch.arange(5), num_groups=6)
    data = D.GroupData(X[:5], groups, drop_empty=True)
    assert data.names.tolist() == [1, 4]
    assert data.sizes.tolist() == [3, 2]
    for batch in BlockSampler(data, blocks_per_step=1, samples_per_block=3, num_steps=30):
        assert (groups[batch.inputs] == data.names[batch.blocks]).all()
    chunks = list(data.chunks(2))
    assert sorted(torch.cat([chunk.inputs for chunk in chunks]).tolist()) == [0, 1, 2, 3, 4]
    for chunk in chunks:
        assert torch.equal(data.names[chunk.blocks[chunk.owner]], groups[chunk.inputs])


def test_shared_samples_of_given_tasks():
    data = D.TaskData.from_classes(Rows(), CLASSES)
    rows, blocks = torch.tensor([5, 0, 7]), torch.tensor([2, 0, 3])
    batch = data.batch(rows, blocks)
    assert torch.equal(batch.inputs, X[rows])
    there = torch.tensor([b for b in blocks.tolist() if b in CLASSES[rows]])
    assert 0 < len(there) < 3  # a task without a positive among the samples is left out
    assert torch.equal(batch.blocks, there)
    assert torch.equal(batch.positive.bool(), CLASSES[rows][:, None] == there)
    assert torch.equal(batch.negative.bool(), CLASSES[rows][:, None] != there)
    torch.testing.assert_close(1 / batch.scale[0], batch.positive.sum(0))


REFUSALS = {
    "labels of another length": (
        lambda: D.TaskData(X, torch.ones(3, 2).bool()),
        r"labels must be booleans of shape \(12, m\)",
    ),
    "known of another shape": (
        lambda: D.TaskData(X, LABELS.bool()[:, None], torch.ones(3, 1).bool()),
        r"known must be booleans of shape \(12, 1\)",
    ),
    "labels too short": (
        lambda: D.AnchorData.average_precision(X, LABELS[:5]),
        r"labels must have shape \(12,\), got \(5,\)",
    ),
    "labels too long": (
        lambda: D.AnchorData.negatives(X[:5], LABELS),
        r"labels must have shape \(5,\), got \(12,\)",
    ),
    "classes too short": (
        lambda: D.AnchorData.neighbours(X, CLASSES[:5]),
        r"classes must have shape \(12,\), got \(5,\)",
    ),
    "no samples": (lambda: D.GroupData(X[:0], GROUPS[:0]), "inputs is empty"),
    "exact samples": (lambda: D.PointData(X, 0), "exact_samples must be at least 1, got 0"),
    "no positive": (
        lambda: D.AnchorData.average_precision(X, torch.zeros(N)),
        r"tasks \[0\] have no positive sample",
    ),
    "no negative": (
        lambda: D.AnchorData.positives(X, torch.ones(N)),
        r"tasks \[0\] have no negative sample",
    ),
    "a column without positive": (
        lambda: D.AnchorData.average_precision(X, torch.stack([LABELS, 0 * LABELS], 1)),
        r"tasks \[1\] have no positive sample",
    ),
    "anchors": (lambda: D.AnchorData(X, torch.tensor([]), [torch.arange(3)]), "no anchors"),
    "partners": (
        lambda: D.AnchorData(X, torch.arange(2), [torch.tensor([])]),
        "there are no partners",
    ),
    "anchors beyond": (
        lambda: D.AnchorData(X, [0, N], [torch.arange(3)]),
        r"anchors must lie in 0\.\.11, got 12",
    ),
    "anchors as a mask": (
        lambda: D.AnchorData(X, LABELS > 0, [torch.arange(3)]),
        "anchors must be positions in inputs, got booleans",
    ),
    "partners in no part": (lambda: D.AnchorData(X, torch.arange(2), []), "there are no partners"),
    "partners of fractions": (
        lambda: D.AnchorData(X, torch.arange(2), [torch.rand(3)]),
        "partners must be whole numbers .* got torch.float32",
    ),
    "columns": (
        lambda: D.AnchorData(X, torch.arange(2), [torch.arange(2)], columns=torch.arange(3)),
        r"columns must have shape \(2,\), got \(3,\)",
    ),
    **{
        f"labels: {kind}": (
            lambda labels=labels: D.AnchorData.average_precision(X, labels),
            "labels must be a tensor or an array of numbers",
        )
        for kind, labels in {
            "words": np.array(["a", "b"] * 6),
            "objects": np.array([None, 1] * 6, dtype=object),
            "dates": np.zeros(N, dtype="M8[s]"),
            "nothing": None,
            "a set": {0, 1},
        }.items()
    },
    "classes of 2**64 - 1": (
        lambda: D.TaskData.from_classes(
            X, np.where(LABELS > 0, np.uint64(2**64 - 1), np.uint64(0))
        ),
        "classes must be whole numbers that are not negative",
    ),
    "classes with a gap": (
        lambda: D.TaskData.from_classes(X, LABELS * 10**12),
        r"tasks \[1, 2, .*\] have no positive sample",
    ),
    "groups with a gap": (
        lambda: D.GroupData(X, LABELS * 10**12),
        r"groups \[1, 2, .*\] have no sample",
    ),
    "no tasks": (lambda: D.TaskData(X, torch.zeros(N, 0) > 0), r"labels .* of shape \(12, 0\)"),
    "complex labels": (lambda: D.TaskData.binary(X, LABELS + 0j), "labels must be 0 or 1, got .*c"),
    "complex times": (
        lambda: D.AnchorData.survival(X, TIMES + 0j, LABELS, ties="efron"),
        "times must be finite numbers, got .*complex",
    ),
    "lengths: one number": (lambda: D.ListData(X, GRADES, N), r"lengths must have shape \(N,\)"),
    "targets: one number": (lambda: D.GroupData(X, GROUPS, 3), r"targets of shape \(\)"),
    "groups: half a group": (
        lambda: D.GroupData(X, GROUPS, num_groups=4.5),
        "num_groups must be a whole number, got 4.5",
    ),
    **{
        f"inputs: {kind}": (lambda inputs=inputs: D.PointData(inputs), "inputs must be")
        for kind, inputs in {
            "words": np.array([["a"]] * N),
            "objects": np.array([[None]] * N, dtype=object),
            "nothing": None,
            "a number": torch.tensor(3.0),
            "a generator": iter(X),
            "sparse": X.to_sparse(),
        }.items()
    },
    "samples of words": (
        lambda: next(iter(loader("points", ["a"] * N))),
        "samples must be tensors of one shape",
    ),
    "samples of several shapes": (
        lambda: next(
            iter(loader("points", [X[0, : 1 + i % 3] for i in range(N)], blocks_per_step=N))
        ),
        "samples must be tensors of one shape",
    ),
    **{
        f"{name} = {value!r}": (
            lambda name=name, value=value: loader("points", **{name: value}),
            f"{name} must be a whole number, got {value!r}",
        )
        for name in ("blocks_per_step", "samples_per_block", "num_steps", "seed", "shares", "rank")
        for value in (2.5, "2")
    },
    "own": (
        lambda: D.AnchorData(X, torch.arange(2), [torch.arange(2)], own="maybe"),
        'own must be "drop" or "sure", got \'maybe\'',
    ),
    "times of another length": (
        lambda: D.AnchorData.survival(X, TIMES[:3], LABELS[:3]),
        r"must have shape \(12,\), got \(3,\)",
    ),
    "times nan": (
        lambda: D.AnchorData.survival(X, TIMES * torch.nan, LABELS),
        "times must be finite numbers, got nan at 0",
    ),
    "only censoring": (
        lambda: D.AnchorData.survival(X, TIMES, 0 * LABELS),
        "events: no event was observed",
    ),
    "ties": (
        lambda: D.AnchorData.survival(X, TIMES, LABELS, ties="exact"),
        "ties must be .* got 'exact'",
    ),
    "grades of another length": (
        lambda: D.ListData(X, GRADES[:3], LENGTHS),
        r"12 items need as many grades, got 3",
    ),
    "lengths of another sum": (
        lambda: D.ListData(X, GRADES, LENGTHS[:2]),
        r"that sum, got 9",
    ),
    "empty lists": (
        lambda: D.ListData(X, GRADES, torch.tensor([5, 0, 7, 0])),
        r"lists \[1, 3\] are empty",
    ),
    "nothing relevant": (lambda: D.ListData(X, 0 * GRADES, LENGTHS), "no item is relevant"),
    "groups of another length": (
        lambda: D.GroupData(X, GROUPS[:3]),
        r"groups must have shape \(12,\), got \(3,\)",
    ),
    "groups of another type": (
        lambda: D.GroupData(X, GROUPS.float()),
        "groups must be whole numbers",
    ),
    "groups below zero": (lambda: D.GroupData(X, GROUPS - 1), "groups must be .* not negative"),
    "groups beyond": (
        lambda: D.GroupData(X, GROUPS, num_groups=3),
        r"groups must lie in 0\.\.2",
    ),
    "targets of another length": (
        lambda: D.GroupData(X, GROUPS, TARGETS[:5]),
        r"12 inputs have targets of shape \(5,\)",
    ),
    "labels of -1": (lambda: D.TaskData.binary(X, LABELS.long() - 1), "labels must be 0 or 1"),
    "labels of nan": (
        lambda: D.AnchorData.average_precision(X, torch.full((N,), torch.nan)),
        "labels must be 0 or 1",
    ),
    "labels of two dimensions": (
        lambda: D.AnchorData.positives(X, LABELS[:, None]),
        r"labels must have shape \(12,\), got \(12, 1\)",
    ),
    "fractional classes": (
        lambda: D.TaskData.from_classes(X, torch.full((N,), 0.9)),
        "classes must be whole numbers",
    ),
    "events of 2": (
        lambda: D.AnchorData.survival(X, TIMES, 2 * LABELS.long()),
        "events must be 0 or 1",
    ),
    "no points": (lambda: D.PointData(X[:0]), "inputs is empty"),
    "one pair": (lambda: D.ViewData(X[:1], Z[:1]), "at least two pairs"),
    "views of another length": (
        lambda: D.ViewData(X, Z[:5]),
        "got 12 first and 5 second",
    ),
    # What a sampler asks of each.
    "tasks: one sample": (lambda: sampler("tasks", samples_per_block=1), "at least 2"),
    "tasks: too few positives": (
        lambda: sampler("tasks", samples_per_block=10, replacement=False),
        r"tasks \[0, 1, 2, 3\] have fewer than the 5 positive samples",
    ),
    "tasks: too few negatives": (
        lambda: BlockSampler(
            D.TaskData.binary(X, torch.arange(N) > 1),
            blocks_per_step=1,
            samples_per_block=6,
            num_steps=1,
            replacement=False,
        ),
        r"tasks \[0\] have fewer than the 3 negative samples",
    ),
    "strata: one each": (
        lambda: sampler("precision", samples_per_block=1),
        "at least 2 .one from each stratum",
    ),
    "strata: too few": (
        lambda: sampler("precision", samples_per_block=14, replacement=False),
        "stratum 0 has 6 partners, fewer than the 7",
    ),
    "lists: too short": (
        lambda: sampler("lists", samples_per_block=5, replacement=False),
        r"lists \[1, 2\] have fewer than the 5 items",
    ),
    "groups: too small": (
        lambda: sampler("groups", samples_per_block=4, replacement=False),
        r"groups \[0, 1, 2, 3\] have fewer than the 4",
    ),
    "views: too few": (
        lambda: sampler("views", samples_per_block=13, replacement=False),
        "13 samples_per_block without replacement, but only 12 pairs",
    ),
    "points: none": (lambda: sampler("points", samples_per_block=0), "samples_per_block must be"),
    "views: none": (lambda: sampler("views", samples_per_block=0), "samples_per_block must be"),
    "lists: none": (lambda: sampler("lists", samples_per_block=0), "samples_per_block must be"),
    "groups: none": (lambda: sampler("groups", samples_per_block=0), "samples_per_block must be"),
    "no block": (lambda: sampler("points", blocks_per_step=0), r"blocks_per_step must lie in 1"),
    "rank": (
        lambda: sampler("points", rank=2, world_size=2),
        r"rank must lie in 0\.\.1, got 2",
    ),
    "uneven ranks": (
        lambda: sampler("points", blocks_per_step=3, rank=0, world_size=2),
        r"blocks_per_step=3 is not a multiple of the 2 shares \(2 ranks\)",
    ),
    "uneven shares": (
        lambda: sampler("groups", blocks_per_step=3, shares=3),
        "4 blocks cannot be divided into 3 equal shares",
    ),
    "no share": (lambda: sampler("points", shares=0), "shares must be at least 1"),
    "workers": (lambda: loader("points", num_workers=-1), "num_workers must not be negative"),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_refusals_name_what_is_wrong(what):
    call, message = REFUSALS[what]
    with pytest.raises(ValueError, match=message):
        call()


# Exact passes -----------------------------------------------------------------------------------


OBJECTIVES = {
    "tasks": lambda: (O.MultiTaskAUC(4), 4),
    "precision": lambda: (O.AveragePrecision(6, N), 1),
    "survival": lambda: (O.Cox(6, N, max_ties=6), 1),
    "neighbours": lambda: (O.NCA(N), 2),
    "lists": lambda: (O.NDCG(GRADES, LENGTHS), 1),
    "groups": lambda: (O.GroupDRO(4), 2),
    "views": lambda: (O.GlobalContrastive(N, two_way=True), 2),
}


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("chunk_size", [1, 5, 1000])
def test_the_exact_value_is_that_of_the_exact_pass(name, chunk_size):
    """Sums of the chunks' values by hand, then the outer functions."""
    objective, outputs = OBJECTIVES[name]()
    data, m = DATA[name](Rows()), objective.num_blocks
    torch.manual_seed(0)
    model = nn.Linear(3, outputs).double()
    sums = torch.zeros(m, objective.inner_dim, dtype=torch.float64)
    totals = torch.zeros(m, 1, dtype=torch.float64)
    with torch.no_grad():
        for call in exact_pass(model, data, objective, chunk_size=chunk_size):
            probe = call()
            values = probe.values
            if probe.log_scale is not None:
                values = values * probe.log_scale.exp()[:, None]
            counts = probe.samples_per_row()[:, None].double()
            sums.index_add_(0, probe.blocks, values * counts)
            totals.index_add_(0, probe.blocks, counts)
        assert (totals == totals[0]).all() or name in ("lists", "groups")
        by_hand = objective.outer(sums / totals, torch.arange(m)).mean().item()
    value = exact_value(model, data, objective, chunk_size=chunk_size)
    assert value == pytest.approx(by_hand, abs=1e-12)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_an_exact_value_reads_and_scores_each_sample_once(name):
    objective, outputs = OBJECTIVES[name]()
    source, seen = Rows(), []
    model = nn.Linear(3, outputs).double()
    model.register_forward_hook(lambda module, args, out: seen.append(len(out)))
    exact_value(model, DATA[name](source), objective, chunk_size=5)
    assert source.reads == N
    assert sum(seen) == (2 * N if name == "views" else N)


def test_a_loss_is_averaged_by_samples():
    """As the exact pass of version 3 weighs it."""

    class Taxed(O.GroupDRO):
        def inner(self, model, batch):
            probe = super().inner(model, batch)
            return replace(probe, loss=batch.inputs[:, 0].mean())

    data, model = D.GroupData(X, GROUPS, TARGETS), nn.Linear(3, 2).double()
    data.through = lambda model, size, device: (data, model)  # the loss is of the inputs themselves
    plain = exact_value(model, data, O.GroupDRO(4), chunk_size=5)
    taxed = exact_value(model, data, Taxed(4), chunk_size=5)
    assert taxed - plain == pytest.approx(X[:, 0].mean().item(), abs=1e-12)


def test_batches_move_with_all_they_hold():
    """The meta device stands for any other."""
    for name in DATA:
        batch = next(iter(loader(name))).to("meta")
        for field in fields(batch):
            value = getattr(batch, field.name)
            assert not isinstance(value, Tensor) or value.device.type == "meta", field.name


# Cost -------------------------------------------------------------------------------------------


class Largest(TorchDispatchMode):
    """The largest new tensor that any operation returns."""

    def __init__(self, known):
        super().__init__()
        self.known, self.numel = {t.untyped_storage().data_ptr() for t in known}, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for t in tree_leaves(result):
            if isinstance(t, Tensor) and t.untyped_storage().data_ptr() not in self.known:
                self.numel = max(self.numel, t.numel())
        return result


@pytest.mark.parametrize("name", ["neighbours", "survival", "lists", "groups", "points", "views"])
def test_nothing_in_a_draw_is_as_long_as_the_data(name):
    m = 20_000
    x, order = torch.zeros(m, 1), torch.arange(m)
    data = {
        "neighbours": lambda: D.AnchorData.neighbours(x, order % 7),
        "survival": lambda: D.AnchorData.survival(x, order % 50 * 1.0, order % 2, ties="efron"),
        "lists": lambda: D.ListData(x, order % 3, torch.full((m // 10,), 10)),
        "groups": lambda: D.GroupData(x, order // 2, order),
        "points": lambda: D.PointData(x),
        "views": lambda: D.ViewData(x, x, two_way=True),
    }[name]()
    stream = BlockSampler(data, blocks_per_step=4, samples_per_block=5, num_steps=3)
    known = [t for t in tree_leaves(vars(data)) if isinstance(t, Tensor)]
    with Largest(known) as largest:
        for batch in stream:
            data.collate(batch)
    assert 0 < largest.numel < 200
