"""The paper's multi-task AUC, a function of class-conditional moments of sigmoid scores."""

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fcco.objectives.curves import area, mean_over_tasks
from fcco.objectives.domains import check_positive
from fcco.objectives.labels import read_tasks
from fcco.objectives.score import partner_scores, read_outputs
from fcco.objectives.structure import Column, Structure
from fcco.objectives.surrogates import SquaredHinge, Surrogate
from fcco.objectives.tasks import TaskObjective
from fcco.problem.batches import PairBatch
from fcco.problem.probe import Probe

__all__ = ["MultiTaskAUC", "MultiTaskGap", "class_moments"]


class _Moments(TaskObjective):
    """Base class of objectives of the means of a sigmoid score and of its square, by class."""

    def _build(self, labels: Any) -> None:
        read = read_tasks(labels, self.num_tasks if hasattr(self, "labels") else 0)
        self._set_tasks(read)
        self._weights = Column(self._factor)
        self._sides = Structure(members=torch.stack(list(read)).double())

    def metric(self, scores: Any, weight: Any = None) -> float:
        """Return the area under the ROC curve, averaged over tasks; ties count one half."""
        return mean_over_tasks(scores, self.labels, weight, area)

    def _sampled(self, model: Any, batch: PairBatch) -> tuple[Tensor, Tensor]:
        """Return (E+ h, E- h, E+ h^2, E- h^2) of each block, (B1, 4), and their errors."""
        logits = partner_scores(read_outputs(model, batch, self.num_tasks), batch)
        weights = batch.weights.to(logits.dtype).expand(-1, len(logits), -1)
        moments = class_moments(logits.T, weights.mT)
        means, squares = moments.detach().split(2, dim=1)
        if batch.partners.ndim == 1:
            variances = (squares - means.square()).clamp(min=0)
        else:  # with few samples, sum squared differences, which keep a small variance precise
            away = logits.detach().sigmoid() - means.T.unsqueeze(2)
            variances = (weights * away.square()).sum(2).T
        sizes = (weights > 0).sum(2).T
        # The standard error of a mean over n samples; it is NaN for a single sample.
        noise = (variances / (sizes - 1)).sqrt()
        # The error of E h^2 follows by the delta method. f is linear in E h^2, so its slopes do
        # not depend on this approximation.
        return moments, torch.cat([noise, 2 * means * noise], dim=1)

    def _value(self, h: Tensor, weight: Tensor | None) -> Tensor:
        sides = self._sides.on(h.device)
        members = sides.members if weight is None else sides.members * weight.unsqueeze(1)
        totals = members.sum(1, keepdim=True)
        valid = (totals > 0).all(0).squeeze(0)
        if not valid.any():
            return 0 * h.sum()
        shares = (members / totals.where(totals > 0, 1.0))[:, :, valid]
        score = h[:, valid].sigmoid()
        # In the order of u: E+ h, E- h, E+ h^2, E- h^2.
        moments = [(part * power).sum(0) for power in (score, score.square()) for part in shares]
        return self._outer(torch.stack(moments, dim=1)).mean()

    @abstractmethod
    def _outer(self, moments: Tensor) -> Tensor:
        """Return f of moments (k, 4), for tasks that have both classes."""


class MultiTaskAUC(_Moments):
    """AUC maximization for tasks that share a network (the paper's Section "Experiments").

    Let h be the sigmoid score of task i, and E+ and E- the means over its positives and negatives:

        u = (E+ h, E- h, E+ h^2, E- h^2) in R^4,
        f(u) = (u_3 - u_1^2) + (u_4 - u_2^2) + max(c + u_2 - u_1, 0)^2 / 2.

    This differs from the paper's FCCO form in two ways. The two variances are kept, which the paper
    drops. The hinge takes the negative mean minus the positive mean: with the paper's sign,
    positives would rank below negatives.

    Block i is task i, which is column i of the model's output (logits). A task that lacks a
    positive or a negative keeps its id and does not count.

    Args:
        labels: one of three forms. Integers (N,) are classes, each of which is a task against the
            rest. Booleans (N,) are one task. A tensor (N, T) holds 1 or 0 for each task, and -1 or
            NaN where the label is missing.
        margin: c. The default 1 is the range of a sigmoid score.

    Examples:
        >>> objective = MultiTaskAUC(torch.tensor([0, 1, 2, 0]))
        >>> perfect = torch.tensor([[1.0, 0.0, 1.0, 0.0]])
        >>> objective.num_blocks, objective.outer(perfect, torch.tensor([0]))
        (3, tensor([0.]))
    """

    inner_dim = 4

    def __init__(self, labels: Any, *, margin: float = 1.0) -> None:
        check_positive(margin=margin)
        self.margin = margin
        self._build(labels)

    def inner(self, model: Any, batch: PairBatch) -> Probe:
        """Return the moments over each task's own positives and negatives."""
        moments, noise = self._sampled(model, batch)
        return Probe(batch.blocks, moments, batch.samples, noise=noise)

    def outer(self, u: Tensor, blocks: Tensor) -> Tensor:
        """Return both variances plus the squared hinge on the gap of the means."""
        values = self._outer(u)
        return values * self._weights(blocks, u) if self._lacking else values

    def _outer(self, moments: Tensor) -> Tensor:
        a, b, a2, b2 = moments.unbind(1)
        hinge = (b - a + self.margin).clamp(min=0)
        variances = (a2 + b2).addcmul(a, a, value=-1).addcmul(b, b, value=-1)
        return variances.addcmul(hinge, hinge, value=0.5)

    def outer_slope(self, u: Tensor, blocks: Tensor) -> Tensor:
        """Return the gradient of f in closed form."""
        a, b, _, _ = u.unbind(1)
        hinge = (b - a + self.margin).clamp(min=0)
        one = torch.ones_like(a)
        slopes = torch.stack([-hinge.add(a, alpha=2), hinge.sub(b, alpha=2), one, one], dim=1)
        return slopes * self._weights(blocks, u).unsqueeze(1) if self._lacking else slopes

    def feasible(self, u: Tensor, blocks: Tensor) -> Tensor:
        """Clamp to [0, 1], where the moments of scores in [0, 1] lie."""
        return u.clamp(0, 1)


