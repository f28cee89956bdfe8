"""AUC from exponentials of the scores, with a gradient wherever scores are in the wrong order."""

from typing import Any

import torch
from torch import Tensor

from fcco.objectives.curves import area, mean_over_tasks
from fcco.objectives.domains import check_positive
from fcco.objectives.labels import read_labels
from fcco.objectives.running import Change, RunningSums, Update
from fcco.objectives.sampling import scale_of, standard_error
from fcco.objectives.score import partner_scores, read_outputs
from fcco.objectives.structure import Column, Structure
from fcco.objectives.surrogates import precise_softplus
from fcco.objectives.tasks import TaskObjective
from fcco.problem.batches import PairBatch
from fcco.problem.probe import Probe
from fcco.problem.scaled import ScaledObjective

__all__ = ["AUC"]

_LARGEST = 1e150
"""Running sums above this number, or below its inverse, are recomputed in logarithms."""


class AUC(TaskObjective, ScaledObjective):
    """A smooth form of 1 - AUC over all pairs, averaged over tasks.

    Let E+ and E- be the means over the positives and the negatives of a task. Then

        u = (E- exp(h / T), E+ exp(-h / T)),    f(u) = T log(1 + u_1 u_2).

    The product u_1 u_2 is the mean of exp((h- - h+) / T) over all pairs of a negative and a
    positive. A pair that is clearly in the right order has almost no gradient. A pair in the wrong
    order has a gradient that does not vanish. Adding a constant to all scores changes nothing. With
    an optimizer this holds up to a constant of 350 T. Beyond it the smaller of the two sums
    vanishes beside the larger one: the value is too large, and the class of the smaller sum has no
    gradient, until the scores are smaller again. ``exact`` and ``AUCLoss`` take scores of any size.

    Block i is task i, which is column i of the scores. With an optimizer, pass
    ``updated_slopes=True``: training collapses if the slopes come from stale rows of exponentials.
    If the tasks are classes that exclude each other, a model that ends in ``one_vs_rest``
    together with ``cross_entropy=1`` measured best.

    Args:
        labels: (N,) or (N, T), 1 for positives and 0 for negatives; -1 or NaN where missing.
            Classes 0, 1, 2, ... are given as ``one_hot(classes)``, with one task per class.
        temperature: T. A small value concentrates the objective on the worst pairs.
        cross_entropy: the weight of an added cross-entropy, the mean over tasks of
            (E+ log(1 + exp(-h)) + E- log(1 + exp(h))) / 2.
        bounded: whether f contains the 1. Without it, f is unbounded below.

    Examples:
        >>> objective = AUC(torch.tensor([1, 0]))
        >>> objective.exact(torch.zeros(2)), objective.metric(torch.tensor([1.0, 0.0]))
        (tensor(0.6931), 1.0)
    """

    inner_dim = 2
    # Scores that are all near c give u_1 and u_2 near exp(c / T) and exp(-c / T). Both have one
    # scale, so that their quotient exp(2 c / T) must fit into a row: in float32 only for c < 44 T.
    row_dtype = torch.float64

    def __init__(
        self,
        labels: Any,
        *,
        temperature: float = 1.0,
        cross_entropy: float = 0.0,
        bounded: bool = True,
    ) -> None:
        check_positive(temperature=temperature)
        if not 0 <= cross_entropy < torch.inf:
            raise ValueError(f"cross_entropy must be at least 0 and finite, got {cross_entropy}")
        self.temperature = temperature
        self.cross_entropy = cross_entropy
        self.bounded = bounded
        self._build(labels)

    def _build(self, labels: Any) -> None:
        read = read_labels(labels)
        self._set_tasks(read)
        self.inner_size = self.num_samples
        self._weights = Column(self._factor)
        self._sides = Structure(
            positive=read.positive,
            negative=read.negative,
            counts=self._counts.flip(0).double(),
            valid=read.valid,
        )

    def inner(self, model: Any, batch: PairBatch) -> Probe:
        """Return both means, over each task's own samples or over samples that all tasks share."""
        h = partner_scores(read_outputs(model, batch, self.num_tasks), batch).to(self.row_dtype)
        # (2, B1, k): negatives, whose scores should be low, then positives
        cost, weights = torch.stack([h, -h]), batch.weights.to(h.dtype).flip(0)
        weights = weights.expand(-1, len(h), -1)
        exponents = (cost / self.temperature).masked_fill(weights == 0, -torch.inf)
        # One scale per task for both classes keeps the larger of the two sums near 1.
        log_scale = scale_of(exponents.detach().amax((0, 2)))
        terms = weights * (exponents - log_scale.unsqueeze(1)).exp()
        sizes = (weights > 0).sum(2)
        noise = standard_error(terms.detach().flatten(0, 1), sizes.flatten()).view(sizes.shape).T
        loss = None
        if self.cross_entropy:
            each = (weights * precise_softplus(cost)).sum((0, 2)) * self._weights(batch.blocks, h)
            loss = self.cross_entropy * each.mean() / 2
        values = terms.sum(2).T
        samples = batch.samples
        return Probe(batch.blocks, values, samples, log_scale=log_scale, loss=loss, noise=noise)

    def scaled_outer(self, u: Tensor, log_scale: Tensor, blocks: Tensor) -> Tensor:
        """Return T log(1 + u_1 u_2), or T log(u_1 u_2) if not bounded."""
        # log(u_1 u_2): both components carry the same scale, hence the factor 2.
        logs = u.clamp(min=torch.finfo(u.dtype).tiny).log().sum(1) + 2 * log_scale
        values = self.temperature * (precise_softplus(logs) if self.bounded else logs)
        return values * self._weights(blocks, u) if self._lacking else values

    def scaled_feasible(self, u: Tensor, log_scale: Tensor, blocks: Tensor) -> Tensor:
        """Keep u positive: both components are means of positive terms."""
        return u.clamp(min=torch.finfo(u.dtype).tiny)

    def _value(self, h: Tensor, weight: Tensor | None) -> Tensor:
        sides = self._sides.on(h.device)
        w = h.new_ones(len(h), 1) if weight is None else weight.unsqueeze(1)
        logs, costs = [], []
        valid = sides.valid
        if weight is not None:
            valid = ((sides.positive * w).sum(0) > 0) & ((sides.negative * w).sum(0) > 0)
        if not valid.any():
            return 0 * h.sum()
        for members, z in ((sides.negative, h), (sides.positive, -h)):
            part, total = (members * w)[:, valid], (members * w)[:, valid].sum(0)
            exponents = (z[:, valid] / self.temperature).where(part > 0, -torch.inf)
            if weight is not None:
                # The weights enter as logarithms, so that logsumexp covers them too. The clamp
                # avoids log(0) for absent samples, whose exponent is -inf already.
                exponents = exponents + part.clamp(min=1e-300).log()
            logs.append(exponents.logsumexp(0) - total.log())
            if self.cross_entropy:
                costs.append((part * precise_softplus(z[:, valid])).sum(0) / total)
        both = logs[0] + logs[1]
        # logaddexp is exact, while torch's softplus returns its argument itself beyond 20.
        value = torch.logaddexp(both, torch.zeros_like(both)) if self.bounded else both
        value = self.temperature * value.mean()
        if self.cross_entropy:
            value = value + self.cross_entropy * (costs[0] + costs[1]).mean() / 2
        return value

    def metric(self, scores: Any, weight: Any = None) -> float:
        """Return the area under the ROC curve, averaged over tasks; ties count one half."""
        return mean_over_tasks(scores, self.labels, weight, area)

    def running_sums(self) -> RunningSums | None:
        """Return the exponentials of all scores; a step changes those of its batch only."""
        return None if self.cross_entropy else _AUCSums(self)


