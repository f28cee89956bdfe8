"""Values and gradients against numbers of 60 digits, whatever the scores are and were before.

Scores are tied, far apart, far from 0, tiny, in clusters, or at the limits where a criterion
changes from sums of exponentials to logarithms. A criterion sees them in batches, after other
scores that may have been larger by orders of magnitude, and ends with F of the last ones.
"""

import contextlib
import math

import mpmath
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from mpmath import mpf

from fcco import losses as L
from fcco import objectives as O

N = 7


def mean(numbers):
    numbers = list(numbers)
    return mpmath.fsum(numbers) / len(numbers)


def log_mean_exp(exponents):
    return mpmath.log(mean(mpmath.exp(x) for x in exponents))


def hinge(s):
    return max(1 + s, mpf(0)) ** 2


def sigmoid(s):
    return 1 / (1 + mpmath.exp(-s))


def exp_then_linear(x):
    return mpmath.exp(x) if x <= 20 else mpmath.exp(20) * (x - 19)


def cox(ties):
    def value(h, times, events):
        costs = []
        for time in sorted(set(times)):
            dead = [i for i, t in enumerate(times) if t == time and events[i]]
            risk = mpmath.fsum(mpmath.exp(x) for x, t in zip(h, times, strict=True) if t >= time)
            tied = mpmath.fsum(mpmath.exp(h[i]) for i in dead)
            for place, i in enumerate(dead):
                part = mpf(place) / len(dead) if ties == "efron" else mpf(0)
                costs.append(mpmath.log(risk - part * tied) - h[i])
        return mean(costs)

    return value


def by_class(of_both):
    def value(h, labels):
        sides = ([x for x, y in zip(h, labels, strict=True) if y == kind] for kind in (1, 0))
        return of_both(*sides)

    return value


def auc(p, n):
    pairs = mean(mpmath.exp((b - a) / mpf(0.5)) for a in p for b in n)
    return mpf(0.5) * mpmath.log1p(pairs)


def precision(p, n):
    def rank(i, others):
        return 1 + mpmath.fsum(sigmoid(x - p[i]) for x in others)

    others = [p[:i] + p[i + 1 :] for i in range(len(p))]
    return -mean(rank(i, others[i]) / rank(i, others[i] + n) for i in range(len(p)))


def partial_auc(p, n):
    return mean(mpf(0.2) * log_mean_exp([hinge(b - a) / mpf(0.2) for b in n]) for a in p)


def two_way(p, n):
    logs = (log_mean_exp([hinge(b - a) for b in n]) for a in p)
    return mean(exp_then_linear(x / 2) for x in logs)


def push(p, n):
    return mean(mean(mpmath.log(1 + mpmath.exp(b - a), 2) for a in p) ** 3 for b in n)


def lists(h, grades):
    """Two lists, of four and three items."""
    return (h[:4], grades[:4]), (h[4:], grades[4:])


def ndcg(h, grades):
    values = []
    for scores, y in lists(h, grades):
        gains = [mpf(2) ** grade - 1 for grade in y]
        ideal = mpmath.fsum(
            gain / mpmath.log(2 + i, 2) for i, gain in enumerate(sorted(gains, reverse=True))
        )
        if ideal == 0:
            continue
        ranks = [
            1 + mpmath.fsum(hinge(x - own) for j, x in enumerate(scores) if j != i)
            for i, own in enumerate(scores)
        ]
        found = mpmath.fsum(g / mpmath.log(1 + r, 2) for g, r in zip(gains, ranks, strict=True))
        values.append(-found / ideal)
    return mean(values)


def list_net(h, grades):
    costs = []
    for scores, y in lists(h, grades):
        total = mpmath.fsum(mpmath.exp(mpf(grade)) for grade in y)
        log_sum = mpmath.log(mpmath.fsum(mpmath.exp(x) for x in scores))
        parts = zip(scores, y, strict=True)
        costs.append(
            mpmath.fsum(mpmath.exp(mpf(grade)) / total * (log_sum - x) for x, grade in parts)
        )
    return mean(costs)


def dro(h):
    return mpf(0.3) * log_mean_exp([x / mpf(0.3) for x in h])


