"""Objectives whose blocks own their samples, such as groups, bags and constraints."""

from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor

from fcco.objectives.score import unlocked
from fcco.problem.batches import GroupBatch
from fcco.problem.draws import draw
from fcco.problem.given import absent, structure, tensor
from fcco.problem.sampled import SampledObjective

__all__ = ["GroupObjective"]


class GroupObjective(SampledObjective):
    """Base class of objectives in which block i is group i, with a mean over its samples.

    A subclass calls ``_set_groups``, which defines the blocks.
    """

    groups: Tensor
    """(N,), the group of each sample."""
    targets: Tensor | None
    """(N, ...), the target of each sample, or None."""

    def _set_groups(self, groups: Any, targets: Any = None, *, name: str = "groups") -> None:
        groups = structure(name, groups, None, kind="whole")
        if not len(groups):
            raise ValueError(f"{name} is empty")
        if targets is not None:
            on_disk = hasattr(targets, "filename")  # a memory map may be larger than the memory
            targets = tensor("targets", targets)
            targets = targets if on_disk else targets.clone()
            if targets.shape[:1] != groups.shape:
                raise ValueError(
                    f"{len(groups)} samples have targets of shape {tuple(targets.shape)}"
                )
        found = groups.unique()
        # A group without samples would have no inner value, and every exact pass would fail.
        if empty := absent(found, int(groups.max()) + 1):
            raise ValueError(
                f"{name} {empty} have no sample: number them by "
                f"{name}.unique(return_inverse=True)[1]"
            )
        self.groups, self.targets = groups, targets
        self.num_samples, self.num_blocks = len(groups), len(found)
        self.sizes = torch.bincount(groups)
        # Samples sorted by group: group i owns ``sizes[i]`` of them from ``starts[i]`` on.
        self._order = groups.argsort(stable=True)
        self._starts = self.sizes.cumsum(0) - self.sizes

    def _build(self, *labels: Any) -> None:
        self._set_groups(*labels)

    def on(self, *labels: Any) -> Self:
        """Return the same objective, with its learned parameters, for other samples."""
        other = unlocked(self)
        other._build(*labels)
        return other

    def check_draw(self, samples: int, *, replacement: bool) -> None:
        """Raise a ``ValueError`` if a group has too few samples to draw from."""
        super().check_draw(samples, replacement=replacement)
        short = (self.sizes < samples).nonzero().flatten().tolist()
        if not replacement and short:
            raise ValueError(
                f"groups {short[:10]} have fewer than the {samples} samples requested without "
                "replacement"
            )

    def draw(
        self, blocks: Tensor, own: Tensor, shared: Tensor, *, replacement: bool = True
    ) -> GroupBatch:
        """Draw samples of each group."""
        place = draw(own, self.sizes[blocks], replacement=replacement)
        rows = self._order[(self._starts[blocks, None] + place).flatten()]
        # Samples come group by group, so ``owner`` repeats every block.
        owner = torch.arange(len(blocks)).repeat_interleave(own.shape[1])
        counts = torch.full((len(blocks),), own.shape[1])
        return GroupBatch(blocks, rows, owner, counts, self._targets(rows))

    def spans(self, size: int) -> Sequence[Tensor]:
        """Divide the samples, sorted by group, into chunks; a large group fills several."""
        return torch.split(self._order, size)

    def chunk(self, span: Tensor) -> GroupBatch:
        """Return a batch of the given samples and their groups."""
        blocks, owner, counts = self.groups[span].unique(return_inverse=True, return_counts=True)
        return GroupBatch(blocks, span, owner, counts, self._targets(span))

    def among(self, index: Tensor) -> GroupBatch:
        """Return a batch of the given samples and their groups."""
        return self.chunk(index)

    def _targets(self, rows: Tensor) -> Tensor | None:
        return None if self.targets is None else self.targets[rows.to(self.targets.device)]
