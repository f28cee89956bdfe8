"""Running sums and the whole table give the same loss: the fast path is an option."""

import copy
import math

import pytest
import torch
from losses.criteria import CASES, generator

from fcco import losses as L

# Calls in eval mode and without gradients are what these tests are about; they warn.
pytestmark = pytest.mark.filterwarnings("ignore:.*it is not a validation loss")

FAST = [case for case in CASES if case.criterion().sums is not None]


def plain(criterion):
    """The same criterion, computed from the whole table in every step."""
    criterion.sums = None
    return criterion


def histories(case, seed):
    """Batches of all sizes, in the first pass and after it, with scores that move and jump."""
    random = generator(seed)
    order = torch.randperm(case.size, generator=random)
    yield from order.split([1, 2, 5, 10, 27])
    for size in (1, 7, 45, 3, 20, 1):
        yield torch.randperm(case.size, generator=random)[:size]


def test_which_losses_have_a_fast_path():
    """Those whose whole table took more than 1.5 times as long as the sums of 0.2."""
    names = {type(case.criterion()).__name__ for case in FAST}
    assert names == {
        "CoxLoss", "AUCLoss", "APLoss", "PartialAUCLoss", "PushLoss", "NDCGLoss", "ListNetLoss"
    }  # fmt: skip


@pytest.mark.parametrize("case", FAST, ids=str)
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_both_agree(case, scale):
    fast, slow, random = case.criterion(), plain(case.criterion()), generator(9)
    for index in histories(case, seed=3):
        scores = case.scores()[index]
        scores = scale * torch.randn(scores.shape, generator=random, dtype=torch.float64)
        first, second = (scores.clone().requires_grad_() for _ in range(2))
        a, b = fast(first, index), slow(second, index)
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)
        found, expected = torch.autograd.grad(a, first)[0], torch.autograd.grad(b, second)[0]
        torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-9)
        assert fast.scores.equal(slow.scores)
        assert fast.seen.equal(slow.seen)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_the_share_of_a_task_has_all_its_digits(dtype):
    """With three tasks it is 1/3, in float64 whatever the default is."""
    labels = torch.tensor([[1, 0, 1], [0, 1, 0], [1, 1, 0], [0, 0, 1]])
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        criterion = L.AUCLoss(labels).double()
        scores = torch.randn(4, 3, dtype=torch.float64, generator=generator(0))
        value = criterion(scores, torch.arange(4)).item()
    finally:
        torch.set_default_dtype(before)
    assert value == pytest.approx(criterion.exact(scores).item(), rel=1e-14)


@pytest.mark.parametrize("case", FAST, ids=str)
def test_eval_agrees_and_leaves_no_trace(case):
    fast, slow = case.criterion(), plain(case.criterion())
    for criterion in (fast, slow):
        criterion(case.scores(), torch.arange(case.size))
    before = copy.deepcopy(fast.state_dict())
    index, scores = torch.arange(0, 45, 4), case.scores(seed=5)[::4]
    values = [criterion.eval()(scores, index).item() for criterion in (fast, slow)]
    assert values[0] == pytest.approx(values[1], rel=1e-10)
    assert all(before[name].equal(tensor) for name, tensor in fast.state_dict().items())
    again = fast.train()(case.scores()[:3].requires_grad_(), torch.arange(3))
    assert again.item() == pytest.approx(fast.exact(case.scores()).item(), rel=1e-9)


@pytest.mark.parametrize("name", ["cox efron", "auc", "listnet"])
def test_a_cache_follows_the_table_wherever_it_goes(name, monkeypatch):
    """After loading, casting, copying and an error the sums belong to the table again."""
    case = next(case for case in CASES if case.name == name)
    first = case.criterion()
    first(case.scores(), torch.arange(45))
    other = case.criterion()
    other(case.scores(seed=1), torch.arange(45))
    other.load_state_dict(first.state_dict())
    copied = copy.deepcopy(first)
    first.float().double()
    monkeypatch.setattr(copied, "_check", _interrupt)
    with pytest.raises(KeyboardInterrupt):
        copied(9 * case.scores(seed=2)[:5], torch.arange(5))
    monkeypatch.undo()
    for criterion in (first, other, copied):
        index = torch.arange(7, 12)
        loss = criterion(case.scores(seed=3)[index], index)
        assert loss.item() == pytest.approx(criterion.exact(criterion.scores).item(), rel=1e-12)


