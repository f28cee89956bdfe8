"""A checked batch of scores in which every sample occurs once."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fcco.distributed import Ranks
from fcco.losses.exchange import exchange
from fcco.problem.given import tensor

__all__ = ["ScoreBatch", "first_ten", "read_batch", "read_index"]


@dataclass(frozen=True)
class ScoreBatch:
    """Distinct samples with their new scores."""

    index: Tensor
    """(B,), the samples, which are distinct."""
    scores: Tensor
    """(B, T), their scores in at least float32, attached to the graph."""
    share: Tensor | float
    """The weight of a sample in the gradient: 1/B, or, with weights, (B, 1), the sum of the weights
    of its draws divided by the number of draws."""


def read_batch(
    scores: Any,
    index: Any,
    weight: Any,
    *,
    num_samples: int,
    num_tasks: int,
    ranks: Ranks | None = None,
    made_of: Tensor | None = None,
) -> ScoreBatch:
    """Check a batch, and merge several draws of one sample to the mean of their scores.

    Ranks that train together exchange (index, score, weight) before merging.

    Args:
        scores: (B,), (B, 1) or (B, T), the scores.
        index: (B,), the samples.
        weight: (B,), the weight of each draw, or None.
        num_samples: N, the number of samples of the training set.
        num_tasks: T, the number of scores per sample.
        ranks: the ranks to exchange batches with, or None.
        made_of: the fingerprint, which must be equal on all ranks.

    Examples:
        >>> batch = read_batch(torch.tensor([1.0, 3.0, 5.0]), torch.tensor([4, 4, 0]), None,
        ...                    num_samples=5, num_tasks=1)
        >>> batch.index, batch.scores.T, batch.share
        (tensor([0, 4]), tensor([[5., 2.]]), 0.5)
    """
    read = partial(_checked, scores, index, weight, num_samples, num_tasks)
    index, scores, *weights = exchange(ranks, read, made_of)
    draws = len(index)
    if len(index.unique()) == draws:
        # An empty batch is allowed: it changes nothing, and max(draws, 1) avoids 1 / 0.
        share = weights[0].unsqueeze(1) / max(draws, 1) if weights else 1 / max(draws, 1)
        return ScoreBatch(index, scores, share)
    index, inverse = index.unique(return_inverse=True)
    counts = torch.bincount(inverse).to(scores.dtype)
    merged = scores.new_zeros(len(index), num_tasks).index_add(0, inverse, scores)
    # The mean of the draws, attached to the graph, so that each draw gets its part of the gradient.
    merged = merged / counts.unsqueeze(1)
    if not weights:
        return ScoreBatch(index, merged, 1 / len(index))
    # With weights, every draw counts: the sample's share is the sum over its draws.
    total = weights[0].new_zeros(len(index)).index_add(0, inverse, weights[0])
    return ScoreBatch(index, merged, total.unsqueeze(1) / draws)


def read_index(given: Any, count: int, *, name: str = "index", members: str = "samples") -> Tensor:
    """Return the samples of a batch, or the groups of its samples, after checking them.

    Examples:
        >>> read_index([2, 3], 3)
        Traceback (most recent call last):
        ValueError: index: samples [3] are outside 0..2, those that the criterion was built for
    """
    index = given if isinstance(given, Tensor) else tensor(name, given)
    whole = not (index.is_floating_point() or index.is_complex() or index.dtype == torch.bool)
    if index.ndim != 1 or not (whole or not len(index)):
        hint = ""
        if name == "index":
            hint = (
                ": it is the position of each sample in the labels that the loss was built from, "
                "which fcco.data.WithIndex(dataset) appends"
            )
        raise ValueError(
            f"{name} must be whole numbers of shape (B,), got {index.dtype} of shape "
            f"{tuple(index.shape)}{hint}"
        )
    # torch.searchsorted warns if an index is not contiguous.
    index = index.long().contiguous()
    if not len(index):
        return index
    least, most = index.aminmax()
    if least < 0 or most >= count:
        outside = index[(index < 0) | (index >= count)]
        raise ValueError(
            f"{name}: {members} {first_ten(outside)} are outside 0..{count - 1}, those that "
            "the criterion was built for"
        )
    return index


def first_ten(samples: Tensor) -> str:
    """Return the first ten of some samples as text, for an error message.

    Examples:
        >>> first_ten(torch.arange(12))
        '[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ...]'
    """
    shown = samples[:10].tolist()
    return str(shown) if len(samples) <= 10 else f"{str(shown)[:-1]}, ...]"


def _checked(
    scores: Any, index: Any, weight: Any, num_samples: int, num_tasks: int
) -> list[Tensor]:
    """Check a batch and return index (B,), scores (B, T) and, if there are any, weights (B,)."""
    index = read_index(index, num_samples)
    whole = isinstance(weight, Tensor) and weight.dtype in (torch.int64, torch.int32)
    if whole and num_samples > 2 < len(index) and index.max() < 2 and weight.unique().numel() > 1:
        raise ValueError(
            "the index is 0 or 1 and the weights are whole numbers, as if this were called with "
            "targets and an index: write criterion(scores, index); the loss has the labels"
        )
    scores = _scores(scores, len(index), num_tasks)
    index = index.to(scores.device)
    if not scores.detach().isfinite().all():
        lost = (~scores.detach().isfinite()).any(1)
        raise FloatingPointError(f"scores of samples {first_ten(index[lost])} are not finite")
    return [index, scores] if weight is None else [index, scores, _weights(weight, index)]


def _scores(given: Any, count: int, num_tasks: int) -> Tensor:
    if not isinstance(given, Tensor) or not given.is_floating_point():
        kind = given.dtype if isinstance(given, Tensor) else type(given).__name__
        raise ValueError(f"scores must be a tensor of floats, got {kind}")
    scores = given.unsqueeze(1) if given.ndim == 1 and num_tasks == 1 else given
    if scores.shape != (count, num_tasks):
        wanted = f"({count},) or ({count}, 1)" if num_tasks == 1 else f"({count}, {num_tasks})"
        hint = ": squeeze(1) keeps a batch of one sample, squeeze() does not"
        raise ValueError(
            f"scores must have shape {wanted} for an index of {count} samples, got "
            f"{tuple(given.shape)}{'' if given.ndim else hint}"
        )
    return scores.to(torch.promote_types(scores.dtype, torch.float32))


def _weights(given: Any, index: Tensor) -> Tensor:
    weights = tensor("weight", given).detach().to(index.device, torch.float64)
    if weights.shape != index.shape:
        raise ValueError(f"weight must have shape ({len(index)},), got {tuple(weights.shape)}")
    bad = ~((weights >= 0) & weights.isfinite())
    if bad.any():
        raise ValueError(
            "weight must be finite and not negative, that of samples "
            f"{first_ten(index[bad])} is not"
        )
    return weights
