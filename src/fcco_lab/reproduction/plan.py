"""The runs of each figure and table of the paper, and of further experiments."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from fcco_lab.reproduction.scales import Scale

__all__ = [
    "ABLATIONS",
    "ARTEFACTS",
    "CONTENDERS",
    "PAPER_CONTENDERS",
    "VERSIONS",
    "Contender",
    "Item",
]


@dataclass(frozen=True)
class Contender:
    """A method with its step rule; settings are tuned, never chosen here."""

    method: str
    update: str


VERSIONS = ("msvrm-v1", "msvrm-v2", "msvrm-v3")
"""The paper's methods."""

ABLATIONS = ("variant-v1", "variant-v2", "variant-v3")
"""The variants that the paper compares them with."""

METHODS = ("sox", *VERSIONS)
"""The contenders with Adam-style steps."""

PAPER_CONTENDERS = (
    Contender("sox", "plain"),
    *(Contender(method, rule) for method in VERSIONS for rule in ("plain", "normalized")),
)
"""The rows of the paper's tables."""

CONTENDERS = (
    *PAPER_CONTENDERS,
    Contender("sox", "normalized"),
    *(Contender(method, "adam") for method in METHODS),
    Contender("cross-entropy", "adam"),
    Contender("min-max", "plain"),
)
"""The contenders with Adam-style steps, and the usual alternatives."""


@dataclass(frozen=True)
class Item:
    """A contender on a data set, run with every seed.

    Args:
        data: the data set.
        contender: the method with its step rule.
        options: settings that differ from those of the scale.
        tuned: whether to use tuned settings; otherwise the defaults of ``Config``.
    """

    data: str
    contender: Contender
    options: dict[str, Any] = field(default_factory=dict)
    tuned: bool = True


def _tables(scale: Scale) -> Iterator[Item]:
    for data, contender in product(scale.sets, CONTENDERS):
        yield Item(data, contender)


def _figure1(scale: Scale) -> Iterator[Item]:
    for data, contender in product(scale.sets, PAPER_CONTENDERS):
        yield Item(data, contender)


def _pick(scale: Scale, *wanted: str) -> str:
    """The first of ``wanted`` that the scale has, or else its first data set."""
    return next((name for name in wanted if name in scale.sets), scale.sets[0])


MANY_TASKS = ("tinyimagenet100", "cifar100")
"""Data sets with 100 tasks; the CIFAR-100 of the laptop scale has only twelve classes."""


def _figure2(scale: Scale) -> Iterator[Item]:
    """MSVR against the variants, on CIFAR-100, and with a tenth of 100 blocks per step."""
    sets = dict.fromkeys((_pick(scale, "cifar100"), _pick(scale, *MANY_TASKS)))
    for data, method in product(sets, (*VERSIONS, *ABLATIONS)):
        yield Item(data, Contender(method, "plain"))


def _figure3(scale: Scale) -> Iterator[Item]:
    """Networks on SVHN."""
    if scale.name == "paper":
        for network, contender in product(scale.networks, PAPER_CONTENDERS):
            yield Item(_pick(scale, "svhn"), contender, {"network": network})
        return
    # Without a GPU a deep network takes about a hundred steps per minute on the smallest images,
    # and SVHN cannot be learned in these. Adam-style settings carry over from the compact network.
    options = {
        "passes": scale.passes // 20,
        "samples_per_block": 8,
        "train_size": 1000,
        "evaluations": 5,
    }
    for network, method in product(scale.networks, METHODS):
        yield Item(_pick(scale, "usps"), Contender(method, "adam"), {"network": network, **options})


def _figure4(scale: Scale) -> Iterator[Item]:
    """B1 in {2, 5, 9} on Fashion-MNIST."""
    data = _pick(scale, "fashion_mnist")
    for contender, blocks in product(PAPER_CONTENDERS[1:], (2, 5, 9)):
        yield Item(data, contender, {"blocks_per_step": blocks})


def _many_tasks(scale: Scale) -> Iterator[Item]:
    """100 tasks, few of them per step, where the estimator should matter."""
    data = _pick(scale, *MANY_TASKS)
    for method, blocks in product(("bsgd", *METHODS), (2, 5, 10, 50)):
        yield Item(data, Contender(method, "adam"), {"blocks_per_step": blocks})


def _gammas(scale: Scale) -> Iterator[Item]:
    """The corrections of u, if a step probes a twentieth of the blocks."""
    data = _pick(scale, *MANY_TASKS)
    for method, gamma in product(VERSIONS[:2], ("age", "theory", "storm", 0.0)):
        for update in ("plain", "adam"):
            yield Item(data, Contender(method, update), {"blocks_per_step": 5, "gamma": gamma})


def _defaults(scale: Scale) -> Iterator[Item]:
    """Default settings, compared with tuned ones."""
    for data, method, tuned in product(scale.sets, METHODS, (True, False)):
        yield Item(data, Contender(method, "adam"), tuned=tuned)


ARTEFACTS: dict[str, Callable[[Scale], Iterator[Item]]] = {
    "figure1": _figure1,
    "figure2": _figure2,
    "figure3": _figure3,
    "figure4": _figure4,
    "table-auc": _tables,
    "table-ap": _tables,
    "many-tasks": _many_tasks,
    "gammas": _gammas,
    "defaults": _defaults,
}
"""By name: the paper's six, then further experiments."""
