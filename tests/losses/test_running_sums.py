"""What is kept up to date equals what is summed anew, whatever the scores do."""

import pytest
import torch
from losses.criteria import CASES, generator

from fcco import losses as L

# Calls in eval mode and without gradients are what these tests are about; they warn.
pytestmark = pytest.mark.filterwarnings("ignore:.*it is not a validation loss")

STEPS = 75


@pytest.fixture(autouse=True)
def _double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def jumping(case, steps, seed=0):
    """Batches whose scores now and then jump by ten orders of magnitude, and back."""
    random = generator(seed)
    for _ in range(steps):
        size = int(torch.randint(1, 6, (), generator=random))
        index = torch.randperm(case.size, generator=random)[:size]
        shape = (size, case.tasks) if case.tasks > 1 else (size,)
        scale = 10.0 ** torch.randint(-3, 3, (), generator=random)
        yield index, torch.randn(shape, generator=random) * scale


@pytest.mark.parametrize("case", CASES, ids=str)
def test_after_many_jumps(case):
    criterion = case.criterion()
    table = case.scores()
    criterion(table, torch.arange(case.size))
    for step, (index, scores) in enumerate(jumping(case, STEPS)):
        table[index] = scores
        scores.requires_grad_()
        loss = criterion(scores, index)
        if step % 15 == 0 or step > STEPS - 3:
            fresh = case.criterion()
            again = scores.detach().requires_grad_()
            fresh(table, torch.arange(case.size))
            expected = fresh(again, index)
            torch.testing.assert_close(loss, expected, rtol=1e-7, atol=1e-9)
            (gradient,) = torch.autograd.grad(loss, scores)
            (exact,) = torch.autograd.grad(expected, again)
            torch.testing.assert_close(gradient, exact, rtol=1e-6, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_after_ten_thousand_jumps(case):
    criterion, table = case.criterion(), case.scores()
    criterion(table, torch.arange(case.size))
    for index, scores in jumping(case, 10_000, seed=1):
        table[index] = scores
        loss = criterion(scores, index)
    torch.testing.assert_close(loss, criterion.exact(table), rtol=1e-7, atol=1e-9)


def test_a_dominant_exponential_is_taken_out():
    """exp(100/0.1) among exponentials of a few units: a difference of sums would have no digit."""
    labels = torch.tensor([1] * 30 + [0] * 70)
    criterion = L.PartialAUCLoss(labels, temperature=0.1)
    calm = torch.randn(100, generator=generator()) * 0.1
    criterion(calm, torch.arange(100))
    criterion(torch.tensor([9.0]), torch.tensor([50]))
    assert criterion.sums.scale.min() > 500
    loss = criterion(calm[50:51], torch.tensor([50]))
    assert loss.item() == pytest.approx(criterion.exact(calm).item(), rel=1e-12)


def test_all_rows_are_renewed_when_a_dominant_score_falls():
    """However many pairs that takes: a row that waited would have the slopes of the outlier."""
    random = generator(0)
    h = torch.randn(3000, generator=random)
    labels = ((h + 0.5 * torch.randn(3000, generator=random)) > 0).long()
    criterion = L.PartialAUCLoss(labels, temperature=0.1)
    criterion.refresh(h)
    negative = int((labels == 0).nonzero()[0])
    for score in (3.0, -1.0):
        criterion(torch.tensor([score]), torch.tensor([negative]))
    top = int(h.where(labels == 0, -torch.inf).argmax())
    fresh = h[[top]].clone().requires_grad_()
    loss = criterion(fresh, torch.tensor([top]))
    table = criterion.scores.clone().requires_grad_()
    value = criterion.exact(table)
    assert loss.item() == pytest.approx(value.item(), rel=1e-9)
    (found,), (expected,) = (torch.autograd.grad(v, x) for v, x in ((loss, fresh), (value, table)))
    assert found.item() == pytest.approx(3000 * expected[top].item(), rel=1e-7)


@pytest.mark.parametrize("way", ["cast", "load"])
@pytest.mark.parametrize("name", ["pauc", "ap", "ndcg", "cox efron", "auc", "listnet"])
def test_scores_that_were_rounded_have_other_sums(name, way):
    case = next(case for case in CASES if case.name == name)
    wide = case.criterion()
    wide(3 * case.scores(), torch.arange(case.size))
    criterion = case.criterion().float()
    if way == "load":
        criterion.load_state_dict(wide.state_dict())
    else:
        criterion = wide.float()
    for index, _ in jumping(case, 60):
        scores = 3 * torch.randn(len(index), generator=generator(int(index[0]))).float()
        loss = criterion(scores.requires_grad_(), index)
        expected = criterion.exact(criterion.scores.double()).item()
        assert loss.item() == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("score", [9.1, 9.2], ids=["rounded up", "rounded down"])
@pytest.mark.parametrize("way", ["cast", "load", "cast, then load"])
def test_a_dominant_exponential_that_was_rounded_is_taken_out(way, score):
    """exp(l / 0.1) of the rounded score differs from that in the sums in the fifth digit."""
    labels = torch.tensor([1] * 30 + [0] * 70)
    criterion = L.PartialAUCLoss(labels, temperature=0.1)
    calm = (torch.randn(100, generator=generator()) * 0.1).float()
    criterion(calm.double(), torch.arange(100))
    criterion(torch.tensor([score]), torch.tensor([50]))
    narrow = L.PartialAUCLoss(labels, temperature=0.1).float()
    if way == "cast":
        narrow = criterion.float()
    else:
        criterion = criterion.float() if way != "load" else criterion
        narrow.load_state_dict(criterion.state_dict())
    loss = narrow(calm[50:51], torch.tensor([50]))
    assert loss.item() == pytest.approx(narrow.exact(calm.double()).item(), rel=1e-6)


def test_an_evaluation_in_inference_mode_is_harmless():
    for name in ("cox efron", "auc", "listnet", "pauc"):
        case = next(case for case in CASES if case.name == name)
        criterion = case.criterion()
        with torch.inference_mode():
            criterion.eval()(case.scores(), torch.arange(case.size))
        scores = case.scores().requires_grad_()
        criterion.train()(scores, torch.arange(case.size)).backward()
        assert scores.grad.any()


def test_rows_that_are_nothing_are_left_alone():
    """A push with a hinge, where all positives are far above: sums are 0 and lost no digit."""
    from fcco.objectives import SquaredHinge

    labels = torch.tensor([1, 1, 0, 0])
    criterion = L.PushLoss(labels, surrogate=SquaredHinge())
    scores = torch.tensor([9.0, 8.0, -9.0, -8.0], requires_grad=True)
    loss = criterion(scores, torch.arange(4))
    assert loss.item() == 0
    loss.backward()
    assert not scores.grad.any()
    loss = criterion(torch.tensor([8.5]), torch.tensor([2]))
    assert loss.item() == pytest.approx(criterion.exact(torch.tensor([9.0, 8, 8.5, -8])).item())


def test_sums_that_are_almost_nothing():
    """exp(-715) and less: its reciprocal is infinite."""
    labels = torch.tensor([1, 0, 0])
    criterion = L.PushLoss(labels)
    scores = torch.tensor([0.0, -715.0, 1.0], requires_grad=True)
    for index in torch.arange(3).split(1):
        loss = criterion(scores[index], index)
    value = criterion.exact(scores)
    assert loss.item() == pytest.approx(value.item(), rel=1e-12)
    found, expected = (
        torch.autograd.grad(v, scores)[0] for v in (criterion(scores, torch.arange(3)), value)
    )
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("exponent", range(5, 25))
def test_differences_keep_their_digits(exponent):
    """A term leaves that was 2^exponent times the rest."""
    labels = torch.tensor([1] + [0] * 40)
    criterion = L.PartialAUCLoss(labels, temperature=1.0)
    calm = torch.randn(41, generator=generator()) * 0.1
    high = (exponent * torch.tensor(2.0).log() + 5).sqrt() - 1
    criterion(calm, torch.arange(41))
    criterion(high[None], torch.tensor([40]))
    part = calm[3:].requires_grad_()
    (found,) = torch.autograd.grad(criterion(part[37:], torch.tensor([40])), part)
    (expected,) = torch.autograd.grad(criterion.exact(torch.cat([calm[:3], part])), part)
    torch.testing.assert_close(found[37:], 41 * expected[37:], rtol=1e-9, atol=0)


def test_float32_sums_stay_good():
    torch.set_default_dtype(torch.float32)
    case = next(case for case in CASES if case.name == "pauc")
    criterion, table = case.criterion().float(), case.scores().float()
    criterion(table, torch.arange(case.size))
    for index, scores in jumping(case, 300):
        table[index] = scores
        loss = criterion(scores, index)
    assert loss.dtype == criterion.scores.dtype == torch.float32
    assert loss.item() == pytest.approx(criterion.exact(table.double()).item(), rel=1e-6)


def test_large_shifts_of_cox():
    """Scores far from zero, and too far from one another for exponentials."""
    times, events = CASES[0].given
    for scores in (CASES[0].scores() + 2000, CASES[0].scores() - 2000, CASES[0].scores() * 1000):
        criterion = L.CoxLoss(times, events)
        scores.requires_grad_()
        value = criterion.exact(scores)
        for index in torch.randperm(45, generator=generator()).split(4):
            loss = criterion(scores[index], index)
        assert loss.item() == pytest.approx(value.item(), rel=1e-12)
        everyone = criterion(scores, torch.arange(45))
        found, expected = (torch.autograd.grad(v, scores)[0] for v in (everyone, value))
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
