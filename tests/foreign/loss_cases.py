"""Every loss of ``fcco.losses`` with small inputs, in the manner of torch's ``ModuleInfo``.

A batch holds all samples, and the rows that a loss tracks are taken over at once (``beta=1``), so
that the value of a call is a function of its inputs alone and its gradient is the derivative of
that value. Both are what torch expects of a module.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from fcco import losses as L
from fcco import objectives as O
from fcco.problem import Probe

N = 6
INDEX = torch.tensor([3, 0, 5, 1, 4, 2])
LABELS = torch.tensor([1, 0, 0, 1, 0, 1])
TASKS = torch.tensor([[1, 0], [0, 1], [0, -1], [1, 0], [0, 1], [-1, 1]])
CLASSES = torch.tensor([0, 1, 0, 1, 2, 2])
TIMES = torch.tensor([4.0, 2.0, 2.0, 7.0, 1.0, 2.0])
EVENTS = torch.tensor([1, 1, 0, 0, 1, 1])
GRADES = torch.tensor([0, 2, 1, 0, 3, 1])
LENGTHS = torch.tensor([4, 2])
GROUPS = torch.tensor([0, 1, 0, 2, 1, 0])


@dataclass(frozen=True)
class LossCase:
    """How a loss is built, and what one call of it is given."""

    name: str
    cls: type[nn.Module]
    args: tuple[Any, ...]
    inputs: Callable[[], tuple[Tensor, ...]]
    """The arguments of ``forward``, of which those of floats in float64 are differentiable."""
    kwargs: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name

    def build(self, dtype: torch.dtype = torch.float64) -> nn.Module:
        return self.cls(*self.args, **self.kwargs).to(dtype)

    def call_inputs(
        self, dtype: torch.dtype = torch.float64, requires_grad: bool = False
    ) -> tuple[Tensor, ...]:
        """Inputs of one call, the same at every call of this function."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            given = self.inputs()
        return tuple(
            part.to(dtype).requires_grad_(requires_grad) if part.dtype == torch.float64 else part
            for part in given
        )


