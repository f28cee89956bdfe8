"""The study of the gain: runs in one stacked program are the runs of the optimizers."""

from dataclasses import replace

import pytest
import torch

import fcco
from fcco.data import AnchorData, block_loader
from fcco.updates import Adam
from fcco_lab.studies import tracking
from fcco_lab.studies.gain import GAINS, SEEDS, run_gain
from fcco_lab.studies.stacked import Stack, Variant
from fcco_lab.studies.summaries import summary
from fcco_lab.studies.workloads import WORKLOADS, flat_digits

STEPS, SAMPLES = 12, 4


@pytest.fixture
def problem():
    """NCA in float64: Adam's rule makes a sign of a gradient that is rounding alone."""
    base, (train, _) = WORKLOADS["nca"](), flat_digits()
    torch.set_default_dtype(torch.float64)
    yield replace(
        base,
        train=AnchorData.neighbours(train.inputs.double(), train.classes),
        make_model=lambda seed: base.make_model(seed).double(),
    )
    torch.set_default_dtype(torch.float32)


def alone(problem, seed, beta, lr):
    """One run by the library's own optimizer: its parameters at the end."""
    model, objective = problem.make_model(seed), problem.objective
    opt = fcco.SOX(
        model, objective, lr=lr, alpha=0.5, beta=beta, updated_slopes=True, update=Adam()
    )
    batches = block_loader(
        problem.train,
        objective,
        blocks_per_step=problem.blocks,
        samples_per_block=SAMPLES,
        num_steps=STEPS,
        seed=seed,
    )
    for step, batch in enumerate(batches):
        opt.param_groups[0]["lr"] = lr * (1 - step / STEPS)
        opt.step(lambda: objective.inner(model, batch))  # noqa: B023
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach()


def test_stacked_runs_are_those_of_the_optimizers(problem):
    variants = [Variant(0.2, 0.003), Variant("auto", 0.003), Variant(("scent", 0.0), 0.001)]
    stack = Stack(problem, SAMPLES, STEPS, (3, 4), variants)
    stack.run()
    for i, j, model in stack.models():
        found = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
        start = torch.nn.utils.parameters_to_vector(problem.make_model((3, 4)[i]).parameters())
        expected = alone(problem, (3, 4)[i], variants[j].beta, variants[j].lr)
        moved = (expected - start.detach()).norm()
        assert moved > 0
        assert (found - expected).norm() < 1e-9 * moved


def test_a_case_tunes_every_gain_and_runs_all_seeds():
    record = run_gain(workload="nca", samples=4, steps=2)
    assert set(record["objectives"]) == set(record["lr"]) == set(GAINS)
    assert all(len(values) == len(SEEDS) for values in record["objectives"].values())
    assert record["gain"][0] == 0.5


def made_up(name, rival, auto):
    """A record in which 0.2 was the best rival in tuning, and 0.9 would have been in the end."""
    objectives = {gain: [9.0, 9.1, 9.2, 9.3, 9.4] for gain in GAINS}
    objectives |= {"0.2": rival, "auto": auto, "0.9": [0.0] * 5}
    tuning = dict.fromkeys(GAINS, 5.0) | {"0.2": 1.0, "auto": 0.5}
    options = {"workload": name, "samples": 4, "steps": 400}
    return {"name": f"{name} 4", **options, "tuning": tuning, "objectives": objectives}


def test_auto_is_compared_with_the_rival_that_tuning_chose():
    rival = [1.0, 1.2, 1.1, 1.3, 1.25]
    better = made_up("a", rival, [x - 0.5 - 0.001 * k for k, x in enumerate(rival)])
    worse = made_up("b", rival, [x + 0.5 + 0.001 * k for k, x in enumerate(rival)])
    equal = made_up("c", rival, [1.2, 1.0, 1.3, 1.1, 1.26])
    rows = summary("gain", [better, worse, equal])[1:]
    assert ["0.2" in row for row in rows] == [True] * 3
    assert [row[-1] for row in rows] == ["better", "worse", "equal"]


def test_tracking_compares_the_chosen_gain_with_all_fixed_ones(monkeypatch):
    monkeypatch.setattr(tracking, "STEPS", 40)
    monkeypatch.setattr(tracking, "SEEDS", 1)
    cases = list(tracking.tracking_cases())
    assert len(cases) == 48
    record = tracking.run_tracking(**cases[0].options)
    errors = record["errors"]
    assert list(errors) == ["auto", *map(str, tracking.BETAS)]
    assert min(errors.values()) > 0
    (_, mean, worst), *_ = summary("tracking", [record])[1:]
    best = min(error for beta, error in errors.items() if beta != "auto")
    assert float(mean) == pytest.approx(errors["auto"] / best, abs=0.006)
    assert float(worst) == pytest.approx(errors["auto"] / best, rel=0.01)
