"""Optima, gaps and work, against what is known otherwise."""

from functools import cache

import pytest
import torch
from benchmark.tiny import tiny_cox, tiny_groups, tiny_line, tiny_push
from scipy.optimize import minimize_scalar

from fcco.data import exact_value
from fcco_lab.benchmark.meter import GRID
from fcco_lab.benchmark.optimum import know
from fcco_lab.benchmark.problem import probe_all, values_of_blocks
from fcco_lab.benchmark.ranges import settings_to_try
from fcco_lab.benchmark.solvers import USUAL, solvers
from fcco_lab.benchmark.task import Task, run_solver

PROBLEMS = [tiny_push, tiny_groups, tiny_cox]


@pytest.fixture(autouse=True)
def float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@cache
def known_of(load):
    return know(load(None))


def run(load, name, *, problem=None, batch=12, passes=10.0, **settings):
    solver = solvers()[name]
    problem = load(None) if problem is None else problem
    task = Task(problem, known_of(load), batch=batch, passes=passes, paired=solver.paired)
    return task, run_solver(solver, task, {**solver.default, **settings})


# Optima -------------------------------------------------------------------------------------------


def test_the_optimum_of_one_weight_is_that_of_a_bracketing_search():
    problem = tiny_line(None)
    model, objective = problem.start()

    def value(w):
        with torch.no_grad():
            model.weight.fill_(w)
        return exact_value(model, problem.inputs, objective) + 0.5 * problem.penalty * w**2

    found = minimize_scalar(value, bracket=(0.0, 2.0), tol=1e-12)
    known = know(problem)
    assert known["best"] == pytest.approx(found.fun, abs=1e-10)
    assert known["first"] == pytest.approx(value(0.0), abs=1e-12)


@pytest.mark.parametrize("load", PROBLEMS)
def test_the_optimum_is_certified(load):
    known = known_of(load)
    assert known["gradient"] < 1e-7
    assert 0 <= known["certificate"] < 1e-12


def test_the_curvature_is_the_largest_eigenvalue_of_the_hessian():
    problem = tiny_push(None)
    objective = problem.objective()

    def value(w):
        scores = problem.inputs @ w
        return objective.exact(scores) + 0.5 * problem.penalty * w.square().sum()

    hessian = torch.autograd.functional.hessian(value, torch.zeros(3))
    largest = float(torch.linalg.eigvalsh(hessian)[-1])
    assert know(problem)["curvature"] == pytest.approx(largest, rel=1e-3)


@pytest.mark.parametrize("load", [tiny_push, tiny_cox])
def test_an_exact_pass_in_chunks_has_the_value_and_the_gradient_of_the_objective(load, monkeypatch):
    monkeypatch.setattr("fcco_lab.benchmark.problem._PAIRS_AT_ONCE", 300)  # five blocks at a time
    problem = load(None)
    objective = problem.objective()
    scores = torch.randn(60, 1, requires_grad=True)
    value = values_of_blocks(objective, probe_all(objective, (scores,))).mean()
    (gradient,) = torch.autograd.grad(value, scores)
    expected = objective.exact(scores)
    (expected_gradient,) = torch.autograd.grad(expected, scores)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(gradient, expected_gradient)


# Gaps ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("load", PROBLEMS)
def test_lbfgs_reaches_the_optimum_and_the_run_ends_there(load):
    task, record = run(load, "lbfgs", passes=100.0)
    assert record["status"] == "solved"
    assert record["gaps"][-1] < 1e-8
    assert task.passes < 60


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", [name for name in USUAL if name != "lbfgs"])
@pytest.mark.parametrize("load", PROBLEMS)
def test_every_usual_solver_comes_nearer(load, name):
    problem = load(None)
    if not solvers()[name].applies(problem):
        pytest.skip("it does not apply")
    _, record = run(load, name, lr=0.01 if "adam" in name or "normalized" in name else 0.2)
    assert record["status"] in ("done", "stalled")
    assert record["gaps"][-1] < 0.8
    assert record["gaps"] == sorted(record["gaps"], reverse=True)


@pytest.mark.parametrize("name", sorted(set(solvers()) - set(USUAL)))
def test_every_other_solver_runs(name):
    solver = solvers()[name]
    for load in PROBLEMS:
        problem = load(None)
        if solver.applies(problem):
            _, record = run(load, name, passes=2.0)
            assert record["status"] in ("done", "diverged", "ended"), record["status"]


