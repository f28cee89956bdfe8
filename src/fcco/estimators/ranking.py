"""Learning to rank: scores that put the relevant items of each list first."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray

from fcco.estimators.arguments import check_arguments
from fcco.estimators.base import CompositionalEstimator
from fcco.estimators.lists import Lists

__all__ = ["Ranker"]


class Ranker(CompositionalEstimator):
    """Ranks the items of lists, by a smooth NDCG or by ListNet's cross-entropy.

    Args:
        hidden: widths of the hidden layers, or one width; () is a linear model.
        objective: "ndcg" or "listnet"; "ndcg" was better on the one data set that was tried.
        top_k: ranks that count in ``score``, early stopping and the objective "ndcg"; None: all.
        max_steps: steps of ``fit``; the learning rate decays to zero over them.
        learning_rate: the learning rate of the first step.
        weight_decay: decoupled, as in AdamW.
        blocks_per_step: the largest number of items probed per step; None: 64.
        samples_per_block: items of its list that each is compared with; None: 32.
        early_stopping: hold out lists in ``fit``, stop when their NDCG no longer rises, and keep
            the best weights; nothing is held out if that would be fewer than 10 lists.
        validation_fraction: the fraction that is held out.
        patience: evaluations of the metric (20 in ``max_steps``) without a rise before it stops.
        partial_steps: steps of each call of ``partial_fit``.
        random_state: seeds the split, the hidden layers and the batches.

    Attributes:
        network_: the scoring network, on standardized features.
        n_steps_: the number of steps taken.
        history_: ``Record``s of step, objective and held-out NDCG.

    Examples:
        >>> random = np.random.RandomState(0)
        >>> X = random.normal(size=(60, 3))
        >>> y = np.digitize(X[:, 0], [0.0, 1.0])
        >>> model = Ranker(max_steps=100, random_state=0).fit(X, y, group=[20, 15, 25])
        >>> model.score(X, y, group=[20, 15, 25]) > 0.95
        True
    """

    def __init__(
        self,
        hidden: Sequence[int] | int = (),
        *,
        objective: str = "ndcg",
        top_k: int | None = None,
        max_steps: int = 1000,
        learning_rate: float = 0.03,
        weight_decay: float = 1e-3,
        blocks_per_step: int | None = None,
        samples_per_block: int | None = None,
        early_stopping: bool = True,
        validation_fraction: float = 0.1,
        patience: int = 10,
        partial_steps: int = 100,
        random_state: int | RandomState | None = None,
    ) -> None:
        super().__init__(
            hidden,
            max_steps=max_steps,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            blocks_per_step=blocks_per_step,
            samples_per_block=samples_per_block,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            patience=patience,
            partial_steps=partial_steps,
            random_state=random_state,
        )
        self.objective = objective
        self.top_k = top_k

    def fit(self, X: ArrayLike, y: ArrayLike, *, group: ArrayLike | None = None) -> Self:
        """Train from the beginning.

        Args:
            X: (n, d) features of the items, list by list.
            y: (n,) grades, 0 for irrelevant.
            group: the lengths of the lists, as in LightGBM.
        """
        return self._fit(*self._lists(X, y, group, reset=True))

    def partial_fit(self, X: ArrayLike, y: ArrayLike, *, group: ArrayLike | None = None) -> Self:
        """Take ``partial_steps`` more steps on these lists.

        With the same lists as in the last call, the result equals one longer run, bit for bit. The
        first call sets the scales of the features. There is no early stopping. Arguments as for
        ``fit``.
        """
        reset = not hasattr(self, "network_")
        return self._partial_fit(*self._lists(X, y, group, reset=reset))

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """The score of each item, (n,), to be compared within a list."""
        return self._scores(self._validated(X, reset=False))[:, 0]

    def score(self, X: ArrayLike, y: ArrayLike, *, group: ArrayLike | None = None) -> float:
        """NDCG of the first ``top_k`` ranks, the mean over the lists. Arguments as for ``fit``."""
        features, target = self._lists(X, y, group, reset=False)
        return target.metric(torch.from_numpy(self._scores(features)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def _lists(
        self, X: ArrayLike, y: ArrayLike, group: ArrayLike | None, *, reset: bool
    ) -> tuple[Any, Lists]:
        if self.objective not in ("listnet", "ndcg"):
            raise ValueError(f'objective must be "listnet" or "ndcg", got {self.objective!r}')
        check_arguments(self)
        features, grades = self._validated(X, y, y_numeric=True, reset=reset)
        if group is None:
            raise ValueError("group must be given: the lengths of the lists")
        lengths = np.asarray(group)
        if lengths.ndim != 1 or lengths.dtype.kind not in "iu" or (lengths < 1).any():
            raise ValueError("group must be whole numbers of at least 1, one for each list")
        total = sum(lengths.tolist())  # which cannot overflow
        if total != len(grades):
            raise ValueError(f"group adds up to {total}, but X has {len(grades)} items")
        grades = np.asarray(grades, dtype=np.float64)
        if (grades < 0).any() or not (grades > 0).any():
            raise ValueError("y must hold grades of at least 0, and one above it")
        return features, Lists(grades, lengths.astype(np.int64), self.objective, self.top_k)
