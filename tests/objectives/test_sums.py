"""Sums of surrogates over all pairs without forming all pairs, against plain loops."""

import math

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fcco import objectives as O
from fcco.data import exact_value
from fcco.objectives.cumulative import suffix_sums

GENERATOR = torch.Generator().manual_seed(11)


def normal(*size):
    return torch.randn(size, generator=GENERATOR, dtype=torch.float64)


class Cubic(O.Surrogate):
    """A user's own, for which nobody wrote ``sums``."""

    def __call__(self, s):
        return (2 + s).clamp(min=0) ** 3


def softplus(s):
    return max(s, 0.0) + math.log1p(math.exp(-abs(s)))


def logistic(s):
    return 1 / (1 + math.exp(-s)) if s > -700 else 0.0


SURROGATES = {
    "hinge": (O.SquaredHinge(), lambda s: max(1 + s, 0) ** 2),
    "narrow hinge": (O.SquaredHinge(0.01), lambda s: max(0.01 + s, 0) ** 2),
    "square": (O.Squared(0.5), lambda s: (0.5 + s) ** 2),
    "logistic": (O.Logistic(), lambda s: softplus(s) / math.log(2)),
    "sigmoid": (O.Sigmoid(), logistic),
    "steep sigmoid": (O.Sigmoid(0.003), lambda s: logistic(s / 0.003)),
    "flat sigmoid": (O.Sigmoid(50.0), lambda s: logistic(s / 50)),
    "exponential": (
        O.Exponential(2.0),
        lambda s: math.exp(s) if s <= 2 else math.exp(2) * (1 + s - 2),
    ),
    "own": (Cubic(), lambda s: max(2 + s, 0) ** 3),
}
SCORES = {
    "normal": (normal(300), normal(200)),
    "ties": (normal(300).round(), normal(200).round()),
    "whole": ((100 * normal(300)).round(), (100 * normal(200)).round()),
    "wide": (100 * normal(300), 100 * normal(200)),
    "one cell": (normal(300), 0.01 * normal(200)),
    "clusters": (normal(300) + 90 * (normal(300) > 0), normal(200) - 90 * (normal(200) > 0)),
    "single": (normal(1), normal(1)),
}


@pytest.mark.parametrize("scores", SCORES)
@pytest.mark.parametrize("name", SURROGATES)
def test_sums_over_pairs(name, scores):
    surrogate, truth = SURROGATES[name]
    partners, anchors = SCORES[scores]
    expected = [math.fsum(truth(p - a) for p in partners.tolist()) for a in anchors.tolist()]
    found = surrogate.sums(partners, anchors)
    torch.testing.assert_close(
        found, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-14
    )


def test_sums_of_hinges_do_not_cancel():
    """Whole numbers of 1e7 with differences of 1: integer arithmetic is the truth."""
    partners = [10**7 + k * k % 97 for k in range(500)] + [-(10**7), 0]
    anchors = [10**7 + k for k in range(0, 99, 7)]
    expected = [sum(max(1 + p - a, 0) ** 2 for p in partners) for a in anchors]
    found = O.SquaredHinge().sums(torch.tensor(partners), torch.tensor(anchors))
    assert found.tolist() == expected


@pytest.mark.parametrize("count", [1, 1023, 1024, 1025, 4096, 5000])
def test_suffix_sums_at_the_edges_of_their_blocks(count):
    """One start at a time, or all of them together, which is another way to the same sums."""
    x = torch.rand(count, generator=GENERATOR, dtype=torch.float64)
    edges = {0, 1, 1023, 1024, 1025, 2048, 4095, 4096, count - 1, count}
    starts = sorted(start for start in edges if start <= count)
    expected = [math.fsum(x[start:].tolist()) for start in starts]
    single = [suffix_sums(x, torch.tensor([start])).item() for start in starts]
    assert single == pytest.approx(expected, rel=1e-12, abs=0)
    together = suffix_sums(x, torch.tensor(starts)).tolist()
    assert together == pytest.approx(expected, rel=1e-12, abs=0)


# Cost -------------------------------------------------------------------------------------------


class Largest(TorchDispatchMode):
    """The largest tensor that any operation returns."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self.numel = max(self.numel, leaf.numel())
        return result


@pytest.mark.parametrize("surrogate", [O.SquaredHinge(), O.Squared(), O.Exponential()])
def test_sorting_forms_no_pairs(surrogate):
    n = 3000
    x, objective = (
        torch.arange(n)[:, None] % 101.0,
        O.AveragePrecision(torch.arange(n) % 2, surrogate=surrogate),
    )
    with Largest() as largest:
        exact_value(nn.Linear(1, 1), x, objective)
    assert largest.numel <= 2 * n


def test_interpolation_sees_few_points():
    """500 anchors in a few cells cost as much as the nodes of these cells."""
    seen = []

    class Counted(O.Sigmoid):
        pass

    original = torch.sigmoid
    try:
        torch.sigmoid = lambda s: (seen.append(s.numel()), original(s))[1]
        Counted().sums(normal(1000), normal(500).clamp(-2, 1.9))
    finally:
        torch.sigmoid = original
    assert 0 < sum(seen) <= 2 * 24 * 1000
