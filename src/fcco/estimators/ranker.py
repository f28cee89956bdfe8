"""Learning to rank, with scores that put the relevant items of each list first."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_consistent_length, column_or_1d
from torch import Tensor

from fcco.estimators.base import ScoringEstimator, unchanged_on_error
from fcco.estimators.target import Phase, Rows, Target, balanced_folds
from fcco.estimators.validation import (
    Weight,
    check_settings,
    missing,
    read_sample_weight,
    require_y,
    take,
)
from fcco.losses import ScoreLoss
from fcco.objectives import NDCG, ListNet

__all__ = ["Ranker"]


@dataclass(frozen=True, eq=False)
class Lists(Target):
    """The grades of items, list by list; all items of a list have the same weight."""

    grades: NDArray[np.float64]
    owner: NDArray[Any]
    """(n,), the list of each item, in rising order."""
    objective: str
    top_k: int | None

    def phases(self) -> Sequence[Phase]:
        """Return ListNet's cross-entropy, then NDCG if it is the objective."""
        lengths, weights = self._lists()
        first = ScoreLoss(ListNet(self.grades, lengths, weights=weights))
        return (first,) if self.objective == "listnet" else (first, ScoreLoss(self._ndcg()))

    def metric(self, scores: Tensor) -> float:
        """Return NDCG of the first ``top_k`` ranks."""
        return self._ndcg().metric(scores)

    def folds(self, count: int, random: RandomState) -> Rows | None:
        """Return folds of whole lists, with equal shares of lists that have a relevant item."""
        _, starts, place = np.unique(self.owner, return_index=True, return_inverse=True)
        relevant = np.maximum.reduceat(self.grades, starts) > 0
        folds = balanced_folds(relevant, count, random)
        return None if folds is None else folds[place]

    def _ndcg(self) -> NDCG:
        lengths, weights = self._lists()
        return NDCG(self.grades, lengths, top_k=self.top_k, weights=weights)

    def _lists(self) -> tuple[NDArray[np.intp], Weight]:
        """Return the lengths of the lists, and their weights."""
        _, starts, lengths = np.unique(self.owner, return_index=True, return_counts=True)
        return lengths, take(self.weight, starts)


