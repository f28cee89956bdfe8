"""Records of tensors: their checks, and thinning out classes."""

import pytest
import torch

from fcco_lab.datasets.imbalance import binary, imbalanced
from fcco_lab.datasets.records import Classified, Ranked, Survival


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Classified(torch.zeros(2), torch.zeros(2)), "classes must be one-dim.*int64"),
        (lambda: Classified(torch.zeros(2), torch.zeros(2, 1).long()), "classes must be one-dim"),
        (lambda: Classified(torch.zeros(3), torch.tensor([0, 1])), "classes has 2 .* inputs 3"),
        (lambda: Classified(torch.zeros(2), torch.tensor([0, -1])), "classes .* got -1 at 1"),
        (lambda: Classified(torch.zeros(()), torch.tensor([0])), "inputs .* got a scalar"),
        (lambda: Classified(torch.zeros(2), [0, 1]), "classes must be a tensor, got list"),
        (lambda: Classified([[0.0]], torch.tensor([0])), "inputs must be a tensor.* got list"),
        (lambda: Classified(torch.zeros(1) + 0j, torch.tensor([0])), "real numbers.*complex64"),
        (
            lambda: Classified(torch.tensor([[0.0], [torch.nan]]), torch.tensor([0, 1])),
            "inputs must be finite, got nan in row 1, column 0",
        ),
        (
            lambda: Classified(torch.full((1, 1, 2, 2), torch.inf), torch.tensor([0])),
            r"got inf in row 0, place \(0, 0, 0\)",
        ),
        (
            lambda: Survival(torch.tensor([[-torch.inf]]), torch.ones(1), torch.ones(1).bool()),
            "got -inf in row 0, column 0",
        ),
        (
            lambda: Ranked(torch.tensor([[1, torch.nan]]), torch.tensor([1]), torch.tensor([1])),
            "got nan in row 0, column 1",
        ),
        (lambda: Survival(torch.zeros(2), torch.ones(2).int(), torch.ones(2).bool()), "times"),
        (lambda: Survival(torch.zeros(2), torch.ones(2), torch.ones(2)), "events .*bool"),
        (lambda: Survival(torch.zeros(2), torch.ones(3), torch.ones(2).bool()), "times has 3"),
        (lambda: Survival(torch.zeros(2), torch.ones(2), torch.ones(3).bool()), "events has 3"),
        (lambda: Survival(torch.zeros(1), torch.tensor([-1.0]), torch.ones(1).bool()), "times.*-1"),
        (lambda: Survival(torch.zeros(1), torch.tensor([torch.nan]), torch.ones(1).bool()), "nan"),
        (lambda: Survival(torch.zeros(1), torch.tensor([torch.inf]), torch.ones(1).bool()), "inf"),
        (lambda: Ranked(torch.zeros(2), torch.ones(2), torch.tensor([2])), "grades .*int64"),
        (lambda: Ranked(torch.zeros(1), torch.tensor([1, 2]), torch.tensor([1])), "grades has 2"),
        (lambda: Ranked(torch.zeros(1), torch.tensor([-1]), torch.tensor([1])), "grades .* -1"),
        (lambda: Ranked(torch.zeros(1), torch.tensor([1]), torch.tensor([1, 0])), "lengths .* 0"),
        (lambda: Ranked(torch.zeros(1), torch.tensor([1]), torch.tensor([2])), "sum to the 1 row"),
    ],
)
def test_records_name_the_culprit(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_an_empty_record():
    assert Classified(torch.zeros(0, 2), torch.zeros(0).long()).num_classes == 0


# Imbalance


def numbered(counts):
    """counts[c] samples of class c, interleaved, each carrying its own number."""
    classes = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    classes = classes[torch.randperm(len(classes), generator=torch.Generator().manual_seed(1))]
    return Classified(torch.arange(len(classes)), classes)


@pytest.mark.parametrize(
    ("positive", "keep", "expected"),
    [
        (1, 0.1, [50, 4, 30]),
        ([0, 2], 0.5, [25, 40, 15]),
        ((2,), 0.001, [50, 40, 1]),
        ([0, 1, 2], 1, [50, 40, 30]),
    ],
)
def test_imbalance_counts(positive, keep, expected):
    data = numbered([50, 40, 30])
    thin = imbalanced(data, positive, keep)
    assert thin.classes.bincount().tolist() == expected
    assert (thin.inputs.diff() > 0).all()  # the order is kept, nothing repeats
    assert torch.equal(thin.classes, data.classes[thin.inputs])


def test_imbalance_depends_on_the_seed_alone():
    data = numbered([50, 40, 30])
    first = imbalanced(data, [2, 0], 0.3, seed=1).inputs
    assert torch.equal(first, imbalanced(data, [0, 2, 2], 0.3, seed=1).inputs)
    assert not torch.equal(first, imbalanced(data, [0, 2], 0.3, seed=2).inputs)
    assert set(first.tolist()) < set(imbalanced(data, [0, 2], 0.7, seed=1).inputs.tolist())


@pytest.mark.parametrize("keep", [0, -0.1, 1.1, float("nan")])
def test_keep_is_a_fraction(keep):
    with pytest.raises(ValueError, match="keep must lie in"):
        imbalanced(numbered([2, 2]), 1, keep)


def test_positive_classes_must_be_there():
    data = numbered([2, 2])
    for change in (lambda p: imbalanced(data, p, 0.5), lambda p: binary(data, p)):
        with pytest.raises(ValueError, match=r"without a sample: \[7\]"):
            change([1, 7])
        with pytest.raises(ValueError, match="at least one class"):
            change([])
    with pytest.raises(ValueError, match="every class"):
        binary(data, [0, 1])


def test_binary():
    data = Classified(torch.arange(4), torch.tensor([3, 0, 1, 3]))
    assert binary(data, 3).classes.tolist() == [1, 0, 0, 1]
    assert binary(data, [0, 1]).classes.tolist() == [0, 1, 1, 0]
    assert torch.equal(binary(data, 3).inputs, data.inputs)
