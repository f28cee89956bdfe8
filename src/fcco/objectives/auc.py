"""Multi-task AUC: one block per task; inner values are class-conditional moments of its score."""

from typing import Any

import torch
from torch import Tensor

from fcco.objectives.moments import class_moments
from fcco.objectives.scores import widened
from fcco.objectives.surrogates import SquaredHinge, Surrogate
from fcco.problem.batches import LabelBatch, TaskBatch
from fcco.problem.objective import Objective
from fcco.problem.probe import Probe

__all__ = ["MultiTaskAUC", "MultiTaskGap", "own_logits", "shared_logits"]


class MultiTaskAUC(Objective):
    """AUC maximization for ``num_tasks`` tasks that share a network (Section "Experiments").

    With h the sigmoid score of task i and E+, E- its means over positives and negatives,

        u = (E+ h, E- h, E+ h^2, E- h^2) in R^4,
        f(u) = (u_3 - u_1^2) + (u_4 - u_2^2) + max(c + u_2 - u_1, 0)^2 / 2.

    The two variances are kept (the paper's FCCO form drops them), and the hinge takes the negative
    mean minus the positive mean (with the paper's sign, positives would rank below negatives).

    Block i is task i, column i of the model's output (logits); a binary problem is one task.

    Args:
        num_tasks: m.
        margin: c; the default 1 is the range of a sigmoid score.

    Examples:
        >>> objective = MultiTaskAUC(num_tasks=3)
        >>> perfect = torch.tensor([[1.0, 0.0, 1.0, 0.0]])
        >>> objective.outer(perfect, torch.tensor([0]))
        tensor([0.])
    """

    inner_dim = 4

    def __init__(self, num_tasks: int, margin: float = 1.0) -> None:
        _check(num_tasks, margin)
        self.num_blocks = num_tasks
        self.margin = margin

    def inner(self, model: Any, batch: TaskBatch | LabelBatch) -> Probe:
        """Moments over each task's own positives and negatives.

        In a ``LabelBatch``, which all tasks share, tasks without a positive or without a negative
        in the batch are left out.
        """
        blocks, moments, samples, noise = _moments(self.num_blocks, model, batch)
        return Probe(blocks, moments, samples, noise=noise)

    def outer(self, u: Tensor, blocks: Tensor) -> Tensor:
        """Both variances and the squared hinge on the gap of the means."""
        a, b, a2, b2 = u.unbind(1)
        hinge = (b - a + self.margin).clamp(min=0)
        variances = (a2 + b2).addcmul(a, a, value=-1).addcmul(b, b, value=-1)
        return variances.addcmul(hinge, hinge, value=0.5)

    def outer_slope(self, u: Tensor, blocks: Tensor) -> Tensor:
        """In closed form."""
        a, b, _, _ = u.unbind(1)
        hinge = (b - a + self.margin).clamp(min=0)
        one = torch.ones_like(a)
        return torch.stack([-hinge.add(a, alpha=2), hinge.sub(b, alpha=2), one, one], dim=1)

    def feasible(self, u: Tensor, blocks: Tensor) -> Tensor:
        """Moments of scores in [0, 1] lie in [0, 1]."""
        return u.clamp(0, 1)


