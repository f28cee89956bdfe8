"""The losses of scores by name; each is ``ScoreLoss`` of the objective of its name."""

from typing import Any

from fcco.losses.score_loss import ScoreLoss
from fcco.objectives import (
    AUC,
    DRO,
    NDCG,
    AveragePrecision,
    Cox,
    CVaR,
    ListNet,
    PartialAUC,
    PNormPush,
    Surrogate,
)

__all__ = [
    "APLoss",
    "AUCLoss",
    "CVaRLoss",
    "CoxLoss",
    "DROLoss",
    "ListNetLoss",
    "NDCGLoss",
    "PartialAUCLoss",
    "PushLoss",
]


class CoxLoss(ScoreLoss):
    """Cox's negative log partial likelihood, ``ScoreLoss(objectives.Cox(times, events))``.

    A step costs O(N), for one cumulative sum in the order of the times.

    Args:
        times: (N,), the time of the event or of the censoring.
        events: (N,), 1 if the event was observed and 0 if the sample was censored.
        ties: the treatment of equal times, "efron" or "breslow".

    Examples:
        >>> import torch
        >>> criterion = CoxLoss(torch.tensor([2.0, 2.0]), torch.tensor([True, True]))
        >>> criterion(torch.zeros(2), torch.tensor([0, 1]))  # (log 2 + log 1) / 2
        tensor(0.3466)
    """

    def __init__(self, times: Any, events: Any, *, ties: str = "efron") -> None:
        super().__init__(Cox(times, events, ties=ties))


class AUCLoss(ScoreLoss):
    """A smooth form of 1 - AUC, bounded below, ``ScoreLoss(objectives.AUC(labels))``.

    Args:
        labels: (N,) or (N, tasks), 1 for positives and 0 for negatives; -1 or NaN where missing.
        temperature: T. With a small value only the worst pairs count.

    Examples:
        >>> import torch
        >>> criterion = AUCLoss(torch.tensor([1, 0]))
        >>> criterion(torch.zeros(2), torch.tensor([0, 1]))  # log 2
        tensor(0.6931)
    """

    def __init__(self, labels: Any, *, temperature: float = 1.0) -> None:
        super().__init__(AUC(labels, temperature=temperature))


class APLoss(ScoreLoss):
    """Minus the average precision, ``ScoreLoss(objectives.AveragePrecision(labels))``.

    A step costs O(B (m + N)) for m positives.

    Args:
        labels: (N,) or (N, tasks), 1 for positives and 0 for negatives; -1 or NaN where missing.
        surrogate: l, which replaces the step function; by default ``Sigmoid()``.

    Examples:
        >>> import torch
        >>> criterion = APLoss(torch.tensor([1, 0]))
        >>> criterion(torch.zeros(2), torch.tensor([0, 1]))  # 1 / (1 + sigmoid(0))
        tensor(-0.6667)
    """

    def __init__(self, labels: Any, *, surrogate: Surrogate | None = None) -> None:
        super().__init__(AveragePrecision(labels, surrogate=surrogate))


class PartialAUCLoss(ScoreLoss):
    """Partial AUC, one-way or two-way, ``ScoreLoss(objectives.PartialAUC(labels, ...))``.

    With a small temperature, the risk depends on few samples, and a stale table may contain the
    wrong ones. Use small steps, as for batches of one sample.

    Args:
        labels: (N,) or (N, tasks), 1 for positives and 0 for negatives; -1 or NaN where missing.
        temperature: the temperature of the soft maximum over the negatives. With a small value only
            the hardest negative of each positive counts.
        two_way: the temperature of a soft maximum over the positives, or None for the one-way form.
        max_fpr: the largest false positive rate that ``objective.metric`` counts.
        min_tpr: the smallest true positive rate that ``objective.metric`` counts. Given without
            ``max_fpr``, it swaps the roles: each negative is compared with the lowest positives.
        surrogate: l, which must not be negative; by default ``SquaredHinge()``.

    Examples:
        >>> import torch
        >>> criterion = PartialAUCLoss(torch.tensor([1, 0, 0]), temperature=0.1)
        >>> criterion(torch.tensor([0.0, 0.0, -5.0]), torch.arange(3))  # 1 + 0.1 log(1/2)
        tensor(0.9307)
    """

    def __init__(
        self,
        labels: Any,
        *,
        temperature: float,
        two_way: float | None = None,
        max_fpr: float | None = None,
        min_tpr: float | None = None,
        surrogate: Surrogate | None = None,
    ) -> None:
        objective = PartialAUC(
            labels,
            temperature=temperature,
            two_way=two_way,
            max_fpr=max_fpr,
            min_tpr=min_tpr,
            surrogate=surrogate,
        )
        super().__init__(objective)


