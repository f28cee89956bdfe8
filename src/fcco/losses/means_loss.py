"""Losses that are a function of means over the data set, at any batch size."""

from collections.abc import Callable
from dataclasses import replace

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
"""Batches over which the variance of a sample is averaged."""
_LEAST = 0.02
"""Of a gain that is chosen: means that take over less would not notice that they are wrong."""


class MeansLoss(RowLoss):
    """f of the means over the data set of some statistics of each sample, at any batch size.

        u_t = (1 - beta) u_{t-1} + beta (mean over the batch),    value (1/m) sum_i f(u_t^i),

    with the gradient of f at u_t, through the statistics of the batch. The loss of a batch,
    f(mean over the batch), is biased: f is not linear. No index is needed, and nothing known in
    advance. Batch size 1 works.

    In ``eval()`` and under ``no_grad`` nothing is written; the value is the one that would be. On
    several ranks the batch is that of all of them.

    Args:
        function: f, from (..., p) to (...).
        shape: p, or (m, p) for m blocks (tasks) that have f each; the loss is their mean.
        beta: weight of the new in u, in (0, 1]; "auto": the first steps average all that was seen,
            and then the gain follows the drift of the means and the noise of a batch, which at
            batch size 1 is taken from the difference of successive batches.

    Examples:
        >>> criterion = MeansLoss(lambda u: 1 - 2 * u[..., 0] / (u[..., 1] + u[..., 2]), 3)
        >>> p, y = torch.tensor([0.9, 0.2], requires_grad=True), torch.tensor([1.0, 0.0])
        >>> loss = criterion(torch.stack([p * y, p, y], dim=-1))
        >>> loss.backward()
        >>> loss.detach()
        tensor(0.1429)
    """

    objective: Means
    centre: Tensor
    """(m, p), the means of many batches."""
    variance: Tensor
    """(m, p), of the statistics of one sample."""
    last: Tensor
    """(m, p), the means of the last batch."""
    counts: Tensor
    """The samples of the last batch, how often the variance was estimated, and the batches."""

    def __init__(
        self,
        function: Callable[[Tensor], Tensor],
        shape: int | tuple[int, int],
        *,
        beta: Beta = "auto",
    ) -> None:
        super().__init__(Means(function, shape), beta=beta)
        self.register_buffer("centre", torch.zeros_like(self.table.rows))
        self.register_buffer("variance", torch.zeros_like(self.table.rows))
        self.register_buffer("last", torch.zeros_like(self.table.rows))
        self.register_buffer("counts", torch.zeros(3, dtype=torch.int64))

    def forward(self, statistics: Tensor) -> Tensor:
        """The loss of a batch.

        Args:
            statistics: (B, p), or (B, m, p): one line per sample.
        """
        return self._of_lines(statistics)

    def _of_lines(self, *given: Tensor) -> Tensor:
        """The loss of the batch of all ranks; if reading it raises on one rank, all raise."""
        with torch.autocast(self.table.rows.device.type, enabled=False):
            read = lambda: [self._lines(*given)]  # noqa: E731
            (lines,) = exchange(self._together(), read, self.fingerprint)
            return self._take(self.objective.probe(self._statistics(lines)))

    def _lines(self, statistics: Tensor) -> Tensor:
        """What ranks exchange of each sample, from the arguments of ``forward``, checked."""
        return self.objective.read(statistics)

    def _statistics(self, lines: Tensor) -> Tensor:
        """The statistics of each sample, from what ranks exchange."""
        return lines

    def exact(self, *given: Tensor) -> Tensor:
        """f of the means over all samples, differentiable: the value to monitor.

        Args:
            given: what ``forward`` takes, of all samples.
        """
        return self.objective.exact(self._statistics(self._lines(*given)))

    def _choose_gain(self) -> Gain:
        """The gain of the filter; the first steps average what they have seen.

        The share of drift in what was seen is a quotient of two means. Only what chance does not
        explain, two standard deviations of it, raises the gain: one that is too large makes u noisy
        and would take hundreds of steps to fall.
        """
        gain = super()._choose_gain()
        if not gain.auto or self.table.gain is None:
            return gain
        steps, rows, surprise, noise = self.table.gain.tolist()
        beta = max(_LEAST, 1 / (steps + 1))
        if surprise > 0:
            chance = 1 + 2 / min(rows, _REMEMBERED) ** 0.5
            beta = max(beta, 1 - chance * noise / surprise)
        return replace(gain, beta=beta)

    def _step(self, probe: Probe) -> Taken:
        if self.table.gain is not None:
            probe = replace(probe, noise=self._noise(probe))
        return super()._step(probe)

    def _noise(self, probe: Probe) -> Tensor:
        """Standard errors of the means of a batch, from the remembered variance; NaN if unknown.

        A batch of one shows no variance, but two successive batches differ by the noise of both:
        the drift of one step is small beside it. The variance is averaged over steps, because the
        noise of a single step would go together with the slopes that the gain weighs it by.
        """
        samples, before = int(probe.samples_per_row()[0]), int(self.counts[0])
        if probe.noise is not None and not probe.noise.isnan().any():
            found = probe.noise.detach().square() * samples
        elif before:
            change = probe.values.detach() - self.last.to(probe.values)
            found = change.square() / (1 / samples + 1 / before)
        else:
            return torch.full_like(probe.values.detach(), torch.nan)
        share = 1 / min(int(self.counts[1]) + 1, _REMEMBERED)
        variance = torch.lerp(self.variance.to(found), found, share)
        return (variance / samples).sqrt()

    def _sum_surprises(self, seen: Observation) -> Tensor | None:
        """Squared errors in units of f over the squared noise, with slopes at the centre.

        Slopes at u would be steep where u is wrong (a small denominator, say), so that a large
        gain, which makes u noisy, would seem right. Quotients, because slopes of the first steps
        may be larger by orders of magnitude than those after them.
        """
        if seen.noise is None:
            return None
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
            self.variance.copy_(probe.noise.square() * samples)
            self.counts[1] += 1
