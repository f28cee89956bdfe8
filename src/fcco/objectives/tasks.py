"""Objectives whose blocks are tasks, with means over the positives and the negatives of each."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fcco.objectives.labels import Labels
from fcco.objectives.score import ScoreObjective
from fcco.problem.batches import PairBatch
from fcco.problem.draws import draw

__all__ = ["TaskObjective"]


class TaskObjective(ScoreObjective):
    """Base class of objectives in which block i is task i, which is column i of the scores.

    A block has no anchor; its inner values are means over both classes. A task that lacks a class
    keeps its id and does not count. Its inner value is 0, and ``outer`` is multiplied by
    ``_factor``. This factor is 0 for such a task, and T over the number of complete tasks for all
    others.
    """

    labels: Labels

    def _set_tasks(self, labels: Labels) -> None:
        self.labels = labels
        self.num_samples, self.num_tasks = labels.positive.shape
        self.num_blocks = self.num_tasks
        self._order = labels.order
        self._counts = torch.stack([labels.positive.sum(0), labels.negative.sum(0)])
        valid = labels.valid
        self._lacking = not bool(valid.all())
        # F is a mean over all T blocks, but only the complete tasks should count.
        self._factor = valid.double() * (len(valid) / int(valid.sum()))

    def check_draw(self, samples: int, *, replacement: bool) -> None:
        """Raise a ``ValueError`` if a task has too few positives or negatives to draw."""
        if samples < 2:
            raise ValueError(
                f"samples_per_block must be at least 2 (a positive and a negative), got {samples}"
            )
        if replacement:
            return
        wanted = samples // 2, samples - samples // 2
        for name, counts, number in zip(
            ("positive", "negative"), self._counts, wanted, strict=True
        ):
            short = ((counts < number) & self.labels.valid).nonzero().flatten().tolist()
            if short:
                raise ValueError(
                    f"tasks {short} have fewer than the {number} {name} samples requested without "
                    "replacement"
                )

    def draw(
        self, blocks: Tensor, own: Tensor, shared: Tensor, *, replacement: bool = True
    ) -> PairBatch:
        """Draw samples of each task, half of them positives and half negatives."""
        half, count = own.shape[1] // 2, own.shape[1]
        valid = self.labels.valid[blocks]
        # A task that lacks a class draws any samples, which get the weight 0.
        first, second = self._counts[:, blocks].where(valid, count)
        place = torch.cat(
            [
                draw(own[:, :half], first, replacement=replacement),
                first[:, None] + draw(own[:, half:], second, replacement=replacement),
            ],
            dim=1,
        )
        place = place.where(valid[:, None], 0)
        positive = (torch.arange(count) < half).double()  # so that 1/3 is not rounded to float32
        weights = torch.stack([positive / half, (1 - positive) / (count - half)])
        return PairBatch(
            blocks,
            self._order[blocks[:, None], place].flatten(),
            partners=torch.arange(len(blocks) * count).view(len(blocks), count),
            weights=weights.unsqueeze(1) * valid[:, None],
            samples=count,
            columns=blocks,
        )

    def spans(self, size: int) -> Sequence[Tensor]:
        """Divide the samples into chunks, in their order."""
        return torch.split(torch.arange(self.num_samples), size)

    def chunk(self, span: Tensor) -> PairBatch:
        """Return a batch of all tasks, weighted so that the chunks average to the whole."""
        # An exact pass weights a chunk by its number k of samples. With N / (k n_c) for each sample
        # of a class of size n_c, the weighted mean over chunks is the mean over the class.
        scale = self.num_samples / (len(span) * self._counts.clamp(min=1).double())
        return self._shared(torch.arange(self.num_blocks), span, scale)

    def among(self, index: Tensor) -> PairBatch:
        """Return the tasks that have a positive and a negative among ``index``."""
        counts = torch.stack([members[index].sum(0) for members in self.labels])
        blocks = ((counts > 0).all(0) & self.labels.valid).nonzero().flatten()
        return self._shared(blocks, index, 1 / counts[:, blocks].double())

    def _shared(self, blocks: Tensor, samples: Tensor, scale: Tensor) -> PairBatch:
        """Return a batch whose samples all tasks share; ``scale`` (2, b) weighs each class."""
        every = len(blocks) == self.num_blocks
        members = torch.stack([side[samples] for side in self.labels])
        members = members if every else members[:, :, blocks]
        weights = members * (scale * self.labels.valid[blocks]).unsqueeze(1)
        return PairBatch(
            blocks,
            samples,
            partners=torch.arange(len(samples)),
            # (2, b, k) as a transposed view, so that memory is laid out as the model's outputs.
            weights=weights.mT,
            samples=len(samples),
            columns=blocks,
        )
