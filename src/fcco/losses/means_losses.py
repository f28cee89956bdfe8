"""Losses that are functions of means by name: F1, Dice, correlation and parity."""

import math
from typing import Any, Literal

import torch
from torch import Tensor

from fcco.losses.fingerprint import fingerprint
from fcco.losses.means_loss import MeansLoss
from fcco.methods import Beta
from fcco.objectives.domains import check_positive
from fcco.objectives.means import Means
from fcco.objectives.score import widened
from fcco.problem import Probe
from fcco.problem.given import tensor, whole

__all__ = ["CorrelationLoss", "DiceLoss", "F1Loss", "ParityLoss"]

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
        p = _within("probabilities", _columns("probabilities", probabilities, self.num_tasks))
        statistics = _overlap(p, _targets(targets, p))
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
        if not isinstance(probabilities, Tensor) or not probabilities.is_floating_point():
            name = type(probabilities).__name__
            kind = probabilities.dtype if isinstance(probabilities, Tensor) else name
            raise ValueError(f"probabilities must be a tensor of floats, got {kind}")
        if probabilities.ndim < 2 or probabilities.shape[1] != self.num_classes:
            raise ValueError(
                f"probabilities must have shape (B, {self.num_classes}, ...), got "
                f"{tuple(probabilities.shape)}"
            )
        y = _within("targets", _masks(targets, probabilities))
        p = _within("probabilities", widened(probabilities))
        # (B, C, voxels); the new last dimension is the only voxel if there are no others.
        p, y = (part.unsqueeze(-1).flatten(2) for part in (p, y))
        # Sums over voxels, not means: a volume counts in proportion to its number of voxels.
        parts = torch.stack([(p * y).sum(2), p.sum(2), y.sum(2)], dim=-1)
        return parts[:, self.first_class :]


class _Moments(Means):
    """Means in float64, whose differences of large numbers are variances."""

    row_dtype = torch.float64


class CorrelationLoss(MeansLoss):
    """1 - Pearson's correlation of predictions and targets over the data set, or 1 - concordance.

        Pearson = cov(x, y) / sqrt(var x var y),
        concordance = 2 cov(x, y) / (var x + var y + (E x - E y)^2).

    Both are averaged over outputs. The table is kept in float64, because variances are differences
    of means. Predictions that are all equal have no correlation: Pearson's loss is then 1, without
    a gradient, so do not start from a model whose last layer is zero.

    Args:
        num_outputs: the number of values that are predicted for each sample.
        concordance: whether to use Lin's concordance (CCC) instead of Pearson's correlation.
        beta: the weight of the batch in the means, or "auto", see ``MeansLoss``.

    Examples:
        >>> criterion = CorrelationLoss()
        >>> x = torch.tensor([1.0, 2.0, 3.0])
        >>> criterion(x, 2 * x).round(decimals=6)
        tensor(0.)
    """

    _objective = _Moments

    shift: Tensor
    """(outputs, 2), the numbers that are subtracted from predictions and from targets."""

    def __init__(
        self, num_outputs: int = 1, *, concordance: bool = False, beta: Beta = "auto"
    ) -> None:
        check_positive(num_outputs=num_outputs)
        function = _concordance if concordance else _pearson
        super().__init__(function, (whole("num_outputs", num_outputs), 5), beta=beta)
        self.num_outputs = num_outputs
        self.concordance = concordance
        self.fingerprint = fingerprint(self.objective, concordance)
        self.register_buffer("shift", torch.zeros(num_outputs, 2, dtype=torch.float64))
        self._first: Tensor = self.shift

    def forward(self, predictions: Tensor, targets: Tensor) -> Tensor:  # type: ignore[override]
        """Return the loss of a batch.

        Args:
            predictions: (B,), (B, 1) or (B, outputs), the predicted values.
            targets: the true values, of the same shape.
        """
        return self._of_lines(predictions, targets).to(widened(predictions).dtype)

    def _lines(self, predictions: Tensor, targets: Tensor) -> Tensor:  # type: ignore[override]
        x = _columns("predictions", predictions, self.num_outputs).double()
        y = tensor("targets", targets).to(x.device).double()
        y = _columns("targets", y, self.num_outputs)
        if len(y) != len(x):
            raise ValueError(f"{len(x)} predictions have {len(y)} targets")
        return torch.stack([x, y], dim=-1)

    def exact(self, predictions: Tensor, targets: Tensor) -> Tensor:  # type: ignore[override]
        """Return the loss of all samples, which is the value to monitor; it is differentiable.

        Args:
            predictions: (N,), (N, 1) or (N, outputs), the predicted values.
            targets: the true values, of the same shape.
        """
        lines = self._lines(predictions, targets)
        # These samples may lie far from the first batch, so they have a shift of their own.
        value = self.objective.exact(_moments_about(self._means(lines), lines))
        return value.to(widened(predictions).dtype)

    def _statistics(self, lines: Tensor) -> Tensor:
        """Return moments about the means of the first batch."""
        return _moments_about(self._choose_shift(lines).to(lines), lines)

    def _choose_shift(self, lines: Tensor) -> Tensor:
        if self.table.visited.any() or not len(lines):
            return self.shift
        if self._window is not None:  # joined micro-batches must have the same shift
            return self._first
        shift = self._means(lines)
        if self._writes:  # this batch is the first to be written, or the first of a window
            self._first = shift
        return shift

    def _means(self, lines: Tensor) -> Tensor:
        """Return the shift of a batch, which does not change the loss.

        Concordance does not change if x and y have the same shift, so that of the targets is used.
        """
        # A shift that is not finite would make the statistics of all samples so, and none be named.
        means = lines.detach().nan_to_num(0, 0, 0).mean(0)
        return means[:, 1:].expand(-1, 2) if self.concordance else means

    def _remember(self, probe: Probe) -> None:
        if not self.counts[2]:
            self.shift.copy_(self._first)
        super()._remember(probe)


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
        s = _columns("scores", scores, 1)
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


