"""Losses that remember the last score of every sample, or a row u of every block."""

from fcco.losses.contrastive import ContrastiveLoss
from fcco.losses.correlation import CorrelationLoss
from fcco.losses.group_losses import GroupCVaRLoss, GroupDROLoss
from fcco.losses.means_loss import MeansLoss
from fcco.losses.means_losses import DiceLoss, F1Loss, ParityLoss
from fcco.losses.nca import NCALoss
from fcco.losses.row_loss import RowLoss
from fcco.losses.score_loss import ScoreLoss
from fcco.losses.score_losses import (
    APLoss,
    AUCLoss,
    CoxLoss,
    CVaRLoss,
    DROLoss,
    ListNetLoss,
    NDCGLoss,
    PartialAUCLoss,
    PushLoss,
)
from fcco.losses.table_loss import TableLoss

__all__ = [
    "APLoss",
    "AUCLoss",
    "CVaRLoss",
    "ContrastiveLoss",
    "CorrelationLoss",
    "CoxLoss",
    "DROLoss",
    "DiceLoss",
    "F1Loss",
    "GroupCVaRLoss",
    "GroupDROLoss",
    "ListNetLoss",
    "MeansLoss",
    "NCALoss",
    "NDCGLoss",
    "ParityLoss",
    "PartialAUCLoss",
    "PushLoss",
    "RowLoss",
    "ScoreLoss",
    "TableLoss",
]
