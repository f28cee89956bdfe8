"""Cox's partial likelihood, linear or deep: one block per event, compared with its risk set."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from fcco.objectives.anchored import AnchoredObjective
from fcco.objectives.cumulative import range_sums, suffix_sums, sum_of_logs
from fcco.objectives.running import Change, RunningSums, Update
from fcco.objectives.sampling import exponential_probe
from fcco.objectives.score import differences, read_scores, read_weight
from fcco.objectives.structure import Structure
from fcco.problem.batches import PairBatch
from fcco.problem.given import structure
from fcco.problem.probe import Probe
from fcco.problem.scaled import ScaledObjective

__all__ = ["Cox"]

_SPREAD = 600.0
"""Exponentials of scores that lie further apart do not fit into float64 side by side."""
_SMALLEST = 1e-200
"""A smaller sum may have lost terms."""


class Cox(AnchoredObjective, ScaledObjective):
    """The mean negative log partial likelihood over the events.

        F = (1/m) sum_{events i} log(S_i) - h_i,    S_i = sum_{j: t_j >= t_i} exp(h_j).

    With Efron's ties the l-th of d events at one time, l = 0..d-1, has S_i less l/d of the sum of
    exp(h) over these d. Higher scores mean earlier events.

    Block i is the i-th event, in the order of the samples. Its inner value is S_i exp(-h_i) / N.
    The samples stand in the order of falling times, of equal times the censored ones first: the
    risk set of an event is a beginning of that order, and its tied events are the end of that.

    Args:
        times: (N,), of the event or of the censoring.
        events: (N,), whether the event was seen.
        ties: "efron" or "breslow".

    Weights of ``exact`` are those of R and lifelines: twice the weight for all adds log 2 to F,
    because twice as many are at risk.

    Examples:
        >>> objective = Cox(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1, 0, 1]))
        >>> objective.num_blocks
        2
        >>> objective.exact(torch.zeros(3))  # (log 3 + log 1) / 2
        tensor(0.5493)
        >>> objective.metric(torch.tensor([2.0, 1.0, 0.0]))
        1.0
    """

    inner_dim = 1
    own_pair = True

    def __init__(self, times: Any, events: Any, *, ties: str = "efron") -> None:
        if ties not in ("efron", "breslow"):
            raise ValueError(f'ties must be "efron" or "breslow", got {ties!r}')
        self.ties = ties
        self._build(times, events)

    def _build(self, times: Any, events: Any) -> None:
        times = structure("times", times, None, kind="real")
        events = structure("events", events, len(times), kind="binary")
        if not events.any():
            raise ValueError("events: no event was observed, only censoring")
        count = len(times)
        # Ranks have the order of the times in any dtype; times themselves are never changed.
        rank = times.unique(return_inverse=True)[1]
        order = (2 * rank + (~events).long()).argsort(descending=True, stable=True)
        # Where the risk set of each place ends, and where the events at its time begin.
        sorted_rank, is_event = rank[order], events[order]
        stop = torch.searchsorted(-sorted_rank, -sorted_rank, right=True)
        deaths = torch.bincount(rank[events], minlength=int(rank.max()) + 1)
        first = stop - deaths[sorted_rank]
        place = torch.empty_like(order)
        place[order] = torch.arange(count)
        self.times, self.events = times, events
        self.num_samples = self.inner_size = count
        self.anchors = events.nonzero().flatten()
        self.num_blocks = len(self.anchors)
        self.columns = torch.zeros_like(self.anchors)
        self.places = place.unsqueeze(0)
        at = place[self.anchors]
        self.start = torch.stack([torch.zeros_like(at), first[at]])
        self.stop = torch.stack([stop[at], stop[at]])
        self.sizes = torch.full_like(self.anchors, count)
        self.strata = [torch.arange(count)]
        efron = self.ties == "efron"
        self.max_ties = int(deaths.max()) if efron else 1
        fraction = (at - first[at]).double() / deaths[rank[self.anchors]]
        self._fraction = fraction if efron else torch.zeros_like(fraction)
        event = is_event.nonzero().flatten()
        ordered = self._fraction[torch.argsort(at)]
        self._order = Structure(
            order=order, place=place, is_event=is_event, event=event, first=first, stop=stop,
            tie_start=first[event], risk_end=stop[event], fraction=ordered,
            last=stop[event] - 1, tied=ordered.nonzero().flatten(),
        )  # fmt: skip

    def _weigh(self, blocks: Tensor, inside: Tensor) -> Tensor:
        """By Efron's ties the l-th of d tied events counts these d with the weight 1 - l/d."""
        at_risk, tied = inside.double().unbind(0)
        return (at_risk - self._fraction[blocks, None] * tied).unsqueeze(0)

    def inner(self, model: Any, batch: PairBatch) -> Probe:
        """The mean over the sampled subjects at risk."""
        return exponential_probe(differences(model, batch, 1), batch)

    def scaled_outer(self, u: Tensor, log_scale: Tensor, blocks: Tensor) -> Tensor:
        """The log of the sum over the risk set."""
        return (self.inner_size * u[:, 0]).log() + log_scale

    def scaled_feasible(self, u: Tensor, log_scale: Tensor, blocks: Tensor) -> Tensor:
        """The subject itself is at risk: u >= 1/N, divided by the number of ties."""
        own = (-log_scale).clamp(max=80).exp().unsqueeze(1)
        return torch.maximum(u, own / (self.inner_size * self.max_ties))

    def _value(self, h: Tensor, weight: Tensor | None) -> Tensor:
        known = self._order.on(h.device)
        x = h[:, 0][known.order]
        w, tie_start, risk_end, fraction = None, known.tie_start, known.risk_end, known.fraction
        event, each, mean = known.event, None, None
        if weight is not None:
            w = weight[known.order]
            event, tie_start, risk_end, fraction, each, mean = self._present(w)
            if not len(event):
                return 0 * x.sum()
        logs = self._log_sums(x, w, tie_start, risk_end, fraction)
        if mean is None or each is None:
            return (logs - x[event]).mean()
        # R's and lifelines' weights of ties: a term of the d tied counts by their mean weight.
        return ((mean * logs).sum() - (each * x[event]).sum()) / each.sum()

    def _log_sums(
        self, x: Tensor, w: Tensor | None, tie_start: Tensor, risk_end: Tensor, fraction: Tensor
    ) -> Tensor:
        """log S of events, from the scores and weights of all samples in their order.

        S is the sum T over the risk set less l/d of the tied events, which are T - R with R the
        sum over the others: S = (1 - l/d) T + (l/d) R adds positive terms only.
        """
        seen = x.detach()
        present = seen if w is None else seen[w > 0]
        top = present.max()
        # Of weighted terms the logarithms are spread by those of the weights too.
        least = present.min() if w is None else (present + w[w > 0].log()).min()
        if top - least < _SPREAD:
            terms = (x - top).exp() if w is None else w * (x - top).clamp(max=0).exp()
            sums = pad(terms.cumsum(0), (1, 0))
            return torch.lerp(sums[risk_end], sums[tie_start], fraction).log() + top
        # So far apart that exponentials underflow: the same in logarithms.
        x = x if w is None else (x + w.clamp(min=1e-300).log()).where(w > 0, -torch.inf)
        logs = x.logcumsumexp(0)
        whole = logs[risk_end - 1] + torch.log1p(-fraction)
        some = fraction > 0
        rest = logs[(tie_start - 1).clamp(min=0)] + fraction.log()
        rest = rest.where(some & (tie_start > 0), -torch.inf)
        return torch.logaddexp(whole, rest)

    def _present(self, w: Tensor) -> tuple[Tensor, ...]:
        """The events of positive weight: places, where ties begin and risk sets end, l/d, weights.

        Weights are given in the order of falling times. Absent events are not counted among ties.
        """
        known = self._order.on(w.device)
        event = (known.is_event & (w > 0)).nonzero().flatten()
        each = w[event]
        tie_start, risk_end = known.first[event], known.stop[event]
        # Events at one time are neighbours: the l-th of them is found by its place.
        begin = torch.searchsorted(risk_end, risk_end)
        count = torch.searchsorted(risk_end, risk_end, right=True) - begin
        fraction = (torch.arange(len(event), device=w.device) - begin).double() / count
        if self.ties == "breslow":
            fraction = torch.zeros_like(fraction)
        totals = each.new_zeros(len(event)).index_add(0, begin, each)
        return event, tie_start, risk_end, fraction, each, totals[begin] / count

    def metric(self, scores: Any, weight: Any = None) -> float:
        """Harrell's concordance: the part of the pairs with a known order that the scores order.

        The order of i before j is known if i had its event at t_i < t_j, or at t_i = t_j where j
        was censored. It is right if h_i > h_j, and counts one half if the two are equal. With
        weights, a pair counts by their product.
        """
        h = read_scores(scores, self.num_samples, 1).detach().cpu()[:, 0]
        w = None if weight is None else read_weight(weight, self.num_samples).cpu()
        return _concordance(h, self.times, self.events, w)

    def running_sums(self) -> RunningSums:
        """The exponentials of all scores in the order of falling times: one cumulative sum."""
        return _CoxSums(self)


