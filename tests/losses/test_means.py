"""Losses that are functions of means: definitions as plain loops, any batch size, all modes."""

import copy
import math

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, jaccard_score
from torch import nn
from torch.utils.checkpoint import checkpoint

from fcco import losses as L
from fcco import objectives as O

# Calls in eval mode and without gradients are what these tests are about; they warn.
pytestmark = pytest.mark.filterwarnings("ignore:.*it is not a validation loss")

N = 24
RANDOM = torch.Generator().manual_seed(3)
P = torch.rand(N, 3, generator=RANDOM, dtype=torch.float64)
Y = (torch.rand(N, 3, generator=RANDOM) < 0.4).long()
MISSING = Y.where(torch.rand(N, 3, generator=RANDOM) < 0.8, -1)
GROUPS = torch.arange(N) % 3


def mean(numbers):
    numbers = list(numbers)
    return sum(numbers) / len(numbers)


def f_score(p, y, b=1.0):
    pairs = [(a, c) for a, c in zip(p, y, strict=True) if c >= 0]
    overlap = sum(a * c for a, c in pairs)
    return (1 + b * b) * overlap / (b * b * sum(c for _, c in pairs) + sum(a for a, _ in pairs))


def tversky(p, y, a, b):
    overlap = sum(s * t for s, t in zip(p, y, strict=True))
    wrong = sum(s * (1 - t) for s, t in zip(p, y, strict=True))
    missed = sum((1 - s) * t for s, t in zip(p, y, strict=True))
    return overlap / (overlap + a * wrong + b * missed)


def pearson(x, y):
    mx, my = mean(x), mean(y)
    covariance = mean((a - mx) * (b - my) for a, b in zip(x, y, strict=True))
    return covariance / math.sqrt(mean((a - mx) ** 2 for a in x) * mean((b - my) ** 2 for b in y))


def concordance(x, y):
    mx, my = mean(x), mean(y)
    covariance = mean((a - mx) * (b - my) for a, b in zip(x, y, strict=True))
    spread = mean((a - mx) ** 2 for a in x) + mean((b - my) ** 2 for b in y)
    return 2 * covariance / (spread + (mx - my) ** 2)


def columns(values):
    return [values[:, k].tolist() for k in range(values.shape[1])]


MASKS = (torch.rand(N, 2, 3, 4, generator=RANDOM) < 0.3).double()
SOFT = torch.rand(N, 2, 3, 4, generator=RANDOM, dtype=torch.float64)


def by_class(index, of):
    return mean(of(SOFT[index, c].flatten().tolist(), MASKS[index, c].flatten().tolist())
                for c in range(2))  # fmt: skip


CASES = {
    "f1": (lambda: L.F1Loss(), lambda c, i: c(P[i, 0], Y[i, 0]),
           lambda i: 1 - f_score(P[i, 0].tolist(), Y[i, 0].tolist())),
    "f1, tasks": (lambda: L.F1Loss(3), lambda c, i: c(P[i], MISSING[i]),
                  lambda i: 1 - mean(f_score(p, y) for p, y in
                                     zip(columns(P[i]), columns(MISSING[i]), strict=True))),
    "f2, micro": (lambda: L.F1Loss(3, recall_weight=2.0, average="micro"),
                  lambda c, i: c(P[i], MISSING[i]),
                  lambda i: 1 - f_score(P[i].flatten().tolist(), MISSING[i].flatten().tolist(), 2)),
    "dice": (lambda: L.DiceLoss(2), lambda c, i: c(SOFT[i], MASKS[i]),
             lambda i: 1 - by_class(i, lambda p, y: tversky(p, y, 0.5, 0.5))),
    "tversky": (lambda: L.DiceLoss(2, weights=(0.3, 0.7)), lambda c, i: c(SOFT[i], MASKS[i]),
                lambda i: 1 - by_class(i, lambda p, y: tversky(p, y, 0.3, 0.7))),
    "jaccard": (lambda: L.DiceLoss(2, jaccard=True), lambda c, i: c(SOFT[i], MASKS[i]),
                lambda i: 1 - by_class(i, lambda p, y: tversky(p, y, 1, 1))),
    "pearson": (lambda: L.CorrelationLoss(2), lambda c, i: c(P[i, :2], P[i, 1:]),
                lambda i: 1 - mean(pearson(x, y) for x, y in
                                   zip(columns(P[i, :2]), columns(P[i, 1:]), strict=True))),
    "concordance": (lambda: L.CorrelationLoss(concordance=True), lambda c, i: c(P[i, 0], P[i, 1]),
                    lambda i: 1 - concordance(P[i, 0].tolist(), P[i, 1].tolist())),
    "parity": (lambda: L.ParityLoss(3), lambda c, i: c(P[i, 0], GROUPS[i]),
               lambda i: (lambda r: max(r) - min(r))(
                   [mean(P[k, 0].item() for k in i.tolist() if GROUPS[k] == g)
                    for g in {int(GROUPS[k]) for k in i}])),
}  # fmt: skip
EVERYONE = torch.arange(N)


