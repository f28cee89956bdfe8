"""Losses that are functions of means by name: F1, Dice and parity."""

import math
from typing import Literal

import torch
from torch import Tensor

from fcco.losses.fingerprint import fingerprint
from fcco.losses.means_inputs import (
    check_fractions,
    read_columns,
    read_floats,
    read_masks,
    read_targets,
)
from fcco.losses.means_loss import MeansLoss
from fcco.methods import Beta
from fcco.objectives.domains import check_positive
from fcco.objectives.score import widened
from fcco.problem.given import tensor, whole

__all__ = ["DiceLoss", "F1Loss", "ParityLoss"]

_NOTHING = 1e-30
"""A mean that counts as 0. It falls towards 0 while a class or group is absent from all batches,
or a softmax of an absent class begins there. Its inverse, a slope, must fit into float32."""


class F1Loss(MeansLoss):
    """1 - F1 of the data set, with probabilities in place of predictions.

        F_b = (1 + b^2) E[p y] / (b^2 E[y] + E[p]).

    Args:
        num_tasks: T, the number of tasks.
        recall_weight: b. Recall counts b times as much as precision.
        average: "macro" for the mean of F_b over tasks, or "micro" for F_b of all tasks together.
        beta: the weight of the batch in the means, or "auto", see ``MeansLoss``.

    Examples:
        >>> criterion = F1Loss()
        >>> criterion(torch.tensor([0.9, 0.2]), torch.tensor([1, 0]))  # 1 - 1.8 / 2.1
        tensor(0.1429)
    """

    def __init__(
        self,
        num_tasks: int = 1,
        *,
        recall_weight: float = 1.0,
        average: Literal["macro", "micro"] = "macro",
        beta: Beta = "auto",
    ) -> None:
        check_positive(num_tasks=whole("num_tasks", num_tasks), recall_weight=recall_weight)
        if average not in ("macro", "micro"):
            raise ValueError(f'average must be "macro" or "micro", got {average!r}')
        blocks = num_tasks if average == "macro" else 1
        square = recall_weight**2
        weights = 1 + square, 1.0, square
        super().__init__(_Ratio(*weights), (blocks, 3), beta=beta)
        self.num_tasks, self.average = num_tasks, average
        self.fingerprint = fingerprint(self.objective, num_tasks, average)

    def forward(self, probabilities: Tensor, targets: Tensor) -> Tensor:  # type: ignore[override]
        """Return the loss of a batch.

        Args:
            probabilities: (B,), (B, 1) or (B, T), in [0, 1].
            targets: of the same shape, 1 or 0; -1 or NaN where missing.
        """
        return self._of_lines(probabilities, targets)

    def _lines(self, probabilities: Tensor, targets: Tensor) -> Tensor:  # type: ignore[override]
        p = check_fractions(
            "probabilities", read_columns("probabilities", probabilities, self.num_tasks)
        )
        statistics = _overlap(p, read_targets(targets, p))
        return statistics.sum(1, keepdim=True) if self.average == "micro" else statistics


class DiceLoss(MeansLoss):
    """1 - Dice of the data set, for masks of any dimensions; also Tversky's and Jaccard's index.

        Tversky = E[p y] / (E[p y] + a E[p (1 - y)] + b E[(1 - p) y]).

    The means are over all voxels of the data set. The index of each class is averaged over classes.
    Dice has a = b = 1/2, and Jaccard has a = b = 1.

    Args:
        num_classes: C, the number of classes, which are the channels.
        weights: (a, b), the weights of false positives and of false negatives.
        jaccard: whether to use a = b = 1.
        include_background: whether class 0 counts, if there are several classes.
        beta: the weight of the batch in the means, or "auto", see ``MeansLoss``.

    Examples:
        >>> criterion = DiceLoss()
        >>> mask = torch.tensor([[[[1.0, 0.0], [1.0, 0.0]]]])  # (B, C, H, W)
        >>> criterion(mask, mask), criterion(1 - mask, mask)
        (tensor(0.), tensor(0.5000))
    """

    def __init__(
        self,
        num_classes: int = 1,
        *,
        weights: tuple[float, float] = (0.5, 0.5),
        jaccard: bool = False,
        include_background: bool = True,
        beta: Beta = "auto",
    ) -> None:
        check_positive(num_classes=num_classes)
        first, second = (1.0, 1.0) if jaccard else weights
        if first < 0 or second < 0 or not 0 < first + second < math.inf:
            raise ValueError(f"weights must be two finite numbers of at least 0, got {weights}")
        first_class = 0 if include_background or num_classes == 1 else 1
        # E[p y] + a (E[p] - E[p y]) + b (E[y] - E[p y]), with the terms of E[p y] collected.
        ratio = _Ratio(1.0, first, second, 1.0 - first - second)
        super().__init__(ratio, (whole("num_classes", num_classes) - first_class, 3), beta=beta)
        self.num_classes, self.first_class = num_classes, first_class
        self.fingerprint = fingerprint(self.objective, num_classes, first_class)

    def forward(self, probabilities: Tensor, targets: Tensor) -> Tensor:  # type: ignore[override]
        """Return the loss of a batch.

        Args:
            probabilities: (B, C, ...), in [0, 1].
            targets: of the same shape, 1 or 0; or class numbers (B, ...) or (B, 1, ...).
        """
        return self._of_lines(probabilities, targets)

    def _lines(self, probabilities: Tensor, targets: Tensor) -> Tensor:  # type: ignore[override]
        probabilities = read_floats("probabilities", probabilities)
        if probabilities.ndim < 2 or probabilities.shape[1] != self.num_classes:
            raise ValueError(
                f"probabilities must have shape (B, {self.num_classes}, ...), got "
                f"{tuple(probabilities.shape)}"
            )
        y = check_fractions("targets", read_masks(targets, probabilities))
        p = check_fractions("probabilities", widened(probabilities))
        # (B, C, voxels); the new last dimension is the only voxel if there are no others.
        p, y = (part.unsqueeze(-1).flatten(2) for part in (p, y))
        # Sums over voxels, not means: a volume counts in proportion to its number of voxels.
        parts = torch.stack([(p * y).sum(2), p.sum(2), y.sum(2)], dim=-1)
        return parts[:, self.first_class :]


