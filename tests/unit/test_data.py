"""The loader of tasks on a toy, the digits, and data sets with an index."""

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, Subset, TensorDataset

from fcco.data import WithIndex, block_loader, load_digits
from fcco.objectives import MultiTaskAUC
from fcco.problem.draws import distinct

CLASSES = torch.tensor([0, 1, 2, 1, 0, 2, 2, 1, 0, 2])


def loader(seed=0, num_steps=50, **changes):
    settings = {"blocks_per_step": 2, "samples_per_block": 6} | changes
    return block_loader(
        torch.arange(10.0).unsqueeze(1),
        MultiTaskAUC(CLASSES),
        num_steps=num_steps,
        seed=seed,
        **settings,
    )


def test_batches_hold_positives_first_and_distinct_blocks():
    for batch in loader():
        assert len(batch.blocks.unique()) == 2
        rows = batch.inputs.view(2, 6).long()
        own = CLASSES[rows] == batch.blocks.unsqueeze(1)
        assert own[:, :3].all()
        assert not own[:, 3:].any()
        assert torch.equal(batch.weights[0] > 0, own)
        assert torch.equal(batch.weights[1] > 0, ~own)
        torch.testing.assert_close(batch.weights.sum(2), torch.ones(2, 2))


def test_every_sample_and_block_is_drawn_evenly():
    counts, blocks = torch.zeros(3, 10), torch.zeros(3)
    for batch in loader(num_steps=4000):
        blocks[batch.blocks] += 1
        for block, rows in zip(batch.blocks, batch.inputs.view(2, 6).long(), strict=True):
            counts[block] += torch.bincount(rows, minlength=10)
    torch.testing.assert_close(blocks / 8000, torch.full((3,), 1 / 3), atol=0.02, rtol=0)
    positive = torch.arange(3)[:, None] == CLASSES
    for side in (positive, ~positive):
        expected = (blocks * 3 / side.sum(1)).unsqueeze(1).expand(3, 10)
        assert (counts[side] / expected[side] - 1).abs().max() < 0.1


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_second_iteration_is_a_new_epoch(num_workers):
    """Trainers iterate once per epoch; resuming in the middle of one stays exact."""

    def make():
        return loader(num_steps=4, num_workers=num_workers)

    whole = make()
    epochs = [[batch.inputs for batch in whole] for _ in range(3)]
    assert [len(epoch) for epoch in epochs] == [4, 4, 4]
    assert not all(torch.equal(a, b) for a, b in zip(epochs[0], epochs[1], strict=True))
    first = make()
    for _ in first:
        pass
    for k, _ in enumerate(first):
        if k == 1:
            break
    second = make()
    second.load_state_dict(first.state_dict())
    rest = [batch.inputs for batch in second]
    assert len(rest) == 2
    assert all(torch.equal(a, b) for a, b in zip(rest, epochs[1][2:], strict=True))


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
@pytest.mark.parametrize("pin_memory", [False, True])
@pytest.mark.filterwarnings("ignore:.*pin_memory.*:UserWarning")
def test_a_batch_that_could_not_be_read_is_read_again(error, pin_memory):
    broken = [False]

    class Disk(TensorDataset):
        def __getitem__(self, i):
            if broken[0]:
                raise error
            return self.tensors[0][i]

    def make():
        settings = {"blocks_per_step": 2, "samples_per_block": 6, "num_steps": 5}
        disk = Disk(torch.arange(10.0).unsqueeze(1))
        return block_loader(disk, MultiTaskAUC(CLASSES), pin_memory=pin_memory, **settings)

    whole, again = list(make()), make()
    stream = iter(again)
    seen = [next(stream), next(stream)]
    broken[0] = True
    with pytest.raises(error):
        next(stream)
    assert again.state_dict()["step"] == 2
    broken[0] = False
    for a, b in zip(seen + list(again), whole, strict=True):
        assert torch.equal(a.inputs, b.inputs)