class ProbedLoss(L.TableLoss):
    """A ``TableLoss`` whose call takes tensors, as torch's tests give them, and not a ``Probe``."""

    def forward(self, values: Tensor, blocks: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(Probe(blocks, values))


def f1_of_means(u: Tensor) -> Tensor:
    return 1 - 2 * u[..., 0] / (u[..., 1] + u[..., 2])


def probabilities(*shape: int) -> Tensor:
    return 0.1 + 0.8 * torch.rand(shape, dtype=torch.float64)


def _score_losses() -> Iterator[LossCase]:
    one = lambda: (torch.randn(N, dtype=torch.float64), INDEX)  # noqa: E731
    two = lambda: (torch.randn(N, 2, dtype=torch.float64), INDEX)  # noqa: E731
    yield LossCase("CoxLoss", L.CoxLoss, (TIMES, EVENTS), one)
    yield LossCase("CoxLoss, Breslow", L.CoxLoss, (TIMES, EVENTS), one, {"ties": "breslow"})
    yield LossCase("AUCLoss", L.AUCLoss, (LABELS,), one)
    yield LossCase("AUCLoss, two tasks", L.AUCLoss, (TASKS,), two, {"temperature": 0.5})
    yield LossCase("APLoss", L.APLoss, (LABELS,), one)
    yield LossCase("APLoss, two tasks", L.APLoss, (TASKS,), two)
    yield LossCase("PartialAUCLoss", L.PartialAUCLoss, (LABELS,), one, {"temperature": 0.5})
    options = {"temperature": 2.0, "two_way": 4.0}
    yield LossCase("PartialAUCLoss, two-way", L.PartialAUCLoss, (LABELS,), one, options)
    yield LossCase("PushLoss", L.PushLoss, (LABELS,), one)
    yield LossCase("NDCGLoss", L.NDCGLoss, (GRADES, LENGTHS), one)
    yield LossCase("NDCGLoss, top 2", L.NDCGLoss, (GRADES, LENGTHS), one, {"top_k": 2})
    yield LossCase("ListNetLoss", L.ListNetLoss, (GRADES.double(), LENGTHS), one)
    yield LossCase("DROLoss", L.DROLoss, (N,), one, {"temperature": 0.5})
    yield LossCase("CVaRLoss", L.CVaRLoss, (N,), one, {"fraction": 0.5})
    weights = {"sample_weight": torch.tensor([1.0, 2.0, 0.5, 1.0, 0.0, 3.0])}
    yield LossCase("ScoreLoss, weighted", L.ScoreLoss, (O.AUC(LABELS),), one, weights)


def _row_losses() -> Iterator[LossCase]:
    pairs = lambda: (*(torch.randn(2, N, 4, dtype=torch.float64)), INDEX)  # noqa: E731
    settings: dict[str, Any] = {"temperature": 0.5, "beta": 1.0}
    yield LossCase("ContrastiveLoss", L.ContrastiveLoss, (N,), pairs, settings)
    for name in ("common", "individual"):
        options = settings | {"learned": name}
        yield LossCase(f"ContrastiveLoss, {name}", L.ContrastiveLoss, (N,), pairs, options)
    points = lambda: (torch.randn(N, 4, dtype=torch.float64), INDEX)  # noqa: E731
    yield LossCase("NCALoss", L.NCALoss, (CLASSES,), points, {"beta": 1.0})
    options = {"beta": 1.0, "logarithm": True}
    yield LossCase("NCALoss, logarithm", L.NCALoss, (CLASSES,), points, options)
    groups = lambda: (torch.rand(N, dtype=torch.float64), GROUPS)  # noqa: E731
    yield LossCase("GroupDROLoss", L.GroupDROLoss, (3,), groups, settings)
    options = {"fraction": 0.5, "beta": 1.0}
    yield LossCase("GroupCVaRLoss", L.GroupCVaRLoss, (3,), groups, options)
    objective = O.GroupDRO(torch.arange(3), temperature=1.0)
    probe = lambda: (torch.rand(3, 1, dtype=torch.float64), torch.tensor([2, 0, 1]))  # noqa: E731
    yield LossCase("TableLoss", ProbedLoss, (objective,), probe, {"beta": 1.0})


def _means_losses() -> Iterator[LossCase]:
    now = {"beta": 1.0}
    yield LossCase("MeansLoss", L.MeansLoss, (f1_of_means, 3), lambda: (probabilities(N, 3),), now)
    blocks = lambda: (probabilities(N, 2, 3),)  # noqa: E731
    yield LossCase("MeansLoss, two blocks", L.MeansLoss, (f1_of_means, (2, 3)), blocks, now)
    yield LossCase("F1Loss", L.F1Loss, (), lambda: (probabilities(N), LABELS), now)
    micro = now | {"average": "micro"}
    tasks = lambda: (probabilities(N, 2), TASKS)  # noqa: E731
    yield LossCase("F1Loss, micro", L.F1Loss, (2,), tasks, micro)
    image = lambda: (probabilities(2, 3, 2, 2), torch.randint(3, (2, 2, 2)))  # noqa: E731
    yield LossCase("DiceLoss, images", L.DiceLoss, (3,), image, now)
    volume = lambda: (probabilities(2, 1, 2, 2, 3), torch.randint(2, (2, 1, 2, 2, 3)))  # noqa: E731
    yield LossCase("DiceLoss, volumes", L.DiceLoss, (), volume, now)
    both = lambda: (*torch.randn(2, N, dtype=torch.float64),)  # noqa: E731
    yield LossCase("CorrelationLoss", L.CorrelationLoss, (), both, now)
    options = now | {"concordance": True}
    yield LossCase("CorrelationLoss, concordance", L.CorrelationLoss, (), both, options)
    parity = lambda: (probabilities(N), GROUPS)  # noqa: E731
    yield LossCase("ParityLoss", L.ParityLoss, (3,), parity, now)


CASES = [*_score_losses(), *_row_losses(), *_means_losses()]
