"""Learning to rank: scores that put the relevant items of each list first."""

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_consistent_length, column_or_1d

from fcco.estimators.arguments import check_arguments, check_weight
from fcco.estimators.base import ScoringEstimator
from fcco.estimators.lists import Lists

__all__ = ["Ranker"]


class Ranker(ScoringEstimator):
    """Ranks the items of lists, by a smooth NDCG or by ListNet's cross-entropy.

    Args:
        hidden: widths of the hidden layers, or one width; () is a linear model.
        objective: "ndcg" or "listnet"; "ndcg" was better on the one data set that was tried.
        top_k: ranks that count in ``score``, early stopping and the objective "ndcg"; None: all.
        C: the inverse of the ridge of a linear model.
        max_steps: steps of a network's ``fit``; the learning rate decays to zero over them.
        learning_rate: the learning rate of the first step.
        weight_decay: of a network, decoupled, as in AdamW.
        batch_size: items per step.
        early_stopping: hold out lists, and keep only what raises their NDCG; see
            ``fcco.estimators.base.ScoringEstimator``.
        validation_fraction: the fraction that is held out.
        patience: evaluations of the metric (20 in ``max_steps``) without a rise before it stops.
        partial_steps: steps of each call of ``partial_fit``.
        verbose: whether to print each entry of the history.
        random_state: seeds the split, the hidden layers and the batches.

    Attributes:
        coef_: (1, features), of a linear model.
        intercept_: (1,), of a linear model.
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

    With scikit-learn's metadata routing ``qid`` is passed on to ``fit`` and ``score`` by
    ``cross_validate`` and others.
    """

    # What routing passes on without a word of the user's.
    __metadata_request__fit: ClassVar = {"qid": True, "group": None}
    __metadata_request__partial_fit: ClassVar = {"qid": True, "group": None}
    __metadata_request__score: ClassVar = {"qid": True, "group": None}

    def __init__(
        self,
        hidden: Sequence[int] | int = (),
        *,
        objective: str = "ndcg",
        top_k: int | None = None,
        C: float = 1.0,
        max_steps: int = 1000,
        learning_rate: float = 0.03,
        weight_decay: float = 1e-3,
        batch_size: int = 128,
        early_stopping: bool = True,
        validation_fraction: float = 0.2,
        patience: int = 10,
        partial_steps: int = 100,
        verbose: bool = False,
        random_state: int | RandomState | None = None,
    ) -> None:
        super().__init__(
            hidden,
            C=C,
            max_steps=max_steps,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            batch_size=batch_size,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            patience=patience,
            partial_steps=partial_steps,
            verbose=verbose,
            random_state=random_state,
        )
        self.objective = objective
        self.top_k = top_k

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        qid: ArrayLike | None = None,
        group: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Train from the beginning.

        Args:
            X: (n, d) features of the items.
            y: (n,) grades, 0 for irrelevant.
            qid: (n,), the list of each item, in any order, as in XGBoost.
            group: instead of ``qid``, the lengths of the lists, as in LightGBM; items are then
                given list by list.
            sample_weight: (n,), how much the list of each item counts: the same for all items of a
                list. A weight of 2 is the same as the list twice.
        """
        return self._fit(*self._lists(X, y, qid, group, sample_weight, reset=True))

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
        first call sets the scales of the features. There is no early stopping. Arguments as for
        ``fit``.
        """
        reset = not hasattr(self, "network_")
        return self._partial_fit(*self._lists(X, y, qid, group, sample_weight, reset=reset))

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """The score of each item, (n,), to be compared within a list."""
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
        """NDCG of the first ``top_k`` ranks, the mean over the lists. Arguments as for ``fit``."""
        features, target = self._lists(X, y, qid, group, sample_weight, reset=False)
        return target.metric(torch.from_numpy(self._scores(features)))

    def _lists(
        self,
        X: ArrayLike,
        y: ArrayLike,
        qid: ArrayLike | None,
        group: ArrayLike | None,
        sample_weight: ArrayLike | None,
        *,
        reset: bool,
    ) -> tuple[Any, Lists]:
        """Features and grades, list by list."""
        if self.objective not in ("listnet", "ndcg"):
            raise ValueError(f'objective must be "listnet" or "ndcg", got {self.objective!r}')
        check_arguments(self)
        features, grades = self._validated(X, y, y_numeric=True, reset=reset)
        if (qid is None) == (group is None):
            raise ValueError("qid must be given, the list of each item, or group, their lengths")
        if group is not None:
            lengths = np.asarray(group)
            if lengths.ndim != 1 or lengths.dtype.kind not in "iu" or (lengths < 1).any():
                raise ValueError("group must be whole numbers of at least 1, one for each list")
            total = sum(lengths.tolist())  # which cannot overflow
            if total != len(grades):
                raise ValueError(f"group adds up to {total}, but X has {len(grades)} items")
            qid = np.repeat(np.arange(len(lengths)), lengths.astype(np.int64))
        owner = column_or_1d(qid)
        check_consistent_length(features, owner)
        if owner.dtype.kind == "f" and np.isnan(owner).any():
            raise ValueError(f"qid holds NaN in row {np.isnan(owner).argmax()}")
        weight, kept = check_weight(sample_weight, features)
        _check_even(sample_weight, owner)
        features, grades = features[kept], np.asarray(grades, dtype=np.float64)[kept]
        _, owner, counts = np.unique(owner[kept], return_inverse=True, return_counts=True)
        order = np.argsort(owner, kind="stable")
        grades, weight = grades[order], None if weight is None else weight[order]
        if (grades < 0).any() or not (grades > 0).any():
            raise ValueError("y must hold grades of at least 0, and one above it")
        if grades.max() >= 1024:
            raise ValueError(f"grades: 2^y overflows at y = {grades.max():g}")
        return features[order], Lists(grades, counts, self.objective, self.top_k, weight)


def _check_even(sample_weight: ArrayLike | None, owner: NDArray[Any]) -> None:
    """All items of a list have the same weight."""
    _, first, place = np.unique(owner, return_index=True, return_inverse=True)
    weight = np.broadcast_to(1.0 if sample_weight is None else sample_weight, len(owner))
    uneven = weight != weight[first][place]
    if uneven.any():
        name = owner[uneven.argmax()]
        raise ValueError(
            f"sample_weight must be the same for all items of a list, not so in {name}"
        )
