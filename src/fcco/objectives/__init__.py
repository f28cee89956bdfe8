"""Objectives of the form f_i(g_i(w)), ready to use."""

from fcco.objectives.auc import MultiTaskAUC, MultiTaskGap
from fcco.objectives.average_precision import AveragePrecision
from fcco.objectives.contrastive import GlobalContrastive
from fcco.objectives.cox import Cox
from fcco.objectives.exponential_auc import ExponentialAUC
from fcco.objectives.group_dro import GroupCVaR, GroupDRO
from fcco.objectives.instances import AttentionPooling, SoftmaxPooling
from fcco.objectives.iwae import IWAE
from fcco.objectives.listwise import NDCG, ListNet
from fcco.objectives.neighbours import NCA
from fcco.objectives.partial_auc import OneWayPartialAUC, TwoWayPartialAUC
from fcco.objectives.penalty import ConstraintPenalty
from fcco.objectives.push import PNormPush
from fcco.objectives.scores import one_vs_rest
from fcco.objectives.surrogates import (
    Exponential,
    Logistic,
    Sigmoid,
    Squared,
    SquaredHinge,
    Surrogate,
)

__all__ = [
    "IWAE",
    "NCA",
    "NDCG",
    "AttentionPooling",
    "AveragePrecision",
    "ConstraintPenalty",
    "Cox",
    "Exponential",
    "ExponentialAUC",
    "GlobalContrastive",
    "GroupCVaR",
    "GroupDRO",
    "ListNet",
    "Logistic",
    "MultiTaskAUC",
    "MultiTaskGap",
    "OneWayPartialAUC",
    "PNormPush",
    "Sigmoid",
    "SoftmaxPooling",
    "Squared",
    "SquaredHinge",
    "Surrogate",
    "TwoWayPartialAUC",
    "one_vs_rest",
]