class ParityLoss(MeansLoss):
    """The gap of mean scores between groups over the data set, a penalty for use with any loss.

        max_g E[s | g] - min_g E[s | g].

    For probabilities this is the demographic parity difference. Groups that have not been seen yet,
    or not in thousands of batches, do not count.

    Args:
        num_groups: G, the number of groups.
        squared: whether to square the gap, which is smooth at 0.
        beta: the weight of the batch in the means, or "auto", see ``MeansLoss``.

    Examples:
        >>> criterion = ParityLoss(2)
        >>> criterion(torch.tensor([0.9, 0.2, 0.4]), torch.tensor([0, 1, 1])).round(decimals=4)
        tensor(0.6000)
    """

    def __init__(self, num_groups: int, *, squared: bool = False, beta: Beta = "auto") -> None:
        check_positive(num_groups=num_groups)
        super().__init__(_Gap(squared), 2 * whole("num_groups", num_groups), beta=beta)
        self.num_groups = num_groups

    def forward(self, scores: Tensor, groups: Tensor) -> Tensor:  # type: ignore[override]
        """Return the penalty of a batch.

        Args:
            scores: (B,) or (B, 1), probabilities or any score.
            groups: (B,), the group of each sample, as whole numbers.
        """
        return self._of_lines(scores, groups)

    def _lines(self, scores: Tensor, groups: Tensor) -> Tensor:  # type: ignore[override]
        s = read_columns("scores", scores, 1)
        ids = tensor("groups", groups).to(s.device)
        if ids.shape != s.shape[:1] or ids.is_floating_point():
            raise ValueError(f"groups must be whole numbers of shape ({len(s)},)")
        ids = ids.long()
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < self.num_groups:
            raise ValueError(f"groups must lie in 0..{self.num_groups - 1}")
        member = torch.nn.functional.one_hot(ids, self.num_groups).to(s.dtype)
        # E[s | g] is the quotient of the means E[s 1[g]] and E[1[g]], which are the statistics.
        return self.objective.read(torch.cat([member * s, member], dim=1))


class _Ratio:
    """1 - a u_1 / (b u_2 + c u_3 + d u_1) of the means of p y, p and y; 1 if all means are 0."""

    def __init__(self, a: float, b: float, c: float, d: float = 0.0) -> None:
        self.weights = a, b, c, d

    def __call__(self, u: Tensor) -> Tensor:
        a, b, c, d = self.weights
        overlap, predicted, present = u.unbind(-1)
        whole = b * predicted + c * present + d * overlap
        some = whole > _NOTHING
        # Without any positive and any prediction of one, the loss is 1 and its slope is 0. The
        # inner ``where`` keeps 0 / 0 out of the backward pass, where it would give NaN.
        return 1 - (a * overlap / whole.where(some, 1.0)).where(some, 0.0)


class _Gap:
    def __init__(self, squared: bool) -> None:
        self.squared = squared

    def __call__(self, u: Tensor) -> Tensor:
        total, share = u.chunk(2, dim=-1)
        # A group without any sample has no rate, and 0 / 0 must not reach the maximum.
        met = share > _NOTHING
        rate = total / share.where(met, 1.0)
        high = rate.masked_fill(~met, -torch.inf).amax(-1)
        low = rate.masked_fill(~met, torch.inf).amin(-1)
        gap = (high - low).where(met.any(-1), 0.0)
        return gap.square() if self.squared else gap


def _overlap(p: Tensor, y: Tensor) -> Tensor:
    """Return p y, p and y as (B, T, 3), all 0 where the target is missing."""
    known = (y == 0) | (y == 1)
    p, y = p.where(known, 0.0), y.where(known, 0.0)
    return torch.stack([p * y, p, y], dim=-1)
