"""Drawing blocks and their samples, the loader, and exact passes over the data."""

import itertools
import math
from collections import Counter
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from objectives.zoo import CASES
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fcco import objectives as O
from fcco.data import BlockSampler, block_loader, exact_pass, exact_value
from fcco.data.loader import filled
from fcco.problem.batches import leaves
from fcco.problem.draws import distinct, draw
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

# Objective and outputs of the model.
OBJECTIVES = {
    "tasks": (O.MultiTaskAUC(CLASSES), 4),
    "precision": (O.AveragePrecision(LABELS), 1),
    "partial": (O.PartialAUC(LABELS, temperature=1.0), 1),
    "survival": (O.Cox(TIMES, LABELS), 1),
    "neighbours": (O.NCA(CLASSES), 2),
    "lists": (O.NDCG(GRADES, LENGTHS), 1),
    "groups": (O.GroupDRO(GROUPS, TARGETS, temperature=1.0), 2),
    "points": (O.IWAE(N), 1),
    "views": (O.GlobalContrastive(N, temperature=0.1), 2),
}
every = pytest.mark.parametrize("name", OBJECTIVES)


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
    return BlockSampler(OBJECTIVES[name][0], **settings)


def same(a, b):
    """Two batches are equal, field by field."""
    assert type(a) is type(b)
    for field in fields(a):
        x, y = getattr(a, field.name), getattr(b, field.name)
        if isinstance(x, Tensor | tuple):
            for one, other in zip(leaves(x), leaves(y), strict=True):
                assert one.dtype == other.dtype, field.name
                assert torch.equal(one, other), field.name
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


