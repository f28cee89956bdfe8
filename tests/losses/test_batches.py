"""Duplicates, importance weights, shapes and dtypes of a batch."""

import itertools

import pytest
import torch
from losses.criteria import CASES, survival
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset, random_split

from fcco import losses as L
from fcco.data import WithIndex


def gradient(loss, scores):
    return torch.autograd.grad(loss, scores, retain_graph=True)[0]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_sample_that_comes_twice_counts_once(case):
    scores = case.scores().requires_grad_()
    twice, once = case.criterion(), case.criterion()
    for criterion in (twice, once):
        criterion(case.scores(seed=1), torch.arange(case.size))
    index = torch.tensor([4, 8, 4, 20])
    drawn = scores[[0, 1, 2, 3]]
    found = twice(drawn, index)
    means = torch.stack([(drawn[0] + drawn[2]) / 2, drawn[1], drawn[3]])
    expected = once(means, torch.tensor([4, 8, 20]))
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(gradient(found, scores), gradient(expected, scores))
    assert twice.scores.equal(once.scores)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_weights_make_any_sampling_unbiased(case):
    """The mean over all draws of two, with replacement, is the exact gradient."""
    few = torch.arange(0, case.size, 9)  # five samples are drawn from, the others have no chance
    scores = case.scores().requires_grad_()
    criterion = case.criterion()
    criterion(scores, torch.arange(case.size))
    probability = torch.tensor([0.1, 0.3, 0.2, 0.35, 0.05], dtype=torch.float64)
    total = torch.zeros_like(scores)
    for pair in itertools.product(range(5), repeat=2):
        index, chance = few[list(pair)], probability[list(pair)]
        weight = 1 / (case.size * chance)
        loss = criterion(scores[index], index, weight=weight)
        total += chance.prod() * gradient(loss, scores)
    exact = gradient(criterion.exact(scores), scores)
    torch.testing.assert_close(total[few], exact[few], rtol=1e-9, atol=1e-12)


def test_equal_weights_are_no_weights():
    case = CASES[0]
    scores, index = case.scores().requires_grad_(), torch.arange(9)
    criterion = case.criterion()
    plain = gradient(criterion(scores[:9], index), scores)
    weighed = gradient(criterion(scores[:9], index, torch.ones(9)), scores)
    torch.testing.assert_close(plain, weighed)


def test_shapes_of_one_task():
    case = CASES[0]
    scores, index = case.scores()[:6], torch.arange(6)
    flat = case.criterion()(scores, index)
    assert flat.shape == ()
    assert case.criterion()(scores[:, None], index) == flat
    assert case.criterion()(scores, index.int()) == flat
    assert case.criterion()(scores, index.tolist()) == flat


def test_the_order_of_a_batch_does_not_matter():
    case = CASES[0]
    scores = case.scores().requires_grad_()
    order = torch.randperm(45)
    found = gradient(case.criterion()(scores[order], order), scores)
    torch.testing.assert_close(found, gradient(case.criterion().exact(scores), scores))


def test_an_empty_batch_moves_nothing():
    case = CASES[0]
    criterion = case.criterion()
    value = criterion(case.scores(), torch.arange(45))
    empty = torch.zeros(0, dtype=torch.float64, requires_grad=True)
    loss = criterion(empty, torch.zeros(0, dtype=torch.int64))
    loss.backward()
    assert loss == value


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_low_precision_scores(dtype):
    criterion = L.CoxLoss(*survival())
    scores = CASES[0].scores().to(dtype).requires_grad_()
    loss = criterion(scores, torch.arange(45))
    loss.backward()
    assert loss.dtype == torch.promote_types(dtype, torch.float32)
    assert scores.grad.dtype == dtype
    assert criterion.scores.dtype == torch.float32
    exact = criterion.exact(scores.detach().double()).item()
    assert loss.item() == pytest.approx(exact, rel=1e-6)


# WithIndex --------------------------------------------------------------------------------------


class Dicts(Dataset):
    def __len__(self):
        return 5

    def __getitem__(self, i):
        return {"x": torch.tensor(float(i))}


def test_index_through_a_loader():
    data = WithIndex(TensorDataset(torch.arange(10.0), torch.arange(10.0) * 2))
    for x, y, index in DataLoader(data, batch_size=3, shuffle=True):
        assert index.dtype == torch.int64
        assert x.equal(index.float())
        assert y.equal(index * 2.0)


def test_index_of_other_kinds_of_samples():
    assert next(iter(DataLoader(WithIndex(Dicts()), 5)))["index"].tolist() == [0, 1, 2, 3, 4]
    assert WithIndex(torch.arange(4.0))[2] == (torch.tensor(2.0), 2)
    assert WithIndex([[1, 2], [3, 4]])[1] == (3, 4, 1)
    with pytest.raises(ValueError, match="index"):
        WithIndex(WithIndex(Dicts()))[0]


def test_index_through_subsets_and_folds():
    data = WithIndex(TensorDataset(torch.arange(20.0)))
    folds = random_split(data, [5, 5, 10])
    met = [i for fold in folds for x, index in DataLoader(fold, 4) for i in index.tolist()]
    assert sorted(met) == list(range(20))
    for x, index in DataLoader(Subset(folds[2], [1, 3]), 2):
        assert x.equal(index.float()), "counted in the whole set"
    inside = WithIndex(Subset(TensorDataset(torch.arange(20.0)), [7, 9]))
    assert [index for _, index in inside] == [0, 1]


def test_a_fold_of_a_criterion_of_all_is_the_loss_of_the_fold():
    case = next(case for case in CASES if case.name == "ap")
    rows = torch.arange(0, 45, 2)
    scores = case.scores()
    criterion, part = case.criterion(), case.criterion(rows)
    for index in rows.split(5):
        loss = criterion(scores[index], index)
    assert loss.item() == pytest.approx(part.exact(scores[rows]).item(), rel=1e-12)


def test_items_are_fetched_together_where_the_data_set_can():
    class Together(TensorDataset):
        calls = 0

        def __getitems__(self, indices):
            type(self).calls += 1
            return [self[i] for i in indices]

    data = WithIndex(Together(torch.arange(6.0)))
    assert len(list(DataLoader(data, 3))) == 2
    assert Together.calls == 2