@dataclass(eq=False, repr=False)
class Ranker(ScoringEstimator):
    """An estimator that ranks the items of lists, by a smooth NDCG or ListNet's cross-entropy.

    Args:
        hidden: the widths of the hidden layers, or one width; () gives a linear model.
        objective: "ndcg" or "listnet". "ndcg" was better on the one data set that was tried.
        top_k: the number of first ranks that count in ``score``, in early stopping and in the
            objective "ndcg", or None if all ranks count.
        C: the inverse of the ridge of a linear model.
        max_steps: the number of steps that ``fit`` takes with a network. The learning rate falls to
            0 over these steps.
        learning_rate: the learning rate of the first step.
        weight_decay: the decoupled weight decay of a network, as in AdamW.
        batch_size: the number of items per step.
        early_stopping: whether to hold out lists and keep only what raises their NDCG; see
            ``fcco.estimators.base.ScoringEstimator``.
        validation_fraction: the fraction that is held out.
        patience: the number of evaluations of the metric (20 in ``max_steps``) without a rise after
            which training stops.
        partial_steps: the number of steps of each call of ``partial_fit``.
        verbose: whether to print each entry of the history.
        random_state: the seed of the split, the hidden layers and the batches.

    Attributes:
        coef_: (1, features), the coefficients of a linear model.
        intercept_: (1,), the intercept of a linear model.
        network_: the scoring network, on standardized features.
        n_steps_: the number of steps taken.
        history_: ``Record``s of step, objective and held-out NDCG.

    Examples:
        >>> random = np.random.RandomState(0)
        >>> X = random.normal(size=(60, 3))
        >>> y = np.digitize(X[:, 0], [0.0, 1.0])
        >>> qid = np.repeat([0, 1, 2], [20, 15, 25])
        >>> Ranker(random_state=0).fit(X, y, qid=qid).score(X, y, qid=qid) > 0.95
        True

    With scikit-learn's metadata routing, ``cross_validate`` and other functions pass ``qid`` on to
    ``fit`` and ``score``.
    """

    # Metadata that is routed by default.
    __metadata_request__fit: ClassVar = {"qid": True, "group": None}
    __metadata_request__partial_fit: ClassVar = {"qid": True, "group": None}
    __metadata_request__score: ClassVar = {"qid": True, "group": None}

    _: KW_ONLY
    objective: str = "ndcg"
    top_k: int | None = None

    @unchanged_on_error
    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        qid: ArrayLike | None = None,
        group: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Train the model from the beginning.

        Args:
            X: (n, d), the features of the items.
            y: (n,), the grades, where 0 is irrelevant.
            qid: (n,), the list of each item, in any order, as in XGBoost.
            group: the lengths of the lists, instead of ``qid``, as in LightGBM. Items are then
                given list by list.
            sample_weight: (n,), how much the list of each item counts. It must be the same for all
                items of a list. A weight of 2 is the same as the list twice.
        """
        return self._fit(*self._read(X, y, qid, group, sample_weight, reset=True))

    @unchanged_on_error
    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        qid: ArrayLike | None = None,
        group: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Take ``partial_steps`` more steps on these lists.

        With the same lists as in the last call, the result equals one longer run, bit for bit. The
        first call sets the scales of the features. There is no early stopping. The arguments are
        those of ``fit``.
        """
        first = not hasattr(self, "network_")
        return self._partial_fit(*self._read(X, y, qid, group, sample_weight, reset=first))

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the score of each item, (n,), which can be compared within a list."""
        return self._scores(self._validated(X, reset=False))[:, 0]

    def score(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        qid: ArrayLike | None = None,
        group: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> float:
        """Return NDCG of the first ``top_k`` ranks, averaged over lists.

        The arguments are those of ``fit``.
        """
        features, target = self._read(X, y, qid, group, sample_weight, reset=False)
        return target.metric(torch.from_numpy(self._scores(features)))

    def _read(
        self,
        X: ArrayLike,
        y: ArrayLike,
        qid: ArrayLike | None,
        group: ArrayLike | None,
        sample_weight: ArrayLike | None,
        *,
        reset: bool,
    ) -> tuple[Any, Lists]:
        """Check features and grades and sort them by list; lists of weight 0 are left out."""
        if self.objective not in ("listnet", "ndcg"):
            raise ValueError(f'objective must be "listnet" or "ndcg", got {self.objective!r}')
        check_settings(self)
        require_y(self, y)
        features, grades = self._validated(X, y, y_numeric=True, reset=reset)
        owner = _read_owner(qid, group, len(grades))
        check_consistent_length(features, owner)
        weight, kept = read_sample_weight(sample_weight, features)
        if weight is not None:
            _check_even(weight, owner)
        grades = np.asarray(grades, dtype=np.float64)
        if (grades[kept] < 0).any() or not (grades[kept] > 0).any():
            raise ValueError("y must hold grades of at least 0, and at least one above 0")
        # The gain 2^y - 1 must fit into float64.
        if grades[kept].max() >= 1024:
            raise ValueError(f"grades: 2^y overflows at y = {grades[kept].max():g}")
        rows = np.arange(len(owner))[kept]
        # The objectives number items list after list, so lists in any order are sorted first.
        rows = rows[np.argsort(owner[rows], kind="stable")]
        target = Lists(grades, owner, self.objective, self.top_k, weight=weight)
        return features[rows], target.take(rows)


def _read_owner(qid: ArrayLike | None, group: ArrayLike | None, count: int) -> NDArray[Any]:
    """Return the list of each of ``count`` items, from either form."""
    if (qid is None) == (group is None):
        raise ValueError("qid must be given, the list of each item, or group, their lengths")
    if group is not None:
        lengths = np.asarray(group)
        if lengths.ndim != 1 or lengths.dtype.kind not in "iu" or (lengths < 1).any():
            raise ValueError("group must be whole numbers of at least 1, one for each list")
        total = sum(lengths.tolist())  # whole numbers of Python cannot overflow
        if total != count:
            raise ValueError(f"group adds up to {total}, but X has {count} items")
        return np.repeat(np.arange(len(lengths)), lengths.astype(np.int64))
    owner: NDArray[Any] = column_or_1d(qid)
    if owner.dtype.kind == "f" and np.isnan(owner).any():
        raise ValueError(f"qid holds NaN in row {np.isnan(owner).argmax()}")
    if owner.dtype == object:
        wrong = missing(owner)
        if wrong.any():
            raise ValueError(f"qid holds {owner[wrong][0]} in row {wrong.argmax()}")
        try:
            np.sort(owner)
        except TypeError as error:
            raise ValueError(f"qid must hold numbers only or strings only: {error}") from None
    return owner


def _check_even(weight: NDArray[np.float64], owner: NDArray[Any]) -> None:
    """Check that all items of a list have the same weight."""
    _, first, place = np.unique(owner, return_index=True, return_inverse=True)
    uneven = weight != weight[first][place]
    if uneven.any():
        name = owner[uneven.argmax()]
        raise ValueError(
            f"sample_weight must be the same for all items of a list, not so in {name}"
        )
