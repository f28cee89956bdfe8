"""Invariant logistic regression: the classifier sees the mean over perturbed copies of a point."""

from typing import Any

import torch
from torch import Tensor

from fcco.problem.objective import Objective
from fcco.problem.probe import Probe
from fcco.problems.newton import newton

__all__ = ["InvariantLogistic"]


class InvariantLogistic(Objective):
    """F(w) = (1/m) sum_i log(1 + exp(-y_i E[x' . w | x_i])),  x' = x_i + noise.

    Block i is a data point; its inner sample is the score of one perturbed copy. The noise has mean
    zero, so the exact inner value is x_i . w and the optimum is that of logistic regression.

    Args:
        num_points: m.
        dim: the dimension of a point.
        noise: the standard deviation of a perturbation.
        seed: the seed of points and labels; labels are noisy, so the optimum is finite.

    Examples:
        >>> problem = InvariantLogistic(60, dim=3)
        >>> bool(problem.gradient(problem.w_star).norm() < 1e-10)
        True
    """

    inner_dim = 1

    def __init__(self, num_points: int, *, dim: int = 4, noise: float = 1.0, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.num_blocks = num_points
        self.noise = noise
        self.x = torch.randn((num_points, dim), generator=generator, dtype=torch.float64)
        truth = torch.randn(dim, generator=generator, dtype=torch.float64)
        odds = torch.sigmoid(self.x @ truth)
        positive = torch.rand(num_points, generator=generator, dtype=torch.float64) < odds
        self.y = torch.where(positive, 1.0, -1.0).double()
        self.w_star = newton(self.value, torch.zeros(dim, dtype=torch.float64))

    def draw(self, blocks: Tensor, generator: torch.Generator) -> Tensor:
        """One perturbed copy of each point."""
        shape = (len(blocks), self.x.shape[1])
        noise = torch.randn(shape, generator=generator, dtype=torch.float64)
        return self.x[blocks] + self.noise * noise

    def inner(self, model: Any, batch: tuple[Tensor, Tensor]) -> Probe:
        """``model(copies)`` gives scores; the batch is (points, copies)."""
        blocks, copies = batch
        return Probe(blocks, model(copies).view(-1, 1))

    def outer(self, u: Tensor, blocks: Tensor) -> Tensor:
        """log(1 + exp(-y_i u))."""
        return torch.nn.functional.softplus(-self.y[blocks] * u[:, 0])

    def exact_inner(self, w: Tensor) -> Tensor:
        """x_i . w."""
        return self.x @ w

    def value(self, w: Tensor) -> Tensor:
        """F(w)."""
        return torch.nn.functional.softplus(-self.y * self.exact_inner(w)).mean()

    def gradient(self, w: Tensor) -> Tensor:
        """grad F(w)."""
        slopes = -self.y * torch.sigmoid(-self.y * self.exact_inner(w))
        return self.x.T @ slopes / self.num_blocks

    @property
    def optimum(self) -> float:
        """F_*."""
        return float(self.value(self.w_star))

    @property
    def smoothness(self) -> float:
        """L of grad F: a quarter of the largest eigenvalue of X^T X / m."""
        return float(torch.linalg.eigvalsh(self.x.T @ self.x / self.num_blocks)[-1]) / 4

    @property
    def mu(self) -> float:
        """The least curvature at the optimum: F is strongly convex near it, not everywhere."""
        return float(torch.linalg.eigvalsh(torch.func.hessian(self.value)(self.w_star))[0])
