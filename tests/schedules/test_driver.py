"""The driver: coefficients step by step, stages as one run, outputs, resuming."""

import copy

import pytest
import torch
from support import Toy, flat, make_model

from fcco import MSVRM, methods
from fcco.schedules import RECIPES, Driver, Recipe, Stage
from fcco.updates import Normalized, Plain


def drive(driver, model, problem, *, steps=None, seed=3, after=None):
    generator = torch.Generator().manual_seed(seed)
    done = 0
    while not driver.finished and (steps is None or done < steps):
        draw = problem.draw(3, 2, generator)
        if driver.snapshot_due:
            driver.opt.snapshot(lambda: problem.inner(model, problem.everything()))
        driver.opt.step(lambda: problem.inner(model, draw))  # noqa: B023
        if after:
            after(done + 1)
        driver.step()
        done += 1


def staged(lengths, method=methods.MSVRM_V2, alphas=None, **options):
    alphas = alphas or [0.3] * len(lengths)
    gamma = options.pop("gamma", "theory")
    stages = tuple(
        Stage.constant(n, lr=0.05, alpha=a, beta=0.4, gamma=gamma)
        for n, a in zip(lengths, alphas, strict=True)
    )
    return Recipe("test", method, Plain(), stages, **options)


def build(recipe, **options):
    problem, model = Toy(), make_model("network", 1)
    return Driver.build(recipe, model.parameters(), problem, **options), model, problem


@pytest.mark.parametrize("label", ["thm:1", "thm:2", "new:2", "adam"])
def test_every_step_has_the_coefficients_of_the_recipe(label):
    recipe = RECIPES[label](m=6, B1=3, T=30)
    driver, model, problem = build(recipe)
    seen = []

    def note(t):
        group = driver.opt.param_groups[0]
        seen.append((t, group["lr"], group["alpha"], group["beta"], group["gamma"]))

    drive(driver, model, problem, after=note)
    assert driver.finished
    for t, *values in seen:
        c = recipe.coefficients(t)
        assert values == [c.lr, c.alpha, c.beta, c.gamma]
    assert driver.get_last_lr() == [recipe.coefficients(30).lr]
    with pytest.raises(ValueError, match="no more than 30 steps"):
        driver.step()


@pytest.mark.parametrize("method", [methods.MSVRM_V1, methods.MSVRM_V2, methods.VARIANT_V2])
def test_stages_with_unchanged_coefficients_are_one_long_run(method):
    ends = []
    for lengths in ([24], [8, 10, 6]):
        driver, model, problem = build(staged(lengths, method))
        drive(driver, model, problem)
        ends.append((flat(model.parameters()), driver.opt.queries))
    assert torch.equal(ends[0][0], ends[1][0])
    assert ends[0][1] == ends[1][1]


def test_a_stage_from_an_earlier_iterate_restarts():
    """Uniform output: the stage begins at (w, u, z) of one index, previous point coinciding."""
    problem, model = Toy(), make_model("network", 1)
    driver = Driver.build(staged([8, 8]), model.parameters(), problem, output="uniform", seed=5)
    states = []

    def note(t):
        states.append(
            (
                flat(driver.opt.state[p]["previous"] for p in model.parameters()),
                flat(driver.opt.state[p]["z"] for p in model.parameters()),
                driver.opt.table.read(torch.arange(6)),
            )
        )

    drive(driver, model, problem, steps=8, after=note)
    w, z = flat(model.parameters()), flat(driver.opt.state[p]["z"] for p in model.parameters())
    u = driver.opt.table.read(torch.arange(6))
    matches = [
        t
        for t, state in enumerate(states)
        if torch.equal(state[0], w) and torch.equal(state[1], z) and torch.equal(state[2], u)
    ]
    assert len(matches) == 1, "exactly one index has this triple"
    before = driver.opt.queries
    drive(driver, model, problem, steps=1)
    assert driver.opt.queries.values - before.values == 3 * 2  # one point, not two


def test_uniform_output_is_uniform():
    counts = torch.zeros(4)
    for seed in range(400):
        model = torch.nn.Linear(3, 1).double()
        driver = Driver.build(staged([4]), model.parameters(), Toy(), output="uniform", seed=seed)
        path = []
        for t in range(4):
            path.append(flat(model.parameters()))
            with torch.no_grad():
                for p in model.parameters():
                    p.fill_(t + 1.0)
            driver.step()
        driver.finish()
        end = flat(model.parameters())
        counts[next(k for k, w in enumerate(path) if torch.equal(w, end))] += 1
    assert (counts / 400 - 0.25).abs().max() < 0.07


