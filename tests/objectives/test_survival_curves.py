"""Survival curves from the scores of any model: Breslow's baseline hazard."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from lifelines import CoxPHFitter, NelsonAalenFitter

from fcco.objectives import Cox


def patients(ties, seed=0, count=80):
    random = np.random.default_rng(seed)
    x = random.normal(size=(count, 2))
    time = random.exponential(np.exp(-x[:, 0]))
    if ties:
        time = np.ceil(4 * time)
    return x, time, random.random(count) < 0.6


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ties", [False, True])
def test_curves_are_those_of_lifelines(ties, weighted):
    x, time, event = patients(ties)
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "time": time, "event": event})
    frame["weight"] = np.arange(1, 81) % 4 + 1.0 if weighted else 1.0
    rival = CoxPHFitter()
    rival.fit(frame, "time", "event", weights_col="weight", robust=weighted)
    scores = torch.tensor(rival.predict_log_partial_hazard(frame).to_numpy())
    weight = torch.tensor(frame["weight"].to_numpy()) if weighted else None
    times, hazard = Cox(time, event).baseline_hazard(scores, weight)
    expected = rival.baseline_cumulative_hazard_
    np.testing.assert_array_equal(times, expected.index)
    np.testing.assert_allclose(hazard, expected.iloc[:, 0], rtol=1e-9)
    curves = torch.exp(-hazard * scores[:5, None].exp())  # (5, times)
    theirs = rival.predict_survival_function(frame.iloc[:5], times=times.numpy()).to_numpy().T
    np.testing.assert_allclose(curves, theirs, rtol=1e-9)


def test_equal_scores_give_nelson_and_aalen():
    _, time, event = patients(ties=True)
    times, hazard = Cox(time, event).baseline_hazard(torch.zeros(80, 1))
    # lifelines smooths ties by default, Breslow does not.
    rival = NelsonAalenFitter(nelson_aalen_smoothing=False).fit(time, event)
    expected = rival.cumulative_hazard_.loc[times.numpy()].iloc[:, 0]
    np.testing.assert_allclose(hazard, expected, rtol=1e-12)


def test_scores_that_lie_far_apart():
    objective = Cox(torch.tensor([1.0, 2.0]), torch.tensor([1, 1]))
    _, hazard = objective.baseline_hazard(torch.tensor([600.0, -500.0]))
    expected = [math.exp(-600), math.exp(-600) + math.exp(500)]
    assert hazard.tolist() == pytest.approx(expected, rel=1e-12)
    _, hazard = objective.baseline_hazard(torch.tensor([600.0, -500.0]), torch.tensor([1.0, 0.0]))
    assert hazard.tolist() == pytest.approx(2 * [math.exp(-600)], rel=1e-12)


def test_whole_times_stay_whole():
    times, hazard = Cox([3, 1, 1], [1, 1, 0]).baseline_hazard(torch.zeros(3, requires_grad=True))
    assert times.tolist() == [1, 3]
    assert times.dtype == torch.int64
    torch.testing.assert_close(hazard, torch.tensor([1 / 3, 4 / 3], dtype=torch.float64))
    assert not hazard.requires_grad


def test_whole_times_have_the_curve_of_the_same_times_as_floats():
    """Also at times that are no int64, and between the last whole times."""
    at = torch.tensor([-math.inf, -1e30, 0.5, 2.5, 9.0, 1e30, math.inf], dtype=torch.float64)
    for given in (at, at.float(), at.tolist()):
        found = Cox([1, 2, 3], [1, 1, 1]).baseline_hazard(torch.zeros(3), at=given)[1]
        assert found.tolist() == pytest.approx([0, 0, 0, 1 / 3 + 1 / 2] + 3 * [11 / 6])
    last = 2**63 - 1
    found = Cox([1, last - 1, last], [1, 1, 1]).baseline_hazard(
        torch.zeros(3), at=torch.tensor([last - 2, last - 1, last])
    )
    assert found[1].tolist() == pytest.approx([1 / 3, 1 / 3 + 1 / 2, 11 / 6])
    assert Cox([1, last], [1, 1]).baseline_hazard(torch.zeros(2), at=[2.0**63])[1] == 1.5
    for times in ([1, 2], [1.0, 2.0]):
        with pytest.raises(ValueError, match="at must be numbers, got nan at 1"):
            Cox(times, [1, 1]).baseline_hazard(torch.zeros(2), at=[1.0, math.nan])


@pytest.mark.parametrize("ties", [False, True])
def test_hazards_at_chosen_times_are_those_of_lifelines(ties):
    _, time, event = patients(ties)
    rival = NelsonAalenFitter(nelson_aalen_smoothing=False).fit(time, event)
    at = np.concatenate([[0.0, 1e9], time[:5], np.linspace(0, time.max(), 9)])
    for given in (time, time.astype(np.int64)) if ties else (time,):
        found, hazard = Cox(given, event).baseline_hazard(torch.zeros(80), at=at)
        np.testing.assert_array_equal(found, at)
        np.testing.assert_allclose(hazard, rival.predict(at).to_numpy(), rtol=1e-12)
