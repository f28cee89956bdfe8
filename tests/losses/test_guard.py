"""The guard of steep risks leans on recent samples if, and as far as, the table is stale."""

import copy
import math

import pytest
import torch
from losses.criteria import generator
from torch.utils.checkpoint import checkpoint

from fcco import losses as L

N = 200
LABELS = (torch.rand(N, generator=generator(1)) < 0.3).long()
TASKS = torch.stack([LABELS, 1 - LABELS], dim=1)


def kinds(labels=LABELS):
    yield L.PartialAUCLoss(labels, temperature=0.1).double()
    yield L.PartialAUCLoss(labels, temperature=0.5, two_way=0.2).double()
    yield L.PushLoss(labels).double()


def scores(seed, tasks=None):
    shape = N if tasks is None else (N, tasks)
    return torch.randn(shape, generator=generator(seed), dtype=torch.float64) * 0.3


def gradient(criterion, h, index):
    h = h.clone().requires_grad_()
    return torch.autograd.grad(criterion(h[index], index), h)[0][index]


def exact(criterion, h, index):
    """What the batch's gradient is without a guard."""
    h = h.clone().requires_grad_()
    (slope,) = torch.autograd.grad(criterion.exact(h), h)
    return slope[index] * N / len(index)


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("tasks", [None, 2])
def test_it_is_off_after_a_pass_at_rest(number, tasks):
    """Stale at first; then every score is written at the same weights, and then all is exact."""
    criterion = list(kinds(TASKS if tasks else LABELS))[number]
    for seed in range(2):
        for index in torch.randperm(N, generator=generator(seed)).split(16):
            criterion(10 * scores(seed, tasks)[index], index)
    h = scores(9, tasks)
    for index in torch.randperm(N, generator=generator(3)).split(16):
        criterion(h[index], index)
    slope = exact(criterion, h, torch.arange(N))
    for index in torch.randperm(N, generator=generator(4)).split(7):
        nearly = h + 1e-15 * scores(8, tasks)  # as another batch size would round
        found = gradient(criterion, nearly, index)
        expected = slope[index] * N / len(index)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("number", range(3))
