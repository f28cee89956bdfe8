"""Cox's partial likelihood with a linear risk: convex, with the optimum by Newton's method."""

from typing import Any

import torch
from torch import Tensor

from fcco.problem.objective import Objective
from fcco.problem.probe import Probe
from fcco.problems.newton import newton

__all__ = ["LinearCox"]


class LinearCox(Objective):
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

    inner_dim = 1

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

    def value(self, w: Tensor) -> Tensor:
        """F(w), by a log-sum-exp over each risk set."""
        risk = self.x @ w
        gap = risk.unsqueeze(0) - risk[self.events].unsqueeze(1)
        total = gap.masked_fill(~self.at_risk, -torch.inf).logsumexp(1)
        return (total - torch.log(torch.tensor(float(len(self.x))))).mean()

    def exact_inner(self, w: Tensor) -> Tensor:
        """g_i(w) of all events."""
        risk = self.x @ w
        gap = risk.unsqueeze(0) - risk[self.events].unsqueeze(1)
        return (self.at_risk * gap.exp()).mean(1)

    def gradient(self, w: Tensor) -> Tensor:
        """grad F(w): the mean over events of risk-weighted features minus those of the event."""
        risk = (self.x @ w).unsqueeze(0).expand(self.at_risk.shape)
        weights = risk.masked_fill(~self.at_risk, -torch.inf).softmax(1)
        return (weights @ self.x - self.x[self.events]).mean(0)

    @property
    def optimum(self) -> float:
        """F_*."""
        return float(self.value(self.w_star))

    @property
    def smoothness(self) -> float:
        """L of grad F: its Hessian is a mean of covariances of features that lie in a ball."""
        radius = (self.x - self.x.mean(0)).norm(dim=1).max()
        return float(radius.square())

    @property
    def mu(self) -> float:
        """The least curvature at the optimum: F is strongly convex near it, not everywhere."""
        return float(torch.linalg.eigvalsh(torch.func.hessian(self.value)(self.w_star))[0])
