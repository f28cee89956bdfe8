"""Alternatives: cross-entropy in its usual forms, and LibAUC's loss."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

__all__ = ["LOSSES", "draws", "libauc_step"]

ClassLoss = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(logits, classes, class frequencies) to a scalar."""


def _natural(logits: Tensor, classes: Tensor, frequencies: Tensor) -> Tensor:
    return cross_entropy(logits, classes)


def _logit_adjusted(logits: Tensor, classes: Tensor, frequencies: Tensor) -> Tensor:
    """Adds the log-prior in training, so that the logits rank as if classes were balanced."""
    return cross_entropy(logits + frequencies.log(), classes)


def _focal(logits: Tensor, classes: Tensor, frequencies: Tensor) -> Tensor:
    """(1 - p)^2 times cross-entropy."""
    losses = cross_entropy(logits, classes, reduction="none")
    return ((1 - (-losses).exp()).square() * losses).mean()


LOSSES: dict[str, tuple[ClassLoss, bool]] = {
    "cross-entropy": (_natural, False),
    "balanced cross-entropy": (_natural, True),
    "logit-adjusted cross-entropy": (_logit_adjusted, False),
    "focal loss": (_focal, False),
}
"""By name: the loss, and whether its batches contain all classes equally."""


def draws(
    inputs: Tensor,
    targets: Tensor,
    *,
    size: int,
    seed: int,
    even_by: Tensor | None = None,
    distinct: bool = False,
) -> Callable[[], tuple[Tensor, Tensor]]:
    """An infinite stream of batches, drawn uniformly or equally from the values of ``even_by``;
    ``distinct``: no sample twice in a batch.

    Examples:
        >>> x = torch.arange(10.0)
        >>> draw = draws(x, x, size=4, seed=0, even_by=(x > 8).long())
        >>> int((draw()[0] > 8).sum()) in range(5)
        True
    """
    generator = torch.Generator().manual_seed(seed)
    weights = None
    if even_by is not None:
        weights = 1 / torch.bincount(even_by).double()[even_by]

    def draw() -> tuple[Tensor, Tensor]:
        if distinct:
            rows = torch.randperm(len(inputs), generator=generator)[:size]
        elif weights is None:
            rows = torch.randint(len(inputs), (size,), generator=generator)
        else:
            rows = torch.multinomial(weights, size, replacement=True, generator=generator)
        return inputs[rows], targets[rows]

    return draw


def libauc_step(
    model: nn.Module,
    draw: Callable[[], tuple[Tensor, Tensor]],
    *,
    num_labels: int,
    lr: float,
    steps: int,
) -> tuple[Callable[[], None], Any] | None:
    """A step of LibAUC's min-max loss with its own optimizer, or None if it cannot be imported."""
    try:
        from libauc.losses.auc import MultiLabelAUCMLoss
        from libauc.optimizers.pesg import PESG
    except ImportError:
        return None
    cpu = torch.device("cpu")
    loss = MultiLabelAUCMLoss(num_labels=num_labels, device=cpu)
    opt = PESG(model.parameters(), loss_fn=loss, lr=lr, momentum=0.9, verbose=False, device=cpu)

    def step() -> None:
        inputs, labels = draw()
        opt.zero_grad()
        loss(torch.sigmoid(model(inputs)), labels.float()).backward()
        opt.step()

    decay = torch.optim.lr_scheduler.LambdaLR(opt, lambda t: max(1 - t / steps, 0.0))
    return step, decay
