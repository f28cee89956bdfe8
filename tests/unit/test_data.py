"""Data with block structure: sampling, resuming, exact passes."""

import pytest
import torch

from fcco.data import TaskData, block_loader, exact_pass, load_digits
from fcco.data.draws import distinct
from fcco.objectives import MultiTaskAUC


def toy_data():
    classes = torch.tensor([0, 1, 2, 1, 0, 2, 2, 1, 0, 2])
    return TaskData.from_classes(torch.arange(10.0).unsqueeze(1), classes), classes


def loader(seed=0, num_steps=50, blocks=2):
    data, _ = toy_data()
    return block_loader(
        data,
        MultiTaskAUC(3),
        blocks_per_step=blocks,
        samples_per_block=6,
        num_steps=num_steps,
        seed=seed,
    )


def test_batches_hold_positives_first_and_distinct_blocks():
    _, classes = toy_data()
    for batch in loader():
        assert len(batch.blocks.unique()) == 2
        rows = batch.inputs.view(2, 6).long()
        own = classes[rows] == batch.blocks.unsqueeze(1)
        assert own[:, : batch.positives].all()
        assert not own[:, batch.positives :].any()


def test_every_sample_and_block_is_drawn_evenly():
    counts, blocks = torch.zeros(3, 10), torch.zeros(3)
    for batch in loader(num_steps=4000):
        blocks[batch.blocks] += 1
        for block, rows in zip(batch.blocks, batch.inputs.view(2, 6).long(), strict=True):
            counts[block] += torch.bincount(rows, minlength=10)
    torch.testing.assert_close(blocks / 8000, torch.full((3,), 1 / 3), atol=0.02, rtol=0)
    data, _ = toy_data()
    positive = torch.where(data.labels.T, counts, torch.nan)
    expected = (blocks * 3 / data.positives).unsqueeze(1)
    ratio = positive / expected
    assert (ratio[~ratio.isnan()] - 1).abs().max() < 0.1


def test_a_loader_resumes_in_the_middle():
    whole = [batch.inputs for batch in loader()]
    first = loader()
    stream = iter(first)
    head = [next(stream).inputs for _ in range(20)]
    rest = loader(seed=99)
    rest.load_state_dict(first.state_dict())
    tail = [batch.inputs for batch in rest]
    assert len(whole) == len(head) + len(tail) == len(first)
    for a, b in zip(whole, head + tail, strict=True):
        assert torch.equal(a, b)


def test_refusals():
    x = torch.zeros(4, 1)
    with pytest.raises(ValueError, match=r"tasks \[1\] have no positive"):
        TaskData(x, torch.tensor([[True, False]] * 3 + [[False, False]]))
    with pytest.raises(ValueError, match=r"tasks \[0\] have no negative"):
        TaskData(x, torch.tensor([[True, False]] * 3 + [[True, True]]))
    with pytest.raises(ValueError, match="labels must be booleans"):
        TaskData(x, torch.zeros(4, 2))
    data, _ = toy_data()
    common = {"blocks_per_step": 2, "samples_per_block": 4, "num_steps": 3}
    for change, message in (
        ({"blocks_per_step": 4}, r"blocks_per_step must lie in 1\.\.3"),
        ({"samples_per_block": 1}, "at least 2"),
        ({"num_steps": -1}, "not be negative"),
    ):
        with pytest.raises(ValueError, match=message):
            block_loader(data, MultiTaskAUC(3), **(common | change))
    with pytest.raises(ValueError, match="objective has 4 blocks, the data set 3"):
        block_loader(data, MultiTaskAUC(4), **common)
    with pytest.raises(ValueError, match="chunk_size"):
        exact_pass(torch.nn.Identity(), data, MultiTaskAUC(3), chunk_size=0)


def test_digits_are_stratified_and_scaled():
    train, test = load_digits()
    assert (len(train), len(test)) == (1437, 360)
    assert train.inputs.min() == 0
    assert train.inputs.max() == 1
    share = test.positives / (test.positives + train.positives)
    assert (share - 0.2).abs().max() < 0.01


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


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_second_iteration_is_a_new_epoch(num_workers):
    """Trainers iterate once per epoch; resuming in the middle of one stays exact."""

    def loader():
        data = TaskData.from_classes(torch.arange(12.0).view(6, 2), torch.arange(6) % 3)
        return block_loader(
            data,
            MultiTaskAUC(3),
            blocks_per_step=2,
            samples_per_block=4,
            num_steps=4,
            num_workers=num_workers,
        )

    whole = loader()
    epochs = [[batch.inputs for batch in whole] for _ in range(3)]
    assert [len(epoch) for epoch in epochs] == [4, 4, 4]
    assert not all(torch.equal(a, b) for a, b in zip(epochs[0], epochs[1], strict=True))
    first = loader()
    for _ in first:
        pass
    for k, _ in enumerate(first):
        if k == 1:
            break
    second = loader()
    second.load_state_dict(first.state_dict())
    rest = [batch.inputs for batch in second]
    assert len(rest) == 2
    assert all(torch.equal(a, b) for a, b in zip(rest, epochs[1][2:], strict=True))
