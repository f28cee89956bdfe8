"""The demo: ten AUC tasks on digits, every method with the same budget of work."""

from collections.abc import Iterator
from dataclasses import replace

from fcco_lab.runs import Record
from fcco_lab.training import Config, Training
from fcco_lab.training.engine import Report
from fcco_lab.training.problem import load_problem

__all__ = ["CONTENDERS", "WORK", "demo"]

WORK = 1_500_000
"""Inputs passed forward + 2 x inputs passed backward, for each contender."""


def _contender(method: str, update: str, lr: float, weight: float) -> Config:
    return Config(
        data="digits",
        objective="auc",
        network="mlp",
        method=method,
        update=update,
        lr=lr,
        alpha=weight,
        beta=weight,
        safeguard=False,
        snapshot_every=60,
        decay="none",
        samples_per_block=128,
        steps=0,
        work=WORK,
        evaluations=20,
    )


# Fifteen settings each, five step sizes by three values of alpha = beta (0.1, 0.5, 0.9), five for
# cross-entropy, which has no alpha and beta, with seed 1000. Among the best four, the setting with
# the lowest worst final objective over seeds 1000 to 1002 is chosen. For plain steps of v1 this
# would be 10, which fails with seed 0: it is at the edge, so the next one is used.
CONTENDERS = (
    _contender("cross-entropy", "adam", 0.03, 0.5),
    _contender("sox", "plain", 3.0, 0.9),
    _contender("msvrm-v1", "plain", 3.0, 0.9),
    _contender("msvrm-v2", "plain", 3.0, 0.9),
    _contender("msvrm-v3", "plain", 3.0, 0.5),
    _contender("sox", "normalized", 0.05, 0.1),
    _contender("msvrm-v1", "normalized", 0.4, 0.9),
    _contender("msvrm-v2", "normalized", 0.2, 0.5),
    _contender("msvrm-v3", "normalized", 0.4, 0.5),
    _contender("sox", "adam", 0.003, 0.1),
    _contender("msvrm-v1", "adam", 0.01, 0.5),
    _contender("msvrm-v2", "adam", 0.01, 0.9),
    _contender("msvrm-v3", "adam", 0.01, 0.9),
)


def demo(*, work: int, seed: int, report: Report) -> Iterator[Record]:
    """Run every contender in turn, and yield the record of each."""
    problem = load_problem(CONTENDERS[0])
    for contender in CONTENDERS:
        config = replace(contender, work=work, seed=seed)
        training = Training(config, problem=problem)
        record = training.run(report)
        if training.signal is not None:
            raise KeyboardInterrupt
        yield record
