"""Policy evaluation, invariant logistic regression and linear Cox against independent truths."""

import math

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

from fcco import SOX, FreshPair
from fcco_lab.theory import InvariantLogistic, LinearCox, PhaseNoise, PolicyEvaluation


class Vector(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(dim, dtype=torch.float64))

    def forward(self):
        return self.w


def cox(n=40, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn((n, 3), generator=generator, dtype=torch.float64)
    hazard = torch.exp(x @ torch.tensor([1.0, -0.5, 0.0], dtype=torch.float64))
    time = -torch.rand(n, generator=generator, dtype=torch.float64).log() / hazard
    time = (time * 4).ceil()  # ties
    event = torch.rand(n, generator=generator) < 0.7
    return LinearCox(x, time, event), x, time, event


PROBLEMS = {
    "policy": lambda: PolicyEvaluation(15, dim=3),
    "logistic": lambda: InvariantLogistic(40, dim=3),
    "cox": lambda: cox()[0],
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_gradient_equals_autograd_and_vanishes_at_the_optimum(name):
    problem = PROBLEMS[name]()
    torch.manual_seed(0)  # where F is nearly 0, a relative tolerance would ask for the impossible
    w = torch.randn(3, dtype=torch.float64)
    torch.testing.assert_close(problem.gradient(w), torch.func.grad(problem.value)(w))
    assert problem.gradient(problem.w_star).norm() < 1e-9
    for direction in torch.randn((10, 3), dtype=torch.float64):
        assert problem.value(problem.w_star + direction) > problem.optimum
    blocks = torch.arange(problem.num_blocks)
    composed = problem.outer(problem.exact_inner(w).unsqueeze(1), blocks).mean()
    torch.testing.assert_close(composed, problem.value(w), rtol=1e-6, atol=1e-8)


def test_policy_evaluation_by_enumeration():
    """The mean over next states, weighted by their probability, is the exact residual."""
    problem = PolicyEvaluation(6, dim=3)
    w = torch.randn(3, dtype=torch.float64)
    for s in range(6):
        total = sum(
            problem.transitions[s, t]
            * problem.sample(w, torch.tensor([s]), torch.tensor([t])).squeeze()
            for t in range(6)
        )
        torch.testing.assert_close(total, problem.exact_inner(w)[s])
    generator = torch.Generator().manual_seed(0)
    drawn = problem.draw(torch.zeros(20000, dtype=torch.int64), generator)
    share = torch.bincount(drawn, minlength=6) / 20000
    assert (share - problem.transitions[0]).abs().max() < 0.02


def test_logistic_optimum_is_scikit_learns():
    problem = InvariantLogistic(200, dim=3)
    model = LogisticRegression(C=math.inf, fit_intercept=False, tol=1e-10, max_iter=1000)
    model.fit(problem.x.numpy(), problem.y.numpy())
    expected = torch.tensor(model.coef_[0], dtype=torch.float64)
    torch.testing.assert_close(problem.w_star, expected, rtol=1e-4, atol=1e-4)


def test_cox_is_the_partial_likelihood():
    """By a double loop over events and subjects, with Breslow's ties."""
    problem, x, time, event = cox()
    w = torch.randn(3, dtype=torch.float64)
    total, events = 0.0, 0
    for i in range(len(x)):
        if event[i]:
            at_risk = [float((x[j] @ w).exp()) for j in range(len(x)) if time[j] >= time[i]]
            total += math.log(sum(at_risk)) - float(x[i] @ w)
            events += 1
    assert float(problem.value(w)) + math.log(len(x)) == pytest.approx(total / events, rel=1e-6)
    # inner samples are unbiased: the mean over every subject is the exact value
    model = nn.Linear(3, 1, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(w)
    blocks = torch.arange(problem.num_blocks)
    everyone = torch.arange(len(x)).expand(problem.num_blocks, -1)
    values = problem.inner(model, (blocks, everyone)).values
    torch.testing.assert_close(values.detach()[:, 0], problem.exact_inner(w))


def test_the_fresh_pair_reaches_the_bellman_optimum():
    """Two independent transitions a state: the double sampling that the residual needs."""
    problem, model = PolicyEvaluation(15, dim=3), Vector(3)
    opt = FreshPair(model.parameters(), problem, version=2, lr=0.3, alpha=0.05)
    generator = torch.Generator().manual_seed(0)
    for t in range(1200):
        opt.param_groups[0]["lr"] = 0.3 / (1 + t / 200)
        blocks = torch.randperm(15, generator=generator)[:5]
        first, second = (problem.draw(blocks, generator) for _ in range(2))
        opt.step(lambda: problem.inner(model, (blocks, first, second)))  # noqa: B023
    assert float(problem.value(model.w.detach())) - problem.optimum < 1e-3


def test_sox_reaches_the_cox_optimum():
    problem, *_ = cox(n=60)
    torch.manual_seed(0)
    model = nn.Linear(3, 1, bias=False).double()
    # Late events have few subjects at risk: a fresh value may be 0 and log's slope huge, so the
    # table starts from a number.
    opt = SOX(model.parameters(), problem, lr=0.03, alpha=0.2, beta=0.2, initial=0.5)
    generator = torch.Generator().manual_seed(0)
    for t in range(1000):
        opt.param_groups[0]["lr"] = 0.03 / (1 + t / 200)
        blocks = torch.randperm(problem.num_blocks, generator=generator)[:8]
        subjects = problem.draw(blocks, 16, generator)
        opt.step(lambda: problem.inner(model, (blocks, subjects)))  # noqa: B023
    assert float(problem.value(model.weight.detach()[0])) - problem.optimum < 2e-3


def test_refusals():
    with pytest.raises(ValueError, match="must exceed dim"):
        PolicyEvaluation(3)
    with pytest.raises(ValueError, match="discount"):
        PolicyEvaluation(9, discount=1.0)
    with pytest.raises(ValueError, match="at least one"):
        LinearCox(torch.zeros(3, 1), torch.arange(3), torch.zeros(3, dtype=torch.bool))


@pytest.mark.parametrize("name", [*PROBLEMS, "phase noise", "phase noise, non-convex"])
def test_smoothness_bounds_the_gradient_and_mu_the_curvature(name):
    if name in PROBLEMS:
        problem, dim = PROBLEMS[name](), 3
        curvature = torch.linalg.eigvalsh(torch.func.hessian(problem.value)(problem.w_star))
        assert 0 < problem.mu <= float(curvature[0]) * (1 + 1e-9)
        assert problem.mu < problem.smoothness
    else:
        problem, dim = PhaseNoise(12, phi="non-convex" if "non" in name else "log-cosh"), 4
    for w, v in torch.randn((50, 2, dim), dtype=torch.float64):
        change = (problem.gradient(w) - problem.gradient(v)).norm()
        assert change <= problem.smoothness * (w - v).norm() * (1 + 1e-9)
