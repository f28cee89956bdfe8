"""Cox's partial likelihood of subjects that count by weights."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["WeightedCox", "partial_likelihood"]


def partial_likelihood(
    h: Tensor, times: Tensor, events: Tensor, weight: Tensor, *, ties: str
) -> Tensor:
    """The mean over the events of -log of the partial likelihood, each counting by its weight.

    With S_t the sum of w exp(h) over the subjects at risk at t, and D_t over the d events at t,

        sum_events w_i (log S - h_i) + sum_{l < d} w_t log(1 - (l/d) D_t / S_t),

    divided by the weight of all events, where w_t is the mean weight of the events at t: Efron's
    ties as in R's survival and in lifelines. Breslow's have the first sum alone, and there a whole
    weight is exactly a repetition; repeated events are ties, of which Efron's differ.

    Args:
        h: (n,), log risks of the subjects, in the order of falling times.
        times: (n,), falling.
        events: (n,), booleans, not all False.
        weight: (n,), above 0.
        ties: "efron" or "breslow".

    Examples:
        >>> times, events = torch.tensor([2.0, 1.0]), torch.tensor([True, True])
        >>> weight = torch.tensor([3.0, 1.0])  # (3 log 3 + log 4) / 4
        >>> partial_likelihood(torch.zeros(2), times, events, weight, ties="efron")
        tensor(1.1705)
    """
    _, place, counts = times.unique_consecutive(return_inverse=True, return_counts=True)
    log_sums = (h + weight.log()).logcumsumexp(0)[counts.cumsum(0) - 1]
    time, w, above = place[events], weight[events], log_sums[place[events]] - h[events]
    cost = (w * above).sum()
    if ties == "efron":
        deaths = torch.bincount(time, minlength=len(counts))[time]
        share = (torch.arange(len(time)) - torch.searchsorted(time, time)) / deaths
        zeros = torch.zeros_like(log_sums)
        dead = zeros.index_add(0, time, w * (-above).exp())[time]
        mean = zeros.index_add(0, time, w)[time] / deaths
        cost = cost + (mean * torch.log1p(-share * dead)).sum()
    return cost / w.sum()


class WeightedCox:
    """The same as a phase of training, whose batches remember the scores of all subjects.

    A step costs O(n).

    Args:
        times: (n,), of the event or of the censoring.
        events: (n,), booleans.
        weight: (n,), above 0.
        ties: "efron" or "breslow".
    """

    def __init__(
        self,
        times: NDArray[np.float64],
        events: NDArray[np.bool_],
        weight: NDArray[np.float64],
        *,
        ties: str,
    ) -> None:
        self.order = torch.from_numpy(np.argsort(-times, kind="stable"))
        self.place = self.order.argsort()
        self.subjects = [torch.from_numpy(each)[self.order] for each in (times, events, weight)]
        self.ties = ties
        self.scores = torch.zeros(len(times), dtype=torch.float64)
        self.seen = torch.zeros(len(times), dtype=torch.bool)

    def exact(self, scores: Tensor) -> Tensor:
        """Of the scores of all subjects, (n, 1)."""
        return partial_likelihood(scores[self.order, 0], *self.subjects, ties=self.ties)

    def __call__(self, scores: Tensor, index: Tensor) -> Tensor:
        """Of the subjects seen so far; the gradient is that of a batch, as in ``CoxLoss``."""
        place, fresh = self.place[index], scores[:, 0]
        self.scores[place] = fresh.detach().double()
        self.seen[place] = True
        seen = [each[self.seen] for each in self.subjects]
        if not seen[1].any():
            return 0 * fresh.sum()
        h = self.scores[self.seen].requires_grad_()
        value = partial_likelihood(h, *seen, ties=self.ties)
        slope = torch.zeros_like(self.scores)
        slope[self.seen] = torch.autograd.grad(value, h)[0] * (len(h) / len(index))
        return value.detach() + (slope[place] * (fresh - fresh.detach())).sum()
