"""Losses: F of the last known scores of all samples, for any loader, optimizer and batch size."""

from fcco.losses.auc import AUCLoss
from fcco.losses.average_precision import APLoss
from fcco.losses.cox import CoxLoss
from fcco.losses.list_net import ListNetLoss
from fcco.losses.ndcg import NDCGLoss
from fcco.losses.partial_auc import PartialAUCLoss
from fcco.losses.push import PushLoss
from fcco.losses.table import ScoreLoss

__all__ = [
    "APLoss",
    "AUCLoss",
    "CoxLoss",
    "ListNetLoss",
    "NDCGLoss",
    "PartialAUCLoss",
    "PushLoss",
    "ScoreLoss",
]
