"""Base class of average precision, partial AUC and the p-norm push, which compare pairs."""

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual

from fcco.objectives.anchored import AnchoredObjective
from fcco.objectives.curves import area, mean_over_tasks
from fcco.objectives.labels import Labels, read_labels
from fcco.objectives.pair_sums import PairSums
from fcco.objectives.pairs import Pairs, Term
from fcco.objectives.running import RunningSums
from fcco.objectives.structure import Column, Structure
from fcco.objectives.surrogates import Surrogate

__all__ = ["RankedObjective"]


class RankedObjective(AnchoredObjective):
    """Base class of objectives that compare anchors of one class with the other class or with all.

    F is the mean over tasks of the mean of f_i(u_i) over the anchors of the task. Tasks without a
    positive or without a negative have no anchors and do not count.
    """

    labels: Labels
    surrogate: Surrogate
    sign: float = 1.0
    """1 if a partner's score should be lower than the anchor's, -1 if it should be higher."""
    population = -1

    @abstractmethod
    def _cost(self, sums: Tensor, scale: Tensor, partners: Tensor) -> Tensor:
        """Return f_i, given sums divided by exp(scale) and the number of partners.

        In these sums an anchor's own pair counts as 1.
        """

    @abstractmethod
    def _term(self) -> Term:
        """Return the term that a pair adds."""

    def _set_ranks(self, labels: Any, *, negatives: bool, compare_all: bool) -> None:
        """Derive anchors and ranges of partners from the labels.

        Args:
            labels: the labels, in any form that ``read_labels`` accepts.
            negatives: whether the anchors are the negatives, and the partners the positives.
            compare_all: whether the partners are all samples of the task, as a second range.
        """
        read = read_labels(labels)
        self.labels = read
        self.num_samples, self.num_tasks = read.positive.shape
        positives, others = read.positive.sum(0), read.negative.sum(0)
        # In this order the positives of a task come first, then its negatives, so that each class
        # and both together are intervals.
        order = read.order
        ranks = torch.arange(self.num_samples).expand_as(order)
        places = torch.empty_like(order).scatter(1, order, ranks)
        self.places = places.where((read.positive | read.negative).T, -1)
        anchor = (read.negative if negatives else read.positive) & read.valid
        partner = read.positive if negatives else read.negative
        if compare_all:
            partner = read.positive | read.negative
        self.columns, self.anchors = anchor.T.nonzero().unbind(1)
        self.num_blocks = len(self.anchors)
        count = positives[self.columns]
        total = count + others[self.columns]
        zero = torch.zeros_like(count)
        if compare_all:  # first range: the positives; second range: all samples
            self.start, self.stop = torch.stack([zero, zero]), torch.stack([count, total])
        elif negatives:
            self.start, self.stop = zero.unsqueeze(0), count.unsqueeze(0)
        else:
            self.start, self.stop = count.unsqueeze(0), total.unsqueeze(0)
        self.sizes = (self.stop - self.start)[-1]
        self.own_pair = compare_all
        # With one task, drawing positives and negatives apart guarantees some of each. With
        # several tasks a sample has several labels, so there is only one pool.
        if self.num_tasks == 1:
            sides = (read.positive, read.negative) if compare_all else (partner,)
            self.strata = [side[:, 0].nonzero().flatten() for side in sides]
        else:
            self.strata = [torch.arange(self.num_samples)]
        owner = torch.arange(self.num_tasks).expand(self.num_samples, -1)
        self._pairs = Pairs(
            anchor,
            partner,
            owner,
            self.num_tasks,
            term=self._term(),
            sign=self.sign,
            own_pair=compare_all,
            marked=read.positive if compare_all else None,
        )
        weights = self._form_weights(None)
        self._known = Structure(weights=weights)
        # With one task all blocks have the weight 1/m already, and f_i needs no factor.
        self._factor = Column(self.num_blocks * weights) if self.num_tasks > 1 else None
        self._sizes = Column(self.sizes.double())

    def _row_weights(self, weight: Tensor | None) -> Tensor:
        """Return the weight of each f_i in F, (m,), given the weights of the samples or None."""
        if weight is not None:
            return self._form_weights(weight)
        known: Tensor = self._known.on(torch.device("cpu")).weights
        return known

    def _form_weights(self, weight: Tensor | None) -> Tensor:
        """Compute the weights of a mean over the anchors of a task, then over tasks."""
        device = torch.device("cpu") if weight is None else weight.device
        s = self._pairs.structure.on(device)
        tasks = self.num_tasks
        each = torch.ones(len(s.anchors), dtype=torch.float64, device=device)
        if weight is not None:
            each = weight[s.anchors // tasks]
        zeros = each.new_zeros(tasks)
        anchors = zeros.index_add(0, s.group, each)
        # A task counts if it has an anchor and a partner that is not itself an anchor.
        there = each > 0
        other = s.is_partner & (s.row < 0)
        if weight is not None:
            other = other & (weight > 0).repeat_interleave(tasks)
        both = zeros.index_add(0, s.group, there.double()) > 0
        both &= zeros.index_add(0, s.owner, other.double()) > 0
        total = anchors.where(anchors > 0, 1.0) * both.sum().clamp(min=1)
        return each * (both / total)[s.group]

    def _outer(self, u: Tensor, log_scale: Tensor, blocks: Tensor) -> Tensor:
        """Return f_i of means u divided by exp(log_scale), converted to the sums of ``_cost``."""
        sizes = self._sizes(blocks, u)
        # u has the marked partners first, while ``_cost`` takes the sum over all partners first.
        sums = u.flip(1) * sizes.unsqueeze(1)
        if self._pairs.own:
            sums = sums + self._pairs.own
        values = self._cost(sums, log_scale, sizes)
        return values if self._factor is None else values * self._factor(blocks, u)

    def _value(self, h: Tensor, weight: Tensor | None) -> Tensor:
        rows = self._row_weights(weight).to(h.device)
        # Sorting gives the same value in O(N log N), but it is neither differentiable nor weighted,
        # and exponentials of l have no such formula.
        differentiated = h.requires_grad or unpack_dual(h).tangent is not None
        if weight is None and not differentiated and self._pairs.term.temperature is None:
            return self._value_by_sorting(h.cpu(), rows.cpu())
        return self._pairs.value(h, rows, self._cost, weight) + 0 * h.sum()

    def _value_by_sorting(self, h: Tensor, rows: Tensor) -> Tensor:
        """Compute the same value without forming all pairs, if no gradient is needed."""
        s, surrogate = self._pairs.structure.on(h.device), self.surrogate
        total = h.new_zeros(())
        for task in range(self.num_tasks):
            mine = (s.group == task) & (rows != 0)
            if not mine.any():
                continue
            # Subtracting the median keeps all digits of the differences of scores near 1e6.
            cells = s.partners[s.partner_starts[task] : s.partner_starts[task + 1]]
            column = h[:, task] - h[cells // self.num_tasks, task].median()
            anchors = column[s.anchors[mine] // self.num_tasks]
            kinds = [cells] if s.marked is None else [cells, cells[s.marked[cells]]]
            sums = [
                surrogate.sums(self.sign * column[kind // self.num_tasks], self.sign * anchors)
                for kind in kinds
            ]
            all_sums = torch.stack(sums, dim=1) + self._pairs.own
            number = all_sums.new_full((len(anchors),), float(len(cells)))
            costs = self._cost(all_sums, torch.zeros_like(number), number)
            total = total + (rows[mine] * costs).sum()
        return total

    def metric(self, scores: Any, weight: Any = None) -> float:
        """Return the area under the ROC curve, averaged over tasks; ties count one half."""
        return mean_over_tasks(scores, self.labels, weight, area)

    def running_sums(self) -> RunningSums:
        """Return u of every anchor, updated by what a batch changes in its pairs."""
        return PairSums(self)