def _interrupt(*given):
    raise KeyboardInterrupt


@pytest.mark.parametrize("case", FAST, ids=str)
@pytest.mark.parametrize("then", ["train", "eval", "save"])
def test_something_else_writes_to_the_table(case, then):
    """As a moving average of a module's buffers does."""
    criterion, everyone = case.criterion(), torch.arange(case.size)
    criterion(case.scores(), everyone)
    with torch.no_grad():
        criterion.scores.copy_(case.scores(seed=1).view_as(criterion.scores))
    if then == "save":
        state, criterion = criterion.state_dict(), case.criterion()
        criterion.load_state_dict(state)
    criterion.train(then != "eval")
    for index in (everyone[3:6], everyone[20:21]):
        value = criterion(case.scores(seed=1)[index].requires_grad_(), index)
        assert value.item() == pytest.approx(criterion.exact(criterion.scores).item(), rel=1e-9)


def test_cox_and_auc_far_from_zero_use_logarithms():
    """Where exp(h) is not a float64 the loss comes from the whole table, exactly."""
    for case in CASES:
        if not case.name.startswith(("cox", "auc")):
            continue
        for shift in (-2000.0, 800.0):
            criterion, scores = case.criterion(), case.scores(scale=30.0) + shift
            for index in torch.arange(45).split(9):
                loss = criterion(scores[index], index)
            assert loss.item() == pytest.approx(criterion.exact(scores).item(), rel=1e-11)


def test_products_of_risk_sums_keep_their_digits():
    """Of 16 factors, the first two make a denormal number and the others make it normal again."""
    scores = torch.full((17,), 11.684549640797426, dtype=torch.float64)
    scores[0], scores[1] = -425.37768691896827, -400.8875680310928
    criterion = L.CoxLoss(torch.arange(17, 0, -1), torch.ones(17)).double()
    loss = criterion(scores, torch.arange(17))
    assert loss.item() == pytest.approx(scores.logcumsumexp(0).sub(scores).mean().item(), rel=1e-12)


@pytest.mark.parametrize("distinct", [3, 30, 10**6])
@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_cox_on_many_samples(distinct, ties):
    """Many and few ties, some pass unfinished, against the logarithms of the whole table."""
    random, count = generator(1), 400
    times = torch.randint(1, distinct + 1, (count,), generator=random)
    events = torch.rand(count, generator=random) < 0.7
    fast = L.CoxLoss(times, events, ties=ties).double()
    slow = plain(copy.deepcopy(fast))
    for _ in range(3):
        for index in torch.randperm(count, generator=random).split(50)[:-1]:
            scores = 3 * torch.randn(50, generator=random, dtype=torch.float64)
            first, second = (scores.clone().requires_grad_() for _ in range(2))
            a, b = fast(first, index), slow(second, index)
            torch.testing.assert_close(a, b, rtol=1e-12, atol=0)
            found, expected = torch.autograd.grad(a, first)[0], torch.autograd.grad(b, second)[0]
            torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_cox_of_events_that_all_happen_at_the_last_time():
    """Nobody but the tied events is at risk: log S_l = log((1 - l/3) sum exp h), l = 0, 1, 2."""
    criterion = L.CoxLoss(torch.tensor([2.0, 2.0, 1.0, 2.0]), torch.tensor([1, 1, 0, 1])).double()
    h = torch.tensor([0.3, -0.5, 2.0, 1.1], dtype=torch.float64, requires_grad=True)
    loss = criterion(h, torch.arange(4))
    loss.backward()
    total = sum(math.exp(h[k].item()) for k in (0, 1, 3))
    logs = [math.log((1 - ties / 3) * total) for ties in range(3)]
    events = sum(h[k].item() for k in (0, 1, 3))
    assert loss.item() == pytest.approx((sum(logs) - events) / 3, rel=1e-12)
    # All three logarithms have the slope exp(h_k) / total.
    expected = [math.exp(h[k].item()) / total - 1 / 3 if k != 2 else 0.0 for k in range(4)]
    assert h.grad.tolist() == pytest.approx(expected, rel=1e-12, abs=1e-15)
