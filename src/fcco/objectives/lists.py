"""What objectives that rank the items of lists have in common: one block per item."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor

from fcco.objectives.discounted_gain import ndcg
from fcco.objectives.score import ScoreObjective, read_scores, read_weight, unlocked
from fcco.objectives.structure import Column, Structure
from fcco.problem.batches import PairBatch
from fcco.problem.draws import draw
from fcco.problem.given import structure

__all__ = ["ListObjective"]


class ListObjective(ScoreObjective):
    """Base class of objectives that compare an item with the other items of its list.

    Items are numbered list after list. With weights, a list counts by the mean weight of its
    items, and items of weight 0 are absent.
    """

    top_k: int | None = None
    weights: Any = None
    """(Q,), how much each list counts, in float64; or None if all count alike."""

    @abstractmethod
    def _members(self, grades: Tensor) -> Tensor:
        """Return which items are blocks, (N,)."""

    def _set_lists(self, grades: Any, lengths: Any) -> None:
        grades = structure("grades", grades, None, kind="real")
        lengths = structure("lengths", lengths, None, kind="whole")
        if int(lengths.sum()) != len(grades):
            raise ValueError(
                f"lengths must add up to the {len(grades)} grades, they add up to "
                f"{int(lengths.sum())}"
            )
        if (lengths < 1).any():
            empty = (lengths < 1).nonzero().flatten().tolist()
            raise ValueError(f"lists {empty} are empty")
        if (grades < 0).any():
            raise ValueError("grades must be finite and not negative")
        importance = torch.ones(len(lengths), dtype=torch.float64)
        if self.weights is not None:
            given = structure("weights", self.weights, len(lengths), kind="positive")
            self.weights = importance = given.double()
        self.grades, self.lengths = grades, lengths
        self.num_samples = len(grades)
        self._owner = torch.arange(len(lengths)).repeat_interleave(lengths)
        self._items = self._members(grades).nonzero().flatten()
        self.num_blocks = len(self._items)
        self._block = torch.full((len(grades),), -1)
        self._block[self._items] = torch.arange(self.num_blocks)
        owner = self._owner[self._items]
        # Of each block: where its list begins among all items, and how long the list is.
        self._starts = (lengths.cumsum(0) - lengths)[owner]
        self._sizes = lengths[owner]
        self._length = Column(self._sizes.double())
        self._lists = Structure(owner=self._owner, grades=grades.double(), importance=importance)

    def on(self, grades: Any, lengths: Any, *, weights: Any = None) -> Self:  # type: ignore[override]
        """Return the same objective for other lists.

        Weights belong to their lists, so the other lists have weights of their own.

        Args:
            grades: (N,), the grade of every item of the other lists.
            lengths: (Q,), the lengths of the other lists.
            weights: (Q,), how much each of them counts, or None if all count alike.

        Examples:
            >>> from fcco.objectives import ListNet
            >>> objective = ListNet([1, 1, 5], [2, 1], weights=[3, 1])
            >>> objective.on([1, 1, 5], [2, 1]).exact(torch.zeros(3))  # (log 2 + log 1) / 2
            tensor(0.3466)
        """
        other = unlocked(self)
        other.weights = weights
        return super(ListObjective, other).on(grades, lengths)

    def check_draw(self, samples: int, *, replacement: bool) -> None:
        """Raise a ``ValueError`` if a list is shorter than the samples to draw."""
        super().check_draw(samples, replacement=replacement)
        short = (self.lengths < samples).nonzero().flatten().tolist()
        if not replacement and short:
            raise ValueError(
                f"lists {short[:10]} have fewer than the {samples} items requested without "
                "replacement"
            )

    def draw(
        self, blocks: Tensor, own: Tensor, shared: Tensor, *, replacement: bool = True
    ) -> PairBatch:
        """Draw, for each item, other items of its list; the item itself always counts."""
        place = draw(own, self._sizes[blocks], replacement=replacement)
        partners = self._starts[blocks, None] + place
        weights = torch.full(partners.shape, 1 / partners.shape[1], dtype=torch.float64)
        return self._batch(blocks, partners, weights, own.shape[1])

    def spans(self, size: int) -> Sequence[Tensor]:
        """Divide the blocks into chunks whose lists have about ``size`` items together."""
        longest = int(self.lengths.max())
        return torch.split(torch.arange(self.num_blocks), max(1, size // longest))

    def chunk(self, span: Tensor) -> PairBatch:
        """Return a batch of the given blocks, each with its whole list."""
        sizes = self._sizes[span]
        place = torch.arange(int(sizes.max())).expand(len(span), -1)
        inside = place < sizes[:, None]
        partners = self._starts[span, None] + torch.where(inside, place, 0)
        return self._batch(span, partners, inside / sizes[:, None].double(), sizes)

    def among(self, index: Tensor) -> PairBatch:
        """Return the blocks among ``index``, each compared with its list's items there."""
        own = (self._block[index] >= 0).nonzero().flatten()
        other = self._owner[index[own], None] == self._owner[index]
        other &= index[own, None] != index
        count, size = other.sum(1), self._sizes[self._block[index[own]]]
        # Without another item of its list in the batch, a block's mean would be far too small.
        kept = (count > 0) | (size == 1)
        own, other, count, size = own[kept], other[kept], count[kept], size[kept]
        # The ``count`` others in the batch stand for the size - 1 others of the list; the item
        # itself is counted exactly, with the weight 1 / size.
        share = (size - 1) / (size * count.clamp(min=1)).double()
        places = torch.arange(len(index)).expand(len(own), -1)
        weights = torch.cat([other * share[:, None], 1 / size[:, None].double()], dim=1)
        return PairBatch(
            self._block[index[own]],
            index,
            partners=torch.cat([places, own[:, None]], dim=1),
            weights=weights.unsqueeze(0),
            samples=count.clamp(min=1),
            anchors=own,
            fixed=1,
        )

    def _batch(
        self, blocks: Tensor, partners: Tensor, weights: Tensor, samples: int | Tensor
    ) -> PairBatch:
        items = self._items[blocks]
        weights = weights.masked_fill(partners == items[:, None], 0)
        fixed = 1 / self._sizes[blocks, None].double()
        count = partners.numel()
        places = torch.arange(count).view(partners.shape)
        own = torch.arange(count, count + len(blocks))
        return PairBatch(
            blocks,
            torch.cat([partners.flatten(), items]),
            partners=torch.cat([places, own[:, None]], dim=1),
            weights=torch.cat([weights, fixed], dim=1).unsqueeze(0),
            samples=samples,
            anchors=own,
            fixed=1,
        )

    def _importance(self, weight: Tensor | None, device: torch.device) -> Tensor:
        """Return how much each list counts, (Q,): 0 if none of its items is present."""
        lists = self._lists.on(device)
        importance: Tensor = lists.importance
        if weight is None:
            return importance
        zeros = torch.zeros_like(importance)
        count = zeros.index_add(0, lists.owner, (weight > 0).double())
        return importance * zeros.index_add(0, lists.owner, weight) / count.clamp(min=1)

    def metric(self, scores: Any, weight: Any = None) -> float:
        """Return NDCG (at K), averaged over the lists with a relevant item; see ``ndcg``."""
        h = read_scores(scores, self.num_samples, 1).detach().cpu()[:, 0]
        w = None if weight is None else read_weight(weight, self.num_samples).cpu()
        importance = self._importance(w, torch.device("cpu"))
        kept = torch.ones_like(self._owner, dtype=torch.bool) if w is None else w > 0
        return ndcg(h[kept], self.grades[kept], self._owner[kept], importance, self.top_k)