class MultiTaskGap(Objective):
    """Only the gap of the means: u = E- h - E+ h in [-1, 1] and f(u) = l(u).

    With ``SquaredHinge`` this is the paper's FCCO form with a corrected sign; with ``Squared`` the
    slope is affine and ``FreshPair`` applies.

    Block i is task i, column i of the model's output (logits).

    Args:
        num_tasks: m.
        surrogate: l.
        paired: report the second half of each task's samples as ``Probe.pair``; it is independent
            if samples are drawn with replacement.

    Examples:
        >>> from fcco.objectives import Squared
        >>> MultiTaskGap(3, Squared()).outer(torch.tensor([[-1.0]]), torch.tensor([0]))
        tensor([0.])
    """

    inner_dim = 1

    def __init__(
        self, num_tasks: int, surrogate: Surrogate | None = None, *, paired: bool = False
    ) -> None:
        _check(num_tasks, 1.0)
        self.num_blocks = num_tasks
        self.surrogate = SquaredHinge() if surrogate is None else surrogate
        self.paired = paired

    def inner(self, model: Any, batch: TaskBatch | LabelBatch) -> Probe:
        """The gap, over each task's own samples or over samples that all tasks share."""
        if not self.paired or isinstance(batch, LabelBatch):
            blocks, moments, samples, noise = _moments(self.num_blocks, model, batch)
            gap = moments[:, 1:2] - moments[:, :1]
            return Probe(blocks, gap, samples, noise=noise[:, :2].norm(dim=1, keepdim=True))
        h = own_logits(self.num_blocks, model, batch).sigmoid()
        if batch.positives < 2 or h.shape[1] - batch.positives < 2:
            raise ValueError("paired=True needs two positives and two negatives of every task")
        halves = []
        for part in (h[:, : batch.positives], h[:, batch.positives :]):
            half = part.shape[1] // 2
            halves.append((part[:, :half].mean(1), part[:, half : 2 * half].mean(1)))
        gap, pair = (n - p for p, n in zip(*halves, strict=True))
        return Probe(batch.blocks, gap[:, None], samples=h.shape[1] // 2, pair=pair[:, None])

    def outer(self, u: Tensor, blocks: Tensor) -> Tensor:
        """l of the gap."""
        return self.surrogate(u.squeeze(1))

    def feasible(self, u: Tensor, blocks: Tensor) -> Tensor:
        """A difference of means of scores in [0, 1]."""
        return u.clamp(-1, 1)


def _moments(
    num_tasks: int, model: Any, batch: TaskBatch | LabelBatch
) -> tuple[Tensor, Tensor, int, Tensor]:
    """Blocks, (E+ h, E- h, E+ h^2, E- h^2) of each, samples per value, and standard errors."""
    if isinstance(batch, TaskBatch):
        h = own_logits(num_tasks, model, batch).sigmoid()
        positive, negative = h[:, : batch.positives], h[:, batch.positives :]
        first = [part.mean(1) for part in (positive, negative)]
        second = [part.square().mean(1) for part in (positive, negative)]
        moments = torch.stack([*first, *second], dim=1)
        sizes = moments.new_tensor([batch.positives, h.shape[1] - batch.positives])
        parts = [part.detach().var(1, correction=0) for part in (positive, negative)]
        noise = _noise(moments[:, :2].detach(), torch.stack(parts, dim=1), sizes)
        return batch.blocks, moments, h.shape[1], noise
    blocks, logits, positive, negative, scale = shared_logits(num_tasks, model, batch)
    moments = class_moments(logits, positive, negative, scale)
    means, squares = moments.detach().split(2, dim=1)
    spread = (squares - means.square()).clamp(min=0)
    return blocks, moments, len(logits), _noise(means, spread, 1 / scale.T)


def own_logits(num_tasks: int, model: Any, batch: TaskBatch) -> Tensor:
    """Each task's logits of its own samples, (B1, s).

    Examples:
        >>> batch = TaskBatch(torch.tensor([1]), torch.tensor([[3.0, 4.0]]), positives=0)
        >>> own_logits(2, lambda x: x, batch)
        tensor([[4.]])
    """
    logits = _logits(num_tasks, model, batch).view(len(batch.blocks), -1, num_tasks)
    own = batch.blocks.view(-1, 1, 1).expand(-1, logits.shape[1], 1)
    return logits.gather(2, own).squeeze(2)


def shared_logits(
    num_tasks: int, model: Any, batch: LabelBatch
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Blocks, logits (k, B1), both masks, and the weight of one positive and of one negative.

    Without a given weight, tasks that lack one of the two are left out.

    Examples:
        >>> here = torch.tensor([[1.0, 1.0], [0.0, 1.0]])
        >>> batch = LabelBatch(torch.tensor([0, 1]), torch.zeros(2, 2), here, 1 - here)
        >>> shared_logits(2, lambda x: x, batch)[0]
        tensor([0])
    """
    logits = _logits(num_tasks, model, batch)
    blocks, scale = batch.blocks, batch.scale
    positive, negative = batch.positive.to(logits.dtype), batch.negative.to(logits.dtype)
    if not blocks.equal(torch.arange(num_tasks, device=blocks.device)):
        logits = logits[:, blocks]
    if scale is None:
        counts = torch.stack([positive.sum(0), negative.sum(0)])
        present = (counts > 0).all(0)
        if not present.all():
            blocks, counts, logits = blocks[present], counts[:, present], logits[:, present]
            positive, negative = positive[:, present], negative[:, present]
        scale = 1 / counts
    return blocks, logits, positive, negative, scale.to(logits.dtype)


def _noise(means: Tensor, variances: Tensor, sizes: Tensor) -> Tensor:
    """Standard errors of moments over ``sizes`` samples of each class; NaN for one sample.

    Those of E h^2 are by the delta method, 2 h times those of E h: f is linear there, and they do
    not matter for its slopes.
    """
    noise = (variances / (sizes - 1)).sqrt()
    return torch.cat([noise, 2 * means * noise], dim=1)


def _logits(num_tasks: int, model: Any, batch: TaskBatch | LabelBatch) -> Tensor:
    logits: Tensor = model(batch.inputs)
    if num_tasks == 1 and logits.ndim == 1:
        logits = logits.unsqueeze(1)
    if logits.ndim != 2 or logits.shape[1] != num_tasks:
        raise ValueError(
            f"the model must give {num_tasks} logits per sample, one per task; got outputs of "
            f"shape {tuple(logits.shape)}"
        )
    return widened(logits)


def _check(num_tasks: int, margin: float) -> None:
    if num_tasks < 1:
        raise ValueError(f"num_tasks must be at least 1, got {num_tasks}")
    if not margin > 0:
        raise ValueError(f"margin must be positive, got {margin}")
