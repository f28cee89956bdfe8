"""The first real job: ten AUC tasks on digits, every method under the same budget of work."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn

from fcco.data import TaskData, load_digits
from fcco.experiments.contender import Contender
from fcco.experiments.trial import (
    Report,
    Sizes,
    Trial,
    one_vs_rest,
    run_contender,
    run_cross_entropy,
)
from fcco.metrics import macro_auroc, macro_average_precision

__all__ = ["CONTENDERS", "CROSS_ENTROPY_LR", "WORK", "Outcome", "demo", "make_network"]

WORK = 1_500_000
"""Oracle work for each contender."""

# Each was picked by the final training objective, network and batches of seed 1: five step sizes
# by three values of alpha = beta (0.1, 0.5, 0.9) for every method and rule, five step sizes for
# cross-entropy, which has no alpha and beta.
CROSS_ENTROPY_LR = 0.1

CONTENDERS = (
    Contender("sox", "plain", lr=10.0, alpha=0.1, beta=0.1),
    Contender("msvrm-v1", "plain", lr=10.0, alpha=0.5, beta=0.5),
    Contender("msvrm-v2", "plain", lr=3.0, alpha=0.9, beta=0.9),
    Contender("msvrm-v3", "plain", lr=3.0, alpha=0.9, beta=0.9, snapshot_every=60),
    Contender("sox", "normalized", lr=0.1, alpha=0.1, beta=0.1),
    Contender("msvrm-v1", "normalized", lr=0.2, alpha=0.1, beta=0.1),
    Contender("msvrm-v2", "normalized", lr=0.4, alpha=0.9, beta=0.9),
    Contender("msvrm-v3", "normalized", lr=0.4, alpha=0.9, beta=0.9, snapshot_every=60),
    Contender("sox", "adam", lr=0.03, alpha=0.5, beta=0.5),
    Contender("msvrm-v1", "adam", lr=0.03, alpha=0.5, beta=0.5),
    Contender("msvrm-v2", "adam", lr=0.03, alpha=0.9, beta=0.9),
    Contender("msvrm-v3", "adam", lr=0.03, alpha=0.9, beta=0.9, snapshot_every=60),
)


@dataclass(frozen=True)
class Outcome:
    """One line of the table."""

    trial: Trial
    auc: float
    ap: float

    def as_record(self) -> dict[str, object]:
        """For JSON."""
        return asdict(self)


def make_network(seed: int) -> nn.Module:
    """64 pixels, 64 hidden units, 10 scores; the same for the same seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def demo(*, work: int, seed: int, report: Report) -> Iterator[Outcome]:
    """Run cross-entropy and every contender in turn, yielding each when it is done."""
    train, test = load_digits(seed)
    sizes = Sizes(work=work)

    model = make_network(seed)
    trial = run_cross_entropy(model, train, sizes, lr=CROSS_ENTROPY_LR, seed=seed, report=report)
    yield _outcome(trial, one_vs_rest(model), test)
    for contender in CONTENDERS:
        model = make_network(seed)
        trial = run_contender(contender, model, train, sizes, seed=seed, report=report)
        yield _outcome(trial, model, test)


@torch.no_grad()
def _outcome(trial: Trial, scores: Callable[[Tensor], Tensor], test: TaskData) -> Outcome:
    outputs = scores(test.inputs)
    auc, ap = (f(outputs, test.labels) for f in (macro_auroc, macro_average_precision))
    return Outcome(trial, auc, ap)
