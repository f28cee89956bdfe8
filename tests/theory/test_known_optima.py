"""Policy evaluation and invariant logistic regression against independent truths."""

import math

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

from fcco import FreshPair
from fcco_lab.theory import InvariantLogistic, PolicyEvaluation


class Vector(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(dim, dtype=torch.float64))

    def forward(self):
        return self.w


PROBLEMS = {
    "policy": lambda: PolicyEvaluation(15, dim=3),
    "logistic": lambda: InvariantLogistic(40, dim=3),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_optimum_is_a_minimum_and_the_parts_compose(name):
    problem = PROBLEMS[name]()
    torch.manual_seed(0)  # where F is nearly 0, a relative tolerance would ask for the impossible
    w = torch.randn(3, dtype=torch.float64)
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


def test_refusals():
    with pytest.raises(ValueError, match="must exceed dim"):
        PolicyEvaluation(3)
    with pytest.raises(ValueError, match="discount"):
        PolicyEvaluation(9, discount=1.0)
