"""Sums over sampled terms, their standard errors, and means of exponentials."""

import torch
from torch import Tensor

from fcco.problem.batches import GroupBatch, PairBatch
from fcco.problem.probe import Probe

__all__ = [
    "cost_probe",
    "error_of_means",
    "exponential_probe",
    "exponentials",
    "grouped_exponentials",
    "one_vs_rest",
    "scale_of",
    "standard_error",
]


def one_vs_rest(logits: Tensor) -> Tensor:
    """Return the log-odds of each class against the rest; their sigmoid is the softmax probability.

    Args:
        logits: (k, classes), the outputs of a model for classes that exclude each other.

    Examples:
        >>> logits = torch.tensor([[1.0, 2.0, 3.0]])
        >>> bool(torch.allclose(one_vs_rest(logits).sigmoid(), logits.softmax(1)))
        True
    """
    first = torch.zeros_like(logits, dtype=torch.bool).scatter(1, logits.argmax(1, True), True)
    rest_of_first = logits.masked_fill(first, -torch.inf).logsumexp(1, keepdim=True)
    total = logits.logsumexp(1, keepdim=True)
    # log(1 - p) cancels where p is close to 1, which only the largest class can be. That class
    # uses the logsumexp of the others. All other classes have p <= 1/2, where log1p is accurate.
    rest = total + torch.log1p(-(logits - total).masked_fill(first, -1.0).exp())
    return logits - torch.where(first, rest_of_first, rest)


def cost_probe(costs: Tensor, batch: PairBatch) -> Probe:
    """Return a probe of weighted sums of the costs (B1, k) of pairs, with their standard errors.

    A pair of weight 0 adds 0, even if its cost is infinite.

    Examples:
        >>> batch = PairBatch(torch.tensor([0]), torch.zeros(2), partners=torch.tensor([0, 1]),
        ...     weights=torch.tensor([[[0.0, 0.5]]]), samples=2)
        >>> cost_probe(torch.tensor([[torch.inf, 4.0]]), batch).values
        tensor([[2.]])
    """
    weights = batch.weights.to(costs.dtype)
    terms = costs.masked_fill(weights == 0, 0) * weights
    return _summed(terms, batch, None)


def exponential_probe(exponents: Tensor, batch: PairBatch) -> Probe:
    """Return a probe of weighted sums of exp(exponents), as mantissas and a log-scale.

    Examples:
        >>> batch = PairBatch(torch.tensor([0]), torch.zeros(2), partners=torch.tensor([0, 1]),
        ...     weights=torch.full((1, 1, 2), 0.5), samples=2)
        >>> probe = exponential_probe(torch.full((1, 2), 1e4), batch)
        >>> probe.values, probe.log_scale
        (tensor([[1.]]), tensor([10000.]))
    """
    terms, scale = exponentials(exponents, batch.weights[0])
    return _summed(terms.unsqueeze(0), batch, scale)


def _summed(terms: Tensor, batch: PairBatch, scale: Tensor | None) -> Probe:
    """Return a probe of sums of terms (R, B1, k); the last ``batch.fixed`` terms have no error."""
    terms = terms.permute(1, 2, 0)
    sampled = terms.detach()[:, : terms.shape[1] - batch.fixed]
    noise = standard_error(sampled, batch.samples)
    return Probe(batch.blocks, terms.sum(1), batch.samples, log_scale=scale, noise=noise)


