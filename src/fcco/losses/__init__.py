"""Losses that remember: the last score of every sample, or a row u of every block."""

from fcco.losses.contrastive import ContrastiveLoss
from fcco.losses.group_losses import GroupCVaRLoss, GroupDROLoss
from fcco.losses.nca import NCALoss
from fcco.losses.row_loss import RowLoss
from fcco.losses.score_loss import (
    APLoss,
    AUCLoss,
    CoxLoss,
    CVaRLoss,
    DROLoss,
    ListNetLoss,
    NDCGLoss,
    PartialAUCLoss,
    PushLoss,
    ScoreLoss,
)
from fcco.losses.table_loss import TableLoss

__all__ = [
    "APLoss",
    "AUCLoss",
    "CVaRLoss",
    "ContrastiveLoss",
    "CoxLoss",
    "DROLoss",
    "GroupCVaRLoss",
    "GroupDROLoss",
    "ListNetLoss",
    "NCALoss",
    "NDCGLoss",
    "PartialAUCLoss",
    "PushLoss",
    "RowLoss",
    "ScoreLoss",
    "TableLoss",
]
