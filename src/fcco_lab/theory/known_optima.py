"""Convex problems of a linear model whose optimum is known to rounding."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from fcco.problem import Objective, Probe

__all__ = ["InvariantLogistic", "KnownOptimum", "PolicyEvaluation", "newton"]


class KnownOptimum(Objective):
    """A smooth convex F of a weight vector w, with its minimizer ``w_star``."""

    inner_dim = 1
    w_star: Tensor

    @abstractmethod
    def value(self, w: Tensor) -> Tensor:
        """F(w)."""

    def gradient(self, w: Tensor) -> Tensor:
        """grad F(w)."""
        gradient: Tensor = torch.func.grad(self.value)(w)
        return gradient

    @property
    def optimum(self) -> float:
        """F_*."""
        return float(self.value(self.w_star))


class PolicyEvaluation(KnownOptimum):
    """F(w) = (1/m) sum_s (1/2) (E[r + discount v_w(s')] - v_w(s))^2,  v_w(s) = phi_s . w.

    Block s is a state; its inner sample is the residual of one transition s -> s'. The slope of
    f(u) = u^2/2 is affine, so the fresh pair applies; the two samples of a pair are the "double
    sampling" of reinforcement learning. The optimum is that of least squares.

    Args:
        num_states: m.
        dim: the number of features of a state.
        discount: the discount factor.
        seed: the seed of transitions, rewards and features.

    Examples:
        >>> problem = PolicyEvaluation(20, dim=3)
        >>> bool(problem.gradient(problem.w_star).norm() < 1e-12)
        True
    """

    def __init__(
        self, num_states: int, *, dim: int = 4, discount: float = 0.9, seed: int = 0
    ) -> None:
        if num_states <= dim:
            raise ValueError(f"num_states must exceed dim={dim}, got {num_states}")
        if not 0 <= discount < 1:
            raise ValueError(f"discount must lie in [0, 1), got {discount}")
        generator = torch.Generator().manual_seed(seed)

        def uniform(*shape: int) -> Tensor:
            return torch.rand(shape, generator=generator, dtype=torch.float64)

        self.num_blocks = num_states
        self.discount = discount
        self.transitions = torch.softmax(3 * uniform(num_states, num_states), dim=1)
        self.rewards = uniform(num_states, num_states)
        self.features = 2 * uniform(num_states, dim) - 1
        # The exact residual is b + A w.
        self.a = discount * self.transitions @ self.features - self.features
        self.b = (self.transitions * self.rewards).sum(1)
        self.w_star = torch.linalg.lstsq(self.a, -self.b).solution

    def draw(self, blocks: Tensor, generator: torch.Generator) -> Tensor:
        """A next state for each of ``blocks``."""
        return torch.multinomial(self.transitions[blocks], 1, generator=generator).squeeze(1)

    def sample(self, w: Tensor, blocks: Tensor, following: Tensor) -> Tensor:
        """The residual of the transitions blocks -> following."""
        change = self.discount * self.features[following] - self.features[blocks]
        return self.rewards[blocks, following] + change @ w

    def inner(self, model: Any, batch: tuple[Tensor, Tensor, Tensor]) -> Probe:
        """``model()`` gives w; the batch is (states, next states, second next states)."""
        blocks, first, second = batch
        w = model()
        values, pair = (self.sample(w, blocks, s).unsqueeze(1) for s in (first, second))
        return Probe(blocks, values, pair=pair)

    def outer(self, u: Tensor, blocks: Tensor) -> Tensor:
        """u^2 / 2."""
        return u[:, 0].square() / 2

    def exact_inner(self, w: Tensor) -> Tensor:
        """Expected residuals of all states."""
        return self.b + self.a @ w

    def value(self, w: Tensor) -> Tensor:
        """F(w)."""
        return self.exact_inner(w).square().mean() / 2


class InvariantLogistic(KnownOptimum):
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
        return softplus(-self.y[blocks] * u[:, 0])

    def exact_inner(self, w: Tensor) -> Tensor:
        """x_i . w."""
        return self.x @ w

    def value(self, w: Tensor) -> Tensor:
        """F(w)."""
        return softplus(-self.y * self.exact_inner(w)).mean()


def newton(value: Callable[[Tensor], Tensor], start: Tensor, *, steps: int = 100) -> Tensor:
    """Newton's method with backtracking, until the gradient is of the size of rounding errors.

    Examples:
        >>> newton(lambda w: (w - 3).pow(4).sum() + (w - 3).square().sum(), torch.zeros(1).double())
        tensor([3.], dtype=torch.float64)
    """
    w = start.detach().clone()
    for _ in range(steps):
        gradient = torch.func.grad(value)(w)
        hessian = torch.func.hessian(value)(w)
        direction = torch.linalg.solve(hessian, gradient)
        decrease = gradient @ direction
        if decrease < 1e-28:
            return w
        size, here = 1.0, value(w)
        while value(w - size * direction) > here - 1e-4 * size * decrease and size > 1e-12:
            size /= 2
        w = w - size * direction
    return w
