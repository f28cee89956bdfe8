"""Performance profiles against an example worked out by hand."""

import math

import pytest
from cli.report_runs import run

from fcco_lab.presentation.profiles import costs, profile, profiles_of

# Best values: a 0.1, b 0.2, c 0.4, so the target is b's 0.2; a meets it at 20, b at 40.
EASY = {
    "a": ([0, 10, 20, 40], [1.0, 0.5, 0.15, 0.1]),
    "b": ([0, 20, 40, 80], [1.0, 0.6, 0.2, 0.3]),
    "c": ([0, 30, 60, 90], [1.0, 0.8, 0.6, 0.4]),
}
# Best values: a 0.5, b 0.6, c 0.5, so the target is 0.5; a meets it at 90, c at 30.
HARD = {
    "a": ([0, 30, 60, 90], [2.0, 1.5, 0.9, 0.5]),
    "b": ([0, 30, 60, 90], [2.0, 1.5, 0.9, 0.6]),
    "c": ([0, 30, 60, 90], [2.0, 0.5, 0.7, 0.8]),
}
PAID = {
    "a": {"easy": 20.0, "hard": 90.0},
    "b": {"easy": 40.0, "hard": math.inf},
    "c": {"easy": math.inf, "hard": 30.0},
}


def test_costs_by_hand():
    assert costs({"easy": EASY, "hard": HARD}, lower_is_better=True) == PAID


def test_costs_where_more_is_better_are_those_of_the_negative():
    curves = {
        problem: {name: (x, [-y for y in values]) for name, (x, values) in by.items()}
        for problem, by in (("easy", EASY), ("hard", HARD))
    }
    assert costs(curves, lower_is_better=False) == PAID


def test_profile_by_hand():
    taus = [1.0, 2.0, 3.0, 10.0]  # b is 2 times the best on easy, a 3 times on hard
    assert profile(PAID) == {
        "a": (taus, [0.5, 0.5, 1.0, 1.0]),
        "b": (taus, [0.0, 0.5, 0.5, 0.5]),
        "c": (taus, [0.5, 0.5, 0.5, 0.5]),
    }
    assert profile(PAID, largest=2.5)["a"] == ([1.0, 2.0, 2.5], [0.5, 0.5, 0.5])


def test_of_two_in_the_middle_the_worse_is_the_target():
    curves = {"p": {"a": ([0, 5], [1.0, 0.1]), "b": ([0, 7], [1.0, 0.4])}}
    assert costs(curves, lower_is_better=True) == {"a": {"p": 5.0}, "b": {"p": 7.0}}


def test_empty_curves_and_not_a_number_never_meet_a_target():
    lost = ([0, 1], [math.nan, math.nan])
    curves = {"p": {"a": ([0, 5], [1.0, 0.1]), "b": ([], []), "c": ([0, 9], [1.0, 0.2]), "d": lost}}
    paid = costs(curves, lower_is_better=True)
    assert paid["b"]["p"] == paid["d"]["p"] == math.inf
    nobody = costs({"p": {"a": ([], []), "b": ([], [])}}, lower_is_better=True)
    assert profile(nobody) == {"a": ([1.0, 10.0], [0.0, 0.0]), "b": ([1.0, 10.0], [0.0, 0.0])}


def test_a_target_met_for_nothing():
    paid = {"a": {"p": 0.0}, "b": {"p": 10.0}}
    assert profile(paid) == {"a": ([1.0, 10.0], [1.0, 1.0]), "b": ([1.0, 10.0], [0.0, 0.0])}


def test_problems_must_have_the_same_contenders():
    fewer = {name: HARD[name] for name in ("a", "b")}
    with pytest.raises(ValueError, match="'hard' has different contenders"):
        costs({"easy": EASY, "hard": fewer}, lower_is_better=True)


def test_profiles_need_two_data_sets_and_two_shared_contenders():
    usps = {"SOX": [run()], "v1": [run(method="msvrm-v1", values=(1.0, 0.3, 0.2), cost=4)]}
    mnist = {"SOX": [run("mnist")], "v1": [run("mnist", "msvrm-v1", values=(1.0, 0.9, 0.8))]}
    mnist["SOAP"] = [run("mnist", "soap")]
    assert profiles_of({"usps": usps}, "queries") == {}
    assert profiles_of({"usps": usps, "mnist": {"SOX": mnist["SOX"]}}, "queries") == {}
    # usps: target 0.25, SOX 1920 * 2 queries, v1 0.2 at 3200 * 2; mnist: target 0.8, SOX 1920 at
    # its first look, v1 3840.
    taus = [1.0, pytest.approx(5 / 3, abs=1e-5), 2.0, 10.0]
    expected = {"SOX": (taus, [1.0] * 4), "v1": (taus, [0.0, 0.5, 1.0, 1.0])}
    assert profiles_of({"usps": usps, "mnist": mnist}, "queries") == expected
