"""A data set of anchors, each compared with partners from one common set; blocks are anchors."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from fcco.data.arguments import as_inputs, positions, structure, tensor
from fcco.data.blocks import PAIRS, BlockData
from fcco.data.draws import draw
from fcco.data.relations import AtRisk, Efron, HasLabel, SameClass
from fcco.problem.batches import AnchorBatch, PairBatch, RiskBatch

__all__ = ["AnchorData"]

Relation = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Anchors (b, 1), partners (b, k), columns (b, 1) to a (b, k) tensor: see ``relations``."""


class AnchorData(BlockData[AnchorBatch]):
    """Anchors i and partners j; the inner value of block i is a mean over the partners.

    The class methods build the structures that objectives need. Block i is ``anchors[i]``.

    Args:
        inputs: N samples.
        anchors: (m,), their positions in inputs.
        strata: the positions of the partners, in one or several parts; a step draws equally many
            from each part and weights them by the size of the part.
        own: for an anchor that is also a partner: "drop" leaves the pair out, "sure" always counts
            it (with its weight 1/n, and the drawn partners without it).
        affinity: the factor of a pair, such as 1[t_j >= t_i].
        related: a property of a pair that the objective needs, such as 1[y_j = y_i].
        columns: (m,), the column of the model's output that scores each block.
    """

    max_ties: int = 1
    """The largest number of events at one time that Efron's ties share, for ``Cox``."""

    def __init__(
        self,
        inputs: Any,
        anchors: Tensor,
        strata: Sequence[Tensor],
        *,
        own: str = "drop",
        affinity: Relation | None = None,
        related: Relation | None = None,
        columns: Tensor | None = None,
    ) -> None:
        if own not in ("drop", "sure"):
            raise ValueError(f'own must be "drop" or "sure", got {own!r}')
        self.inputs = as_inputs(inputs)
        self.anchors = positions("anchors", anchors, len(self))
        self.strata = [positions("partners", part, len(self)) for part in strata]
        if not self.strata:
            raise ValueError("there are no partners")
        self.num_partners = sum(len(part) for part in self.strata)
        self.own = own
        self.affinity = affinity
        self.related = related
        self.num_blocks = len(self.anchors)
        self.columns = columns
        if columns is not None:
            self.columns = structure("columns", columns, self.num_blocks, kind="whole")

    @classmethod
    def average_precision(cls, inputs: Any, labels: Tensor) -> "AnchorData":
        """Each positive among all samples, for ``AveragePrecision``.

        Args:
            labels: (N,) for one task, or (N, m) for several; blocks are the positives of task 0,
                then those of task 1, and so on.

        Examples:
            >>> data = AnchorData.average_precision(torch.rand(4, 2), torch.tensor([0, 1, 0, 1]))
            >>> data.num_blocks, data.num_partners
            (2, 4)
        """
        inputs, labels = as_inputs(inputs), tensor("labels", labels)
        if labels.ndim == 1:
            labels = structure("labels", labels, len(inputs), kind="binary")
            _both(labels[:, None])
            strata = [labels.nonzero().flatten(), (~labels).nonzero().flatten()]
            return cls(inputs, strata[0], strata, own="sure", related=HasLabel(labels[:, None]))
        if labels.ndim != 2 or len(labels) != len(inputs):
            raise ValueError(
                f"{len(inputs)} inputs have labels of shape {tuple(labels.shape)}: one per input "
                "is needed, or one per input and task"
            )
        flat = structure("labels", labels.flatten(), labels.numel(), kind="binary")
        labels = flat.view(labels.shape)
        _both(labels)
        columns, anchors = labels.T.nonzero().unbind(1)
        return cls(
            inputs,
            anchors,
            [torch.arange(len(labels))],
            own="sure",
            related=HasLabel(labels),
            columns=columns,
        )

    @classmethod
    def positives(cls, inputs: Any, labels: Tensor) -> "AnchorData":
        """Each positive against the negatives, for partial AUC.

        Examples:
            >>> AnchorData.positives(torch.rand(3, 2), torch.tensor([0, 1, 0])).num_blocks
            1
        """
        inputs = as_inputs(inputs)
        labels = structure("labels", labels, len(inputs), kind="binary")
        _both(labels[:, None])
        return cls(inputs, labels.nonzero().flatten(), [(~labels).nonzero().flatten()])

    @classmethod
    def negatives(cls, inputs: Any, labels: Tensor) -> "AnchorData":
        """Each negative against the positives, for the p-norm push.

        Examples:
            >>> AnchorData.negatives(torch.rand(3, 2), torch.tensor([0, 1, 0])).num_blocks
            2
        """
        inputs = as_inputs(inputs)
        labels = structure("labels", labels, len(inputs), kind="binary")
        _both(labels[:, None])
        return cls.positives(inputs, ~labels)

    @classmethod
    def survival(
        cls, inputs: Any, times: Tensor, events: Tensor, *, ties: str = "breslow"
    ) -> "AnchorData":
        """Each event among those at risk, for ``Cox``.

        Args:
            times: (N,), times of event or censoring.
            events: (N,), whether the event was observed.
            ties: "breslow" or "efron".

        Examples:
            >>> data = AnchorData.survival(torch.rand(3, 2), torch.tensor([1.0, 2.0, 3.0]),
            ...                            torch.tensor([True, False, True]))
            >>> data.num_blocks
            2
        """
        inputs = as_inputs(inputs)
        events = structure("events", events, len(inputs), kind="binary")
        times = structure("times", times, len(inputs), kind="real")
        if not events.any():
            raise ValueError("events: no event was observed, only censoring")
        if ties not in ("breslow", "efron"):
            raise ValueError(f'ties must be "breslow" or "efron", got {ties!r}')
        relation = AtRisk(times) if ties == "breslow" else Efron(times, events)
        everyone = torch.arange(len(times))
        anchors = events.nonzero().flatten()
        data = cls(inputs, anchors, [everyone], own="sure", affinity=relation)
        if ties == "efron":
            data.max_ties = int(times[events].unique(return_counts=True)[1].max())
        return data

    @classmethod
    def neighbours(cls, inputs: Any, classes: Tensor) -> "AnchorData":
        """Each point among the others, for ``NCA``.

        Examples:
            >>> AnchorData.neighbours(torch.rand(3, 2), torch.tensor([0, 1, 0])).num_blocks
            3
        """
        inputs = as_inputs(inputs)
        classes = structure("classes", classes, len(inputs), kind="whole")
        everyone = torch.arange(len(classes))
        return cls(inputs, everyone, [everyone], related=SameClass(classes))

    def check(self, samples: int, *, replacement: bool) -> None:
        """Every stratum has enough partners."""
        if samples < len(self.strata):
            raise ValueError(
                f"samples_per_block must be at least {len(self.strata)} (one from each stratum of "
                f"partners), got {samples}"
            )
        for number, (part, count) in enumerate(
            zip(self.strata, self._shares(samples), strict=True)
        ):
            if not replacement and len(part) < count:
                raise ValueError(
                    f"stratum {number} has {len(part)} partners, fewer than the {count} requested "
                    "without replacement"
                )

    def draw(
        self, blocks: Tensor, spread: Tensor, shared: Tensor, *, replacement: bool = True
    ) -> AnchorBatch:
        """The same partners for all anchors: b + k samples for b * k pairs."""
        parts, weights = [], []
        shares = self._shares(len(shared))
        for part, uniform in zip(self.strata, shared.split(shares), strict=True):
            place = draw(uniform[None], torch.tensor([len(part)]), replacement=replacement)[0]
            parts.append(part[place])
            weight = len(part) / (self.num_partners * len(uniform))
            weights.append(torch.full((len(uniform),), weight, dtype=torch.float64))
        return self._batch(blocks, torch.cat(parts), torch.cat(weights))

    def spans(self, size: int) -> Sequence[Tensor]:
        """A few anchors at a time; every chunk passes all partners through the model."""
        fitting = max(1, min(size, PAIRS // self.num_partners))
        return torch.split(torch.arange(self.num_blocks), fitting)

    def chunk(self, span: Tensor) -> AnchorBatch:
        """Some anchors with all partners."""
        partners = torch.cat(self.strata)
        weights = torch.full((len(partners),), 1 / self.num_partners, dtype=torch.float64)
        return self._batch(span, partners, weights)

    def among(self, rows: Tensor) -> AnchorBatch:
        """The anchors among ``rows``, compared with all other partners among them."""
        order, anchors = self._by_anchor
        start = torch.searchsorted(anchors, rows)
        counts = torch.searchsorted(anchors, rows, right=True) - start
        shift = (start - (counts.cumsum(0) - counts)).repeat_interleave(counts)
        blocks = order[shift + torch.arange(len(shift))]
        partners = rows[self._is_partner[rows]]
        twice = self._is_partner[self.anchors[blocks]].long()  # anchors that are partners too
        others, total = len(partners) - twice, self.num_partners - twice
        kept = (others > 0) | (total == 0)
        share = (total / (self.num_partners * others.clamp(min=1)).double())[kept, None]
        return self._batch(blocks[kept], partners, share.expand(-1, len(partners)), rows)

    def whole(self) -> PairBatch | RiskBatch | None:
        """All anchors and partners, if the relations are among those that sorting can follow."""
        blocks, partners = torch.arange(self.num_blocks), torch.cat(self.strata)
        if self.affinity is None and isinstance(self.related, HasLabel | SameClass | None):
            own = int(self.own == "sure") - self._is_partner[self.anchors].long()
            return PairBatch(
                blocks,
                self.inputs,
                self.anchors,
                partners,
                own,
                labels=self.related.labels if isinstance(self.related, HasLabel) else None,
                columns=self.columns,
                classes=self.related.classes if isinstance(self.related, SameClass) else None,
            )
        at_risk = isinstance(self.affinity, AtRisk) and self.own == "sure"
        if not at_risk or self.related is not None or self.columns is not None:
            return None
        assert isinstance(self.affinity, AtRisk)
        times = self.affinity.times
        order = partners[times[partners].argsort(descending=True)]
        ends = torch.searchsorted(-times[order], -times[self.anchors], right=True)
        tied = times[self.anchors].unique(return_inverse=True)[1]
        shares = self.affinity.shares(self.anchors)
        return RiskBatch(blocks, self.inputs, self.anchors, order, ends, tied, shares)

    @cached_property
    def _by_anchor(self) -> tuple[Tensor, Tensor]:
        """The blocks, sorted by the positions of their anchors, and these positions."""
        anchors, order = self.anchors.sort(stable=True)
        return order, anchors

    @cached_property
    def _is_partner(self) -> Tensor:
        """(N,), whether a sample is a partner."""
        return torch.zeros(len(self), dtype=torch.bool).index_fill(0, torch.cat(self.strata), True)

    def _shares(self, samples: int) -> list[int]:
        """The number of samples from each stratum; the first strata take the remainder."""
        each, rest = divmod(samples, len(self.strata))
        return [each + (j < rest) for j in range(len(self.strata))]

    def _batch(
        self, blocks: Tensor, partners: Tensor, weights: Tensor, rows: Tensor | None = None
    ) -> AnchorBatch:
        """Anchors with common partners, the inputs of both, or given ``rows`` that contain them."""
        anchors = self.anchors[blocks]
        inputs = torch.cat([anchors, partners])
        own = torch.arange(len(blocks))
        places = torch.arange(len(blocks), len(inputs))
        if rows is not None:
            inputs, (ordered, order) = rows, rows.sort()
            own, places = (order[torch.searchsorted(ordered, part)] for part in (anchors, partners))
        here, there = anchors[:, None], partners.expand(len(blocks), -1)
        weights = weights.expand(len(blocks), -1).masked_fill(here == there, 0)
        if self.own == "sure":
            there = torch.cat([there, here], dim=1)
            sure = torch.full((len(blocks), 1), 1 / self.num_partners, dtype=torch.float64)
            weights = torch.cat([weights, sure], dim=1)
            places = torch.cat([places.expand(len(blocks), -1), own[:, None]], dim=1)
        columns = None if self.columns is None else self.columns[blocks]
        asked = here, there, (torch.zeros_like(blocks) if columns is None else columns)[:, None]
        if self.affinity is not None:
            weights = weights * self.affinity(*asked)
        return AnchorBatch(
            blocks,
            inputs,
            anchors=own,
            partners=places,
            weights=weights,
            samples=len(partners),
            related=None if self.related is None else self.related(*asked),
            columns=columns,
            sure=int(self.own == "sure"),
        )


def _both(labels: Tensor) -> None:
    for name, members in (("positive", labels), ("negative", ~labels)):
        lacking = (~members.any(0)).nonzero().flatten().tolist()
        if lacking:
            raise ValueError(f"tasks {lacking} have no {name} sample")
