"""Cox regression, linear or deep: scores are log risks."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_consistent_length

from fcco.estimators.base import CompositionalEstimator
from fcco.estimators.outcomes import Outcomes, outcomes

__all__ = ["CoxRegressor"]


class CoxRegressor(CompositionalEstimator):
    """Maximizes Cox's partial likelihood of a linear or deep log risk.

    Args:
        hidden: widths of the hidden layers, or one width; () is a linear model.
        ties: "efron" or "breslow".
        max_steps: steps of ``fit``; the learning rate decays to zero over them.
        learning_rate: the learning rate of the first step.
        weight_decay: decoupled, as in AdamW.
        blocks_per_step: the largest number of events probed per step; None: 64.
        samples_per_block: subjects that each is compared with; None: 256.
        early_stopping: hold out subjects in ``fit``, stop when their concordance no longer rises,
            and keep the best weights; nothing is held out if that would be fewer than 10 with or
            without an event.
        validation_fraction: the fraction that is held out.
        patience: evaluations of the metric (20 in ``max_steps``) without a rise before it stops.
        partial_steps: steps of each call of ``partial_fit``.
        random_state: seeds the split, the hidden layers and the batches.

    Attributes:
        network_: the scoring network, on standardized features.
        n_steps_: the number of steps taken.
        history_: ``Record``s of step, objective and held-out concordance.

    Examples:
        >>> random = np.random.RandomState(0)
        >>> X = random.normal(size=(200, 3))
        >>> times = random.exponential(np.exp(-X[:, 0]))
        >>> y = np.stack([np.minimum(times, 2.0), times < 2.0], axis=1)
        >>> model = CoxRegressor(max_steps=100, random_state=0).fit(X, y)
        >>> model.score(X, y) > 0.65
        True
    """

    def __init__(
        self,
        hidden: Sequence[int] | int = (),
        *,
        ties: str = "efron",
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
        self.ties = ties

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Train from the beginning.

        Args:
            X: (n, d) features.
            y: (n,) structured, a boolean field (event observed) and a numeric one (time of event
                or censoring), as in scikit-survival; or (n, 2), columns time and event.
        """
        return self._fit(*self._outcomes(X, y, reset=True))

    def partial_fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Take ``partial_steps`` more steps on these subjects, which form their own risk sets.

        With the same subjects as in the last call, the result equals one longer run, bit for bit.
        The first call sets the scales of the features. There is no early stopping.

        Args:
            X: (n, d) features.
            y: as for ``fit``.
        """
        return self._partial_fit(*self._outcomes(X, y, reset=not hasattr(self, "network_")))

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """The log risk of each subject, (n,): higher means an earlier event."""
        return self._scores(self._validated(X, reset=False))[:, 0]

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """Harrell's concordance index.

        Args:
            X: (n, d) features.
            y: as for ``fit``.
        """
        scores = self._scores(self._validated(X, reset=False))
        times, events = outcomes(y)
        check_consistent_length(scores, times)
        return Outcomes(times, events, self.ties).metric(torch.from_numpy(scores))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def _outcomes(self, X: ArrayLike, y: ArrayLike, *, reset: bool) -> tuple[Any, Outcomes]:
        if self.ties not in ("efron", "breslow"):
            raise ValueError(f'ties must be "efron" or "breslow", got {self.ties!r}')
        X = self._validated(X, reset=reset)
        times, events = outcomes(y)
        check_consistent_length(X, times)
        if not events.any():
            raise ValueError("y: no event was observed, only censoring")
        return X, Outcomes(times, events, self.ties)
