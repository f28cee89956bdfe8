"""Contrastive learning against the whole training set, with small batches."""

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
    """The contrastive loss InfoNCE, which compares each pair with the whole training set over time.

    Let s be the cosine of the embeddings of x_i and y_j. Then

        u_i = mean over j != i of exp((s(x_i, y_j) - s(x_i, y_i)) / T),    f(u) = T log(eps + u).

    If ``two_way``, y_i is compared with all x_j in the same way. The fresh value of u_i is the mean
    over the other samples of the batch. The table stores u_i, which takes 8 bytes for each of the N
    or 2 N anchors. The objective is ``fcco.objectives.GlobalContrastive``.

    With several ranks, a sample is compared with the samples of all ranks. Every rank gathers
    8 + 8 d bytes per sample (float32) and computes the loss of the joint batch.

    Args:
        num_samples: N, the number of pairs in the training set.
        temperature: T, or the initial value of a learned temperature.
        two_way: whether to compare in both directions.
        learned: None keeps T fixed, "common" learns one temperature, and "individual" learns one
            per anchor. With a learned temperature, f(u) is T (log(eps + u) + ``radius``). Pass
            ``criterion.parameters()`` to the optimizer too.
        radius: a larger radius gives lower learned temperatures.
        eps: a number that is added to u. With eps = 1 / (N - 1) the own pair is among the
            partners, and F is T (InfoNCE - log(N - 1)) of all N pairs: pairs that are told apart
            already have no gradient, which suits the fine-tuning of a pretrained model. By default
            the own pair is left out, and every pair keeps its gradient.
        beta: the weight of the fresh value in u, or "auto", see ``RowLoss``.

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

    def exact(self, first: Tensor, second: Tensor) -> Tensor:
        """Return the objective of all N pairs, which is the value to monitor.

        It is differentiable. Some anchors are compared at a time, so that the memory does not grow
        as N^2.

        Args:
            first: (N, d), the embeddings of all first views, in the order of the index.
            second: (N, d), the embeddings of all second views.
        """
        return self.objective.exact(first, second)

    def forward(self, first: Tensor, second: Tensor, index: Tensor) -> Tensor:
        """Return the loss of a batch.

        Args:
            first: (B, d), the embeddings of the first views. They are normalized here.
            second: (B, d), the embeddings of the second views.
            index: (B,), the positions of these pairs in the training set.
        """
        size = self.objective.num_samples
        read = partial(read_embeddings, index, size, first=first, second=second)
        index, first, second = exchange(self._together(), read, self.fingerprint)
        weights, others = weights_of_others(index)
        # In half precision, exponents (s - s_own) / T of a low temperature would lose their digits.
        with torch.autocast(first.device.type, enabled=False):
            cosines = normalize(first, dim=1) @ normalize(second, dim=1).T
            own = cosines.diagonal()
            if self.objective.two_way:
                # Anchor N + i is the second view of pair i: its cosines are a column of the matrix.
                index, own = torch.cat([index, size + index]), torch.cat([own, own])
                cosines, weights = torch.cat([cosines, cosines.T]), torch.cat([weights, weights])
            probe = self.objective.compare(index, own, cosines, weights, others)
            return self._take(merge(probe, self._rows.scaled, common=True))
