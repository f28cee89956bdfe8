"""The loop of early stopping, beside a plain search through all that was seen."""

from math import inf
from operator import ge, gt

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fcco.schedules.stopping import keep_best


def run(metrics, every, patience, better):
    """Steps that set the weight to their number; the metric of a look is told."""
    network = torch.nn.Linear(1, 1, bias=False)

    def steps():
        for number in range(1, len(metrics) + 1):
            torch.nn.init.constant_(network.weight, number)
            yield number

    found = keep_best(
        network,
        steps(),
        len(metrics),
        every=every,
        metric=lambda: metrics[int(network.weight) - 1],
        patience=patience,
        better=better,
    )
    return list(found), int(network.weight)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=12),
    st.integers(1, 5),
    st.sampled_from([1, 2, 3, inf]),
    st.sampled_from([ge, gt]),
)
def test_keep_best(metrics, every, patience, better):
    found, kept = run(metrics, every, patience, better)
    at = [n for n in range(1, len(metrics) + 1) if n % every == 0 or n == len(metrics)]
    values = [metrics[n - 1] for n in at]
    # The first look that closes a stretch of ``patience`` without one above all before it.
    rises = [k for k in range(len(at)) if all(values[k] > value for value in values[:k])]
    ends = [k for k in range(len(at)) if k - max(r for r in rises if r <= k) >= patience]
    at, values = at[: ends[0] + 1 if ends else None], values[: ends[0] + 1 if ends else None]
    assert [value for _, value in found] == values
    assert [n for seen, _ in found for n in seen] == list(range(1, at[-1] + 1))
    best = [n for n, value in zip(at, values, strict=True) if value == max(values)]
    assert kept == (best[-1] if better is ge else best[0])


@pytest.mark.parametrize("metric", [None, lambda: float("nan")])
def test_without_a_metric_the_last_weights_stay(metric):
    network = torch.nn.Linear(1, 1)
    values = (torch.nn.init.constant_(network.weight, k).item() for k in range(5))
    found = list(keep_best(network, values, 5, every=2, metric=metric))
    assert [seen for seen, _ in found] == [[0, 1], [2, 3], [4]]
    assert network.weight.item() == 4