def test_every_order_of_a_subset_is_equally_likely():
    """Each of the 6 ordered pairs of 3, in 6,000 draws: 1,000 with the deviation 29."""
    spread = torch.rand(6_000, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    pairs = draw(spread, torch.full((6_000,), 3), replacement=False)
    counts = torch.bincount(3 * pairs[:, 0] + pairs[:, 1], minlength=9).view(3, 3)
    assert not counts.diagonal().any()
    assert ((counts - 1_000).abs() < 5 * 29)[~torch.eye(3, dtype=torch.bool)].all()


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
        assert batch.blocks.max() < OBJECTIVES[name][0].num_blocks
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


@pytest.mark.parametrize("state", [
    {}, {"step": 1}, {"step": "x", "seed": 0}, {"step": 1, "seed": None}, {"step": -3, "seed": 0},
], ids=str)  # fmt: skip
def test_a_position_that_is_none_is_refused(state):
    first = sampler(next(iter(OBJECTIVES)), seed=2)
    before = first.state_dict()
    with pytest.raises(ValueError, match=r"step|seed"):
        first.load_state_dict(state)
    assert first.state_dict() == before


@every
@pytest.mark.parametrize("world", [1, 2, 4])
@pytest.mark.parametrize("replacement", [True, False])
def test_ranks_together_see_what_one_process_sees(name, world, replacement):
    m = OBJECTIVES[name][0].num_blocks
    shares = 4 if m % 4 == 0 else world
    common = {"blocks_per_step": 4, "replacement": replacement, "shares": shares}
    if m - (world - 1) * -(-m // world) < 4 // world:
        with pytest.raises(ValueError, match="the smallest of 4 shares has 0 blocks, fewer"):
            sampler(name, **common, rank=0, world_size=world)
        return
    ranks = [sampler(name, **common, rank=r, world_size=world) for r in range(world)]
    alone = sampler(name, **common, rank=0, world_size=1) if m % 4 == 0 else None
    for t in range(1, 9):
        parts = [rank.at(t) for rank in ranks]
        seen = {}
        for rank, part in enumerate(parts):
            assert len(part.blocks) == 4 // world
            most = -(-m // world)
            assert all(block // most == rank for block in part.blocks.tolist())
            seen |= by_block(part)
        assert len(seen) == 4
        if alone is not None:
            whole = alone.at(t)
            assert torch.equal(torch.cat([part.blocks for part in parts]), whole.blocks)
            assert seen == by_block(whole)


def test_shares_are_drawn_independently():
    """The places of the blocks within two shares of 50 agree by chance, not always."""
    objective = O.IWAE(100)
    more = {"blocks_per_step": 10, "samples_per_block": 1, "num_steps": 40, "shares": 2}
    places = [batch.blocks.view(2, 5) % 50 for batch in BlockSampler(objective, **more)]
    common = sum(len(set(a.tolist()) & set(b.tolist())) for a, b in places)
    # Two subsets of 5 of 50 have half an element in common; 40 pairs: 20, with the deviation 4.1.
    assert abs(common - 20) < 5 * 4.1


def test_each_block_of_a_share_is_drawn_as_often_as_any_other():
    stream = BlockSampler(
        O.IWAE(10), blocks_per_step=4, samples_per_block=1, num_steps=4000, rank=1, world_size=2
    )
    counts = torch.zeros(10)
    for batch in stream:
        counts[batch.blocks] += 1
    assert not counts[:5].any()
    # Binomial(4000, 2/5): five standard deviations.
    assert (counts[5:] - 1600).abs().max() < 5 * (4000 * 0.4 * 0.6) ** 0.5


def by_block(batch):
    """For each block its anchor, what it is compared with, and how much each counts."""
    result = {}
    for b, block in enumerate(batch.blocks.tolist()):
        if hasattr(batch, "owner"):
            rows = batch.inputs[batch.owner == b]
            result[block] = None, rows.tolist(), int(batch.counts[b])
        elif not hasattr(batch, "partners"):
            result[block] = int(batch.inputs[b]), [], batch.samples
        else:
            shared = batch.partners.ndim == 1
            partners = batch.inputs[batch.partners if shared else batch.partners[b]].tolist()
            anchor = None if batch.anchors is None else int(batch.inputs[batch.anchors[b]])
            if getattr(batch, "fixed", 0):
                assert partners.pop() == anchor
            weights = batch.weights[..., b, :].tolist()
            result[block] = anchor, partners, weights
    return result


@pytest.mark.parametrize("name", ["precision", "partial", "survival", "neighbours", "views"])
def test_partners_are_shared_by_all_anchors(name):
    partners = {tuple(row[1]) for row in by_block(sampler(name).at(1)).values()}
    assert len(partners) == 1


@pytest.mark.parametrize("name", [n for n in OBJECTIVES if n != "points"])
def test_without_replacement_no_sample_comes_twice(name):
    twice = 0
    for replacement in (False, True):
        for batch in sampler(name, replacement=replacement, num_steps=60, seed=4):
            for _, drawn, _ in by_block(batch).values():
                if replacement:
                    twice += len(set(drawn)) < len(drawn)
                else:
                    assert len(set(drawn)) == len(drawn) == 3
    assert twice > 0


@pytest.mark.parametrize("name", ["precision", "survival", "lists"])
def test_an_own_pair_is_counted_once_and_never_drawn(name):
    """A drawn partner that is the anchor itself has the weight 0; the last one is the anchor."""
    drawn_itself, objective = 0, OBJECTIVES[name][0]
    for batch in sampler(name, num_steps=60):
        assert batch.fixed == 1
        sizes = objective.sizes if hasattr(objective, "sizes") else objective._sizes
        for block, (anchor, partners, weights) in by_block(batch).items():
            for of_range in weights:
                assert of_range[-1] <= 1 / int(sizes[block])
            assert weights[-1][-1] > 0
            for k, partner in enumerate(partners):
                if partner == anchor:
                    drawn_itself += 1
                    assert all(of_range[k] == 0 for of_range in weights)
    assert drawn_itself > 20


@pytest.mark.parametrize("name", ["neighbours", "views"])
def test_an_anchor_is_no_partner_of_its_own(name):
    drawn_itself = 0
    for batch in sampler(name, num_steps=60):
        for anchor, partners, weights in by_block(batch).values():
            flat = weights[-1] if isinstance(weights[0], list) else weights
            for partner, weight in zip(partners, flat, strict=True):
                drawn_itself += partner == anchor
                assert (weight == 0) == (partner == anchor)
    assert drawn_itself > 20


def test_strata_are_drawn_evenly_and_weighed_by_size():
    labels = torch.arange(N) < 3
    batch = BlockSampler(
        O.AveragePrecision(labels), blocks_per_step=1, samples_per_block=5, num_steps=1
    ).at(1)
    drawn = batch.inputs[1:]
    assert labels[drawn].tolist() == [True, True, True, False, False]
    other = drawn != batch.inputs[0]
    expected = torch.tensor([3 / 12 / 3] * 3 + [9 / 12 / 2] * 2, dtype=torch.float64) * other
    torch.testing.assert_close(batch.weights[1, 0, :5], expected)  # among all
    torch.testing.assert_close(batch.weights[0, 0, :5], expected * labels[drawn])  # positives
    assert batch.weights[:, 0, 5].tolist() == [1 / 12, 1 / 12]


def test_efron_weighs_tied_events():
    """One draw for risk set and ties: the l-th of d tied events weighs them 1 - l/d."""
    times, events = torch.tensor([2, 1, 1, 1, 0]), torch.tensor([0, 1, 1, 0, 1])
    batch = O.Cox(times, events).batch(torch.zeros(5, 1), range(5))
    weights = dict(zip(batch.blocks.tolist(), batch.weights[0].mul(5).tolist(), strict=True))
    # At time 1 samples 0 to 3 are at risk, and 1 and 2 die; the last weight is the event's own.
    assert weights[0] == pytest.approx([1, 0, 1, 1, 0, 1])
    assert weights[1] == pytest.approx([1, 0.5, 0, 1, 0, 0.5])
    assert weights[2] == pytest.approx([1, 1, 1, 1, 0, 1])  # sample 4, before all others


# The index stream of 0.2: positions that fcco 0.2.0 (commit e23a703, BlockSampler of AnchorData,
# ListData and TaskData) drew for the data of tests/objectives/zoo.py with seed 7, in steps 1 and 2:
# 4 samples with replacement, then 2 without.
STREAMS = {
    "cox, efron": (
        [([4, 5], [6, 8, 1, 1, 3, 5]), ([0, 3], [0, 5, 5, 4, 7, 5])],
        [([4, 5], [6, 8, 3, 1]), ([0, 3], [0, 5, 5, 4])],
    ),
    "average precision": (
        [([1, 2], [4, 6, 4, 6, 7, 8]), ([0, 1], [1, 4, 1, 6, 3, 7])],
        [([1, 2], [4, 6, 4, 8]), ([0, 1], [1, 4, 6, 7])],
    ),
    "ndcg": (
        [([4, 0], [7, 8, 8, 7, 3, 2, 0, 2, 8, 1]), ([2, 3], [4, 5, 4, 5, 8, 8, 8, 6, 5, 7])],
        [([4, 0], [8, 6, 2, 3, 8, 1]), ([2, 3], [5, 4, 6, 8, 5, 7])],
    ),
    "auc multi-class": (
        [([1, 2], [1, 4, 6, 7, 5, 5, 4, 0]), ([0, 1], [6, 3, 4, 2, 8, 8, 6, 7])],
        [([1, 2], [1, 3, 5, 8]), ([0, 1], [6, 2, 4, 2])],
    ),
}


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("replacement", [True, False])
def test_the_index_stream_is_that_of_0_2(name, replacement):
    """A seed gives the same samples for ever: published runs can be repeated."""
    objective = next(case.objective for case in CASES if case.name == name)
    stream = BlockSampler(
        objective,
        blocks_per_step=2,
        samples_per_block=4 if replacement else 2,
        num_steps=2,
        seed=7,
        replacement=replacement,
    )
    found = [(batch.blocks.tolist(), batch.inputs.tolist()) for batch in stream]
    assert found == STREAMS[name][0 if replacement else 1]


# The loader -------------------------------------------------------------------------------------


def given(name, source=X):
    """Inputs of an objective, as a loader takes them."""
    return (source, Z) if name == "views" else source


def loader(name, source=X, **changes):
    settings = {"blocks_per_step": 2, "samples_per_block": 3, "num_steps": 8, "seed": 1} | changes
    return block_loader(given(name, source), OBJECTIVES[name][0], **settings)


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
        tasks = O.MultiTaskAUC(classes).labels
        assert torch.equal(tasks.positive, OBJECTIVES["tasks"][0].labels.positive)
        assert torch.equal(O.GroupDRO(classes, temperature=1.0).groups, CLASSES)
        assert torch.equal(O.NCA(classes).classes, CLASSES)


def test_a_seed_may_be_a_number_of_numpy():
    for a, b in zip(loader("points", seed=7), loader("points", seed=np.int64(7)), strict=True):
        same(a, b)


@every
def test_samples_are_those_of_the_positions(name):
    stream = loader(name)
    for t, batch in enumerate(stream, start=1):
        drawn = stream.sampler.at(t)
        for samples, source in zip(leaves(batch.inputs), (X, Z), strict=False):
            assert torch.equal(samples, source[drawn.inputs])
        if name == "groups":
            assert torch.equal(batch.targets, TARGETS[drawn.inputs])
        same(batch.to("cpu"), batch)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
def test_weights_have_the_precision_of_the_samples(kind):
    wanted = torch.float64 if kind == torch.float64 else torch.float32
    batch = next(iter(loader("survival", X.to(kind))))
    assert batch.weights.dtype == wanted


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


def test_missing_labels_are_never_drawn_and_count_for_nothing():
    labels = CLASSES[:, None] == torch.arange(3)
    known = torch.rand(labels.shape, generator=torch.Generator().manual_seed(0)) < 0.7
    objective = O.MultiTaskAUC(labels.long().masked_fill(~known, -1))
    counts = Counter()
    for batch in BlockSampler(objective, blocks_per_step=3, samples_per_block=4, num_steps=200):
        rows = batch.inputs.view(3, 4)
        assert known[rows, batch.blocks[:, None]].all()
        assert (labels[rows, batch.blocks[:, None]] == torch.tensor([1, 1, 0, 0]).bool()).all()
        counts.update(zip(batch.blocks.repeat_interleave(4).tolist(), rows.flatten().tolist(),
                          strict=True))  # fmt: skip
    assert len(counts) == int(known.sum())  # and all the others are


def test_partners_of_several_tasks_are_drawn_from_all_samples_and_count_where_they_have_a_label():
    labels = CLASSES[:, None] == torch.arange(3)
    known = torch.rand(labels.shape, generator=torch.Generator().manual_seed(0)) < 0.7
    for objective in (
        O.AveragePrecision(labels.long().masked_fill(~known, -1)),
        O.PartialAUC(labels.long().masked_fill(~known, -1), temperature=1.0),
    ):
        for batch in BlockSampler(objective, blocks_per_step=3, samples_per_block=6, num_steps=50):
            for block, (anchor, partners, weights) in by_block(batch).items():
                task = int(objective.columns[block])
                for partner, weight in zip(partners, weights[-1], strict=False):
                    counts = known[partner, task] and partner != anchor
                    if isinstance(objective, O.PartialAUC):
                        counts = counts and not labels[partner, task]
                    assert (weight > 0) == bool(counts)


def test_chunks_hold_every_sample_of_every_group():
    groups = torch.tensor([1, 0, 1, 0, 0])
    objective = O.GroupDRO(groups, temperature=1.0)
    chunks = [objective.chunk(span) for span in objective.spans(2)]
    assert sorted(torch.cat([chunk.inputs for chunk in chunks]).tolist()) == [0, 1, 2, 3, 4]
    for chunk in chunks:
        assert torch.equal(chunk.blocks[chunk.owner], groups[chunk.inputs])


@every
def test_no_chunk_is_larger_than_asked_for_and_none_is_missing(name):
    objective = OBJECTIVES[name][0]
    for size in (1, 5, 100):
        spans = objective.spans(size)
        assert all(1 <= len(span) <= max(size, 1) for span in spans)
        joined = torch.cat(list(spans)).sort().values
        by_samples = name in ("tasks", "groups")
        assert joined.equal(torch.arange(N if by_samples else objective.num_blocks))


REFUSALS = {
    **{
        f"inputs: {kind}": (
            lambda inputs=inputs: block_loader(
                inputs, O.IWAE(N), blocks_per_step=1, samples_per_block=1, num_steps=1
            ),
            "inputs must be",
        )
        for kind, inputs in {
            "words": np.array([["a"]] * N),
            "objects": np.array([[None]] * N, dtype=object),
            "nothing": None,
            "a number": torch.tensor(3.0),
            "a generator": iter(X),
            "sparse": X.to_sparse(),
        }.items()
    },
    "inputs too short": (
        lambda: loader("tasks", X[:5]),
        "the objective was built from 12 samples, inputs hold 5",
    ),
    "second views too short": (
        lambda: block_loader(
            (X, Z[:5]), OBJECTIVES["views"][0], blocks_per_step=1, samples_per_block=1, num_steps=1
        ),
        "the objective was built from 12 samples, inputs hold 5",
    ),
    "one view of two": (
        lambda: exact_value(nn.Identity(), X, OBJECTIVES["views"][0]),
        "inputs must be a pair, of all first and of all second views",
    ),
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
    "tasks: one sample": (lambda: sampler("tasks", samples_per_block=1), "at least 2"),
    "tasks: too few positives": (
        lambda: sampler("tasks", samples_per_block=10, replacement=False),
        r"tasks \[0, 1, 2, 3\] have fewer than the 5 positive samples",
    ),
    "tasks: too few negatives": (
        lambda: BlockSampler(
            O.MultiTaskAUC(torch.arange(N) > 1),
            blocks_per_step=1,
            samples_per_block=6,
            num_steps=1,
            replacement=False,
        ),
        r"tasks \[0\] have fewer than the 3 negative samples",
    ),
    "strata: one each": (
        lambda: sampler("precision", samples_per_block=1),
        "at least 2 .one from each part of the partners",
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
        "13 samples_per_block were requested without replacement, but there are only 12",
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
    "steps": (lambda: sampler("points", num_steps=-1), "num_steps must not be negative"),
    "too many blocks": (lambda: sampler("tasks", blocks_per_step=5), r"must lie in 1\.\.4, got 5"),
    "chunk size": (
        lambda: exact_pass(nn.Identity(), X, OBJECTIVES["tasks"][0], chunk_size=0),
        "chunk_size must be at least 1, got 0",
    ),
    "chunk size of the value": (
        lambda: exact_value(nn.Identity(), X, OBJECTIVES["tasks"][0], chunk_size=2.5),
        "chunk_size must be a whole number",
    ),
    "too little data for the ranks": (
        lambda: exact_pass(
            nn.Identity(), X, OBJECTIVES["points"][0], rank=0, world_size=N + 1, chunk_size=1
        ),
        "too little data to share an exact pass among 13 ranks",
    ),
    "points of one's own: none": (
        lambda: sampler("neighbours", samples_per_block=13, replacement=False),
        "13 samples_per_block were requested without replacement, but there are only 12",
    ),
    "samples of one block: too few": (
        lambda: BlockSampler(
            O.DRO(3, temperature=1.0),
            blocks_per_step=1,
            samples_per_block=4,
            num_steps=1,
            replacement=False,
        ),
        "4 samples_per_block were requested without replacement, but there are only 3",
    ),
    "workers": (lambda: loader("points", num_workers=-1), "num_workers must not be negative"),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_refusals_name_what_is_wrong(what):
    call, message = REFUSALS[what]
    with pytest.raises(ValueError, match=message):
        call()


def test_an_objective_that_does_not_know_its_samples_is_refused():
    class Own(Objective):
        num_blocks, inner_dim = 3, 1

        def outer(self, u, blocks):
            return u[:, 0]

    options = {"blocks_per_step": 1, "samples_per_block": 1, "num_steps": 1}
    with pytest.raises(TypeError, match="Own does not know its samples: use an objective of fcco"):
        block_loader(X, Own(), **options)
    with pytest.raises(TypeError, match="Own does not know its samples"):
        exact_value(nn.Identity(), X, Own())


# Exact passes -----------------------------------------------------------------------------------

VALUED = [name for name in OBJECTIVES if name != "points"]


@pytest.mark.parametrize("name", VALUED)
@pytest.mark.parametrize("chunk_size", [1, 5, 1000])
def test_the_exact_value_is_that_of_the_exact_pass(name, chunk_size):
    """Sums of the chunks' values by hand, then the outer functions."""
    objective, outputs = OBJECTIVES[name]
    inputs, m = given(name, Rows()), objective.num_blocks
    torch.manual_seed(0)
    model = nn.Linear(3, outputs).double()
    sums = torch.zeros(m, objective.inner_dim, dtype=torch.float64)
    totals = torch.zeros(m, 1, dtype=torch.float64)
    with torch.no_grad():
        for call in exact_pass(model, inputs, objective, chunk_size=chunk_size):
            probe = call()
            values = probe.values
            if probe.log_scale is not None:
                values = values * probe.log_scale.exp()[:, None]
            counts = probe.samples_per_row()[:, None].double()
            sums.index_add_(0, probe.blocks, values * counts)
            totals.index_add_(0, probe.blocks, counts)
        assert (totals == totals[0]).all() or name in ("lists", "groups")
        by_hand = objective.outer(sums / totals, torch.arange(m)).mean().item()
    value = exact_value(model, inputs, objective, chunk_size=chunk_size)
    assert value == pytest.approx(by_hand, abs=1e-12)


@pytest.mark.parametrize("name", VALUED)
@pytest.mark.parametrize("world", [2, 3])
def test_ranks_share_an_exact_pass(name, world):
    """Equally many closures each; together they hold every sample of every block once."""
    objective, outputs = OBJECTIVES[name]
    model = nn.Linear(3, outputs).double()
    inputs, counts = given(name), []
    for ranks in (1, world):
        parts = [
            exact_pass(model, inputs, objective, chunk_size=4, rank=rank, world_size=ranks)
            for rank in range(ranks)
        ]
        assert len({len(part) for part in parts}) == 1
        total = torch.zeros(objective.num_blocks, dtype=torch.int64)
        for call in itertools.chain(*parts):
            probe = call()
            total.index_add_(0, probe.blocks, probe.samples_per_row())
        counts.append(total)
    assert counts[0].equal(counts[1])


@pytest.mark.parametrize("name", VALUED)
def test_an_exact_value_reads_and_scores_each_sample_once(name):
    objective, outputs = OBJECTIVES[name]
    source, seen = Rows(), []
    model = nn.Linear(3, outputs).double()
    model.register_forward_hook(lambda module, args, out: seen.append(len(out)))
    exact_value(model, given(name, source), objective, chunk_size=5)
    assert source.reads == N
    assert sum(seen) == (2 * N if name == "views" else N)


def test_a_loss_is_averaged_by_samples():
    """As the exact pass of version 3 weighs it."""

    class Taxed(O.GroupDRO):
        def inner(self, model, batch):
            probe = super().inner(model, batch)
            return replace(probe, loss=batch.inputs[:, 0].mean())

    model = nn.Linear(3, 2).double()
    plain, taxed = (
        exact_value(model, X, kind(GROUPS, TARGETS, temperature=1.0), chunk_size=5)
        for kind in (O.GroupDRO, Taxed)
    )
    assert taxed - plain == pytest.approx(X[:, 0].mean().item(), abs=1e-12)


@every
def test_batches_move_with_all_they_hold(name):
    """The meta device stands for any other."""
    batch = next(iter(loader(name))).to("meta")
    for field in fields(batch):
        for leaf in leaves(getattr(batch, field.name)):
            assert leaf.device.type == "meta", field.name


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


@pytest.mark.parametrize(
    "name", ["neighbours", "survival", "precision", "lists", "groups", "points", "views", "samples"]
)
def test_nothing_in_a_draw_is_as_long_as_the_data(name):
    m = 20_000
    x, order = torch.zeros(m, 1), torch.arange(m)
    objective = {
        "neighbours": lambda: O.NCA(order % 7),
        "survival": lambda: O.Cox(order % 50 * 1.0, order % 2),
        "precision": lambda: O.AveragePrecision(order % 2),
        "lists": lambda: O.NDCG(order % 3, torch.full((m // 10,), 10)),
        "groups": lambda: O.GroupDRO(order // 2, order, temperature=1.0),
        "points": lambda: O.IWAE(m),
        "views": lambda: O.GlobalContrastive(m, temperature=0.1),
        "samples": lambda: O.DRO(m, temperature=1.0),
    }[name]()
    blocks = min(4, objective.num_blocks)
    stream = BlockSampler(objective, blocks_per_step=blocks, samples_per_block=5, num_steps=3)
    known = [t for t in tree_leaves(vars(objective)) if isinstance(t, Tensor)]
    with Largest(known) as largest:
        for batch in stream:
            filled(batch, (x, x) if name == "views" else x)
    assert 0 < largest.numel < 200