class PushLoss(ScoreLoss):
    """The p-norm push, ``ScoreLoss(objectives.PNormPush(labels))``.

    Args:
        labels: (N,) or (N, tasks), 1 for positives and 0 for negatives; -1 or NaN where missing.
        power: p, at least 1.
        surrogate: l, which must not be negative; by default ``Logistic()``.

    Examples:
        >>> import torch
        >>> criterion = PushLoss(torch.tensor([1, 0]), power=3.0)
        >>> criterion(torch.zeros(2), torch.tensor([0, 1]))
        tensor(1.)
    """

    def __init__(
        self, labels: Any, *, power: float = 4.0, surrogate: Surrogate | None = None
    ) -> None:
        super().__init__(PNormPush(labels, power=power, surrogate=surrogate))


class NDCGLoss(ScoreLoss):
    """Minus NDCG with smooth ranks, ``ScoreLoss(objectives.NDCG(grades, lengths))``.

    A sample is an item, and items are numbered list after list. A batch need not contain whole
    lists. It may consist of one item.

    Args:
        grades: (N,), the grade of every item, where 0 is irrelevant.
        lengths: (Q,), the lengths of the lists, adding up to N.
        top_k: K, or None for the whole list.
        surrogate: l, which replaces the step function; by default ``SquaredHinge()``.
        softness: the width of the cut at K, in ranks.
        weights: (Q,), how much each list counts in the mean, or None if all count alike.

    Examples:
        >>> import torch
        >>> criterion = NDCGLoss(torch.tensor([0, 1, 2]), torch.tensor([2, 1]))
        >>> criterion(torch.tensor([0.0, 2.0, 1.0]), torch.arange(3))  # both in their ideal order
        tensor(-1.)
    """

    def __init__(
        self,
        grades: Any,
        lengths: Any,
        *,
        top_k: int | None = None,
        surrogate: Surrogate | None = None,
        softness: float = 0.5,
        weights: Any = None,
    ) -> None:
        objective = NDCG(
            grades, lengths, top_k=top_k, surrogate=surrogate, softness=softness, weights=weights
        )
        super().__init__(objective)


class ListNetLoss(ScoreLoss):
    """ListNet's cross-entropy, ``ScoreLoss(objectives.ListNet(grades, lengths))``.

    A sample is an item, and items are numbered list after list. A batch need not contain whole
    lists. It may consist of one item.

    Args:
        grades: (N,), the grade of every item.
        lengths: (Q,), the lengths of the lists, adding up to N.
        weights: (Q,), how much each list counts in the mean, or None if all count alike.

    Examples:
        >>> import torch
        >>> criterion = ListNetLoss(torch.tensor([1.0, 1.0, 5.0]), torch.tensor([2, 1]))
        >>> criterion(torch.zeros(3), torch.arange(3))  # (log 2 + log 1) / 2
        tensor(0.3466)
    """

    def __init__(self, grades: Any, lengths: Any, *, weights: Any = None) -> None:
        super().__init__(ListNet(grades, lengths, weights=weights))


class DROLoss(ScoreLoss):
    """A soft maximum of the losses of all samples, ``ScoreLoss(objectives.DRO(num_samples))``.

    The scores are losses, one per sample (``reduction="none"``).

    Args:
        num_samples: N, the number of samples.
        temperature: T. With a small value only the largest loss counts.

    Examples:
        >>> import torch
        >>> criterion = DROLoss(2, temperature=1.0)
        >>> criterion(torch.tensor([1.0, 1.0]), torch.tensor([0, 1]))
        tensor(1.)
    """

    def __init__(self, num_samples: int, *, temperature: float) -> None:
        super().__init__(DRO(num_samples, temperature=temperature))


class CVaRLoss(ScoreLoss):
    """The mean of the largest losses of all samples, ``ScoreLoss(objectives.CVaR(num_samples))``.

    The scores are losses, one per sample (``reduction="none"``).

    Args:
        num_samples: N, the number of samples.
        fraction: the fraction of the samples that counts, in (0, 1].

    Examples:
        >>> import torch
        >>> criterion = CVaRLoss(4, fraction=0.5)
        >>> criterion(torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.arange(4))
        tensor(3.5000)
    """

    def __init__(self, num_samples: int, *, fraction: float) -> None:
        super().__init__(CVaR(num_samples, fraction=fraction))
