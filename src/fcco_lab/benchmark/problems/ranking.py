"""Lists of documents, linear: a block is an item, compared with the items of its list."""

from pathlib import Path

from fcco.objectives import NDCG, ListNet
from fcco_lab.benchmark.problem import Problem
from fcco_lab.benchmark.problems.models import linear
from fcco_lab.benchmark.problems.survival import standardized
from fcco_lab.datasets import load_ranking

__all__ = ["listnet", "ndcg"]


def listnet(data_dir: Path | None) -> Problem:
    """The cross-entropy of lists, on LightGBM's example; convex."""
    train, _ = load_ranking("lgb_lambdarank", data_dir)
    x, labels = standardized(train.inputs), (train.grades, train.lengths)
    return Problem(
        x, lambda: ListNet(*labels), linear(x.shape[1]), convex=True, penalty=1e-3, labels=labels
    )


def ndcg(data_dir: Path | None) -> Problem:
    """NDCG with smooth ranks, on the same lists; not convex."""
    train, _ = load_ranking("lgb_lambdarank", data_dir)
    x, labels = standardized(train.inputs), (train.grades, train.lengths)
    return Problem(x, lambda: NDCG(*labels), linear(x.shape[1]), penalty=1e-3, labels=labels)