def test_a_point_of_the_grid_shows_what_was_reached_with_no_more_work():
    known = known_of(tiny_push)
    task = Task(tiny_push(None), known, batch=12, passes=9.0)
    reached = []

    def full_gradient_steps():
        while task.goes_on():
            value = task.full_loss()
            reached.append((task.passes - 1 / 3, float(value.detach())))  # forward only so far
            (gradient,) = torch.autograd.grad(value, task.params)
            with torch.no_grad():
                task.params[0] -= 0.1 * gradient

    full_gradient_steps()
    assert [round(passes, 9) for passes, _ in reached] == list(range(len(reached)))
    for point, gap in zip(GRID, task.meter.gaps, strict=False):
        values = [value for passes, value in reached if passes <= point]
        expected = (min(values) - known["best"]) / (known["first"] - known["best"])
        assert gap == pytest.approx(expected, abs=1e-12)
    assert GRID[len(task.meter.gaps)] > 9.0


def test_divergence_is_a_result():
    _, record = run(tiny_push, "sox", lr=1e6)
    assert record["status"] == "diverged"


def test_an_error_of_a_solver_is_recorded():
    _, record = run(tiny_push, "sox", alpha=7.0)
    assert record["status"] == "error"
    assert record["error"].startswith("ValueError: alpha")


# Work ---------------------------------------------------------------------------------------------

POINTS = {"sox": (1, 1), "msvrm-v1": (2, 1), "msvrm-v2": (2, 2), "msvrm-v3": (3, 3)}
"""Values and gradients of a step, as the paper has them."""


@pytest.mark.parametrize("name", POINTS)
def test_work_of_an_optimizer_is_what_its_steps_and_exact_passes_need(name):
    task = Task(tiny_groups(None), known_of(tiny_groups), batch=12, passes=8.0)
    batches = []
    draw = task.batches
    task.batches = lambda: (batches.append(len(batch.inputs)) or batch for batch in draw())
    snapshots = []
    exact = task.exact
    task.exact = lambda: snapshots.append(len(batches)) or exact()
    solver = solvers()[name]
    run_solver(solver, task, {**solver.default, "lr": 0.01})
    assert set(batches) == {12}
    values, gradients = POINTS[name]
    steps = len(batches)
    forward, backward = 12 * values * steps, 12 * gradients * steps
    # At the first step the previous point is the current one; at a snapshot so is that one.
    coincident = snapshots if name == "msvrm-v3" else []
    if name != "sox":
        forward -= 12
        backward -= 12 * (gradients > 1)
    forward += len(coincident) * (60 - 12)
    backward += len(coincident) * (60 - 12)
    assert (task.meter.forward, task.meter.backward) == (forward, backward)
    assert task.passes == (forward + 2 * backward) / 180


@pytest.mark.parametrize(
    ("name", "factor"), [("in-batch", 1), ("table-adam", 1), ("large-batch", 16)]
)
def test_work_of_a_loss_is_one_pass_forward_and_one_backward(name, factor):
    task = Task(tiny_push(None), known_of(tiny_push), batch=3, passes=4.0)
    drawn = []
    draw = task.samples
    task.samples = lambda *more: (drawn.append(len(index)) or index for index in draw(*more))
    solver = solvers()[name]
    run_solver(solver, task, {**solver.default, "lr": 0.01})
    assert set(drawn) == {3 * factor}
    assert task.meter.forward == sum(drawn)
    assert task.meter.backward <= sum(drawn)  # a batch without a pair has nothing to go back
    if factor > 1:
        assert task.meter.backward == sum(drawn)


def test_work_of_lbfgs_is_that_of_its_evaluations():
    problem = tiny_push(None)
    calls = []
    build = problem.model

    def counted():
        model = build()
        model.register_forward_hook(lambda *_: calls.append(torch.is_grad_enabled()))
        return model

    object.__setattr__(problem, "model", counted)
    task, _ = run(tiny_push, "lbfgs", problem=problem, passes=6.0)
    evaluations = sum(calls)  # those without a gradient are the benchmark's
    assert task.passes == evaluations


# Tuning -------------------------------------------------------------------------------------------


def test_all_solvers_have_as_many_settings_inside_their_ranges():
    for name, solver in solvers().items():
        tried = settings_to_try(solver.ranges, solver.default, 8)
        assert len(tried) == (9 if solver.ranges else 1), name
        assert tried[0] == dict(solver.default)
        assert tried[1:5] == settings_to_try(solver.ranges, solver.default, 4)[1:], name