def test_average_output_is_the_mean_of_the_iterates():
    problem, model = Toy(), make_model("network", 1)
    driver = Driver.build(staged([9]), model.parameters(), problem, output="average")
    iterates = [flat(model.parameters())]
    drive(driver, model, problem, after=lambda t: iterates.append(flat(model.parameters())))
    driver.finish()
    torch.testing.assert_close(flat(model.parameters()), torch.stack(iterates[:-1]).mean(0))


def test_snapshots_open_stages_and_come_by_period():
    recipe = RECIPES["thm:6"](m=6, B1=3, n=5, mu=1.0, epsilon=0.2, c_T=1.3)
    driver, model, problem = build(recipe)
    taken = []
    snapshot = driver.opt.snapshot

    def counted(closures):
        taken.append(driver._done + 1)
        snapshot(closures)

    driver.opt.snapshot = counted
    drive(driver, model, problem)
    steps = [stage.num_steps for stage in recipe.stages]
    expected = []
    for start, length in zip(recipe.starts, steps, strict=True):
        expected += range(start, start + length, recipe.snapshot_every)
    assert taken == expected


def test_the_convex_case_steps_along_z_plus_mu_w():
    mu, problem, model = 0.3, Toy(), make_model("network", 1)
    recipe = RECIPES["thm:4+"](m=6, B1=3, mu=mu, epsilon=0.3, convex=True)
    driver = Driver.build(recipe, model.parameters(), problem)
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        before, lr = flat(model.parameters()), driver.get_last_lr()[0]
        draw = problem.draw(3, 2, generator)
        driver.opt.step(lambda: problem.inner(model, draw))  # noqa: B023
        driver.step()
        z = flat(driver.opt.state[p]["z"] for p in model.parameters())
        torch.testing.assert_close(
            flat(model.parameters()), before - lr * (z + mu * before), rtol=1e-12, atol=1e-12
        )


@pytest.mark.parametrize("output", ["last", "uniform", "average"])
def test_a_run_resumes_bit_for_bit(output):
    recipe = staged([10, 10], alphas=[0.5, 0.2])
    problem, model = Toy(), make_model("network", 1)
    driver = Driver.build(recipe, model.parameters(), problem, output=output)
    drive(driver, model, problem, steps=7)
    other_model = make_model("network", 1)
    other = Driver.build(recipe, other_model.parameters(), problem, output=output, seed=99)
    other_model.load_state_dict(copy.deepcopy(model.state_dict()))
    other.opt.load_state_dict(copy.deepcopy(driver.opt.state_dict()))
    other.load_state_dict(copy.deepcopy(driver.state_dict()))
    for d, m in ((driver, model), (other, other_model)):
        drive(d, m, problem, seed=8)
        d.finish()
    assert torch.equal(flat(model.parameters()), flat(other_model.parameters()))
    with pytest.raises(ValueError, match="the state is of test"):
        Driver.build(
            RECIPES["new:2"](m=6, B1=3, T=5), make_model("network", 1).parameters(), Toy()
        ).load_state_dict(driver.state_dict())


def test_driver_refuses_another_method_or_rule():
    params = list(make_model("network", 1).parameters())
    common = {"lr": 0.1, "alpha": 0.5, "beta": 0.5, "gamma": "theory"}
    with pytest.raises(ValueError, match="runs msvrm-v2, not msvrm-v1"):
        Driver(MSVRM(params, Toy(), version=1, **common), staged([3]))
    with pytest.raises(ValueError, match="steps with Plain, not Normalized"):
        Driver(MSVRM(params, Toy(), version=2, update=Normalized(), **common), staged([3]))
    with pytest.raises(ValueError, match="output must be"):
        Driver(MSVRM(params, Toy(), version=2, **common), staged([3]), output="first")


def test_an_earlier_iterate_keeps_the_anchors_of_the_last_snapshot():
    """Those of blocks and those of parameters are of one point, w_s, whatever is handed over."""
    earlier = 0
    for seed in range(4):
        recipe = RECIPES["thm:3"](m=6, B1=3, T=25, n=5)
        driver, model, problem = build(recipe, output="uniform", seed=seed)
        drive(driver, model, problem)
        earlier += driver._kept["table"]["rows"].ne(driver.opt.table.rows).any().item()
        driver.finish()
        end = [p.detach().clone() for p in model.parameters()]
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(driver.opt.state[p]["snapshot"])
            probe = problem.inner(model, problem.everything())
            for p, w in zip(model.parameters(), end, strict=True):
                p.copy_(w)
        order = probe.blocks.argsort()
        torch.testing.assert_close(driver.opt.table.anchor, probe.values[order], rtol=0, atol=1e-12)
    assert earlier