def _pearson(u: Tensor) -> Tensor:
    covariance, spread_x, spread_y, _ = _moments(u)
    some = (spread_x > 0) & (spread_y > 0)
    # Take the roots before the product, which could over- or underflow.
    product = spread_x.where(some, 1.0).sqrt() * spread_y.where(some, 1.0).sqrt()
    return 1 - (covariance / product).where(some, 0.0)


def _concordance(u: Tensor) -> Tensor:
    covariance, spread_x, spread_y, shift = _moments(u)
    total = spread_x + spread_y + shift.square()
    some = total > 0
    return 1 - (2 * covariance / total.where(some, 1.0)).where(some, 0.0)


def _moments(u: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the covariance, both variances, and the difference of the means."""
    x, y, xx, yy, xy = u.unbind(-1)
    return xy - x * y, (xx - x * x).clamp(min=0), (yy - y * y).clamp(min=0), x - y


def _moments_about(shift: Tensor, lines: Tensor) -> Tensor:
    """Return x, y, their squares and their product after a shift, (B, outputs, 5)."""
    # Var x = E x^2 - (E x)^2 cancels if the mean is large compared with the deviation.
    x, y = (lines - shift).unbind(-1)
    return torch.stack([x, y, x.square(), y.square(), x * y], dim=-1)


def _overlap(p: Tensor, y: Tensor) -> Tensor:
    """Return p y, p and y as (B, T, 3), all 0 where the target is missing."""
    known = (y == 0) | (y == 1)
    p, y = p.where(known, 0.0), y.where(known, 0.0)
    return torch.stack([p * y, p, y], dim=-1)


def _within(name: str, given: Tensor) -> Tensor:
    """Return ``given`` after checking that its entries lie in [0, 1]."""
    if given.numel():
        least, most = given.detach().aminmax()
        if least.isnan():  # aminmax propagates it
            raise FloatingPointError(f"{name} has entries that are NaN")
        if not (least >= 0 and most <= 1):
            hint = ": apply sigmoid or softmax to logits" if name == "probabilities" else ""
            raise ValueError(
                f"{name} must lie in [0, 1], got {least.item():.3g} to {most.item():.3g}{hint}"
            )
    return given


def _columns(name: str, given: Any, count: int) -> Tensor:
    if not isinstance(given, Tensor) or not given.is_floating_point():
        kind = given.dtype if isinstance(given, Tensor) else type(given).__name__
        raise ValueError(f"{name} must be a tensor of floats, got {kind}")
    columns = given.unsqueeze(1) if given.ndim == 1 and count == 1 else given
    if columns.ndim != 2 or columns.shape[1] != count:
        wanted = "(B,) or (B, 1)" if count == 1 else f"(B, {count})"
        raise ValueError(f"{name} must have shape {wanted}, got {tuple(given.shape)}")
    return widened(columns)


def _targets(given: Any, p: Tensor) -> Tensor:
    y = tensor("targets", given).to(p.device).double()
    y = y.unsqueeze(1) if y.ndim == 1 and p.shape[1] == 1 else y
    if y.shape != p.shape:
        hint = f": of class numbers, one_hot(targets, {p.shape[1]})" if y.ndim == 1 else ""
        raise ValueError(f"targets must have shape {tuple(p.shape)}, got {tuple(y.shape)}{hint}")
    strange = ~((y == 0) | (y == 1) | (y == -1) | y.isnan())
    if strange.any():
        raise ValueError(
            f"targets must be 0 or 1, or -1 or NaN where missing, got {y[strange][0].item()}"
        )
    return y.to(p.dtype)


def _masks(given: Any, p: Tensor) -> Tensor:
    """Return masks (B, C, ...) of 0 and 1, given masks or class numbers."""
    y = tensor("targets", given).to(p.device)
    if y.shape == p.shape:
        return y.to(widened(p).dtype)
    if p.shape[1] == 1 and y.shape == (p.shape[0], *p.shape[2:]):
        return y.unsqueeze(1).to(widened(p).dtype)  # with one class, this is the mask itself
    numbers = y.squeeze(1) if y.ndim == p.ndim and y.shape[1] == 1 else y
    if numbers.shape != (p.shape[0], *p.shape[2:]) or y.is_floating_point():
        raise ValueError(
            f"targets must have shape {tuple(p.shape)}, or be class numbers of shape "
            f"{(p.shape[0], *p.shape[2:])}, got {y.dtype} of shape {tuple(y.shape)}"
        )
    numbers = numbers.long()
    if numbers.numel() and not 0 <= int(numbers.min()) <= int(numbers.max()) < p.shape[1]:
        raise ValueError(f"targets must be class numbers in 0..{p.shape[1] - 1}")
    masks = torch.nn.functional.one_hot(numbers, p.shape[1]).movedim(-1, 1)
    return masks.to(widened(p).dtype)
