"""An objective that is any function of means over the data set: one block, or one per task."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fcco.objectives.score import widened
from fcco.problem.given import whole
from fcco.problem.objective import Objective
from fcco.problem.probe import Probe

__all__ = ["Means"]


class Means(Objective):
    """A function of means over the data set: F = (1/m) sum_i f(u_i).

    Each u_i holds the means of p statistics of every sample. A batch shows these means only in
    part: ``inner`` takes the mean over its samples. F1, Dice and correlations have this form, with
    m = 1 or with one block per task.

    Args:
        function: f, a differentiable function from means (..., p) to values (...).
        shape: p, or (m, p) for m blocks.

    Examples:
        >>> def one_minus_f1(u):  # means of p y, p and y
        ...     return 1 - 2 * u[..., 0] / (u[..., 1] + u[..., 2])
        >>> objective = Means(one_minus_f1, 3)
        >>> p, y = torch.tensor([0.9, 0.2]), torch.tensor([1.0, 0.0])
        >>> objective.exact(torch.stack([p * y, p, y], dim=-1))
        tensor(0.1429)
    """

    def __init__(self, function: Callable[[Tensor], Tensor], shape: int | tuple[int, int]) -> None:
        sizes = tuple(shape) if isinstance(shape, tuple | list) else (1, shape)
        if len(sizes) != 2 or any(whole("shape", size) < 1 for size in sizes):
            raise ValueError(f"shape must be p or (m, p), positive numbers, got {shape!r}")
        if not callable(function):
            raise ValueError(f"function must be callable, got {type(function).__name__}")
        self.function = function
        self.num_blocks, self.inner_dim = map(int, sizes)
        self.single = not isinstance(shape, tuple | list)

    def inner(self, model: Callable[[Any], Tensor], batch: Any) -> Probe:
        """Return the means over a batch; the model returns the statistics of each sample."""
        return self.probe(model(batch))

    def probe(self, statistics: Tensor) -> Probe:
        """Return the means over the samples of a batch, with their standard errors.

        Args:
            statistics: (B, p) or (B, m, p), one line per sample.
        """
        lines = self.read(statistics)
        if not len(lines):
            raise ValueError("statistics are empty: a batch has at least one sample")
        means = lines.mean(0)
        # The standard error of a mean of B samples is their deviation over sqrt(B (B - 1)). One
        # sample alone shows no spread, so its error is unknown.
        error = (lines.detach() - means.detach()).square().sum(0).sqrt()
        noise = error / (len(lines) * max(len(lines) - 1, 0)) ** 0.5 if len(lines) > 1 else None
        blocks = torch.arange(self.num_blocks, device=means.device)
        return Probe(blocks, means, samples=len(lines), noise=noise)

    def read(self, statistics: Any) -> Tensor:
        """Return statistics as (B, m, p) in at least float32, after checking them."""
        if not isinstance(statistics, Tensor) or not statistics.is_floating_point():
            kind = statistics.dtype if isinstance(statistics, Tensor) else type(statistics).__name__
            raise ValueError(f"statistics must be a tensor of floats, got {kind}")
        whole_shape = (self.num_blocks, self.inner_dim)
        inside = (self.inner_dim,) if self.single else whole_shape
        if statistics.shape[1:] not in (inside, whole_shape):
            wanted = ", ".join(map(str, inside))
            raise ValueError(
                f"statistics must have shape (B, {wanted}), one line per sample, got "
                f"{tuple(statistics.shape)}"
            )
        return widened(statistics).reshape(-1, self.num_blocks, self.inner_dim)

    def outer(self, u: Tensor, blocks: Tensor) -> Tensor:
        """Return f of each row of means."""
        try:
            values = self.function(u)
        # u[0] instead of u[..., 0] is the usual mistake, and it may raise an IndexError.
        except IndexError as error:
            raise ValueError(
                f"function gets means of shape {tuple(u.shape)}, (..., p): write u[..., 0], not "
                "u[0], for the first of them"
            ) from error
        if not isinstance(values, Tensor):
            raise ValueError(f"function must return a tensor, got {type(values).__name__}")
        if values.shape != u.shape[:-1]:
            raise ValueError(
                f"function must map (..., p) to (...), here {tuple(u.shape)} to "
                f"{tuple(u.shape[:-1])}, got {tuple(values.shape)}"
            )
        return values

    def exact(self, statistics: Tensor) -> Tensor:
        """Return F of the statistics of all samples, (N, p) or (N, m, p); it is differentiable."""
        probe = self.probe(statistics)
        means = probe.values
        with torch.autocast(means.device.type, enabled=False):
            value = self.outer(means, probe.blocks).mean()
        # f may be finite where a mean is not, for example if it masks an empty class.
        if not (value.isfinite() & means.isfinite().all()):
            raise FloatingPointError(self.explain(self.read(statistics), means))
        return value

    def explain(self, lines: Tensor, means: Tensor) -> str:
        """Return why f is not finite: statistics that are not, or means at which f is not."""
        lost = ~lines.detach().flatten(1).isfinite().all(1)
        if lost.any():
            samples = lost.nonzero().flatten()[:10].tolist()
            return f"statistics of samples {samples} of the batch are not finite"
        return (
            f"function or its slope is not finite at the means {means.tolist()}: it must be at "
            "those of any first batch, also one without positives (add a small number to a "
            "denominator or under a root)"
        )
