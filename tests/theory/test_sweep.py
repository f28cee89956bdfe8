"""Every run of a sweep is a run of its own: compared step by step."""

import math

import pytest
import torch
from torch import nn

from fcco.schedules import RECIPES, Driver
from fcco_lab.theory import PhaseNoise
from fcco_lab.theory.sweep import Sweep

M, B1, STEPS, RUNS = 8, 3, 25, 3


class Point(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.w = nn.Parameter(w.clone())

    def forward(self):
        return self.w


RUNNABLE = {
    label: RECIPES[label](m=M, B1=B1, T=STEPS, **({"n": 4} if "3" in label else {}))
    for label in (
        *("new:1", "new:1/linear", "thm:1", "thm:2", "new:2", "new:2/linear"),
        *("new:2/literal", "thm:3", "new:3", "new:3/linear", "new:3/literal"),
    )
}
# A small delta makes the first steps, uncorrected, so long that rounding grows.
RUNNABLE["adam"] = RECIPES["adam"](m=M, B1=B1, T=STEPS, delta=0.1, beta2=0.9)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", RUNNABLE)
def test_runs_of_a_sweep_are_single_runs(name):
    recipe = RUNNABLE[name]
    problem = PhaseNoise(M, phi="quadratic" if "/" in name else "log-cosh", inner_size=4)
    sweep = Sweep(problem, recipe, blocks=B1, runs=RUNS, seed=0)
    drivers = []
    for k in range(RUNS):
        model = Point(problem.start)
        initial = None if recipe.method.anchored or not recipe.method.inner else rows(sweep)[k]
        drivers.append((Driver.build(recipe, model.parameters(), problem, initial=initial), model))
    draws = []
    draw = sweep.draw

    def recorded():
        draws.append(draw())
        return draws[-1]

    sweep.draw = recorded
    everything = torch.arange(M)
    for _ in range(STEPS):
        sweep.step()
        for k, (driver, model) in enumerate(drivers):
            if driver.snapshot_due:
                chunks = [
                    lambda xi=xi, model=model: problem.inner(
                        model, (everything, xi.expand(M), xi.expand(M))
                    )
                    for xi in torch.arange(4, dtype=torch.float64) * (math.pi / 2)
                ]
                driver.opt.snapshot(chunks)
            mine = tuple(part[k] for part in draws[-1])
            driver.opt.step(lambda mine=mine, model=model: problem.inner(model, mine))
            driver.step()
            close(sweep.w[k], model.w)
            close(sweep.z[k], driver.opt.state[model.w]["z"])
            if driver.opt.table is not None:
                close(rows(sweep)[k], driver.opt.table.read(everything))


def rows(sweep):
    """u of every run: (runs, m, 1)."""
    return sweep.driver.opt.table.read(torch.arange(RUNS * M)).view(RUNS, M, 1)


def close(a, b):
    torch.testing.assert_close(a, b.detach(), rtol=1e-10, atol=1e-12)


def test_traces_measure_what_they_say():
    problem = PhaseNoise(M, phi="quadratic", isotropic=True, noise=0.0)
    recipe = RECIPES["new:4"](m=M, B1=M, mu=1.0, epsilon=0.2, epsilon_0=1.0)
    traces = Sweep(problem, recipe, blocks=M, runs=2, seed=0).run()
    # Without noise and with all blocks, this is heavy-ball descent on ||w - w*||^2 / 2.
    alpha_eta = [
        (s.coefficients(1).alpha, s.coefficients(1).lr, s.num_steps) for s in recipe.stages
    ]
    w, z = problem.start.clone(), torch.zeros(4, dtype=torch.float64)
    norms, errors, gaps, t = [], [], [], 0
    for alpha, eta, steps in alpha_eta:
        for _ in range(steps):
            t += 1
            g = w - problem.w_star
            z = g if t == 1 else (1 - alpha) * z + alpha * g
            norms.append(float(g.norm()))
            errors.append(float((z - g).norm()))
            w = w - eta * z
        gaps.append(float((w - problem.w_star).square().sum() / 2))
    assert traces.gradient.tolist() == pytest.approx([sum(norms) / t] * 2)
    assert traces.error.tolist() == pytest.approx([sum(errors) / t] * 2, abs=1e-12)
    assert traces.gaps[:, 0].tolist() == pytest.approx(gaps, abs=1e-12)


def test_a_norm_over_all_runs_is_refused():
    recipe = RECIPES["adam"](m=M, B1=B1, T=STEPS, radius=1.0)
    with pytest.raises(ValueError, match="norm over all runs"):
        Sweep(PhaseNoise(M), recipe, blocks=B1, runs=RUNS, seed=0)