class _AUCSums(RunningSums):
    """Running sums of ``AUC``.

    The cache holds exp(h / T) of the negatives and exp(-h / T) of the positives, 0 elsewhere, in a
    tensor of shape (2, N, T).
    """

    objective: AUC

    def form(self, scores: Tensor, seen: Tensor) -> dict[str, Tensor]:
        """Compute all exponentials; a sample that was not seen has 0."""
        every = torch.arange(len(scores), device=scores.device)
        return {"terms": self._terms(scores, every).where(seen.view(1, -1, 1), 0)}

    def _terms(self, scores: Tensor, index: Tensor) -> Tensor:
        sides = self.objective._sides.on(scores.device)
        z = scores.double() / self.objective.temperature
        # A mask, not a product: an exponential of the other class may overflow, and inf * 0 is NaN.
        negatives = z.exp().where(sides.negative[index], 0)
        return torch.stack([negatives, (-z).exp().where(sides.positive[index], 0)])

    def update(self, change: Change) -> Update | None:
        """Return F and its slopes, or None if the exponentials leave the range of float64."""
        if not change.writes:
            return None
        objective, terms = self.objective, self.cache["terms"]
        own = self._terms(change.scores, change.index)
        terms[:, change.index] = own
        sides = objective._sides.on(terms.device)
        counts, valid = sides.counts, sides.valid
        if not change.all_seen:
            members = torch.stack([sides.negative, sides.positive])
            counts = (members & change.seen.unsqueeze(1)).sum(1).double()
            valid = (counts > 0).all(0)
        number = int(valid.sum())
        if not number:
            return Update(own.new_zeros(()), torch.zeros_like(own[0]))
        # Summing all N terms afresh costs O(N) but, unlike adding differences, never cancels.
        sums = terms.sum(1).where(valid, 1.0)
        least, most = sums.aminmax()
        # The product of two sums must stay within float64, whose largest number is 1.8e308.
        if not (least > 1 / _LARGEST and most < _LARGEST):
            return None
        share = valid.double() / number
        odds = (sums / counts.clamp(min=1)).prod(0)
        logs = torch.log1p(odds) if objective.bounded else odds.log()
        value = objective.temperature * (share * logs).sum()
        if not change.slopes:
            return Update(value, None)
        # The derivative of log(1 + u_1 u_2) is u_1 u_2 / (1 + u_1 u_2) times that of
        # log(u_1 u_2). The latter is a sample's share of its sum, + for negatives, - for positives.
        # The factor T of f cancels against the 1/T inside the exponentials.
        rate = share * odds / (1 + odds) if objective.bounded else share
        # A task that lacks a class has the rate 0, but its exponentials may be infinite.
        parts = own.where(valid, 0) / sums.unsqueeze(1)
        return Update(value, (parts[0] - parts[1]) * rate)