class MultiTaskGap(_Moments):
    """A function of the gap between the class means: u = E- h - E+ h in [-1, 1], f(u) = l(u).

    With ``SquaredHinge`` this is the paper's FCCO form with a corrected sign. With ``Squared`` the
    slope is affine, and ``FreshPair`` can be used.

    Block i is task i, which is column i of the model's output (logits).

    Args:
        labels: the labels, as for ``MultiTaskAUC``.
        surrogate: l, by default ``SquaredHinge()``.
        paired: whether to report the second half of each task's samples as ``Probe.pair``. The
            halves are independent if samples are drawn with replacement.

    Examples:
        >>> from fcco.objectives import Squared
        >>> objective = MultiTaskGap(torch.tensor([0, 1, 2, 0]), surrogate=Squared())
        >>> objective.outer(torch.tensor([[-1.0]]), torch.tensor([0]))
        tensor([0.])
    """

    inner_dim = 1

    def __init__(
        self, labels: Any, *, surrogate: Surrogate | None = None, paired: bool = False
    ) -> None:
        self.surrogate = SquaredHinge() if surrogate is None else surrogate
        self.paired = paired
        self._build(labels)

    def inner(self, model: Any, batch: PairBatch) -> Probe:
        """Return the gap, over each task's own samples or over samples all tasks share."""
        if not self.paired or batch.partners.ndim == 1:
            moments, noise = self._sampled(model, batch)
            gap = moments[:, 1:2] - moments[:, :1]
            error = noise[:, :2].norm(dim=1, keepdim=True)
            return Probe(batch.blocks, gap, batch.samples, noise=error)
        logits = partner_scores(read_outputs(model, batch, self.num_tasks), batch)
        h, positives = logits.sigmoid(), logits.shape[1] // 2
        if positives < 2:
            raise ValueError("paired=True needs two positives and two negatives of every task")
        halves = []
        for part in (h[:, :positives], h[:, positives:]):
            half = part.shape[1] // 2
            halves.append((part[:, :half].mean(1), part[:, half : 2 * half].mean(1)))
        gap, pair = (n - p for p, n in zip(*halves, strict=True))
        return Probe(batch.blocks, gap[:, None], samples=h.shape[1] // 2, pair=pair[:, None])

    def outer(self, u: Tensor, blocks: Tensor) -> Tensor:
        """Return l of the gap."""
        values = self.surrogate(u.squeeze(1))
        return values * self._weights(blocks, u) if self._lacking else values

    def _outer(self, moments: Tensor) -> Tensor:
        return self.surrogate(moments[:, 1] - moments[:, 0])

    def feasible(self, u: Tensor, blocks: Tensor) -> Tensor:
        """Clamp to [-1, 1], the range of a difference of means of scores in [0, 1]."""
        return u.clamp(-1, 1)


def class_moments(logits: Tensor, weights: Tensor) -> Tensor:
    """Return (E+ h, E- h, E+ h^2, E- h^2) of h = sigmoid(logits) for each column, (B1, 4).

    Args:
        logits: (k, B1), the logits of k samples.
        weights: (2, k, B1), the weight of each sample in E+ and in E-.

    With a hundred tasks, a batch has as many scores as a small network has activations. The time
    then goes into passes over memory, not into arithmetic. Plain autograd makes about twenty
    tensors of this size; this function makes four.

    Examples:
        >>> weights = torch.tensor([[[1.0], [0.0]], [[0.0], [1.0]]])
        >>> class_moments(torch.zeros(2, 1), weights)
        tensor([[0.5000, 0.5000, 0.2500, 0.2500]])
    """
    apply: Any = _ClassMoments.apply
    moments: Tensor = apply(logits, weights)
    return moments


class _ClassMoments(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, weights: Tensor) -> Tensor:
        h = torch.sigmoid(logits)
        ctx.save_for_backward(h, weights)
        ctx.save_for_forward(h, weights)
        return _sums(h, h, weights)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator, unused-ignore]
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        h, weights = ctx.saved_tensors
        a, b, a2, b2 = gradient.unbind(1)
        # The derivative by h is w+ (a + 2 a2 h) + w- (b + 2 b2 h), times h' = h (1 - h). All of
        # it is computed in place, in two buffers.
        total = (h * (2 * a2)).add_(a).mul_(weights[0])
        part = (h * (2 * b2)).add_(b).mul_(weights[1])
        total.add_(part)
        torch.mul(h, h, out=part)
        return total.mul_(torch.sub(h, part, out=part)), None

    @staticmethod
    @torch.no_grad()  # first order only, like the backward pass
    def jvp(ctx: Any, tangent: Tensor, *others: None) -> Tensor:
        h, weights = ctx.saved_tensors
        return _sums(tangent * h * (1 - h), 2 * h, weights)


def _sums(x: Tensor, factor: Tensor, weights: Tensor) -> Tensor:
    """Return the sums of x and of factor * x with both weights."""
    part = x * weights[0]
    first = part.sum(0), part.mul_(factor).sum(0)
    torch.mul(x, weights[1], out=part)
    second = part.sum(0), part.mul_(factor).sum(0)
    return torch.stack([first[0], second[0], first[1], second[1]], dim=1)
