"""``fcco study``: the cases run, are kept, and are summed up right."""

import math

import pytest
import torch
from typer.testing import CliRunner

from fcco.kernel.safeguard import ChangeBound
from fcco.methods import MSVRM_V2
from fcco.problems import PhaseNoise
from fcco.schedules import Driver, Recipe
from fcco.schedules.formulas import constant
from fcco.updates import Plain
from fcco_lab.cli.app import app
from fcco_lab.rates.sweep import Sweep
from fcco_lab.studies.case import Case
from fcco_lab.studies.catalogue import STUDIES, run_case, run_gamma, run_stability
from fcco_lab.studies.summaries import summary


def test_gamma_by_age_is_between_the_extremes_where_they_are_bad():
    """Large steps: the theory's gamma is far worse than the age's, as READING found."""
    errors = run_gamma(version=1, m=100, lr=0.3, alpha=0.3, beta=0.1, runs=4)
    assert errors["age"] < errors["theory"] / 2


def test_safeguard_rescues_a_collapse():
    setting = {"method": "v2", "rule": "adam", "alpha": 0.03, "lr": 0.3, "runs": 4}
    bare, guarded = (run_stability(**setting, guard=guard)["gradient"] for guard in (False, True))
    assert guarded < bare


def test_network_case_and_names_are_unique():
    case = next(c for c in STUDIES["network"]() if c.options["method"] == "v1")
    record = run_case(Case("network", case.name, case.options | {"steps": 3}))
    assert 0 < record["objective"] < 1
    for cases in STUDIES.values():
        names = [case.name for case in cases()]
        assert len(names) == len(set(names))


def test_summary_counts_and_marks():
    records = [
        {"theory": 4.0, "storm": 2.0, "age": 1.0, "average": 2.0},
        {"theory": 1.0, "storm": 2.0, "age": 1.0, "average": math.inf},
    ]
    rows = {row[0]: row[1:] for row in summary("gamma", records)[1:]}
    assert rows["age"] == ("2/2", "1.00", "1")
    assert rows["theory"] == ("1/2", "2.00", "4")
    assert rows["average"][2] == "inf"
    cases = [
        {"method": "v2", "rule": "adam", "alpha": 0.1, "guard": g, "gradient": x}
        for g, x in ((False, 5.0), (False, 0.2), (True, 0.3))
    ]
    (row,) = summary("stability", cases)[1:]
    assert row == ("v2", "adam", "0.1", "5*  0.2", "0.3")


def test_sweep_with_the_safeguard_is_the_optimizer():
    problem = PhaseNoise(8, inner_size=4)
    stage = constant(15, lr=1.0, alpha=0.2, beta=0.4, gamma="theory")
    recipe = Recipe("guarded", MSVRM_V2, Plain(), (stage,))
    guard = ChangeBound(ratio=0.5)
    sweep = Sweep(problem, recipe, blocks=3, runs=1, seed=0, safeguard=guard)
    model = torch.nn.ParameterList([problem.start.clone()])
    driver = Driver.build(
        recipe, model.parameters(), problem, initial=sweep.u[0].clone().unsqueeze(1)
    )
    driver.opt.safeguard = guard
    draw, seen = sweep.draw, []
    sweep.draw = lambda: seen.append(draw()) or seen[-1]
    for t in range(1, 16):
        sweep.advance(recipe.coefficients(t))
        mine = tuple(part[0] for part in seen[-1])
        driver.opt.step(lambda: problem.inner(lambda: model[0], mine))  # noqa: B023
        torch.testing.assert_close(sweep.w[0], model[0].detach(), rtol=1e-9, atol=1e-10)


def test_command(tmp_path, monkeypatch):
    case = STUDIES["gamma"]()[0]
    small = Case("gamma", case.name, case.options | {"runs": 2})
    monkeypatch.setitem(STUDIES, "gamma", lambda: [small])
    result = CliRunner().invoke(
        app, ["study", "gamma", "--output", str(tmp_path), "--workers", "1"]
    )
    assert result.exit_code == 0, result.output
    assert "worst" in result.output
    assert case.name in (tmp_path / "gamma.jsonl").read_text()
    unknown = CliRunner().invoke(app, ["study", "delta"])
    assert unknown.exit_code != 0
    assert "there are: gamma, stability, network" in str(unknown.exception)


@pytest.mark.parametrize("study", STUDIES)
def test_cases_are_of_their_study(study):
    assert {case.study for case in STUDIES[study]()} == {study}