def test_a_batch_that_could_not_be_drawn_is_drawn_again(monkeypatch):
    sampler, whole = loader(num_steps=3).sampler, list(loader(num_steps=3).sampler)

    def fail(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(sampler.objective, "draw", fail)
        with pytest.raises(KeyboardInterrupt):
            next(iter(sampler))
    for a, b in zip(sampler, whole, strict=True):
        assert torch.equal(a.inputs, b.inputs)


@pytest.mark.parametrize(("num_blocks", "count"), [(6, 2), (16, 3), (5, 5)])
def test_distinct_blocks_are_uniform(num_blocks, count):
    generator = torch.Generator().manual_seed(0)
    hits = torch.zeros(num_blocks, num_blocks)
    for _ in range(6000):
        ids = distinct(num_blocks, count, generator)
        assert len(ids) == len(ids.unique()) == count
        hits[ids.unsqueeze(1), ids] += 1
    singles = hits.diagonal() / 6000
    assert (singles - count / num_blocks).abs().max() < 0.03
    pairs = hits[~torch.eye(num_blocks, dtype=torch.bool)] / 6000
    expected = count * (count - 1) / (num_blocks * (num_blocks - 1))
    assert (pairs - expected).abs().max() < 0.03


def test_digits_are_stratified_and_scaled():
    (x, y), (x_test, y_test) = load_digits()
    assert (len(x), len(y), len(x_test), len(y_test)) == (1437, 1437, 360, 360)
    assert (x.dtype, y.dtype) == (torch.float32, torch.int64)
    assert (x.min(), x.max()) == (0, 1)
    share = y_test.bincount() / (y_test.bincount() + y.bincount())
    assert (share - 0.2).abs().max() < 0.01
    assert load_digits()[0][0].equal(x)
    assert not load_digits(seed=1)[0][0].equal(x)


# Indices ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        ((1.0, 2), (1.0, 2, 4)),
        ([1.0, 2], (1.0, 2, 4)),
        (1.0, (1.0, 4)),
        ({"x": 1.0}, {"x": 1.0, "index": 4}),
    ],
)
def test_an_index_stands_beside_the_sample(sample, expected):
    data = WithIndex([sample] * 5)
    assert len(data) == 5
    assert data[4] == data[-1] == expected
    assert data.__getitems__([4, -1]) == [expected, expected]


def test_indices_of_a_subset_count_where_they_were_wrapped():
    data = TensorDataset(torch.arange(5.0), torch.arange(5) % 2)
    rows = [4, 2]
    for dataset, expected in (
        (Subset(WithIndex(data), rows), [4, 2]),
        (WithIndex(Subset(data, rows)), [0, 1]),
    ):
        x, _, index = next(iter(DataLoader(dataset, batch_size=2)))
        assert x.tolist() == [4.0, 2.0]
        assert index.tolist() == expected


def test_a_sampler_of_batches_gives_an_index_of_each_sample():
    data = WithIndex(TensorDataset(torch.arange(5.0)))
    sampler = BatchSampler([4, -2, 0], 2, drop_last=False)
    batches = [(x.tolist(), i.tolist()) for x, i in DataLoader(data, None, sampler=sampler)]
    assert batches == [([4, 3], [4, 3]), ([0], [0])]


def test_samples_are_fetched_together_where_the_data_set_can():
    class Fast(TensorDataset):
        calls = 0

        def __getitems__(self, indices):
            self.calls += 1
            return [self[i] for i in indices]

    data = Fast(torch.arange(6.0))
    batches = list(DataLoader(WithIndex(data), batch_size=3))
    assert data.calls == 2
    assert [index.tolist() for _, index in batches] == [[0, 1, 2], [3, 4, 5]]


def test_data_without_positions_are_refused():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(())

    for data in (Stream(), iter(()), 3):
        with pytest.raises(ValueError, match="has no positions: WithIndex needs a data set with"):
            WithIndex(data)
    with pytest.raises(ValueError, match='samples have a key "index" already'):
        WithIndex([{"index": 1}])[0]
