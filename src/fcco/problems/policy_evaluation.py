"""Policy evaluation: the squared Bellman residual, with its least-squares optimum."""

from typing import Any

import torch
from torch import Tensor

from fcco.problem.objective import Objective
from fcco.problem.probe import Probe

__all__ = ["PolicyEvaluation"]


class PolicyEvaluation(Objective):
    """F(w) = (1/m) sum_s (1/2) (E[r + discount v_w(s')] - v_w(s))^2,  v_w(s) = phi_s . w.

    Block s is a state; its inner sample is the residual of one transition s -> s'. The slope of
    f(u) = u^2/2 is affine, so the fresh pair applies; the two samples of a pair are the "double
    sampling" of reinforcement learning.

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

    inner_dim = 1

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

    def gradient(self, w: Tensor) -> Tensor:
        """grad F(w)."""
        return self.a.T @ self.exact_inner(w) / self.num_blocks

    @property
    def optimum(self) -> float:
        """F_*."""
        return float(self.value(self.w_star))

    @property
    def smoothness(self) -> float:
        """L of the gradient: the largest eigenvalue of A^T A / m."""
        return float(torch.linalg.eigvalsh(self.a.T @ self.a / self.num_blocks)[-1])

    @property
    def mu(self) -> float:
        """Strong convexity: the least eigenvalue of A^T A / m."""
        return float(torch.linalg.eigvalsh(self.a.T @ self.a / self.num_blocks)[0])
