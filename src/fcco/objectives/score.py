"""Objectives that are functions of one score per sample, or of one per sample and task."""

from abc import abstractmethod
from collections.abc import Callable
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, TypeVar

import torch
from torch import Tensor

from fcco.problem.batches import PairBatch
from fcco.problem.given import tensor
from fcco.problem.objective import Objective
from fcco.problem.sampled import SampledObjective

if TYPE_CHECKING:
    from fcco.objectives.running import RunningSums

__all__ = [
    "ScoreObjective",
    "differences",
    "partner_scores",
    "read_outputs",
    "read_scores",
    "read_weight",
    "unlocked",
    "widened",
]


AnyObjective = TypeVar("AnyObjective", bound=Objective)


class ScoreObjective(SampledObjective):
    """Base class of objectives F(h) of the scores h of all N samples, built from their labels.

    Scores have the shape (N,), (N, 1) or (N, T) for T tasks, in the order of the samples.

    A subclass defines five methods. ``_build`` derives the blocks from the labels, ``_value``
    computes F of all scores, and ``metric`` computes the metric that F stands for. ``inner`` and
    ``outer`` are those of any ``Objective``.
    """

    num_tasks: int = 1
    """T, the number of scores of each sample."""

    def __init_subclass__(cls, **given: Any) -> None:
        """Refuse a subclass that changes ``inner`` or ``outer`` but inherits ``exact``."""
        super().__init_subclass__(**given)
        parents = [base for base in cls.__mro__[1:] if issubclass(base, ScoreObjective)]
        for name in ("inner", "outer", "scaled_outer"):
            again = any(name in vars(base) for base in parents)
            if again and name in vars(cls) and "_value" not in vars(cls):
                raise TypeError(
                    f"{cls.__name__} redefines {name} but not _value(h, weight), the value of all "
                    "scores, which exact and the losses use: define both"
                )

    @abstractmethod
    def _build(self, *labels: Any) -> None:
        """Derive all blocks from the labels; the settings are attributes already."""

    @abstractmethod
    def _value(self, h: Tensor, weight: Tensor | None) -> Tensor:
        """Return F of scores (N, T) and weights (N,) in float64; 0 if nothing can be compared."""

    @abstractmethod
    def metric(self, scores: Any, weight: Any = None) -> float:
        """Return the metric that F stands for; larger is better."""

    def exact(self, scores: Any, weight: Any = None) -> Tensor:
        """Return F of all N scores; it is differentiable.

        Use it to monitor a run, or to train with L-BFGS or Newton's method. F is computed in
        float64 and returned in the precision of the scores, at least float32. If a gradient is
        needed, average precision, partial AUC, the push and NDCG form all pairs of an anchor and
        its partners, some at a time. This takes seconds for 10^9 pairs. ``ScoreLoss`` avoids it.

        Args:
            scores: (N,), (N, 1) or (N, T), the scores of all samples in their order.
            weight: (N,), how much each sample counts, or None if all count alike. A sample of
                weight 0 is treated as absent, and is not counted anywhere.
        """
        h = read_scores(scores, self.num_samples, self.num_tasks)
        weights = None if weight is None else read_weight(weight, self.num_samples).to(h.device)
        # Autocast would turn sums over pairs into half precision.
        with torch.autocast(h.device.type, enabled=False):
            value = self._value(h.double(), weights).to(h.dtype)
        if not value.isfinite():
            largest = h.detach().abs().max().item()
            raise FloatingPointError(
                f"the objective is {value.item()}, with scores of up to {largest:.3g} in size"
            )
        return value

    def on(self, *labels: Any) -> Self:
        """Return the same objective for other samples, such as a validation set.

        Settings and learned parameters are shared. The arguments are those that the constructor
        takes by position.
        """
        other = unlocked(self)
        for name in list(vars(other)):  # drop what was derived from the labels of this objective
            if isinstance(getattr(type(other), name, None), cached_property):
                del vars(other)[name]
        other._build(*labels)
        return other

    def running_sums(self) -> "RunningSums | None":
        """Return sums that make a step of ``ScoreLoss`` cheaper than ``exact`` of all scores.

        If there are none, return None. The loss then calls ``exact`` in every step.
        """
        return None


def unlocked(objective: AnyObjective) -> AnyObjective:
    """Return a copy whose settings may be changed: no table was built from the copy yet.

    Examples:
        >>> from fcco.objectives import DRO
        >>> objective = DRO(3, temperature=1.0)
        >>> objective.lock()
        >>> unlocked(objective).temperature = 2.0
    """
    other = copy(objective)
    vars(other)["_locked"] = False
    return other


def widened(outputs: Tensor) -> Tensor:
    """Convert to at least float32, which sums over pairs and exponentials need.

    Examples:
        >>> widened(torch.zeros(1, dtype=torch.bfloat16)).dtype
        torch.float32
    """
    return outputs.to(torch.promote_types(outputs.dtype, torch.float32))


