"""Convex problems of a linear model whose optimum is known to rounding."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from fcco.problem import Objective, Probe

__all__ = ["InvariantLogistic", "KnownOptimum", "LinearCox", "PolicyEvaluation", "newton"]


class KnownOptimum(Objective):
    """A smooth convex F of a weight vector w, with its minimizer ``w_star``."""

    inner_dim = 1
    w_star: Tensor

    @abstractmethod
    def value(self, w: Tensor) -> Tensor:
        """F(w)."""

    @property
    def optimum(self) -> float:
        """F_*."""
        return float(self.value(self.w_star))

    @property
    def mu(self) -> float:
        """The least curvature at the optimum; F need not be as convex everywhere."""
        return float(torch.linalg.eigvalsh(torch.func.hessian(self.value)(self.w_star))[0])


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

    def gradient(self, w: Tensor) -> Tensor:
        """grad F(w)."""
        return self.a.T @ self.exact_inner(w) / self.num_blocks

    @property
    def smoothness(self) -> float:
        """L of the gradient: the largest eigenvalue of A^T A / m."""
        return float(torch.linalg.eigvalsh(self.a.T @ self.a / self.num_blocks)[-1])


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

    def gradient(self, w: Tensor) -> Tensor:
        """grad F(w)."""
        slopes = -self.y * torch.sigmoid(-self.y * self.exact_inner(w))
        return self.x.T @ slopes / self.num_blocks

    @property
    def smoothness(self) -> float:
        """L of grad F: a quarter of the largest eigenvalue of X^T X / m."""
        return float(torch.linalg.eigvalsh(self.x.T @ self.x / self.num_blocks)[-1]) / 4


class LinearCox(KnownOptimum):
    """F(w) = (1/m) sum over events i of log (1/n) sum_{j: t_j >= t_i} exp((x_j - x_i) . w).

    Block i is the i-th event (in the order of the data); its inner sample is one subject j drawn
    from all n, counted as zero if it left before. Ties are Breslow's. F is the negative partial
    log-likelihood per event minus log n.

    Args:
        x: (n, d) features, which should be scaled.
        time: (n,) times of event or censoring.
        event: (n,) booleans.

    Examples:
        >>> x = torch.randn((50, 2), generator=torch.Generator().manual_seed(0)).double()
        >>> problem = LinearCox(x, time=torch.arange(50.0), event=torch.arange(50) % 3 == 0)
        >>> bool(problem.gradient(problem.w_star).norm() < 1e-10)
        True
    """

    def __init__(self, x: Tensor, time: Tensor, event: Tensor) -> None:
        if event.dtype != torch.bool or not event.any():
            raise ValueError("event must be booleans, at least one of them True")
        self.x = x.double()
        self.events = event.nonzero().flatten()
        self.num_blocks = len(self.events)
        self.at_risk = time.unsqueeze(0) >= time[self.events].unsqueeze(1)  # (m, n)
        self.w_star = newton(self.value, torch.zeros(x.shape[1], dtype=torch.float64))

    def draw(self, blocks: Tensor, samples: int, generator: torch.Generator) -> Tensor:
        """Subjects for each event, (k, samples), drawn uniformly from all."""
        return torch.randint(len(self.x), (len(blocks), samples), generator=generator)

    def inner(self, model: Any, batch: tuple[Tensor, Tensor]) -> Probe:
        """``model(features)`` gives risks; the batch is (events, subjects)."""
        blocks, subjects = batch
        others = model(self.x[subjects.flatten()]).view(subjects.shape)
        own = model(self.x[self.events[blocks]]).view(-1, 1)
        weight = self.at_risk[blocks].gather(1, subjects)
        values = (weight * torch.exp(others - own)).mean(1, keepdim=True)
        return Probe(blocks, values, samples=subjects.shape[1])

    def outer(self, u: Tensor, blocks: Tensor) -> Tensor:
        """log u."""
        return u[:, 0].log()

    def feasible(self, u: Tensor, blocks: Tensor) -> Tensor:
        """The event itself is at risk: u >= 1/n."""
        return u.clamp(min=1 / len(self.x))

    def exact_inner(self, w: Tensor) -> Tensor:
        """g_i(w) of all events."""
        return (self.at_risk * self._differences(w).exp()).mean(1)

    def value(self, w: Tensor) -> Tensor:
        """F(w), by a log-sum-exp over each risk set."""
        at_risk = self._differences(w).masked_fill(~self.at_risk, -torch.inf)
        return at_risk.logsumexp(1).mean() - torch.tensor(float(len(self.x))).log()

    def gradient(self, w: Tensor) -> Tensor:
        """grad F(w): the mean over events of risk-weighted features minus those of the event."""
        weights = self._differences(w).masked_fill(~self.at_risk, -torch.inf).softmax(1)
        return (weights @ self.x - self.x[self.events]).mean(0)

    def _differences(self, w: Tensor) -> Tensor:
        """(x_j - x_i) . w of every event i and subject j: (m, n)."""
        risk = self.x @ w
        return risk.unsqueeze(0) - risk[self.events].unsqueeze(1)

    @property
    def smoothness(self) -> float:
        """L of grad F: its Hessian is a mean of covariances of features that lie in a ball."""
        radius = (self.x - self.x.mean(0)).norm(dim=1).max()
        return float(radius.square())


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
