"""Multi-task AUC: one block a task, its score's class-conditional moments as inner value."""

from typing import Any

import torch
from torch import Tensor

from fcco.batch import TaskBatch
from fcco.objective import Objective
from fcco.probe import Probe

__all__ = ["MultiTaskAUC"]


class MultiTaskAUC(Objective):
    """AUC maximisation for ``num_tasks`` tasks that share a network (Section "Experiments").

    With h the sigmoid score of task i and E+, E- its means over positives and negatives,

        u = (E+ h, E- h, E+ h^2, E- h^2) in R^4,
        f(u) = (u_3 - u_1^2) + (u_4 - u_2^2) + max(c + u_2 - u_1, 0)^2 / 2.

    The two variances are kept (the paper's FCCO form drops them), and the hinge takes negative
    minus positive mean (the paper's sign pushes positives below negatives).

    Block i is task i, column i of the model's output.

    Args:
        num_tasks: m.
        margin: c; 1 is the whole range of a sigmoid score.

    Examples:
        >>> objective = MultiTaskAUC(num_tasks=3)
        >>> perfect = torch.tensor([[1.0, 0.0, 1.0, 0.0]])
        >>> objective.outer(perfect, torch.tensor([0]))
        tensor([0.])
    """

    inner_dim = 4

    def __init__(self, num_tasks: int, margin: float = 1.0) -> None:
        if num_tasks < 1:
            raise ValueError(f"num_tasks must be at least 1, got {num_tasks}")
        if not margin > 0:
            raise ValueError(f"margin must be positive, got {margin}")
        self.num_blocks = num_tasks
        self.margin = margin

    def inner(self, model: Any, batch: TaskBatch) -> Probe:
        """Moments over each task's own positives and negatives."""
        scores = torch.sigmoid(model(batch.inputs)).view(len(batch.blocks), -1, self.num_blocks)
        own = batch.blocks.view(-1, 1, 1).expand(-1, scores.shape[1], 1)
        h = scores.gather(2, own).squeeze(2)
        positive, negative = h[:, : batch.positives], h[:, batch.positives :]
        values = torch.stack(
            [
                positive.mean(1),
                negative.mean(1),
                positive.square().mean(1),
                negative.square().mean(1),
            ],
            dim=1,
        )
        return Probe(batch.blocks, values, samples=h.shape[1])

    def partial(self, model: Any, inputs: Tensor, labels: Tensor, scale: Tensor) -> Probe:
        """What a chunk of a data set adds to the exact inner value of every task.

        Args:
            inputs: the chunk.
            labels: (k, m) booleans, whether sample j is a positive of task i.
            scale: (2, m), the weight of one positive and of one negative of each task.

        The values of all chunks, averaged by ``samples``, are the moments over the data set.
        """
        h = torch.sigmoid(model(inputs))
        positive = labels * scale[0]
        negative = ~labels * scale[1]
        values = torch.stack(
            [
                (positive * h).sum(0),
                (negative * h).sum(0),
                (positive * h.square()).sum(0),
                (negative * h.square()).sum(0),
            ],
            dim=1,
        )
        blocks = torch.arange(self.num_blocks, device=inputs.device)
        return Probe(blocks, values, samples=len(inputs))

    def outer(self, u: Tensor, blocks: Tensor) -> Tensor:
        """Both variances and the squared hinge on the gap of the means."""
        a, b, a2, b2 = u.unbind(1)
        hinge = (self.margin + b - a).clamp(min=0)
        return (a2 - a.square()) + (b2 - b.square()) + hinge.square() / 2

    def feasible(self, u: Tensor, blocks: Tensor) -> Tensor:
        """Moments of scores in [0, 1] lie in [0, 1]."""
        return u.clamp(0, 1)
