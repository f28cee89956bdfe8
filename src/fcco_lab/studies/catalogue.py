"""The studies: gamma, stability of versions 2 and 3, small batches, the gain, alternatives."""

import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from fcco.data import block_loader, exact_pass, exact_value, load_digits
from fcco.kernel.safeguard import ChangeBound
from fcco.methods import MSVRM_V1, MSVRM_V2, MSVRM_V3
from fcco.objectives import MultiTaskAUC
from fcco.optim import by_name
from fcco.problems import PhaseNoise
from fcco.schedules import Recipe
from fcco.schedules.formulas import constant
from fcco.updates import Adam, Normalized, Plain
from fcco_lab.rates.sweep import Sweep
from fcco_lab.studies.batches import batch_cases, run_batches
from fcco_lab.studies.case import Case
from fcco_lab.studies.gain import gain_cases, run_gain
from fcco_lab.studies.rivals import rival_cases, run_rivals
from fcco_lab.studies.tracking import run_tracking, tracking_cases
from fcco_lab.studies.workloads import make_mlp

__all__ = ["STUDIES", "run_case"]

STEPS, RUNS = 600, 32

VERSIONS = {"v1": MSVRM_V1, "v2": MSVRM_V2, "v3": MSVRM_V3}
"""By their names in records."""


def gamma_cases() -> Iterator[Case]:
    """Versions 1 and 2 over step sizes, m/B1, alpha and beta."""
    for version, m, lr, alpha, beta in itertools.product(
        (1, 2), (20, 100), (0.003, 0.03, 0.3), (0.05, 0.3), (0.1, 0.5)
    ):
        name = f"v{version} m/B1={m // 4} lr={lr} alpha={alpha} beta={beta}"
        options = {"version": version, "m": m, "lr": lr, "alpha": alpha, "beta": beta}
        yield Case("gamma", name, options)


def run_gamma(
    *, version: int, m: int, lr: float, alpha: float, beta: float, runs: int = RUNS
) -> dict[str, float]:
    """The tracking error ||u - g(w)||^2 / m under each gamma, the mean over seeds."""
    problem = PhaseNoise(m, noise=0.5, distinct=20)
    errors = {}
    for gamma in ("theory", "storm", "age", 0.0):
        stage = constant(STEPS, lr=lr, alpha=alpha, beta=beta, gamma=gamma)
        recipe = Recipe("gamma", VERSIONS[f"v{version}"], Plain(), (stage,), initial_samples=1)
        traces = Sweep(problem, recipe, blocks=4, runs=runs, seed=0).run()
        error = float(traces.tracking.mean())
        errors["average" if gamma == 0.0 else str(gamma)] = error if error == error else math.inf
    return errors


def stability_cases(study: str) -> Iterator[Case]:
    """Methods over alpha, step rules, step sizes and the safeguard."""
    sizes = {
        "plain": (0.03, 0.3, 1.0),
        "normalized": (0.003, 0.03, 0.3),
        "adam": (0.003, 0.03, 0.3),
    }
    for method, rule, alpha in itertools.product(
        VERSIONS, ("plain", "normalized", "adam"), (0.03, 0.1, 0.5)
    ):
        for lr, guard in itertools.product(sizes[rule], (False, True)):
            if guard and not VERSIONS[method].gradient.points:
                continue
            name = f"{method} {rule} alpha={alpha} lr={lr} {'guarded' if guard else 'bare'}"
            options = {"method": method, "rule": rule, "alpha": alpha, "lr": lr, "guard": guard}
            yield Case(study, name, options)


_RULES = {"plain": Plain, "normalized": Normalized, "adam": Adam}


def run_stability(
    *, method: str, rule: str, alpha: float, lr: float, guard: bool, runs: int = RUNS
) -> dict[str, float]:
    """On the synthetic family: the mean of ||grad F|| over the run, relative to the start."""
    version = VERSIONS[method]
    problem = PhaseNoise(40, noise=1.0, inner_size=8, distinct=20)
    stage = constant(STEPS, lr=lr, alpha=alpha, beta=alpha if alpha < 0.5 else 0.5, gamma="age")
    every = 100 if version.anchored else None
    recipe = Recipe("stability", version, _RULES[rule](), (stage,), snapshot_every=every)
    safeguard = ChangeBound() if guard else None
    sweep = Sweep(problem, recipe, blocks=4, runs=runs, seed=0, safeguard=safeguard)
    start = float(problem.gradient(problem.start).norm())
    ratio = float(sweep.run().gradient.mean()) / start
    return {"gradient": ratio if ratio == ratio else math.inf}


def run_network(
    *, method: str, rule: str, alpha: float, lr: float, guard: bool, steps: int = 250
) -> dict[str, float]:
    """On digits as 10 AUC tasks: the exact objective after some steps (0.5 at the start)."""
    train, _ = load_digits()
    objective, model = MultiTaskAUC(10), make_mlp(64, 64, 10)(0)
    scale = {"plain": 10.0, "normalized": 1.0, "adam": 1.0}[rule]  # the objective's own scale
    opt = by_name(
        VERSIONS[method].name,
        model,
        objective,
        lr=lr * scale,
        alpha=alpha,
        beta=alpha,
        gamma="age",
        update=_RULES[rule](),
        safeguard=ChangeBound() if guard else None,
        snapshot_every=60,
    )
    loader = block_loader(
        train, objective, blocks_per_step=5, samples_per_block=64, num_steps=steps
    )
    try:
        for batch in loader:
            if opt.snapshot_due:
                opt.snapshot(exact_pass(model, train, objective))
            opt.step(partial(objective.inner, model, batch))
    except FloatingPointError:
        return {"objective": math.inf}
    with torch.no_grad():
        return {"objective": exact_value(model, train, objective)}


_RUNS: dict[str, Callable[..., dict[str, Any]]] = {
    "gamma": run_gamma,
    "stability": run_stability,
    "network": run_network,
    "batches": run_batches,
    "gain": run_gain,
    "tracking": run_tracking,
    "rivals": run_rivals,
}

STUDIES: dict[str, Callable[[], list[Case]]] = {
    "gamma": lambda: list(gamma_cases()),
    "stability": lambda: list(stability_cases("stability")),
    "network": lambda: list(stability_cases("network")),
    "batches": lambda: list(batch_cases()),
    "gain": lambda: list(gain_cases()),
    "tracking": lambda: list(tracking_cases()),
    "rivals": lambda: list(rival_cases()),
}
"""The studies by name, each the list of its cases."""


def run_case(case: Case) -> dict[str, Any]:
    """Run one case, and return its record."""
    return {"name": case.name, **case.options, **_RUNS[case.study](**case.options)}
