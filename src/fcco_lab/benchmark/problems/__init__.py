"""The problems by name; each is a function of the directory of the data sets."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from fcco_lab.benchmark.problem import Problem
from fcco_lab.benchmark.problems import census, deep, means, neighbours, ranking, survival

__all__ = ["PROBLEMS", "Loader"]

Loader = Callable[[Path | None], Problem]

PROBLEMS: dict[str, Loader] = {
    "cox-gbsg": partial(survival.cox, "gbsg"),
    "cox-metabric": partial(survival.cox, "metabric"),
    "listnet": ranking.listnet,
    "group-dro": census.group_dro,
    "small-groups": census.small_groups,
    "cvar": census.cvar,
    "log-sum-exp": census.log_sum_exp,
    "push": census.push,
    "partial-auc": census.partial_auc,
    "auc-groups": census.auc_groups,
    "correlation": means.correlation,
    "cox-support": partial(survival.cox, "support"),
    "average-precision": census.average_precision,
    "f1": means.f1,
    "ndcg": ranking.ndcg,
    "nca": neighbours.nca,
    "contrastive": neighbours.contrastive,
    "cox-network": deep.cox_network,
    "auc-network": deep.auc_network,
    "partial-auc-network": deep.partial_auc_network,
    "ap-network": deep.ap_network,
    "group-dro-network": deep.group_dro_network,
    "movies": deep.movies,
}
"""In the order in which they are run: convex ones first, and small ones first among them."""
