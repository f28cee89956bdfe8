"""``fcco recipes`` prints programs that run."""

import pytest

from fcco.schedules import RECIPES
from fcco_lab.cli.recipes import recipes

SMALL = {"m": 4, "blocks": 2, "horizon": 7, "inner_size": 3, "mu": 1.0, "epsilon": 0.3}

# From docs/equations.md: which theorem each label is.
THEOREMS = {
    "new:1": 1,
    "thm:1": 2,
    "thm:2": 3,
    "new:2": 4,
    "thm:3": 5,
    "new:3": 6,
    "thm:4": 7,
    "thm:4+": 8,
    "thm:6": 9,
    "new:4": 10,
    "new:5": 11,
    "new:6": 12,
    "adam": 13,
}


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")


def rows(text):
    """The first word of each line -> the line's words."""
    return {words[0]: words for line in text.splitlines() if (words := line.split())}


def test_every_recipe_is_in_the_table(capsys):
    recipes(None, **SMALL)
    found = rows(capsys.readouterr().out)
    assert found.keys() >= RECIPES.keys()
    for label, theorem in THEOREMS.items():
        assert found[label][1] == str(theorem)
    assert found["new:2"][2:] == ["msvrm-v2", "normalized", "non-convex", "1"]
    # I = ceil(4 * 3 / 2) steps between snapshots, gaps 1/2 and 1/4 are two stages.
    words = "msvrm-v3 plain PL or convex, finite sums 6 2"
    assert " ".join(found["thm:6"][2:]) == words
    assert "affine" in found["new:1/linear"]
    assert "experiment)" in found["new:3/literal"]


@pytest.mark.parametrize("label", RECIPES)
def test_the_program_that_is_printed_runs_to_the_end(label, capsys):
    recipes(label, **SMALL)
    text = capsys.readouterr().out
    names = {}
    exec(text[text.index("import torch") :], names)
    driver = names["driver"]
    assert driver.finished
    assert driver.recipe.label == label
    if THEOREMS.get(label, 0) in (1, 2, 3, 4, 5, 6, 13):
        assert driver.recipe.num_steps == 7, "these take T steps, the others what they need"
    assert ("exact_pass" in text) == driver.opt.method.anchored


def test_coefficients_are_those_of_the_theorem(capsys):
    recipes("new:2", m=10, blocks=5, horizon=1_000, inner_size=1)
    found = rows(capsys.readouterr().out)
    lr, alpha, beta = 0.5 ** (1 / 3) * 0.01, 10 ** (2 / 3) * 5 ** (1 / 3) * 0.01, 0.002 ** (2 / 3)
    gamma = 5 / (5 * (1 - beta)) + 1 - beta
    expected = [f"{value:.4g}" for value in (lr, alpha, beta, gamma)]
    for t in ("1", "500", "1,000"):
        assert found[t] == [t, "1", *expected]


def test_decaying_coefficients_and_a_method_without_a_table(capsys):
    recipes("thm:2", m=8, blocks=8, horizon=2_000_001, inner_size=1)
    text = capsys.readouterr().out
    assert "T=2000001" in text
    found = rows(text)
    for t in (1, 1_000_000, 2_000_001):
        assert float(found[f"{t:,}"][2]) == pytest.approx((1 + t) ** (-1 / 3), rel=1e-3)
    recipes("new:4", **SMALL)
    assert len(rows(capsys.readouterr().out)["1"]) == 4, "no beta and gamma"


def test_an_unknown_recipe_and_impossible_sizes_are_refused():
    with pytest.raises(
        ValueError, match=r"unknown recipe 'new:2/lin' \(did you mean 'new:2/linear'"
    ):
        recipes("new:2/lin", **SMALL)
    with pytest.raises(ValueError, match=r"B1 must lie in 1..m=4, got 5"):
        recipes("new:2", **(SMALL | {"blocks": 5}))
