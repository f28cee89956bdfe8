"""The paper's methods on ten AUC tasks of digits, with the same budget of work."""

from functools import partial

from fcco_lab.demo.part import Outcome, Part, Show
from fcco_lab.training import Config, Training

__all__ = ["METHODS"]

WORK = 1_500_000
"""Inputs passed forward + 2 x inputs passed backward, for each contender."""


def fit(method: str, lr: float, weight: float, seed: int, share: float, show: Show) -> Outcome:
    """Train with one method to the end of its budget."""
    config = Config(
        data="digits",
        network="mlp",
        method=method,
        update="adam",
        lr=lr,
        alpha=weight,
        beta=weight,
        safeguard=False,
        snapshot_every=60,
        decay="none",
        samples_per_block=128,
        steps=0,
        work=round(WORK * share),
        evaluations=20,
        seed=seed,
    )
    training = Training(config)
    record = training.run(lambda fraction, latest, _: show(fraction, latest["objective"]))
    if training.signal:
        raise KeyboardInterrupt
    curve = record["curve"]
    objective = [point["objective"] for point in curve]
    return Outcome([point["work"] for point in curve], objective, record["auc"])


# Fifteen settings each, five step sizes by three values of alpha = beta (0.1, 0.5, 0.9), with seed
# 1000; among the best four, the one with the lowest worst final objective over seeds 1000 to 1002.
METHODS = Part(
    title="The paper's methods, AUC",
    cost="work (inputs)",
    objective="objective",
    metric="AUC",
    contenders={
        "SOX": partial(fit, "sox", 0.003, 0.1),
        "MSVRM-v1": partial(fit, "msvrm-v1", 0.01, 0.5),
        "MSVRM-v2": partial(fit, "msvrm-v2", 0.01, 0.9),
        "MSVRM-v3": partial(fit, "msvrm-v3", 0.01, 0.9),
    },
)
