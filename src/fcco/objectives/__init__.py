"""Objectives of the form (1/m) sum_i f_i(g_i(w)), built from the labels of the training set."""

from typing import Any

from fcco.objectives.auc import AUC
from fcco.objectives.average_precision import AveragePrecision
from fcco.objectives.contrastive import GlobalContrastive
from fcco.objectives.cox import Cox
from fcco.objectives.group_dro import GroupCVaR, GroupDRO
from fcco.objectives.instances import AttentionPooling, SoftmaxPooling
from fcco.objectives.iwae import IWAE
from fcco.objectives.list_net import ListNet
from fcco.objectives.means import Means
from fcco.objectives.multi_task import MultiTaskAUC, MultiTaskGap
from fcco.objectives.ndcg import NDCG
from fcco.objectives.neighbours import NCA
from fcco.objectives.partial_auc import PartialAUC
from fcco.objectives.penalty import ConstraintPenalty
from fcco.objectives.push import PNormPush
from fcco.objectives.robust import DRO, CVaR
from fcco.objectives.sampling import one_vs_rest
from fcco.objectives.score import ScoreObjective
from fcco.objectives.surrogates import (
    Exponential,
    Logistic,
    Sigmoid,
    Squared,
    SquaredHinge,
    Surrogate,
)

__all__ = [
    "AUC",
    "DRO",
    "IWAE",
    "NCA",
    "NDCG",
    "AttentionPooling",
    "AveragePrecision",
    "CVaR",
    "ConstraintPenalty",
    "Cox",
    "Exponential",
    "GlobalContrastive",
    "GroupCVaR",
    "GroupDRO",
    "ListNet",
    "Logistic",
    "Means",
    "MultiTaskAUC",
    "MultiTaskGap",
    "PNormPush",
    "PartialAUC",
    "ScoreObjective",
    "Sigmoid",
    "SoftmaxPooling",
    "Squared",
    "SquaredHinge",
    "Surrogate",
    "one_vs_rest",
]

_NOW = {
    "ExponentialAUC": "AUC(labels)",
    "OneWayPartialAUC": "PartialAUC(labels, temperature=...)",
    "TwoWayPartialAUC": "PartialAUC(labels, temperature=..., two_way=...), where temperature is "
    "that of the negatives and two_way that of the positives",
}
"""Names of version 0.2, with what to write instead."""


def __getattr__(name: str) -> Any:
    if name in _NOW:
        raise AttributeError(f"fcco.objectives.{name} is now fcco.objectives.{_NOW[name]}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
