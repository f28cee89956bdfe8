"""Means over all pairs of a data set, from the scores of its samples."""

from collections.abc import Iterator

import torch
from torch import Tensor

from fcco.objectives.surrogates import Surrogate
from fcco.problem.batches import PairBatch
from fcco.problem.objective import same_class

__all__ = ["crosses", "pair_means"]


def crosses(batch: PairBatch) -> Iterator[tuple[Tensor, int, Tensor, Tensor]]:
    """For each task its blocks, its number, the scores of their anchors and of all partners.

    Scores are relative to the median of the partners.

    Nothing where a score is not finite or the shape is wrong: ``inner`` says what is the matter.

    Examples:
        >>> batch = PairBatch(torch.tensor([0]), torch.tensor([[0.5], [1.5]]), torch.tensor([0]),
        ...     torch.tensor([1]), torch.tensor([0]))
        >>> blocks, task, anchors, partners = next(crosses(batch))
        >>> blocks.tolist(), task, anchors.tolist(), partners.tolist()
        ([0], 0, [-1.0], [0.0])
    """
    scores = batch.inputs.cpu().double()  # sorting is fast anywhere, float64 is not everywhere
    scores = scores.unsqueeze(1) if scores.ndim == 1 else scores
    wide = scores.ndim == 2 and (scores.shape[1] == 1 or batch.columns is not None)
    if not wide or batch.classes is not None or not scores.isfinite().all():
        return
    columns = torch.zeros_like(batch.blocks) if batch.columns is None else batch.columns
    for task in columns.unique().tolist():
        blocks, own = (columns == task).nonzero().flatten(), scores[:, task]
        own = own - own[batch.partners].median()  # differences of scores near 1e6 keep all digits
        yield blocks, task, own[batch.anchors[blocks]], own[batch.partners]


def pair_means(surrogate: Surrogate, batch: PairBatch, *, flipped: bool = False) -> Tensor | None:
    """The mean over partners of l(h_j - h_i), (m, 1); with labels (m, 2), of the positives first.

    Args:
        surrogate: l.
        batch: all pairs.
        flipped: of l(h_i - h_j) instead.

    Examples:
        >>> from fcco.objectives import Squared
        >>> batch = PairBatch(torch.tensor([0]), torch.tensor([0.0, 1.0, 3.0]), torch.tensor([0]),
        ...     torch.tensor([1, 2]), torch.tensor([0]))
        >>> pair_means(Squared(margin=0.0), batch)
        tensor([[5.]], dtype=torch.float64)
    """
    fast = same_class(surrogate, "sums", "__call__")
    labels, sign = batch.labels, -1 if flipped else 1
    width = 1 if labels is None else 2
    means = torch.full((len(batch.blocks), width), torch.nan, dtype=torch.float64)
    for blocks, task, anchors, partners in crosses(batch):
        own = surrogate.at_zero * batch.own[blocks]
        kinds = [(partners, own)]
        if labels is not None:
            positive = labels[:, task]
            mine = positive[batch.anchors[blocks]]
            kinds.insert(0, (partners[positive[batch.partners]], own * mine))
        for column, (others, extra) in enumerate(kinds):
            sums = surrogate.sums if fast else lambda *both: Surrogate.sums(surrogate, *both)
            total = sums(sign * others, sign * anchors) + extra
            means[blocks, column] = total / len(partners)
    return None if means.isnan().any() else means
