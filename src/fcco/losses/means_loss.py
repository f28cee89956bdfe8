"""Losses that are a function of means over the data set, for any batch size."""

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from fcco.losses.attach import Taken
from fcco.losses.exchange import exchange
from fcco.losses.row_loss import Observation, RowLoss
from fcco.methods import Beta, Gain
from fcco.objectives.means import Means
from fcco.problem import Probe

__all__ = ["MeansLoss"]

_REMEMBERED = 300
"""Number of batches over which the variance of a sample is averaged."""
_LEAST = 0.02
"""Smallest gain that is chosen. With a smaller one, means would not notice that they are wrong."""


class MeansLoss(RowLoss):
    """A function f of the means of some statistics over the data set, for any batch size.

        u_t = (1 - beta) u_{t-1} + beta (mean over the batch),    value (1/m) sum_i f(u_t^i).

    The gradient is that of f at u_t, through the statistics of the batch. In contrast, the loss of
    a batch, f(mean over the batch), is biased because f is not linear. This loss needs no index and
    nothing known in advance, and batch size 1 works.

    In ``eval()`` and under ``no_grad`` nothing is written, and the value is the one that the step
    would have. With several ranks, the batch is that of all ranks together.

    Args:
        function: f, a differentiable function from means (..., p) to values (...).
        shape: p, or (m, p) for m blocks (tasks) with one f each; the loss is their mean.
        beta: the weight of the batch in u, in (0, 1], or "auto". With "auto", the first steps
            average all that was seen. Then the weight follows the drift of the means and the noise
            of a batch. At batch size 1, the noise is estimated from the difference of successive
            batches.

    Examples:
        >>> criterion = MeansLoss(lambda u: 1 - 2 * u[..., 0] / (u[..., 1] + u[..., 2]), 3)
        >>> p, y = torch.tensor([0.9, 0.2], requires_grad=True), torch.tensor([1.0, 0.0])
        >>> loss = criterion(torch.stack([p * y, p, y], dim=-1))
        >>> loss.backward()
        >>> loss.detach()
        tensor(0.1429)
    """

    _objective: ClassVar[type[Means]] = Means

    objective: Means
    centre: Tensor
    """(m, p), the running means over many batches."""
    variance: Tensor
    """(m, p), the variance of the statistics of one sample."""
    last: Tensor
    """(m, p), the means of the last batch."""
    counts: Tensor
    """(3,), the samples of the last batch, the number of variance estimates, and of batches."""

    def __init__(
        self,
        function: Callable[[Tensor], Tensor],
        shape: int | tuple[int, int],
        *,
        beta: Beta = "auto",
    ) -> None:
        super().__init__(self._objective(function, shape), beta=beta)
        self.register_buffer("centre", torch.zeros_like(self.table.rows))
        self.register_buffer("variance", torch.zeros_like(self.table.rows))
        self.register_buffer("last", torch.zeros_like(self.table.rows))
        self.register_buffer("counts", torch.zeros(3, dtype=torch.int64))

    def forward(self, statistics: Tensor) -> Tensor:
        """Return the loss of a batch.

        Args:
            statistics: (B, p) or (B, m, p), the statistics of each sample.
        """
        return self._of_lines(statistics)

    def _of_lines(self, *given: Tensor) -> Tensor:
        """Return the loss of the batch of all ranks; an error on one rank is raised on all."""
        with torch.autocast(self.table.rows.device.type, enabled=False):
            read = lambda: [self._lines(*given)]  # noqa: E731
            (lines,) = exchange(self._together(), read, self.fingerprint)
            statistics = self._statistics(lines)
            probe = self.objective.probe(statistics)
            try:
                return self._take(probe)
            except FloatingPointError as error:  # in the words of means, not of blocks
                reason = self.objective.explain(statistics, probe.values)
                raise FloatingPointError(reason) from error

    def _lines(self, statistics: Tensor) -> Tensor:
        """Check the arguments of ``forward``, and return what ranks exchange of each sample."""
        return self.objective.read(statistics)

    def _statistics(self, lines: Tensor) -> Tensor:
        """Return the statistics of each sample, computed from what ranks exchange."""
        return lines

    def exact(self, *given: Tensor) -> Tensor:
        """Return f of the means over all samples, which is the value to monitor.

        It is differentiable.

        Args:
            given: the arguments of ``forward``, for all samples.
        """
        return self.objective.exact(self._statistics(self._lines(*given)))

    def _choose_gain(self) -> Gain:
        """Return the gain of the next step; the first steps average all that was seen.

        The share of drift is estimated by a quotient of two means. Only a quotient that exceeds
        chance by two standard deviations raises the gain. A gain that is too large makes u noisy,
        and it would take hundreds of steps to fall.
        """
        gain = super()._choose_gain()
        if not gain.auto or self.table.gain is None:
            return gain
        steps, rows, surprise, noise = self.table.gain.tolist()
        # With the gain 1 / t in step t, u is the plain mean of all batches.
        beta = max(_LEAST, 1 / (steps + 1))
        if surprise > 0:
            # Without drift, surprise / noise is 1 up to a relative error of about 1 / sqrt(rows).
            chance = 1 + 2 / min(rows, _REMEMBERED) ** 0.5
            beta = max(beta, 1 - chance * noise / surprise)
        return replace(gain, beta=beta)

    def _step(self, probe: Probe) -> Taken:
        if self.table.gain is not None:
            probe = replace(probe, noise=self._noise(probe))
        return super()._step(probe)

    def _noise(self, probe: Probe) -> Tensor:
        """Return standard errors of the means of a batch, from the stored variance; NaN if unknown.

        A batch of one sample shows no variance. But two successive batches differ by the noise of
        both, compared with which the drift of one step is small. The variance is averaged over
        steps. The noise of a single step would be correlated with the slopes that convert it into
        units of f.
        """
        samples, before = int(probe.samples_per_row()[0]), int(self.counts[0])
        if probe.noise is not None and not probe.noise.isnan().any():
            found = probe.noise.detach().square() * samples
        elif before:
            change = probe.values.detach() - self.last.to(probe.values)
            # Var(mean_t - mean_{t-1}) = variance (1 / B_t + 1 / B_{t-1}).
            found = change.square() / (1 / samples + 1 / before)
        else:
            return torch.full_like(probe.values.detach(), torch.nan)
        share = 1 / min(int(self.counts[1]) + 1, _REMEMBERED)
        variance = torch.lerp(self.variance.to(found), found, share)
        return (variance / samples).sqrt()

    def _sum_surprises(self, seen: Observation) -> Tensor | None:
        """Return the sums of squared errors over squared noise, in units of f at the centre.

        Slopes at u itself would be steep where u is wrong, for example at a small denominator. A
        large gain, which makes u noisy, would then seem right. Quotients are used because the
        slopes of the first steps may be larger than later ones by orders of magnitude.
        """
        if seen.noise is None:
            return None
        # f'(centre) converts errors of the means into errors of f.
        unit = self.objective.outer_slope(self.centre.to(seen.fresh), seen.blocks)
        both = torch.stack([unit * (seen.fresh - seen.old), unit * seen.noise]).double()
        surprise, error = both.square().sum(2)
        ratio = surprise / error
        known = ratio.isfinite() & ~seen.unvisited.squeeze(1)
        count = known.sum().double()
        return torch.stack([count, ratio.where(known, 0).sum(), count])

    def _remember(self, probe: Probe) -> None:
        samples = int(probe.samples_per_row()[0])
        share = 1 / min(int(self.counts[2]) + 1, _REMEMBERED)
        self.centre.lerp_(probe.values.detach().to(self.centre), share)
        self.counts[2] += 1
        self.last.copy_(probe.values.detach())
        self.counts[0] = samples
        if (
            self.table.gain is not None
            and probe.noise is not None
            and not probe.noise.isnan().any()
        ):
            # ``_noise`` put the averaged standard error into the probe. Its square times B is the
            # variance of one sample.
            self.variance.copy_(probe.noise.square() * samples)
            self.counts[1] += 1
