"""Cox's partial likelihood of the remembered scores, by cumulative sums in the order of times."""

from typing import Any

import torch
from torch import Tensor

from fcco.data.arguments import structure
from fcco.losses.sums import BLOCK, ranges, suffix_sums, sum_of_logs
from fcco.losses.table import Change, ScoreLoss

__all__ = ["CoxLoss"]

_SPREAD = 300.0
"""A score this far above the shift moves it."""
_SMALLEST = 1e-200
"""A smaller sum may have lost terms."""


class CoxLoss(ScoreLoss):
    """The mean negative log partial likelihood over the events, as ``objectives.Cox``.

        F = (1/m) sum_{events i} log(S_i) - h_i,    S_i = sum_{j: t_j >= t_i} exp(h_j),

    where by Efron's ties the l-th of d events at one time, l = 0..d-1, has S_i less l/d of the sum
    of exp(h) over these d. Higher scores mean earlier events.

    The exponentials of a run of samples between two events are summed anew when one of them
    changes, and all S_i follow by one cumulative sum of positive terms, so nothing cancels: O(m)
    per step. Besides the table it keeps 24 bytes per distinct time of an event, which are saved
    with it, and the order of times: 17 bytes per sample, 24 per event, 24 per distinct time.

    Args:
        times: (N,), of the event or of the censoring.
        events: (N,), whether the event was seen.
        ties: "efron" or "breslow".

    Examples:
        >>> criterion = CoxLoss(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1, 0, 1]))
        >>> for sample in range(3):  # batches of one
        ...     score = torch.zeros(1, requires_grad=True)
        ...     loss = criterion(score, torch.tensor([sample]))
        >>> loss  # (log 3 + log 1) / 2
        tensor(0.5493, grad_fn=<AddBackward0>)
    """

    sums: Tensor
    """(3, blocks), of exp(h - shift), of the same over events alone, and of the events' scores."""
    shift: Tensor
    events: Tensor
    """(N,), booleans."""
    order: Tensor
    """(N,), the samples by falling times, cut into blocks where risk sets end."""
    block: Tensor
    """(N,), the block of each sample."""
    starts: Tensor
    """(blocks + 1,), where they begin in that order."""
    last: Tensor
    """(U,), the last block at risk at each of the distinct times of events, falling."""
    subject: Tensor
    """(m,), the samples with an event, in that order."""
    time: Tensor
    """(m,), which of the U times it is."""
    end: Tensor
    """(blocks,), the first of the U times at which it is at risk."""
    tied: Tensor
    """(m - U,), the times of all events but the first at each time."""
    share: Tensor
    """(m - U,), their l/d; 0 by Breslow's ties."""

    def __init__(self, times: Any, events: Any, *, ties: str = "efron") -> None:
        times = structure("times", times, None, kind="real")
        events = structure("events", events, len(times), kind="binary")
        if not events.any():
            raise ValueError("events: no event was seen, only censoring")
        if ties not in ("breslow", "efron"):
            raise ValueError(f'ties must be "breslow" or "efron", got {ties!r}')
        super().__init__(len(times))
        self.ties = ties
        order = times.argsort(descending=True, stable=True)
        place = torch.arange(len(order))
        subject = order[events[order]]
        distinct, time = times[subject].unique_consecutive(return_inverse=True)
        ends = torch.searchsorted(-times[order], -distinct, right=True)  # of the risk sets
        edges = torch.cat([place[:1], ends, torch.tensor([len(order)])]).unique()
        wide = edges.diff() > BLOCK  # where risk sets are far apart
        every = torch.arange(0, len(order), BLOCK)
        more = every[wide[torch.searchsorted(edges, every, right=True) - 1]]
        cuts = torch.cat([edges, more]).unique()
        block = torch.empty_like(order)
        block[order] = torch.searchsorted(cuts, place, right=True) - 1
        self._structure(events=events, order=order, block=block, starts=cuts)
        last = torch.searchsorted(cuts, ends) - 1
        end = torch.searchsorted(last, torch.arange(len(cuts) - 1))
        _, tied, share = self._ties(time)
        self._structure(last=last, subject=subject, time=time, end=end, tied=tied, share=share)
        self._aligned = bool((last == torch.arange(len(last))).all())  # one block for each time
        self._running("sums", torch.zeros(3, len(cuts) - 1))
        self._running("shift", torch.zeros(()))

    def exact(self, scores: Tensor) -> Tensor:
        """F of all N scores, differentiable.

        Examples:
            >>> criterion = CoxLoss(torch.tensor([2.0, 2.0]), torch.tensor([True, True]))
            >>> criterion.exact(torch.zeros(2))  # (log 2 + log 1) / 2
            tensor(0.3466)
        """
        return self._by_logarithms(self._all(scores)[:, 0], torch.ones_like(self.seen))

    def _by_logarithms(self, scores: Tensor, seen: Tensor) -> Tensor:
        """F of the samples seen, whatever the spread of the scores."""
        active = seen[self.subject]
        subject, time = self.subject[active], self.time[active]
        ordered = scores.where(seen, -torch.inf)[self.order]
        log_sums = ordered.logcumsumexp(0)[self.starts[self.last + 1] - 1][time]
        cost = log_sums - scores[subject]
        _, tied, share = self._ties(time)
        if len(tied):
            # log(S - l/d D) = log S + log(1 - l/d D/S), with D/S from the terms of the tied.
            dead = cost.new_zeros(len(self.last)).index_add(0, time, (-cost).exp())
            less = torch.log1p(-share.to(cost.dtype) * dead[tied])
            return (cost.sum() + less.sum()) / len(cost)
        return cost.sum() / max(len(cost), 1)

    def _ties(self, time: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of events with these times, sorted: the times, those of all but the first, their l/d."""
        first, after = (torch.searchsorted(time, time, right=side) for side in (False, True))
        number = torch.arange(len(time), device=time.device) - first
        later = number > 0
        share = number[later].double() / (after - first)[later]
        return time[~later], time[later], share if self.ties == "efron" else torch.zeros_like(share)

    def _look(self, change: Change) -> tuple[Tensor, Tensor | None]:
        whole = change.count == len(self.seen)
        times, tied, share = (
            (None, self.tied, self.share)
            if whole
            else self._ties(self.time[self.seen[self.subject]])
        )
        h, event = self.scores[change.index, 0].double(), self.events[change.index]
        self._add_up(change, self.block[change.index].unique())
        if times is not None and not len(times):
            return h.new_zeros(()), torch.zeros_like(change.old)
        risk, less = self._risk(times, tied, share)
        if (h - self.shift > _SPREAD).any() or not risk[0] > _SMALLEST:
            # Measure the exponentials from the highest score, and if that does not help ...
            change.journal.write(self.shift, ..., self.scores[self.seen].max().double())
            self._add_up(change, torch.arange(self.sums.shape[1], device=h.device))
            risk, less = self._risk(times, tied, share)
            if not risk[0] > _SMALLEST:
                return self._slowly(change)
        number = len(risk) + len(less)
        logs = sum_of_logs(risk) + sum_of_logs(less)
        value = self.shift + (logs - self.sums[2].sum()) / number
        if not change.slopes:
            return value, None
        # dS_i/dh_k is exp(h_k) for events i no later than k, (1 - l/d) exp(h_k) if they are tied.
        own, sample = self.end[self.block[change.index]].unique(return_inverse=True)
        start = own if times is None else torch.searchsorted(times, own)
        weights = suffix_sums(risk.reciprocal_(), start)[sample]
        if len(tied):
            inverse = less.reciprocal_()
            start, stop = (torch.searchsorted(tied, own, right=side) for side in (False, True))
            same, inside = ranges(start.clamp(max=len(tied) - 1), stop - start)
            taken = (share[same] * inverse[same] * inside).sum(1)[sample] * event
            weights = weights + suffix_sums(inverse, start)[sample] - taken
        slope = (h - self.shift).exp() * weights - event.double()
        return value, slope.unsqueeze(1) / number

    def _add_up(self, change: Change, blocks: Tensor) -> None:
        """The sums of some blocks from their samples, or of all if that is less work."""
        starts = self.starts[blocks]
        sizes = self.starts[blocks + 1] - starts
        if not len(sizes) or len(sizes) * int(sizes.max()) <= 2 * len(self.order):
            places, inside = ranges(starts, sizes)
            terms = self._terms(self.order[places]) * inside
            change.journal.write(self.sums.T, blocks, terms.sum(2).T)
        else:
            terms = self._terms(torch.arange(len(self.order), device=self.order.device))
            sums = torch.zeros_like(self.sums).index_add(1, self.block, terms)
            change.journal.write(self.sums, ..., sums)

    def _terms(self, samples: Tensor) -> Tensor:
        """exp(h - shift), the same of events alone, and the events' scores: (3, ...)."""
        h, event = self.scores[:, 0][samples].double(), self.events[samples]
        hazard = (h - self.shift).clamp(max=_SPREAD).exp() * self.seen[samples]
        return torch.stack([hazard, hazard * event, h * event])

    def _risk(self, times: Tensor | None, tied: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
        """S in units of exp(shift): at some times (None: all), and of the tied, less their share.

        Each time has one event that no tie takes anything from.
        """
        risk, dead = self.sums[0].cumsum(0), self.sums[1]
        if self._aligned:
            risk = risk[: len(self.last)]
        else:
            risk = risk.index_select(0, self.last)
            dead = dead.new_zeros(len(self.last) + 1).index_add(0, self.end, dead)
        less = risk.index_select(0, tied)
        less = less.addcmul_(share, dead.index_select(0, tied), value=-1)
        return risk if times is None else risk.index_select(0, times), less

    def _slowly(self, change: Change) -> tuple[Tensor, Tensor | None]:
        """F and dF/dh where the spread of the scores is too large for exponentials."""
        with torch.enable_grad():
            h = self.scores[:, 0].double().clone().requires_grad_(change.slopes)
            value = self._by_logarithms(h, self.seen)
        if not change.slopes:
            return value, None
        (slope,) = torch.autograd.grad(value, h)
        return value.detach(), slope[change.index].unsqueeze(1)
