"""Cox's partial likelihood, with one block per event, which is compared with its risk set."""

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
from fcco.problem.given import structure, tensor
from fcco.problem.probe import Probe
from fcco.problem.scaled import ScaledObjective

__all__ = ["Cox"]

_SPREAD = 600.0
"""Largest distance of scores whose exponentials fit into float64 side by side."""
_SMALLEST = 1e-200
"""Smallest sum that is trusted: in a smaller one, terms may have underflowed."""


class Cox(AnchoredObjective, ScaledObjective):
    """The negative log partial likelihood of Cox's model, averaged over the events.

        F = (1/m) sum_{events i} log(S_i) - h_i,    S_i = sum_{j: t_j >= t_i} exp(h_j).

    With Efron's treatment of ties, let d events happen at the same time. For the l-th of them,
    l = 0..d-1, S_i is reduced by l/d of the sum of exp(h) over these d. Higher scores mean earlier
    events.

    Block i is the i-th event, in the order of the samples. Its inner value is S_i exp(-h_i) / N.

    Args:
        times: (N,), the time of the event or of the censoring.
        events: (N,), 1 if the event was observed and 0 if the sample was censored.
        ties: the treatment of equal times, "efron" or "breslow".

    Note:
        The weights of ``exact`` have the meaning that they have in R and lifelines. Doubling all
        weights adds log 2 to F, because the sum over the risk set doubles.

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
        # Falling times, and among equal times the censored samples before the events. Then the
        # risk set of an event is a beginning of this order, and its tied events are the last part
        # of that beginning. Integer ranks keep the order of times in any dtype.
        rank = times.unique(return_inverse=True)[1]
        order = (2 * rank + (~events).long()).argsort(descending=True, stable=True)
        # For each place: where its risk set ends, and where the events at its time begin.
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
        # Two ranges per event: all at risk, and among them the tied events.
        self.start = torch.stack([torch.zeros_like(at), first[at]])
        self.stop = torch.stack([stop[at], stop[at]])
        self.sizes = torch.full_like(self.anchors, count)
        self.strata = [torch.arange(count)]
        efron = self.ties == "efron"
        self.max_ties = int(deaths.max()) if efron else 1
        # l/d of Efron's formula, where l counts the tied events in the order of their places.
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
        """Return weights in which the l-th of d tied events counts these d with 1 - l/d."""
        at_risk, tied = inside.double().unbind(0)
        return (at_risk - self._fraction[blocks, None] * tied).unsqueeze(0)

    def inner(self, model: Any, batch: PairBatch) -> Probe:
        """Return the mean over the sampled subjects, in which those not at risk count 0."""
        return exponential_probe(differences(model, batch, 1), batch)

    def scaled_outer(self, u: Tensor, log_scale: Tensor, blocks: Tensor) -> Tensor:
        """Return the logarithm of the sum over the risk set."""
        return (self.inner_size * u[:, 0]).log() + log_scale

    def scaled_feasible(self, u: Tensor, log_scale: Tensor, blocks: Tensor) -> Tensor:
        """Keep u at least 1/N over the number of ties, because the subject itself is at risk."""
        # exp(-log_scale) is the own term exp(h_i - h_i) = 1 in units of the mantissa. The clamp
        # keeps it finite in float32, where exp(89) overflows.
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
        # As in R and lifelines, each log term of d tied events has the mean weight of these d,
        # while each score has the weight of its own event.
        return ((mean * logs).sum() - (each * x[event]).sum()) / each.sum()

    def _log_sums(
        self, x: Tensor, w: Tensor | None, tie_start: Tensor, risk_end: Tensor, fraction: Tensor
    ) -> Tensor:
        """Return log S of the events, from scores and weights of all samples in falling times.

        Let T be the sum over the risk set and R the sum over its untied part. Efron's S is T less
        l/d of the tied sum T - R. Written as S = (1 - l/d) T + (l/d) R, it adds positive terms
        only, so nothing cancels.
        """
        seen = x.detach()
        present = seen if w is None else seen[w > 0]
        top = present.max()
        # The logarithm of a weighted term is h + log w, so weights widen the range as well.
        least = present.min() if w is None else (present + w[w > 0].log()).min()
        if top - least < _SPREAD:
            # An absent sample may lie above the top, where its exponential could overflow.
            shifted = x - top if w is None else (x - top).masked_fill(w == 0, 0)
            terms = shifted.exp() if w is None else w * shifted.exp()
            sums = pad(terms.cumsum(0), (1, 0))
            return torch.lerp(sums[risk_end], sums[tie_start], fraction).log() + top
        # The scores lie so far apart that exponentials would underflow. The same formula in
        # logarithms is slower but has no such limit.
        x = x if w is None else (x + w.clamp(min=1e-300).log()).where(w > 0, -torch.inf)
        logs = x.logcumsumexp(0)
        whole = logs[risk_end - 1] + torch.log1p(-fraction)
        some = fraction > 0
        rest = logs[(tie_start - 1).clamp(min=0)] + fraction.log()
        rest = rest.where(some & (tie_start > 0), -torch.inf)
        return torch.logaddexp(whole, rest)

    def _present(self, w: Tensor) -> tuple[Tensor, ...]:
        """Return the places, ties and weights of the events with a positive weight.

        Events of weight 0 are absent: they do not count as ties of the others.

        Args:
            w: (N,), the weights in the order of falling times.

        Returns:
            For each event: its place, where its tied events begin, where its risk set ends, l/d,
            its weight, and the mean weight of its tied events.
        """
        known = self._order.on(w.device)
        event = (known.is_event & (w > 0)).nonzero().flatten()
        each = w[event]
        tie_start, risk_end = known.first[event], known.stop[event]
        # Events at one time are neighbours, so l is the distance to the first of them.
        begin = torch.searchsorted(risk_end, risk_end)
        count = torch.searchsorted(risk_end, risk_end, right=True) - begin
        fraction = (torch.arange(len(event), device=w.device) - begin).double() / count
        if self.ties == "breslow":
            fraction = torch.zeros_like(fraction)
        totals = each.new_zeros(len(event)).index_add(0, begin, each)
        return event, tie_start, risk_end, fraction, each, totals[begin] / count

    def metric(self, scores: Any, weight: Any = None) -> float:
        """Return Harrell's concordance index, the fraction of comparable pairs in the right order.

        A pair (i, j) is comparable if i had its event at t_i < t_j, or at t_i = t_j where j was
        censored. It is in the right order if h_i > h_j, and it counts one half if both are equal.
        With weights, a pair counts by the product of its two weights.
        """
        h = read_scores(scores, self.num_samples, 1).detach().cpu()[:, 0]
        w = None if weight is None else read_weight(weight, self.num_samples).cpu()
        return _concordance(h, self.times, self.events, w)

    def baseline_hazard(
        self, scores: Any, weight: Any = None, *, at: Any = None
    ) -> tuple[Tensor, Tensor]:
        """Return Breslow's estimate of the cumulative hazard H of a sample with score 0.

        At each time, H rises by the number of events over the sum of exp(h) of all at risk. A
        sample with score h has no event up to time t with probability exp(-H(t) exp(h)).

        Args:
            scores: (N,) or (N, 1), the scores of all samples.
            weight: (N,), how much each sample counts in both sums, or None if all count alike.
            at: (K,), the times of interest; by default all distinct times, censored ones too.

        Returns:
            The times, and H at these times in float64.

        Examples:
            >>> objective = Cox(torch.tensor([1.0, 2.0, 2.0]), torch.tensor([1, 0, 1]))
            >>> times, hazard = objective.baseline_hazard(torch.zeros(3))
            >>> times, hazard  # 1/3, then 1/3 + 1/2
            (tensor([1., 2.]), tensor([0.3333, 0.8333], dtype=torch.float64))
            >>> objective.baseline_hazard(torch.zeros(3), at=[0.5, 1.5])[1]
            tensor([0.0000, 0.3333], dtype=torch.float64)
        """
        h = read_scores(scores, self.num_samples, 1).detach().cpu().double()[:, 0]
        w = torch.ones_like(h)
        if weight is not None:
            w = read_weight(weight, self.num_samples).cpu().double()
        times, rank, counts = self.times.unique(return_inverse=True, return_counts=True)
        deaths = h.new_zeros(len(times)).index_add(0, rank, w * self.events)
        # In falling order of the times, a risk set is a beginning. Logarithms of the sums stay
        # finite where exponentials of scores would overflow.
        log_sums = (h + w.log())[rank.argsort(descending=True)].logcumsumexp(0)
        at_risk = log_sums[counts.flip(0).cumsum(0) - 1].flip(0)
        rises = (deaths.log() - at_risk).exp().where(deaths > 0, 0)
        hazard = rises.cumsum(0)
        if at is None:
            return times, hazard
        at = tensor("at", at).cpu()
        if at.isnan().any():
            raise ValueError(f"at must be numbers, got nan at {int(at.isnan().nonzero()[0])}")
        like_times = _floor(at) if not times.is_floating_point() else at.to(times.dtype)
        passed = torch.searchsorted(times.to(like_times.dtype), like_times, right=True)
        return at, pad(hazard, (1, 0))[passed]  # 0 before the first time

    def running_sums(self) -> RunningSums:
        """Return the exponentials of all scores in falling times, for one cumulative sum."""
        return _CoxSums(self)


class _CoxSums(RunningSums):
    """Running sums of ``Cox``: exp(h) of all samples in the order of falling times.

    A step changes the entries of its batch. One cumulative sum then gives S of all events. This
    takes O(N) per step, but no gather, exponential or sort of all scores.
    """

    objective: "Cox"

    def form(self, scores: Tensor, seen: Tensor) -> dict[str, Tensor]:
        """Compute all exponentials and the scores of the events; unseen samples have 0."""
        known = self.objective._order.on(scores.device)
        x, here = scores[:, 0].double()[known.order], seen[known.order]
        return {"exp_scores": x.exp() * here, "event_scores": x * (here & known.is_event)}

    def update(self, change: Change) -> Update | None:
        """Return F and its slopes, or None if the exponentials do not fit into float64."""
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
        # S grows along the order, so the first sum is the smallest and the last the largest.
        if not (total[0] > _SMALLEST and sums[-1].isfinite()):
            return None
        if len(tied):  # Efron's S = (1 - l/d) T + (l/d) R, as in ``_log_sums``
            before = tie_start[tied] - 1
            rest = sums[before.clamp(min=0)].where(before >= 0, 0)
            total[tied] = torch.lerp(total[tied], rest, fraction[tied])
        value = (sum_of_logs(total) - event_scores.sum()) / count
        if not change.slopes:
            return Update(value, None)
        # m dF/dh_k = exp(h_k) sum_i c_ik / S_i - 1[k is an event], over events i with k at risk.
        # Here c_ik is 1 - l/d if k is one of the events tied with i, and 1 otherwise.
        inverse = total.reciprocal_()
        # Sample k is at risk in all events whose risk set ends at or after the place of k.
        after = torch.searchsorted(last, place)
        if len(tied):
            stop = torch.searchsorted(last, known.stop[place] - 1, right=True)
            # The events at k's own time count with 1 - l/d if k is an event; all later ones in
            # the order count fully. A censored k belongs to the untied part R of all of them.
            own_time = range_sums(inverse, after, stop, less=fraction) * event
            weights = suffix_sums(inverse, torch.where(event > 0, stop, after)) + own_time
        else:
            weights = suffix_sums(inverse, after)
        return Update(value, ((own * weights - event) / count).unsqueeze(1))


def _floor(at: Tensor) -> Tensor:
    """Return the last whole times up to ``at``, as int64: among whole times, H at 2.5 is H at 2.

    Examples:
        >>> _floor(torch.tensor([2.5, -torch.inf, torch.inf])).tolist() == [2, -(2**63), 2**63 - 1]
        True
    """
    if not at.is_floating_point():
        return at.long()
    # As int64, numbers from 2^63 on would become negative. They lie behind all whole times.
    far = at >= 2.0**63
    floor = at.double().floor().clamp(min=-(2.0**63)).masked_fill(far, 0.0).long()
    return floor.masked_fill(far, torch.iinfo(torch.int64).max)


def _concordance(h: Tensor, times: Tensor, events: Tensor, weight: Tensor | None) -> float:
    w = torch.ones(len(h), dtype=torch.float64) if weight is None else weight
    known = right = tied = 0.0
    # Pairs are formed in chunks of about 16 million, which bounds the memory for any N.
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
