"""A batch as a score table takes it: checked, and every sample in it once."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = ["ScoreBatch", "read_batch"]


@dataclass(frozen=True)
class ScoreBatch:
    """Distinct samples with their fresh scores."""

    index: Tensor
    """(B,), distinct."""
    scores: Tensor
    """(B, T), at least float32, attached to the graph."""
    share: Tensor
    """(B,): 1/B each, or the sum of the weights of a sample's draws over the number of draws."""


def read_batch(
    scores: Any, index: Any, weight: Any, *, num_samples: int, num_tasks: int
) -> ScoreBatch:
    """Check a batch and merge the draws of one sample: it has the mean of their scores.

    Ranks that train together would exchange (index, score, weight) here, before merging.

    Examples:
        >>> batch = read_batch(torch.tensor([1.0, 3.0, 5.0]), torch.tensor([4, 4, 0]), None,
        ...                    num_samples=5, num_tasks=1)
        >>> batch.index, batch.scores.T, batch.share
        (tensor([0, 4]), tensor([[5., 2.]]), tensor([0.5000, 0.5000], dtype=torch.float64))
    """
    index = _index(index, num_samples)
    scores = _scores(scores, len(index), num_tasks)
    index = index.to(scores.device)
    lost = (~scores.isfinite()).any(1)
    if lost.any():
        raise FloatingPointError(f"scores of samples {_named(index[lost])} are not finite")
    draws = torch.ones(len(index), dtype=torch.float64, device=scores.device)
    weights = draws if weight is None else _weights(weight, index)
    index, inverse = index.unique(return_inverse=True)
    share = torch.zeros(len(index), dtype=torch.float64, device=scores.device)
    if len(index) == len(inverse):
        scores = scores[inverse.argsort()]
    else:
        counts = share.index_add(0, inverse, draws).to(scores.dtype)
        merged = scores.new_zeros(len(index), num_tasks).index_add(0, inverse, scores)
        scores = merged / counts.unsqueeze(1)
    if weight is None:
        return ScoreBatch(index, scores, share + 1 / max(len(index), 1))
    return ScoreBatch(index, scores, share.index_add(0, inverse, weights) / max(len(inverse), 1))


def _index(given: Any, num_samples: int) -> Tensor:
    index = torch.as_tensor(given)
    whole = not (index.is_floating_point() or index.is_complex() or index.dtype == torch.bool)
    if index.ndim != 1 or not (whole or not len(index)):
        raise ValueError(
            f"index must be whole numbers of shape (B,), got {index.dtype} of shape "
            f"{tuple(index.shape)}"
        )
    index = index.long()
    outside = (index < 0) | (index >= num_samples)
    if outside.any():
        raise ValueError(
            f"index: samples {_named(index[outside])} are outside 0..{num_samples - 1}, those that "
            "the criterion was built for"
        )
    return index


def _scores(given: Any, count: int, num_tasks: int) -> Tensor:
    if not isinstance(given, Tensor) or not given.is_floating_point():
        kind = given.dtype if isinstance(given, Tensor) else type(given).__name__
        raise ValueError(f"scores must be a tensor of floats, got {kind}")
    scores = given.unsqueeze(1) if given.ndim == 1 and num_tasks == 1 else given
    if scores.shape != (count, num_tasks):
        wanted = f"({count},) or ({count}, 1)" if num_tasks == 1 else f"({count}, {num_tasks})"
        raise ValueError(
            f"scores must have shape {wanted} for an index of {count} samples, got "
            f"{tuple(given.shape)}"
        )
    return scores.to(torch.promote_types(scores.dtype, torch.float32))


def _weights(given: Any, index: Tensor) -> Tensor:
    weights = torch.as_tensor(given, device=index.device).detach().double()
    if weights.shape != index.shape:
        raise ValueError(f"weight must have shape ({len(index)},), got {tuple(weights.shape)}")
    bad = ~((weights >= 0) & weights.isfinite())
    if bad.any():
        raise ValueError(
            f"weight must be finite and not negative, that of samples {_named(index[bad])} is not"
        )
    return weights


def _named(samples: Tensor) -> str:
    shown = samples[:10].tolist()
    return str(shown) if len(samples) <= 10 else f"{str(shown)[:-1]}, ...]"
