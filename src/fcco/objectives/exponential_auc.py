"""Multi-task AUC by exponentials of the scores: gradients that do not vanish where they err."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from fcco.objectives.auc import own_logits, shared_logits
from fcco.objectives.domains import check_positive
from fcco.objectives.scores import scale_of, standard_error
from fcco.problem.batches import LabelBatch, TaskBatch
from fcco.problem.probe import Probe
from fcco.problem.scaled import ScaledObjective

__all__ = ["ExponentialAUC"]


class ExponentialAUC(ScaledObjective):
    """A smooth form of 1 - AUC over all pairs of each task, on logits of any size.

    With h the score of task i and E+, E- the means over its positives and negatives,

        u = (E- exp(h / T), E+ exp(-h / T)),  f(u) = T log(1 + u_1 u_2),

    or T log(u_1 u_2), which has no minimum on separable data. u_1 u_2 is the mean over all pairs of
    exp((h- - h+) / T). Its gradient does not vanish where scores are wrong, as that of a sigmoid
    score does (``MultiTaskAUC``); ``fcco.losses.AUCLoss`` has the same form. A constant added to
    all scores changes nothing; a share of cross-entropy gives scores a zero, too.

    Block i is task i, column i of the model's output. Where tasks are classes that exclude each
    other, a model that ends in ``one_vs_rest``, with ``cross_entropy=1``, measured best: unbounded
    with 256 samples per step for all tasks, bounded with 32 for each. Take the slopes of updated
    rows (``updated_slopes=True``): with stale rows of exponentials training collapses.

    Args:
        num_tasks: m.
        num_samples: n, the samples of the data set.
        temperature: T; towards 0 only the worst pairs count.
        cross_entropy: the weight of the mean over the tasks of E+ log(1 + exp(-h)) and
            E- log(1 + exp(h)), added as ``Probe.loss``.
        bounded: whether f has the 1, without which it is unbounded below.

    Examples:
        >>> objective = ExponentialAUC(num_tasks=3, num_samples=100)
        >>> objective.outer(torch.ones(1, 2), torch.tensor([0]))  # equal scores: log 2
        tensor([0.6931])
    """

    inner_dim = 2

    def __init__(
        self,
        num_tasks: int,
        num_samples: int,
        temperature: float = 1.0,
        *,
        cross_entropy: float = 0.0,
        bounded: bool = True,
    ) -> None:
        check_positive(num_tasks=num_tasks, num_samples=num_samples, temperature=temperature)
        if not 0 <= cross_entropy < torch.inf:
            raise ValueError(f"cross_entropy must be at least 0 and finite, got {cross_entropy}")
        self.num_blocks = num_tasks
        self.inner_size = num_samples
        self.temperature = temperature
        self.cross_entropy = cross_entropy
        self.bounded = bounded

    def inner(self, model: Any, batch: TaskBatch | LabelBatch) -> Probe:
        """Both means, over each task's own samples or over samples that all tasks share."""
        if isinstance(batch, TaskBatch):
            blocks, h = batch.blocks, own_logits(self.num_blocks, model, batch)
            positive = torch.arange(h.shape[1], device=h.device) < batch.positives
            weights = torch.stack([~positive, positive]).to(h.dtype)
            weights = (weights / weights.sum(1, keepdim=True)).unsqueeze(1)
        else:
            blocks, logits, above, below, scale = shared_logits(self.num_blocks, model, batch)
            h, weights = logits.T, torch.stack([below * scale[1], above * scale[0]]).mT
        # (2, B1, k): negatives, whose scores should be low, and positives
        cost = torch.stack([h, -h])
        exponents = (cost / self.temperature).masked_fill(weights == 0, -torch.inf)
        log_scale = scale_of(exponents.detach().amax((0, 2)))
        terms = weights * (exponents - log_scale.unsqueeze(1)).exp()
        sizes = (weights > 0).sum(2).expand(terms.shape[:2])
        noise = standard_error(terms.detach().flatten(0, 1), sizes.flatten()).view(sizes.shape).T
        loss = None
        if self.cross_entropy:
            loss = self.cross_entropy * (weights * softplus(cost)).sum((0, 2)).mean() / 2
        values = terms.sum(2).T
        return Probe(blocks, values, h.shape[1], log_scale=log_scale, loss=loss, noise=noise)

    def scaled_outer(self, u: Tensor, log_scale: Tensor, blocks: Tensor) -> Tensor:
        """T log(1 + u_1 u_2), or T log(u_1 u_2)."""
        logs = u.clamp(min=torch.finfo(u.dtype).tiny).log().sum(1) + 2 * log_scale
        return self.temperature * (softplus(logs) if self.bounded else logs)

    def scaled_feasible(self, u: Tensor, log_scale: Tensor, blocks: Tensor) -> Tensor:
        """Means of positive terms."""
        return u.clamp(min=torch.finfo(u.dtype).tiny)
