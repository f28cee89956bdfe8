"""AUC of the remembered scores, by two sums of exponentials for each task."""

from typing import Any

import torch
from torch import Tensor

from fcco.losses.groups import Groups
from fcco.losses.labels import read_labels
from fcco.losses.table import Change, ScoreLoss
from fcco.objectives.domains import check_positive

__all__ = ["AUCLoss"]

_BLOCK = 256
"""Exponentials that are summed anew when one of them changes."""
_NOTHING = -1e300
"""The logarithm of a sum without terms; finite, as all that is saved."""


class AUCLoss(ScoreLoss):
    """A smooth, bounded form of 1 - AUC over all pairs, meaned over the tasks.

        F = T log(1 + u_1 u_2),    u_1 = E- exp(h / T),    u_2 = E+ exp(-h / T),

    E+ and E- the means over a task's positives and negatives: u_1 u_2 is the mean over all pairs of
    exp((h- - h+) / T). Its gradient is that of cross-entropy in kind (a pair that is in the right
    order by far has none), and scores may be logits of any scale. Tasks without a positive or
    without a negative are left out.

    Exponentials are summed in blocks of 256 samples of a class, and a block is summed anew when one
    of them changes: O(256 B + N / 256) per step and task, without cancellation. Besides the table
    it keeps 16 bytes per sample and task.

    Args:
        labels: (N,) or (N, tasks), 1 or 0; -1 or NaN where missing.
        temperature: T; towards 0 the worst pairs alone count.

    Examples:
        >>> criterion = AUCLoss(torch.tensor([1, 0]))
        >>> criterion.exact(torch.tensor([0.0, 0.0]))  # log 2
        tensor(0.6931)
        >>> criterion.exact(torch.tensor([9.0, -9.0]))
        tensor(1.5230e-08)
    """

    log_sums: Tensor
    """(blocks,), log sum exp(+-h / T)."""
    block: Tensor
    """(N, tasks), of each cell; below 0 where the label is missing."""
    group: Tensor
    """(blocks,), the task, and (second half) the task as a negative."""
    counts: Tensor
    """(2 tasks,), how many samples of each were seen."""

    def __init__(self, labels: Any, *, temperature: float = 1.0) -> None:
        check_positive(temperature=temperature)
        positive, negative = read_labels(labels)
        samples, tasks = positive.shape
        super().__init__(samples, tasks)
        self.temperature = temperature
        task = torch.arange(tasks).expand(samples, -1)
        owner = torch.where(positive, task, torch.where(negative, tasks + task, -1)).flatten()
        classes = Groups.of(owner, 2 * tasks)
        within = torch.arange(len(classes.cells)) - classes.starts[classes.owner()]
        cuts = (within % _BLOCK == 0).nonzero().flatten()
        self.blocks = Groups(classes.cells, torch.cat([cuts, classes.starts[-1:]]))
        block = torch.full_like(owner, -1)
        block[classes.cells] = self.blocks.owner()
        self._structure(block=block.view(samples, tasks), group=classes.owner()[cuts])
        self._running("log_sums", torch.full((len(cuts),), _NOTHING, dtype=torch.float64))
        self.register_buffer("counts", torch.zeros(2 * tasks, dtype=torch.int64))

    def exact(self, scores: Tensor) -> Tensor:
        """F of all N scores, differentiable.

        Examples:
            >>> labels = torch.tensor([[1, 0], [0, -1]])  # the second task has no positive
            >>> AUCLoss(labels).exact(torch.zeros(2, 2))
            tensor(0.6931)
        """
        h = self._all(scores) / self.temperature
        group, tasks = self.group[self.block.clamp(min=0)].where(self.block >= 0, -1), h.shape[1]
        positive, negative = (group >= 0) & (group < tasks), group >= tasks
        both = positive.any(0) & negative.any(0)
        log_u = [
            z[:, both].where(members[:, both], -torch.inf).logsumexp(0)
            - members[:, both].sum(0).to(h.dtype).log()
            for members, z in ((negative, h), (positive, -h))
        ]
        return self.temperature * _log1p_exp(log_u[0] + log_u[1]).mean()

    def _look(self, change: Change) -> tuple[Tensor, Tensor | None]:
        tasks = self.scores.shape[1]
        block = self.block[change.index]
        group = self.group[block.clamp(min=0)]
        fresh = (block >= 0) & ~change.known.unsqueeze(1)
        counts = self.counts.index_add(0, group[fresh], torch.ones_like(group[fresh]))
        change.journal.write(self.counts, ..., counts)
        self._add_up(change, block[block >= 0].unique())
        log_sums = _grouped_logsumexp(self.log_sums, self.group, 2 * tasks)
        log_u = (log_sums - counts.clamp(min=1).double().log()).view(2, tasks).sum(0)
        both = (counts.view(2, tasks) > 0).all(0)
        share = both / both.sum().clamp(min=1).double()
        value = self.temperature * (share * _log1p_exp(log_u.where(both, 0))).sum()
        if not change.slopes:
            return value, None
        sign = (group >= tasks) * 2.0 - 1.0
        h = self.scores[change.index].double() / self.temperature
        part = (sign * h - log_sums[group]).where(block >= 0, -torch.inf).exp()
        return value, sign * part * share * torch.sigmoid(log_u.where(both, 0))

    def _add_up(self, change: Change, blocks: Tensor) -> None:
        """The sums of some blocks from their cells."""
        places, inside = self.blocks.places(blocks)
        cells, tasks = self.blocks.cells[places], self.scores.shape[1]
        sign = (self.group[blocks] >= tasks).unsqueeze(1) * 2.0 - 1.0
        exponents = sign * self.scores.view(-1)[cells].double() / self.temperature
        exponents = exponents.where(inside & self.seen[cells // tasks], _NOTHING)
        change.journal.write(self.log_sums, blocks, exponents.logsumexp(1))


def _log1p_exp(x: Tensor) -> Tensor:
    """log(1 + exp(x)); torch's softplus leaves out the last digits beyond 20."""
    return torch.logaddexp(x, torch.zeros_like(x))


def _grouped_logsumexp(x: Tensor, group: Tensor, count: int) -> Tensor:
    """log sum exp of the entries of each group; very negative where it has none."""
    top = x.new_full((count,), _NOTHING).scatter_reduce(0, group, x, "amax")
    return top + x.new_zeros(count).index_add(0, group, (x - top[group]).exp()).log()