def read_scores(given: Any, count: int, num_tasks: int, name: str = "scores") -> Tensor:
    """Return scores as (N, T) in at least float32, after checking them.

    Examples:
        >>> read_scores(torch.zeros(3), 3, 1).shape
        torch.Size([3, 1])
    """
    if hasattr(given, "__array__") and not isinstance(given, Tensor):
        given = tensor(name, given)  # what metric functions of trainers get
    if not isinstance(given, Tensor) or not given.is_floating_point():
        kind = given.dtype if isinstance(given, Tensor) else type(given).__name__
        raise ValueError(f"{name} must be a tensor of floats, got {kind}")
    scores = given.unsqueeze(1) if given.ndim == 1 and num_tasks == 1 else given
    if scores.shape != (count, num_tasks):
        wanted = f"({count},) or ({count}, 1)" if num_tasks == 1 else f"({count}, {num_tasks})"
        raise ValueError(
            f"{name} must have shape {wanted}, got {tuple(given.shape)}: those of all samples (of "
            "all ranks), in the order of the labels"
        )
    # Report which samples are wrong: a sum over all of them would only be NaN.
    lost = (~scores.detach().isfinite()).any(1)
    if lost.any():
        samples = lost.nonzero().flatten()[:10].tolist()
        raise FloatingPointError(f"{name} of samples {samples} are not finite")
    return widened(scores)


def read_weight(given: Any, count: int) -> Tensor:
    """Return weights (N,) in float64, after checking that they are finite and not negative.

    Examples:
        >>> read_weight([1, 0], 2)
        tensor([1., 0.], dtype=torch.float64)
    """
    weight = tensor("weight", given).detach().double()
    if weight.shape != (count,):
        raise ValueError(f"weight must have shape ({count},), got {tuple(weight.shape)}")
    # The bounds keep products and logarithms of weights within float64.
    wrong = ~((weight == 0) | ((weight >= 1e-100) & (weight <= 1e100)))
    if wrong.any():
        place = int(wrong.nonzero()[0])
        raise ValueError(
            f"weight must be finite and not negative, got {weight[place].item()} at {place} "
            "(numbers other than 0 must lie between 1e-100 and 1e100)"
        )
    return weight


def read_outputs(model: Callable[[Any], Tensor], batch: PairBatch, num_tasks: int) -> Tensor:
    """Return the model's scores of the samples of a batch, (k, T), in at least float32.

    Examples:
        >>> batch = PairBatch(torch.tensor([0]), torch.zeros(3, 2), partners=torch.arange(3),
        ...     weights=torch.ones(1, 1, 3), samples=3)
        >>> read_outputs(lambda x: x, batch, 1)
        Traceback (most recent call last):
        ValueError: the model must give one score per sample, got outputs of shape (3, 2)
    """
    outputs = model(batch.inputs)
    if outputs.ndim == 1 and num_tasks == 1:
        outputs = outputs.unsqueeze(1)
    if outputs.ndim != 2 or outputs.shape[1] != num_tasks:
        wanted = "one score" if num_tasks == 1 else f"{num_tasks} scores, one per task,"
        raise ValueError(
            f"the model must give {wanted} per sample, got outputs of shape {tuple(outputs.shape)}"
        )
    return widened(outputs)


def partner_scores(scores: Tensor, batch: PairBatch) -> Tensor:
    """Return the scores of each block's partners, for its task: (k, T) to (B1, k).

    Examples:
        >>> batch = PairBatch(torch.tensor([5]), torch.zeros(2), partners=torch.tensor([1]),
        ...     weights=torch.ones(1, 1, 1), samples=1)
        >>> partner_scores(torch.tensor([[1.0], [4.0]]), batch)
        tensor([[4.]])
    """
    count, tasks = len(batch.blocks), scores.shape[1]
    if tasks == 1:
        found = scores[:, 0][batch.partners]
        return found if found.ndim == 2 else found.expand(count, -1)
    assert batch.columns is not None
    if batch.partners.ndim == 2:
        return scores[batch.partners, batch.columns.unsqueeze(1)]
    found = _selected(scores, batch.partners, 0)
    return _selected(found, batch.columns, 1).T


def differences(model: Callable[[Any], Tensor], batch: PairBatch, num_tasks: int) -> Tensor:
    """Return h(partner k) - h(anchor b), of shape (B1, k), from one forward pass.

    Examples:
        >>> batch = PairBatch(torch.tensor([0]), torch.tensor([[1.0], [5.0]]),
        ...     partners=torch.tensor([1]), weights=torch.ones(1, 1, 1), samples=1,
        ...     anchors=torch.tensor([0]))
        >>> differences(lambda x: x, batch, 1)
        tensor([[4.]])
    """
    scores = read_outputs(model, batch, num_tasks)
    columns: Any = 0 if num_tasks == 1 else batch.columns
    return partner_scores(scores, batch) - scores[batch.anchors, columns].unsqueeze(1)


def _selected(scores: Tensor, places: Tensor, dim: int) -> Tensor:
    """Return ``scores.index_select(dim, places)``, without a copy if all are selected in order."""
    count = scores.shape[dim]
    everything = torch.arange(count, device=places.device)
    same = len(places) == count and places.equal(everything)
    return scores if same else scores.index_select(dim, places)