def standard_error(terms: Tensor, samples: int | Tensor) -> Tensor:
    """Return the standard errors of sums over dimension 1; NaN for fewer than two samples.

    The variance of a sum of n independent terms is n times the variance of one term, which is
    estimated from the spread of the terms.

    Args:
        terms: (B1, k) or (B1, k, p), the terms; those beyond the first n of a row are 0.
        samples: n, one number or one per row.

    Examples:
        >>> standard_error(torch.tensor([[1.0, 3.0], [2.0, 2.0]]), 2)
        tensor([2., 0.])
    """
    n = torch.as_tensor(samples, device=terms.device, dtype=terms.dtype)
    n = n.view(-1, *[1] * (terms.ndim - 2))
    mean = terms.sum(1) / n
    # Sum squared differences: the mean of squares minus a square would lose a small spread. The
    # padding, k - n terms that are 0, adds mean^2 each, which is subtracted.
    squares = (terms - mean.unsqueeze(1)).square().sum(1)
    squares = (squares - (terms.shape[1] - n) * mean.square()).clamp(min=0)
    return (n * squares / (n - 1)).sqrt()


def error_of_means(terms: Tensor, weights: Tensor, samples: int | Tensor) -> Tensor:
    """Return the standard errors of weighted means, where weights say how often a sample was drawn.

    A sample that was drawn twice may appear as two terms with half the weight each. A term of
    weight 0 was not drawn.

    Args:
        terms: (B1, k) or (B1, k, p), weights times values.
        weights: (B1, k), the weights.
        samples: the largest possible number of different samples.

    Examples:
        >>> weights = torch.tensor([[0.5, 0.25, 0.25, 0.0]])
        >>> error_of_means(weights * torch.tensor([1.0, 3.0, 3.0, 9.0]), weights, 2)
        tensor([1.])
    """
    weights = weights.to(terms.dtype).expand(terms.shape[:2])
    weights = weights.view(*weights.shape, *[1] * (terms.ndim - 2))
    most = torch.as_tensor(samples, device=terms.device).view(-1, *[1] * (terms.ndim - 2))
    n = torch.minimum((weights != 0).sum(1), most)
    total = weights.sum(1)
    away = terms - weights * (terms.sum(1) / total).unsqueeze(1)
    squares = (away.square() / weights).masked_fill(weights == 0, 0).sum(1)
    return (total * squares / (n - 1)).sqrt()


def exponentials(exponents: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return weights_j exp(exponents_j - log-scale) of each row (B1, k), and the log-scale (B1,).

    The scale is the largest exponent with a nonzero weight, rounded up to a whole number. Without
    it, exponentials of scores beyond 88 would overflow in float32.

    Examples:
        >>> exponentials(torch.tensor([[1e4, 1e4]]), torch.tensor([0.5, 0.5]))
        (tensor([[0.5000, 0.5000]]), tensor([10000.]))
    """
    weights = weights.to(exponents.dtype).expand_as(exponents)
    exponents = exponents.masked_fill(weights == 0, -torch.inf)
    scale = scale_of(exponents.detach().amax(1))
    return weights * (exponents - scale.unsqueeze(1)).exp(), scale


def grouped_exponentials(exponents: Tensor, batch: GroupBatch) -> tuple[Tensor, Tensor]:
    """Return exp(exponents - log-scale) of each sample (k,), and the scales of groups (B1,).

    Examples:
        >>> batch = GroupBatch(torch.tensor([0]), torch.zeros(2, 1), owner=torch.tensor([0, 0]),
        ...                    counts=torch.tensor([2]))
        >>> grouped_exponentials(torch.tensor([5.0, 5.0]), batch)
        (tensor([1., 1.]), tensor([5.]))
    """
    lowest = torch.full_like(batch.blocks, -torch.inf, dtype=exponents.dtype)
    peak = lowest.scatter_reduce(0, batch.owner, exponents.detach(), "amax")
    scale = scale_of(peak)
    return (exponents - scale[batch.owner]).exp(), scale


def scale_of(peak: Tensor) -> Tensor:
    """Return log-scales for rows with these largest exponents, rounded up; 0 for an empty row.

    A whole number is exact in float32.

    Examples:
        >>> scale_of(torch.tensor([1.5, -torch.inf]))
        tensor([2., 0.])
    """
    return peak.ceil().where(peak.isfinite(), 0)
