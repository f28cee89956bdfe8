"""The loss that is one minus a correlation over the data set."""

import torch
from torch import Tensor

from fcco.losses.fingerprint import fingerprint
from fcco.losses.means_inputs import read_columns
from fcco.losses.means_loss import MeansLoss
from fcco.methods import Beta
from fcco.objectives.domains import check_positive
from fcco.objectives.means import Means
from fcco.objectives.score import widened
from fcco.problem import Probe
from fcco.problem.given import tensor, whole

__all__ = ["CorrelationLoss"]


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
        x = read_columns("predictions", predictions, self.num_outputs).double()
        y = tensor("targets", targets).to(x.device).double()
        y = read_columns("targets", y, self.num_outputs)
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