LABELS = st.permutations([1, 0, 1, 0]).flatmap(
    lambda four: st.lists(st.sampled_from([0, 1]), min_size=3, max_size=3).map(four.__add__)
)
TIMES = st.lists(st.integers(0, 4), min_size=N, max_size=N)
EVENTS = st.lists(st.booleans(), min_size=N - 1, max_size=N - 1).map(lambda e: [True, *e])
GRADES = st.lists(st.integers(0, 3), min_size=N - 1, max_size=N - 1).map(lambda g: [2, *g])
LENGTHS = torch.tensor([4, 3])
CASES = {
    "cox efron": (O.Cox, cox("efron"), (TIMES, EVENTS)),
    "cox breslow": (lambda t, e: O.Cox(t, e, ties="breslow"), cox("breslow"), (TIMES, EVENTS)),
    "auc": (lambda y: O.AUC(y, temperature=0.5), by_class(auc), (LABELS,)),
    "average precision": (O.AveragePrecision, by_class(precision), (LABELS,)),
    "partial auc": (
        lambda y: O.PartialAUC(y, temperature=0.2), by_class(partial_auc), (LABELS,)
    ),
    "two-way": (
        lambda y: O.PartialAUC(y, temperature=1.0, two_way=2.0), by_class(two_way), (LABELS,)
    ),
    "push": (lambda y: O.PNormPush(y, power=3.0), by_class(push), (LABELS,)),
    "ndcg": (lambda g: O.NDCG(g, LENGTHS), ndcg, (GRADES,)),
    "listnet": (lambda g: O.ListNet(g, LENGTHS), list_net, (GRADES,)),
    "dro": (lambda: O.DRO(N, temperature=0.3), dro, ()),
}  # fmt: skip
UNITS = {"cox efron": 1.0, "cox breslow": 1.0, "average precision": 1.0, "dro": 1.0}
"""The size of what a value is a difference of; without one, small values keep all their digits."""

NORMAL = st.floats(-3, 3, width=32)
LIMITS = [0.0, 12.0, 300.0, -300.0, 345.0, -345.0, -400.0, 700.0, -700.0, -745.0]
NEAR_LIMITS = st.builds(float.__add__, st.sampled_from(LIMITS), NORMAL)
WIDE = st.builds(lambda x, size: x * 10.0**size, NORMAL, st.integers(-30, 3))
SCORES = st.one_of(
    st.lists(NORMAL, min_size=N, max_size=N),
    st.lists(st.sampled_from([-1.0, 0.0, 0.1]), min_size=N, max_size=N),  # ties
    st.lists(WIDE, min_size=N, max_size=N),
    st.lists(NEAR_LIMITS, min_size=N, max_size=N),
    st.tuples(st.sampled_from([1e4, -1e4]), st.lists(NORMAL, min_size=N, max_size=N)).map(
        lambda made: [made[0] + x for x in made[1]]
    ),
)


def truth(value, h, labels):
    """F and its gradient, by central differences, to 30 digits and more."""
    with mpmath.workdps(100):
        h = [mpf(x) for x in h]
        step, slopes = mpf(10) ** -35, []
        for i in range(N):
            ends = (value([*h[:i], h[i] + s, *h[i + 1 :]], *labels) for s in (step, -step))
            up, down = ends
            slopes.append(float((up - down) / (2 * step)))
        return float(value(h, *labels)), slopes


def size_of(name, expected, slopes, h):
    """A score is known up to its own rounding, which a value multiplies by its slope."""
    moved = sum(abs(s * x) for s, x in zip(slopes, h, strict=True))
    return max(abs(expected) + moved + UNITS.get(name, 0.0), 1e-280)