@pytest.mark.parametrize("name", CASES)
def test_the_first_batch_is_the_definition(name):
    build, call, truth = CASES[name]
    for index in (EVERYONE, torch.arange(5, 17)):
        value = call(build().double(), index).item()
        assert value == pytest.approx(truth(index), rel=1e-12)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("size", [1, 5])
def test_an_average_of_batches_is_that_of_all_samples(name, size):
    """While nothing moves, "auto" begins as the mean of all that was seen: equal batches."""
    build, call, truth = CASES[name]
    criterion = build().double()
    seen = EVERYONE[: 2 * size]
    for index in seen.split(size):
        value = call(criterion, index).item()
    assert value == pytest.approx(truth(seen), rel=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_one_sample_at_a_time_comes_near(name):
    build, call, truth = CASES[name]
    criterion, random = build().double(), torch.Generator().manual_seed(0)
    order = [i for _ in range(12) for i in torch.randperm(N, generator=random).split(1)]
    values = [call(criterion, index).item() for index in order]
    late = values[len(values) // 2 :]
    assert mean(late) == pytest.approx(truth(EVERYONE), abs=0.1)
    assert all(map(math.isfinite, values))


@pytest.mark.parametrize("name", CASES)
def test_exact_takes_what_forward_takes(name):
    """Of all samples; whatever the table has seen."""
    build, call, truth = CASES[name]
    criterion = build().double()
    for _ in range(2):
        value = call(criterion.exact, EVERYONE)
        assert value.item() == pytest.approx(truth(EVERYONE), rel=1e-9)
        call(criterion, EVERYONE[:7])


def test_a_function_of_any_means_and_its_gradient():
    """At u_t: grad f(u_t) times the mean gradient of the statistics."""
    criterion = L.MeansLoss(lambda u: u[..., 0] / (1 + u[..., 1].square()), 2, beta=0.25).double()
    first = torch.tensor([[1.0, 2.0], [3.0, 0.0]], dtype=torch.float64)
    criterion(first)  # u = (2, 1)
    lines = torch.tensor([[4.0, 5.0]], dtype=torch.float64, requires_grad=True)
    loss = criterion(lines)
    loss.backward()
    a, b = 0.75 * 2 + 0.25 * 4, 0.75 * 1 + 0.25 * 5
    assert loss.item() == pytest.approx(a / (1 + b * b), rel=1e-12)
    expected = torch.tensor([[1 / (1 + b * b), -2 * a * b / (1 + b * b) ** 2]]).double()
    torch.testing.assert_close(lines.grad, expected, rtol=1e-6, atol=0)
    leaf = torch.cat([first, first]).requires_grad_()
    value = criterion.exact(leaf)
    assert value.item() == pytest.approx(2 / (1 + 1), rel=1e-12)
    assert torch.autograd.grad(value, leaf)[0].shape == (4, 2)


def test_hard_predictions_give_the_metrics_of_scikit_learn():
    hard = (P > 0.5).double()
    macro = L.F1Loss(3).double()(hard, Y).item()
    assert macro == pytest.approx(1 - f1_score(Y, hard.long(), average="macro"))
    micro = L.F1Loss(3, average="micro").double()(hard, Y).item()
    assert micro == pytest.approx(1 - f1_score(Y, hard.long(), average="micro"))
    mask = (SOFT > 0.5).double()
    found = L.DiceLoss(2, jaccard=True).double()(mask, MASKS).item()
    scores = [jaccard_score(MASKS[:, c].flatten(), mask[:, c].flatten()) for c in range(2)]
    assert found == pytest.approx(1 - mean(scores))


def test_class_numbers_are_masks():
    numbers = torch.randint(0, 3, (4, 5, 6), generator=RANDOM)
    soft = torch.rand(4, 3, 5, 6, generator=RANDOM).softmax(1)
    masks = nn.functional.one_hot(numbers, 3).movedim(-1, 1)
    values = [L.DiceLoss(3)(soft, target).item() for target in (numbers, numbers[:, None], masks)]
    assert values[0] == values[1] == values[2]
    foreground = L.DiceLoss(3, include_background=False)(soft, numbers).item()
    parts = [L.DiceLoss()(soft[:, c : c + 1], masks[:, c : c + 1]).item() for c in (1, 2)]
    assert foreground == pytest.approx(mean(parts), rel=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_modes_resume_and_recomputation(name):
    build, call, _ = CASES[name]
    parts = list(EVERYONE.split(5))
    first, second = build().double(), build().double()
    for index in parts[:3]:
        call(first, index)
    before = copy.deepcopy(first.state_dict())
    call(first.eval(), parts[0])
    first.train()
    with torch.no_grad():
        call(first, parts[0])
    assert all(before[key].equal(value) for key, value in first.state_dict().items())
    second.load_state_dict(before)
    third = copy.deepcopy(first)
    values = [call(criterion, parts[3]).item() for criterion in (first, second, third)]
    assert values[0] == values[1] == values[2]
    states = first.state_dict(), second.state_dict()
    assert all(states[0][key].equal(states[1][key]) for key in states[0])


def test_a_recomputed_forward_pass_counts_once():
    x = torch.randn(8, 2, generator=RANDOM)
    results = []
    for through in (lambda f, *a: f(*a), lambda f, *a: checkpoint(f, *a, use_reentrant=False)):
        torch.manual_seed(0)
        model, criterion = nn.Linear(2, 1), L.F1Loss()

        def loss_of(part, y, model=model, criterion=criterion):
            return criterion(model(part).sigmoid(), y)

        for k in range(4):
            part = x[2 * k : 2 * k + 2]
            through(loss_of, part, torch.tensor([1, 0])).backward()
        results.append(
            (criterion.table.rows.clone(), criterion.table.gain.clone(), model.weight.grad.clone())
        )
    assert all(a.equal(b) for a, b in zip(*results, strict=True))


def test_the_gain_at_batch_size_1_follows_noise_and_drift():
    """Noise alone: small; a mean that runs away: large."""
    random = torch.Generator().manual_seed(1)
    calm, moving = (L.MeansLoss(lambda u: u[..., 0].square(), 1) for _ in range(2))
    for t in range(600):
        noise = torch.randn(1, 1, generator=random)
        calm(noise)
        moving(t * 0.5 + 0.1 * noise)
    assert calm._choose_gain().beta < 0.1
    assert moving._choose_gain().beta > 0.5


def test_the_noise_at_batch_size_1_is_the_variance_of_successive_samples():
    criterion, x = L.MeansLoss(lambda u: u[..., 0].square(), 1).double(), [3.0, 5.0, 4.5]
    for value in x:
        criterion(torch.tensor([[value]], dtype=torch.float64))
    pairs = torch.tensor([x[:2], x[1:]], dtype=torch.float64)
    assert criterion.variance.item() == pytest.approx(pairs.var(1).mean().item(), rel=1e-12)


def test_only_a_surprise_beyond_two_standard_deviations_of_chance_raises_the_gain():
    """Of 100 rows, the mean square over its expectation has the deviation 0.1: chance ends at 1.2.
    What is above is drift, whose share of the surprise is the gain. 300 rows at most count."""
    criterion = L.MeansLoss(lambda u: u[..., 0].square(), 1)
    for rows, surprise, expected in [
        (100, 1.2, 0.02),
        (100, 1.5, (1.5 - 1.2) / 1.5),
        (10**6, 2.0, (2.0 - 1 - 2 / 300**0.5) / 2.0),
    ]:
        criterion.table.gain.copy_(torch.tensor([10**6, rows, surprise, 1.0]))
        assert criterion._choose_gain().beta == pytest.approx(expected, rel=1e-12)


def test_targets_keep_their_precision():
    whole = torch.tensor([2**40, 2**40 + 1, 2**40 + 2])
    found = L.CorrelationLoss(beta=1.0)(torch.tensor([1.0, 2.0, 3.0]), whole)
    assert found.item() == pytest.approx(0, abs=1e-6)
    for scale in (1e-90, 1e90):
        x = scale * torch.arange(5, dtype=torch.float64)
        assert L.CorrelationLoss(beta=1.0)(x, x).item() == pytest.approx(0, abs=1e-9)


def test_empty_data_have_no_slope():
    p = torch.zeros(3, requires_grad=True)
    loss = L.F1Loss()(p, torch.zeros(3))
    loss.backward()
    assert loss.item() == 1
    assert not p.grad.any()
    x = torch.ones(3, requires_grad=True)
    L.CorrelationLoss()(x, torch.arange(3.0)).backward()
    assert x.grad.isfinite().all()


def test_a_mean_that_vanishes_is_no_error():
    """The inverse of a mean near 1e-40, a slope, would not fit into float32."""
    logits = torch.zeros(1, 2, 4)
    logits[:, 0] = 95.0
    logits.requires_grad_()
    dice = L.DiceLoss(2)  # class 1 is absent, with probabilities of 1e-41
    dice(logits.softmax(1), torch.zeros(1, 4).long()).backward()
    assert logits.grad.isfinite().all()
    f1, parity = L.F1Loss(beta=0.5), L.ParityLoss(2, beta=0.5)
    f1(torch.tensor([0.9]), torch.tensor([1]))
    parity(torch.tensor([0.9, 0.1]), torch.tensor([0, 1]))
    for _ in range(160):  # no positive, and only group 0
        score = torch.tensor([0.3], requires_grad=True)
        losses = f1(0 * score, torch.tensor([0])), parity(score, torch.tensor([0]))
        sum(losses).backward()
        assert score.grad.isfinite().all()
    assert [loss.item() for loss in losses] == [1, 0]
    assert parity(torch.tensor([0.1]), torch.tensor([1])).item() == pytest.approx(0.2)


def test_precision_of_correlations_far_from_zero():
    x = torch.randn(50, generator=RANDOM) + 1e4
    y = 2 * x + torch.randn(50, generator=RANDOM)
    expected = 1 - torch.corrcoef(torch.stack([x, y]).double())[0, 1].item()
    criterion = L.CorrelationLoss()
    assert criterion.float().table.rows.dtype == torch.float64
    assert criterion(x, y).item() == pytest.approx(expected, rel=1e-3)
    assert criterion.half().table.rows.dtype == torch.float64


@pytest.mark.parametrize("cast", [nn.Module.float, nn.Module.half, nn.Module.double])
def test_a_cast_leaves_correlations_as_they_are(cast):
    criterion = L.CorrelationLoss()
    criterion(torch.rand(5, generator=RANDOM), torch.rand(5, generator=RANDOM))
    before = copy.deepcopy(criterion.state_dict())
    cast(nn.Sequential(criterion))
    for name, buffer in criterion.state_dict().items():
        assert buffer.dtype == before[name].dtype
        assert buffer.equal(before[name]), name


@pytest.mark.parametrize("concordance", [False, True])
def test_exact_correlations_far_from_the_first_batch(concordance):
    x = torch.randn(50, generator=RANDOM, dtype=torch.float64)
    y = x + torch.randn(50, generator=RANDOM, dtype=torch.float64)
    fresh = L.CorrelationLoss(concordance=concordance)
    expected = fresh.exact(x, y).item()
    trained = L.CorrelationLoss(concordance=concordance)
    trained(x + 1e8, y + 1e8)
    assert trained.exact(x, y).item() == pytest.approx(expected, rel=1e-12)
    assert trained.exact(x.float(), y).dtype == torch.float32


def test_targets_come_in_many_kinds():
    p, y = torch.tensor([0.9, 0.2, 0.4]), np.array([1, 0, 0])
    for call in (
        lambda y: L.F1Loss()(p, y),
        lambda y: L.DiceLoss()(p.unsqueeze(1), y),
        lambda y: L.CorrelationLoss()(p, y),
        lambda y: L.ParityLoss(2)(p, y),
    ):
        expected = call(torch.tensor(y)).item()
        backwards = np.ascontiguousarray(y[::-1])[::-1]  # torch has no negative strides
        for given in (y, backwards, y.astype(np.uint16), y.astype(">i4"), y.tolist()):
            assert call(given).item() == expected


@pytest.mark.parametrize(("call", "message"), [
    (lambda: L.MeansLoss(lambda u: u, 0), "shape must be p or"),
    (lambda: L.MeansLoss(None, 2), "function must be callable"),
    (lambda: L.MeansLoss(lambda u: u[1], 2)(torch.zeros(3, 2)), r"write u\[..., 0\]"),
    (lambda: L.MeansLoss(lambda u: u.sum(), 2)(torch.zeros(3, 2)), r"map \(..., p\) to \(...\)"),
    (lambda: L.MeansLoss(lambda u: u[..., 0], 2)(torch.zeros(3)), r"shape \(B, 2\)"),
    (lambda: L.MeansLoss(lambda u: u[..., 0], 2)(torch.zeros(0, 2)), "statistics are empty"),
    (lambda: L.MeansLoss(lambda u: u[..., 0], (3, 2))(torch.zeros(4, 2)), r"\(B, 3, 2\)"),
    (lambda: L.MeansLoss(lambda u: u[..., 0], 2)(torch.zeros(3, 2).long()), "tensor of floats"),
    (lambda: L.F1Loss(2)(torch.zeros(3), torch.zeros(3)), r"must have shape \(B, 2\)"),
    (lambda: L.F1Loss()(torch.zeros(3), torch.full((3,), 2)), "targets must be 0 or 1"),
    (lambda: L.F1Loss()(torch.zeros(1), [1 - 1e-9]), "must be 0 or 1"),
    (lambda: L.F1Loss()(torch.zeros(2), np.ma.array([0, 1], mask=[0, 1])), "targets.*are masked"),
    (lambda: L.F1Loss(average="weighted"), "average must be"),
    (lambda: L.F1Loss("macro"), "num_tasks must be a whole number"),
    (lambda: L.F1Loss(3)(torch.zeros(2, 3), torch.tensor([0, 2])), r"one_hot\(targets, 3\)"),
    (lambda: L.MeansLoss(lambda u: 1.0, 2)(torch.zeros(3, 2)), "function must return a tensor"),
    (lambda: L.F1Loss()(torch.tensor([5.0]), torch.tensor([1])), "apply sigmoid"),
    (lambda: L.DiceLoss()(torch.zeros(1, 1, 2), torch.full((1, 1, 2), 255.0)), r"in \[0, 1\]"),
    (lambda: L.DiceLoss(2)(torch.zeros(3, 2, 4), torch.full((3, 4), 2)), "class numbers in 0..1"),
    (lambda: L.DiceLoss(2)(torch.zeros(3, 1, 4), torch.zeros(3, 1, 4)), r"\(B, 2, ...\)"),
    (lambda: L.DiceLoss(2)(torch.zeros(0, 2, 4), torch.zeros(0, 2, 4)), "statistics are empty"),
    (lambda: L.ParityLoss(2)(torch.zeros(2), torch.tensor([0, 2])), "groups must lie in 0..1"),
])  # fmt: skip
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_network_that_failed_is_not_told_to_apply_a_sigmoid():
    for criterion in (L.F1Loss(), L.DiceLoss()):
        bad = torch.tensor([[0.5], [torch.nan]])
        with pytest.raises(FloatingPointError, match="probabilities has entries that are NaN"):
            criterion(bad, torch.ones(2, 1))


def test_means_at_which_a_function_fails_are_shown():
    criterion = L.MeansLoss(lambda u: 1 - u[..., 0] / u[..., 1].sqrt(), 2)
    with pytest.raises(FloatingPointError, match=r"at the means \[\[1.0, 0.0\]\]: .* first batch"):
        criterion(torch.tensor([[1.0, 0.0]]))
    with pytest.raises(FloatingPointError, match=r"statistics of samples \[1\] of the batch"):
        criterion(torch.tensor([[1.0, 1.0], [torch.nan, 1.0]]))
    assert not criterion.table.visited.any()


def test_an_optimizer_takes_the_same_objective():
    import fcco

    objective = O.Means(lambda u: 1 - 2 * u[..., 0] / (u[..., 1] + u[..., 2]), 3)
    torch.manual_seed(0)
    x, y = torch.randn(64, 2), (torch.rand(64) < 0.3).float()
    model = nn.Linear(2, 1)

    def lines(rows):
        p = model(x[rows])[:, 0].sigmoid()
        return torch.stack([p * y[rows], p, y[rows]], dim=-1)

    start = objective.exact(lines(slice(None))).item()
    opt = fcco.SOX(model, objective, lr=0.05, update=fcco.updates.Adam())
    for _ in range(30):
        rows = torch.randint(64, (4,))
        opt.step(lambda rows=rows: objective.inner(lines, rows))
    assert objective.exact(lines(slice(None))).item() < start - 0.01