class _CoxSums(RunningSums):
    """exp(h) of all samples in the order of falling times; a step changes those of its batch.

    One cumulative sum then gives S of all events, O(N) per step but without a gather, an
    exponential or a sort of all scores.
    """

    objective: "Cox"

    def form(self, scores: Tensor, seen: Tensor) -> dict[str, Tensor]:
        """All exponentials, and the scores of the events; 0 for a sample that was not seen."""
        known = self.objective._order.on(scores.device)
        x, here = scores[:, 0].double()[known.order], seen[known.order]
        return {"exp_scores": x.exp() * here, "event_scores": x * (here & known.is_event)}

    def update(self, change: Change) -> Update | None:
        """F and its slopes; None where exponentials do not fit into float64 side by side."""
        if not change.writes:
            return None
        known = self.objective._order.on(change.scores.device)
        place = known.place[change.index]
        x = change.scores[:, 0].double()
        own, event = x.exp(), known.is_event[place].double()
        exp_scores, event_scores = self.cache["exp_scores"], self.cache["event_scores"]
        exp_scores[place] = own
        event_scores[place] = x * event
        tie_start, last, fraction, tied = known.tie_start, known.last, known.fraction, known.tied
        if not change.all_seen:
            present = change.seen[known.order].double()
            _, tie_start, risk_end, fraction, _, _ = self.objective._present(present)
            last, tied = risk_end - 1, fraction.nonzero().flatten()
        count = len(last)
        if not count:
            return Update(x.new_zeros(()), torch.zeros_like(change.scores, dtype=x.dtype))
        sums = exp_scores.cumsum(0)
        total = sums.index_select(0, last)
        if not (total[0] > _SMALLEST and sums[-1].isfinite()):
            return None
        if len(tied):  # S less l/d of the tied, as in ``_log_sums``
            before = tie_start[tied] - 1
            rest = sums[before.clamp(min=0)].where(before >= 0, 0)
            total[tied] = torch.lerp(total[tied], rest, fraction[tied])
        value = (sum_of_logs(total) - event_scores.sum()) / count
        if not change.slopes:
            return Update(value, None)
        # dF/dh_k = exp(h_k) sum_i 1[k at risk] / S_i - 1[k has an event], each over m; of the
        # events tied with k, 1 - l/d counts.
        inverse = total.reciprocal_()
        after = torch.searchsorted(last, place)
        if len(tied):
            stop = torch.searchsorted(last, known.stop[place] - 1, right=True)
            own_time = range_sums(inverse, after, stop, less=fraction) * event
            weights = suffix_sums(inverse, torch.where(event > 0, stop, after)) + own_time
        else:
            weights = suffix_sums(inverse, after)
        return Update(value, ((own * weights - event) / count).unsqueeze(1))


def _concordance(h: Tensor, times: Tensor, events: Tensor, weight: Tensor | None) -> float:
    w = torch.ones(len(h), dtype=torch.float64) if weight is None else weight
    known = right = tied = 0.0
    for own in events.nonzero().flatten().split(max((1 << 24) // len(h), 1)):
        later = times > times[own, None]
        later |= (times == times[own, None]) & ~events
        for_own = w[own]
        known += float(for_own @ (later.double() @ w))
        right += float(for_own @ ((later & (h[own, None] > h)).double() @ w))
        tied += float(for_own @ ((later & (h[own, None] == h)).double() @ w))
    if known == 0:
        raise ValueError("events: no pair has a known order")
    return (2 * right + tied) / (2 * known)