def check_case(name, data):
    build, value, drawn = CASES[name]
    labels = [data.draw(strategy) for strategy in drawn]
    objective = build(*labels)
    h, before = data.draw(SCORES, label="scores"), data.draw(SCORES, label="scores before")
    expected, slopes = truth(value, h, labels)
    if not all(math.isfinite(x) and abs(x) < 1e150 for x in (expected, *slopes)):
        return  # float64 does not hold it, and an error says so
    size = size_of(name, expected, slopes, h)
    steepest = max(map(abs, slopes)) * max(1, *map(abs, h)) + UNITS.get(name, 0.0)
    # exact, in float64
    leaf = torch.tensor(h, dtype=torch.float64, requires_grad=True)
    for weight in (None, torch.ones(N)):
        found = objective.exact(leaf, weight)
        (gradient,) = torch.autograd.grad(found, leaf)
        assert abs(found.item() - expected) <= 1e-13 * size
        assert gradient.tolist() == pytest.approx(slopes, rel=1e-11, abs=1e-12 * steepest)
    # Without a gradient, sums over pairs are exact up to the rounding of 1.
    assert abs(objective.exact(leaf.detach()).item() - expected) <= 1e-13 * (size + 1)
    # a loss that saw other scores before, with its running sums
    criterion = L.ScoreLoss(objective).double()
    with contextlib.suppress(FloatingPointError):  # too large, and not remembered
        criterion(torch.tensor(before, dtype=torch.float64), torch.arange(N))
    order = torch.tensor(data.draw(st.permutations(range(N)), label="order"))
    for index in order.split(data.draw(st.integers(1, N), label="batch size")):
        fresh = leaf.detach()[index].requires_grad_()
        try:
            loss = criterion(fresh, index)
        except FloatingPointError:
            return  # a mixture of both was too large
    assert abs(loss.item() - expected) <= 1e-9 * size
    (gradient,) = torch.autograd.grad(loss, fresh)
    mine = [N / len(index) * slopes[i] for i in index.tolist()]
    assert gradient.tolist() == pytest.approx(mine, rel=1e-8, abs=1e-9 * N * steepest)


def check_single_precision(name, data):
    """float32 scores are exact numbers: only the result is rounded."""
    build, value, drawn = CASES[name]
    labels = [data.draw(strategy) for strategy in drawn]
    h = torch.tensor(data.draw(SCORES), dtype=torch.float32)
    expected, slopes = truth(value, h.tolist(), labels)
    if not all(abs(x) < 1e30 for x in (expected, *slopes)):
        return
    found = build(*labels).exact(h)
    assert found.dtype == torch.float32
    assert abs(found.item() - expected) <= 2.0**-23 * abs(expected) + 1e-13 * size_of(
        name, expected, slopes, h.tolist()
    )


def check_many_events(ties, seed):
    """So many that products of their risks would leave the range of numbers, or come near it."""
    random = torch.Generator().manual_seed(seed)
    low = -460 + 220 * torch.rand(3, generator=random, dtype=torch.float64)
    high = 20 * torch.rand(1, generator=random, dtype=torch.float64)
    count = int(torch.randint(14, 40, (), generator=random))
    scores = torch.cat([low, high.expand(count)])
    times, events = torch.arange(len(scores), 0, -1), torch.ones(len(scores)).bool()
    with mpmath.workdps(60):
        h = [mpf(x) for x in scores.tolist()]
        expected = float(cox(ties)(h, times.tolist(), events.tolist()))
    criterion = L.CoxLoss(times, events, ties=ties).double()
    for loss in (criterion(scores, torch.arange(len(h))), criterion.exact(scores)):
        assert loss.item() == pytest.approx(expected, rel=1e-12, abs=1e-12)


def sweep(check, name, examples):
    options = {
        "deadline": None,
        "derandomize": True,
        "suppress_health_check": list(HealthCheck),
        "phases": [Phase.generate],  # to shrink an example of many digits takes minutes
    }

    @settings(max_examples=examples, **options)
    @given(st.data())
    def each(data):
        check(name, data)

    each()


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name):
    sweep(check_case, name, 8)


@pytest.mark.parametrize("name", CASES)
def test_single_precision(name):
    sweep(check_single_precision, name, 6)


@pytest.mark.parametrize("seeds", [range(150), pytest.param(range(3000), marks=pytest.mark.slow)])
@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_many_events(ties, seeds):
    for seed in seeds:
        check_many_events(ties, seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_many_values_and_gradients(name):
    sweep(check_case, name, 400)
    sweep(check_single_precision, name, 200)
