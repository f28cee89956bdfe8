"""Neighbourhood components analysis over the whole training set, with small batches."""

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
    """Minus the probability that a soft nearest neighbour has the sample's own class.

    Let d_ij = |e_i - e_j|^2 / temperature, with embeddings e. With means over the other samples j,

        u_i = (mean 1[y_j = y_i] exp(-d_ij), mean exp(-d_ij)),    f(u) = -u_1 / u_2.

    Alternatively, f is minus the logarithm of this probability. The fresh value of u_i is the mean
    over the other samples of the batch. The table stores u_i, which takes 12 bytes per sample. The
    objective is ``fcco.objectives.NCA``.

    With several ranks, a sample is compared with the samples of all ranks. Every rank gathers
    8 + 4 d bytes per sample (float32) and computes the loss of the joint batch.

    Args:
        classes: (N,), the class of each sample, as whole numbers.
        temperature: the scale of the squared distances.
        logarithm: whether to use f(u) = -log(u_1 / u_2 + eps), as pytorch-metric-learning does.
        eps: a number that is added to the probability before the logarithm.
        beta: the weight of the fresh value in u, or "auto", see ``RowLoss``.

    Examples:
        >>> criterion = NCALoss(torch.tensor([0, 0, 1]))
        >>> criterion(torch.zeros(3, 2), torch.arange(3))  # one half, one half, none
        tensor(-0.3333)
    """

    _validate_with = "criterion.objective.on(classes of that set).exact(embeddings)"

    objective: NCA
    classes: Tensor
    """(N,), the class of each sample."""

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
        # The classes move with the module, but they are not saved: the fingerprint checks them.
        self.register_buffer("classes", objective.classes.clone(), persistent=False)

    def exact(self, embeddings: Tensor) -> Tensor:
        """Return the objective of all N samples, which is the value to monitor.

        It is differentiable. Some samples are compared at a time, so that the memory does not grow
        as N^2.

        Args:
            embeddings: (N, d), the embeddings of all samples in the order of the index.
        """
        return self.objective.exact(embeddings)

    def forward(self, embeddings: Tensor, index: Tensor) -> Tensor:
        """Return the loss of a batch.

        Args:
            embeddings: (B, d), the embeddings of the batch.
            index: (B,), the positions of these samples in the training set.
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
