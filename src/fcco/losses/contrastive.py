"""Contrastive learning against the whole training set, from small batches."""

from functools import partial
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fcco.losses.embeddings import read_embeddings, weights_of_others
from fcco.losses.exchange import exchange
from fcco.losses.merge import merge
from fcco.losses.row_loss import RowLoss
from fcco.methods import Beta
from fcco.objectives.contrastive import GlobalContrastive

__all__ = ["ContrastiveLoss"]


class ContrastiveLoss(RowLoss):
    """InfoNCE in which each pair is compared with all others of the training set, over time.

    With s the cosine of the embeddings of x_i and y_j,

        u_i = mean over j != i of exp((s(x_i, y_j) - s(x_i, y_i)) / T),    f(u) = T log(eps + u),

    and the same from y_i to the x_j if two-way. The fresh value is the mean over the other samples
    of the batch; the table keeps u_i, 8 bytes for each of the N or 2 N anchors. The objective is
    ``fcco.objectives.GlobalContrastive``.

    On several ranks a sample is compared with those of all of them. Every rank gathers 8 + 8 d
    bytes per sample (float32) and computes the loss of the joint batch.

    Args:
        num_samples: N.
        temperature: T, or where a learned one starts.
        two_way: both directions.
        learned: "common": learn one temperature, "individual": one per anchor; f(u) is then
            T (log(eps + u) + ``radius``). Give ``criterion.parameters()`` to the optimizer too.
        radius: the larger, the lower a learned temperature.
        eps: added to u. With eps = 1 / (B - 1), beta = 1 and ``two_way=False``, the value is
            T (NT-Xent - log(B - 1)) of the batch.
        beta: weight of the new in u, or "auto", see ``RowLoss``.

    Examples:
        >>> criterion = ContrastiveLoss(100, temperature=0.1)
        >>> criterion(torch.eye(2), torch.eye(2), torch.tensor([7, 3]))  # T log exp(-1 / T)
        tensor(-1.)
    """

    _validate_with = "criterion.objective.on(number of pairs of that set).exact(first, second)"

    objective: GlobalContrastive

    def __init__(
        self,
        num_samples: int,
        *,
        temperature: float,
        two_way: bool = True,
        learned: Literal["common", "individual"] | None = None,
        radius: float = 0.5,
        eps: float = 1e-14,
        beta: Beta = "auto",
    ) -> None:
        objective = GlobalContrastive(
            num_samples,
            temperature=temperature,
            two_way=two_way,
            learned=learned,
            radius=radius,
            eps=eps,
        )
        super().__init__(objective, beta=beta)
        self.two_way = two_way

    def exact(self, first: Tensor, second: Tensor) -> Tensor:
        """The objective of all N pairs, differentiable: the value to monitor.

        Some anchors are compared at a time, so that memory does not grow with N^2.

        Args:
            first: (N, d), embeddings of all first views, in the order of the index.
            second: (N, d), those of the second views.
        """
        return self.objective.exact(first, second)

    def forward(self, first: Tensor, second: Tensor, index: Tensor) -> Tensor:
        """The loss of a batch.

        Args:
            first: (B, d), embeddings of the first views; they are normalized here.
            second: (B, d), those of the second views.
            index: (B,), which samples of the training set these are.
        """
        size = self.objective.num_samples
        read = partial(read_embeddings, index, size, first=first, second=second)
        index, first, second = exchange(self._together(), read, self.fingerprint)
        weights, others = weights_of_others(index)
        with torch.autocast(first.device.type, enabled=False):
            cosines = normalize(first, dim=1) @ normalize(second, dim=1).T
            own = cosines.diagonal()
            if self.two_way:
                index, own = torch.cat([index, size + index]), torch.cat([own, own])
                cosines, weights = torch.cat([cosines, cosines.T]), torch.cat([weights, weights])
            probe = self.objective.compare(index, own, cosines, weights, others)
            return self._take(merge(probe, self._rows.scaled, common=True))
