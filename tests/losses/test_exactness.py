"""With fresh scores, batches of any sizes add up to the exact value and gradient."""

import math

import pytest
import torch
from losses import criteria
from losses.criteria import CASES, SURROGATES

from fcco import losses as L


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def exact(criterion, scores):
    scores = scores.clone().requires_grad_()
    value = criterion.exact(scores)
    return value.detach(), torch.autograd.grad(value, scores)[0]


def passes(criterion, scores, size, seed=0):
    """One pass to fill the table, and the weighed sum of the next pass's gradients."""
    scores = scores.clone().requires_grad_()
    generator, count = criteria.generator(seed), len(scores)
    for _ in range(2):
        total = torch.zeros_like(scores)
        for index in torch.randperm(count, generator=generator).split(size):
            loss = criterion(scores[index], index)
            total += len(index) / count * torch.autograd.grad(loss, scores)[0]
    return loss.detach(), total


@pytest.mark.sweep(3)
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("size", [1, 7, 45])
@pytest.mark.parametrize("scale", [1.0, 20.0])
def test_batches_add_up_to_the_exact_gradient(case, size, scale):
    criterion, scores = case.criterion(), case.scores(scale=scale)
    value, gradient = exact(criterion, scores)
    found, total = passes(criterion, scores, size)
    close(found, value)
    close(total, gradient)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_batches_of_mixed_sizes(case):
    criterion, scores = case.criterion(), case.scores()
    scores = scores.requires_grad_()
    criterion(scores, torch.arange(45))
    total = torch.zeros_like(scores)
    for index in torch.randperm(45, generator=criteria.generator(1)).split([1, 3, 20, 21]):
        loss = criterion(scores[index], index)
        total += len(index) / 45 * torch.autograd.grad(loss, scores)[0]
    close(total, exact(criterion, scores.detach())[1])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_exact_is_the_definition(case):
    scores = case.scores(scale=0.5)
    assert case.criterion().exact(scores).item() == pytest.approx(case.value(scores), rel=1e-11)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_exact_gradient_is_a_difference_of_values(case):
    criterion, scores = case.criterion(), case.scores()
    direction = case.scores(seed=9)
    _, gradient = exact(criterion, scores)
    up, down = (criterion.exact(scores + step * direction) for step in (1e-6, -1e-6))
    slope = (gradient * direction).sum().item()
    assert slope == pytest.approx(((up - down) / 2e-6).item(), rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("surrogate", SURROGATES, ids=str)
@pytest.mark.parametrize("build", [
    lambda s: L.APLoss(criteria.labels(), surrogate=s),
    lambda s: L.PartialAUCLoss(criteria.labels(), temperature=0.5, surrogate=s),
    lambda s: L.PushLoss(criteria.labels(), surrogate=s),
    lambda s: L.NDCGLoss(*criteria.ranking(), surrogate=s),
])  # fmt: skip
def test_any_surrogate(build, surrogate):
    criterion, scores = build(surrogate).double(), CASES[0].scores()
    value, gradient = exact(criterion, scores)
    found, total = passes(criterion, scores, 7)
    close(found, value)
    close(total, gradient)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_before_all_are_seen_it_is_the_loss_of_those_seen(case, seed):
    """Against a criterion that was built from these samples alone."""
    order = torch.randperm(45, generator=criteria.generator(seed))
    criterion, scores = case.criterion(), case.scores(seed).requires_grad_()
    met = 0
    for index in order.split([1, 2, 5, 10, 10, 17]):
        met += len(index)
        loss = criterion(scores[index], index)
        (gradient,) = torch.autograd.grad(loss, scores)
        rows = order[:met].sort().values
        try:
            part = case.criterion(rows)
        except ValueError:  # no event, no task with two classes, no relevant item
            assert loss.item() == 0
            assert not gradient.any()
            continue
        value, expected = exact(part, scores.detach()[rows])
        close(loss.detach(), value)
        mine = torch.searchsorted(rows, index)
        close(gradient[index], expected[mine] * met / len(index))


@pytest.mark.parametrize("case", [c for c in CASES if c.name not in ("dro", "cvar")], ids=str)
def test_one_sample_alone_has_no_gradient(case):
    score = case.scores()[:1].requires_grad_()
    loss = case.criterion()(score, torch.tensor([0]))
    loss.backward()
    assert not score.grad.any()


def test_the_last_digits_of_a_far_pair():
    """log(1 + exp(20.5)) is not 20.5, nor is its slope 1."""
    criterion = L.AUCLoss([1, 0]).double()
    scores = torch.tensor([0.0, 20.5], dtype=torch.float64, requires_grad=True)
    for value in (criterion(scores, [0, 1]), criterion.exact(scores)):
        (slope,) = torch.autograd.grad(value, scores)
        assert slope[1].item() == pytest.approx(1 / (1 + math.exp(-20.5)), abs=1e-14)
        assert value.item() == pytest.approx(20.5 + math.exp(-20.5), abs=1e-14)


def test_positives_may_be_missing_from_a_batch():
    labels = torch.tensor([1, 0, 0, 0])
    for criterion in (L.APLoss(labels), L.AUCLoss(labels), L.PushLoss(labels)):
        scores = torch.zeros(4, requires_grad=True)
        criterion(scores, torch.arange(4))
        criterion(scores[1:3], torch.tensor([1, 2])).backward()
        assert (scores.grad[1:3] > 0).all(), "negatives go down"
        assert not scores.grad[[0, 3]].any()
