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
    share: Tensor | None
    """(m,), l/d by Efron's ties; None if all are 0."""

    def __init__(self, times: Any, events: Any, *, ties: str = "efron") -> None:
        times = structure("times", times, len(times), kind="real")
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
        cuts = torch.cat([place[::BLOCK], ends, torch.tensor([len(order)])]).unique()
        block = torch.empty_like(order)
        block[order] = torch.searchsorted(cuts, place, right=True) - 1
        self._structure(events=events, order=order, block=block, starts=cuts)
        last = torch.searchsorted(cuts, ends) - 1
        end = torch.searchsorted(last, torch.arange(len(cuts) - 1))
        self._structure(last=last, subject=subject, time=time, end=end)
        self.register_buffer("share", self._shares(time), persistent=False)
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
        subject, time, share = self._events(seen)
        ordered = scores.where(seen, -torch.inf)[self.order]
        log_sums = ordered.logcumsumexp(0)[self.starts[self.last + 1] - 1][time]
        cost = log_sums - scores[subject]
        if share is not None:
            # log(S - l/d D) = log S + log(1 - l/d D/S), with D/S from the terms of the tied.
            dead = cost.new_zeros(len(self.last)).index_add(0, time, (-cost).exp())
            cost = cost + torch.log1p(-share.to(cost.dtype) * dead[time])
        return cost.sum() / max(len(cost), 1)

    def _events(self, seen: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """``subject``, ``time`` and ``share`` of the events among the samples seen."""
        if int(self.num_seen) == len(self.seen) or seen.all():
            return self.subject, self.time, self.share
        active = seen[self.subject]
        time = self.time[active]
        return self.subject[active], time, self._shares(time)

    def _shares(self, time: Tensor) -> Tensor | None:
        """l/d of events with these times, sorted."""
        first, after = (torch.searchsorted(time, time, right=side) for side in (False, True))
        if self.ties == "breslow" or not (after - first > 1).any():
            return None
        return (torch.arange(len(time), device=time.device) - first).double() / (after - first)

    def _look(self, change: Change) -> tuple[Tensor, Tensor | None]:
        _, time, share = self._events(self.seen)
        h, event = self.scores[change.index, 0].double(), self.events[change.index]
        self._add_up(change, self.block[change.index].unique())
        if not len(time):
            return h.new_zeros(()), torch.zeros_like(change.old)
        risk = self._risk(time, share)
        if (h - self.shift > _SPREAD).any() or not risk[0] > _SMALLEST:
            # Measure the exponentials from the highest score, and if that does not help ...
            change.journal.write(self.shift, ..., self.scores[self.seen].max().double())
            self._add_up(change, torch.arange(self.sums.shape[1], device=h.device))
            risk = self._risk(time, share)
            if not risk[0] > _SMALLEST:
                return self._slowly(change)
        value = self.shift + (sum_of_logs(risk) - self.sums[2].sum()) / len(time)
        if not change.slopes:
            return value, None
        # dS_i/dh_k is exp(h_k) for events i no later than k, (1 - l/d) exp(h_k) if they are tied.
        inverse = risk.reciprocal_()
        own, sample = self.end[self.block[change.index]].unique(return_inverse=True)
        start, stop = (torch.searchsorted(time, own, right=side) for side in (False, True))
        weights = suffix_sums(inverse, start)[sample]
        if share is not None:
            tied, inside = ranges(start.clamp(max=len(time) - 1), stop - start)
            weights = weights - (share[tied] * inverse[tied] * inside).sum(1)[sample] * event
        slope = (h - self.shift).exp() * weights - event.double()
        return value, slope.unsqueeze(1) / len(time)

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

    def _risk(self, time: Tensor, share: Tensor | None) -> Tensor:
        """S_i of the events, less what Efron's ties take away, in units of exp(shift)."""
        risk = self.sums[0].cumsum(0)
        if len(risk) > len(self.last):
            risk = risk.index_select(0, self.last)
        if len(time) == len(self.time) == len(self.last):
            return risk  # no two events share a time
        risk = risk.index_select(0, time)
        if share is None:
            return risk
        dead = self.sums[1]
        if len(dead) > len(self.last):
            dead = dead.new_zeros(len(self.last) + 1).index_add(0, self.end, dead)
        return risk.addcmul_(share, dead.index_select(0, time), value=-1)

    def _slowly(self, change: Change) -> tuple[Tensor, Tensor | None]:
        """F and dF/dh where the spread of the scores is too large for exponentials."""
        with torch.enable_grad():
            h = self.scores[:, 0].double().clone().requires_grad_(change.slopes)
            value = self._by_logarithms(h, self.seen)
        if not change.slopes:
            return value, None
        (slope,) = torch.autograd.grad(value, h)
        return value.detach(), slope[change.index].unsqueeze(1)
