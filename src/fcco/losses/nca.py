"""Neighbourhood components analysis over the whole training set, from small batches."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from fcco.losses.embeddings import read_embeddings, weights_of_others
from fcco.losses.exchange import exchange
from fcco.losses.merge import merge
from fcco.losses.row_loss import RowLoss
from fcco.methods import Beta
from fcco.objectives.neighbours import NCA
from fcco.problem.batches import PairBatch

__all__ = ["NCALoss"]


class NCALoss(RowLoss):
    """Minus the probability that a soft nearest neighbour has the sample's class.

    With d_ij = |e_i - e_j|^2 / temperature, and j over the other samples,

        u_i = (mean 1[y_j = y_i] exp(-d_ij), mean exp(-d_ij)),    f(u) = -u_1 / u_2,

    or minus its logarithm. The fresh value is the mean over the other samples of the batch; the
    table keeps u_i, 12 bytes per sample. The objective is ``fcco.objectives.NCA``.

    On several ranks a sample is compared with those of all of them. Every rank gathers 8 + 4 d
    bytes per sample (float32) and computes the loss of the joint batch.

    Args:
        classes: (N,), whole numbers.
        temperature: the scale of squared distances.
        logarithm: use -log(u_1 / u_2 + eps), pytorch-metric-learning's form.
        eps: added to the probability before the logarithm.
        beta: weight of the new in u, or "auto", see ``RowLoss``.

    Examples:
        >>> criterion = NCALoss(torch.tensor([0, 0, 1]))
        >>> criterion(torch.zeros(3, 2), torch.arange(3))  # one half, one half, none
        tensor(-0.3333)
    """

    _validate_with = "criterion.objective.on(classes of that set).exact(embeddings)"

    objective: NCA
    classes: Tensor
    """(N,)."""

    def __init__(
        self,
        classes: Any,
        *,
        temperature: float = 1.0,
        logarithm: bool = False,
        eps: float = 1e-6,
        beta: Beta = "auto",
    ) -> None:
        objective = NCA(classes, temperature=temperature, logarithm=logarithm, eps=eps)
        super().__init__(objective, beta=beta)
        self.register_buffer("classes", objective.classes.clone(), persistent=False)

    def exact(self, embeddings: Tensor) -> Tensor:
        """The objective of all N samples, differentiable: the value to monitor.

        Some samples are compared at a time, so that memory does not grow with N^2.

        Args:
            embeddings: (N, d), in the order of the index.
        """
        return self.objective.exact(embeddings)

    def forward(self, embeddings: Tensor, index: Tensor) -> Tensor:
        """The loss of a batch.

        Args:
            embeddings: (B, d).
            index: (B,), which samples of the training set these are.
        """
        read = partial(read_embeddings, index, len(self.classes), embeddings=embeddings)
        index, embeddings = exchange(self._together(), read, self.fingerprint)
        weights, others = weights_of_others(index)
        classes = self.classes[index.to(self.classes.device)].to(index.device)
        everyone = torch.arange(len(index), device=index.device)
        same = classes.unsqueeze(1) == classes
        batch = PairBatch(
            index,
            embeddings,
            partners=everyone,
            weights=torch.stack([weights * same, weights]),
            samples=others,
            anchors=everyone,
        )
        probe = self.objective.inner(nn.Identity(), batch)
        return self._take(merge(probe, self._rows.scaled, common=True))