def test_it_is_off_for_the_last_batch_of_a_pass_at_rest(number):
    """Which was stale when it was written; the table is not any more."""
    criterion, parts = list(kinds())[number], torch.arange(N).split(N // 2)
    for seed in range(2):
        for index in parts:
            h = 3 * scores(seed)
            criterion(h[index].requires_grad_(), index)
    for index in parts[::-1]:
        found = gradient(criterion, h, index)
        torch.testing.assert_close(found, exact(criterion, h, index), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("number", range(3))
def test_a_recomputed_forward_pass_leans_as_the_first(number, reentrant):
    """By then the batch's scores are in the table, and do not show how far they have moved."""
    criterion = list(kinds())[number]
    criterion(scores(0), torch.arange(N))
    twin, index = copy.deepcopy(criterion), torch.arange(0, N, 9)
    h = (3 * scores(1)).requires_grad_()
    loss = checkpoint(lambda h: criterion(h[index], index), h, use_reentrant=reentrant)
    loss.backward()
    found = h.grad[index]
    torch.testing.assert_close(found, gradient(twin, h.detach(), index))
    patched = scores(0)
    patched[index] = h.detach()[index]
    assert not torch.allclose(found, exact(twin, patched, index), rtol=0.1), "it leans"


@pytest.mark.parametrize("number", range(3))
def test_a_whole_batch_is_never_stale(number):
    criterion = list(kinds())[number]
    for seed in range(3):
        h = 3 * scores(seed)
        found = gradient(criterion, h, torch.arange(N))
        torch.testing.assert_close(found, exact(criterion, h, torch.arange(N)))


@pytest.mark.parametrize("number", range(3))
def test_small_moves_do_not_count(number):
    criterion = list(kinds())[number]
    h = scores(0)
    criterion(h, torch.arange(N))
    h = h + 1e-3 * scores(1)
    patched, index = scores(0), torch.arange(10)
    patched[index] = h[index]
    found = gradient(criterion, h, index)
    torch.testing.assert_close(found, exact(criterion, patched, index))


def by_hand(table, index, positives, negatives):
    """The gradient of the risk of these samples, as loops over the batch: one-way partial AUC."""

    def weights(i):
        s = torch.stack([table[j] - table[i] for j in negatives])
        part = torch.softmax((1 + s).clamp(min=0).square() / 0.1, dim=0)
        return part * 2 * (1 + s).clamp(min=0)

    found = []
    for k in index:
        if LABELS[k] == 1:
            found.append(-weights(k).sum() / LABELS.sum())
        else:
            total = torch.stack([weights(i)[negatives.index(k)] for i in positives]).mean()
            found.append(total * len(negatives) / (1 - LABELS).sum())
    return torch.stack(found) * N / len(index)


def test_far_gone_it_is_the_risk_of_recent_samples():
    criterion = L.PartialAUCLoss(LABELS, temperature=0.1).double()
    table, recent = scores(0), {0: [], 1: []}
    batches = [torch.arange(N), *torch.randperm(N, generator=generator(2))[:80].split(8)]
    for step, index in enumerate(batches):
        if step:
            table[index] = scores(1)[index] + 1e4  # moved beyond all bearing
        found = gradient(criterion, table, index)
        last = {}
        for label, before in recent.items():
            batch = sorted(k for k in index.tolist() if LABELS[k] == label)
            last[label] = batch + [k for k in before[:8] if k not in batch]
            recent[label] = batch + [k for k in before[:64] if k not in batch]
    lean = criterion.guard._last[1]
    assert 0.95 < lean.item() < 1 - 8 / N
    mine = by_hand(table, index.tolist(), last[1], last[0])
    expected = torch.lerp(exact(criterion, table, index), mine, lean)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)
    assert not torch.allclose(mine, exact(criterion, table, index), rtol=0.1)


def test_a_little_stale_it_counts_more_recent_samples():
    criterion = L.PartialAUCLoss(LABELS, temperature=0.1).double()
    table = scores(0)
    criterion(table, torch.arange(N))
    order = torch.randperm(N, generator=generator(2))[:160]
    recent = {0: [], 1: []}
    for index in [torch.arange(N), *order.split(8)]:
        if len(index) == 8:
            table[index] = scores(0)[index] + 0.4 * scores(1)[index]
            found = gradient(criterion, table, index)
        batch = {v: sorted(k for k in index.tolist() if LABELS[k] == v) for v in (0, 1)}
        before = recent
        recent = {v: batch[v] + [k for k in before[v] if k not in batch[v]] for v in (0, 1)}
    lean = criterion.guard._last[1].item()
    assert 0.1 < lean < 0.8
    wide = math.ceil(64 * (1 - lean))
    last = {v: batch[v] + [k for k in before[v][:wide] if k not in batch[v]] for v in (0, 1)}
    mine = by_hand(table, index.tolist(), last[1], last[0])
    expected = torch.lerp(exact(criterion, table, index), mine, lean)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("number", range(3))
def test_a_first_pass_at_rest_is_exact(number):
    """Random order, so recent samples differ from earlier ones only by chance."""
    labels = (torch.rand(1000, generator=generator(1)) < 0.3).long()
    h = torch.randn(1000, generator=generator(0), dtype=torch.float64) * 0.3
    criterion = list(kinds(labels))[number]
    so_far = torch.randperm(1000, generator=generator(3))[:900]
    for index in so_far.split(50):
        found = gradient(criterion, h, index)
    fresh = list(kinds(labels[so_far]))[number]
    leaf = h[so_far].clone().requires_grad_()
    (slope,) = torch.autograd.grad(fresh.exact(leaf), leaf)
    torch.testing.assert_close(found, slope[-50:] * 900 / 50, rtol=1e-8, atol=1e-8)


def test_a_first_pass_that_runs_away_leans_on_recent_samples():
    """Scores twice as wide with every hundred samples."""
    labels = (torch.rand(1000, generator=generator(1)) < 0.3).long()
    h = torch.randn(1000, generator=generator(0), dtype=torch.float64) * 0.3
    found = {}
    for kind in ("table", "guarded"):
        criterion = L.PartialAUCLoss(labels, temperature=0.1).double()
        criterion.guard = criterion.guard if kind == "guarded" else None
        for step, index in enumerate(torch.arange(900).split(10)):
            found[kind] = gradient(criterion, h * 2 ** (step / 10), index)
    assert not torch.allclose(found["table"], found["guarded"], rtol=0.5)
    fresh = L.PartialAUCLoss(labels[890:900], temperature=0.1).double()
    leaf = (h * 2 ** (step / 10))[890:900].clone().requires_grad_()
    (slope,) = torch.autograd.grad(fresh.exact(leaf), leaf)
    near = torch.nn.functional.cosine_similarity(found["guarded"], slope, dim=0)
    far = torch.nn.functional.cosine_similarity(found["table"], slope, dim=0)
    assert near > far


def test_the_value_is_that_of_the_table_all_the_same():
    for criterion in kinds():
        table = scores(0)
        criterion(table, torch.arange(N))
        for index in torch.randperm(N, generator=generator(2))[:60].split(6):
            table[index] = 20 * scores(1)[index]
            loss = criterion(table[index].requires_grad_(), index)
            torch.testing.assert_close(loss.detach(), criterion.exact(table), rtol=1e-9, atol=0)


def test_tasks_are_stale_apart():
    criterion = L.PartialAUCLoss(TASKS, temperature=0.1).double()
    h = scores(0, 2)
    criterion(h, torch.arange(N))
    moved = h.clone()
    moved[:, 1] += 50 * scores(1)
    criterion(moved[:8], torch.arange(8))
    lean = criterion.guard._last[1]
    assert lean[0] == 0
    assert lean[1] > 0.9


def test_it_is_saved_and_resumed():
    first = L.PartialAUCLoss(LABELS, temperature=0.1).double()
    first(scores(0), torch.arange(N))
    for index in torch.arange(100).split(10):
        first(scores(1)[index], index)
    assert (first.guard.moved > 0).all()
    second = L.PartialAUCLoss(LABELS, temperature=0.1).double()
    second.load_state_dict(first.state_dict())
    index = torch.arange(50, 60)
    assert gradient(second, scores(2), index).equal(gradient(first, scores(2), index))


def test_eval_leaves_it_alone():
    criterion = L.PartialAUCLoss(LABELS, temperature=0.1).double()
    criterion(scores(0), torch.arange(N))
    before = copy.deepcopy(criterion.guard.state_dict())
    criterion.eval()(5 * scores(1)[:10], torch.arange(10))
    assert all(v.equal(before[k]) for k, v in criterion.guard.state_dict().items())


@pytest.mark.slow
def test_it_pays():
    """A linear model on noisy data at a step size that is too large for the table."""
    random = generator(5)
    x = torch.randn(400, 30, generator=random)
    labels = (x[:, 0] + torch.randn(400, generator=random) > 0.7).long()
    values = {}
    for guarded in (True, False):
        torch.manual_seed(0)
        criterion = L.PartialAUCLoss(labels, temperature=0.1)
        criterion.guard = criterion.guard if guarded else None
        w = torch.zeros(30, requires_grad=True)
        optimizer = torch.optim.Adam([w], 0.05)
        for _ in range(6):
            for index in torch.randperm(400).split(8):
                optimizer.zero_grad()
                criterion(x[index] @ w, index).backward()
                optimizer.step()
        values[guarded] = criterion.exact((x @ w).detach()).item()
    assert values[True] < values[False] / 2
