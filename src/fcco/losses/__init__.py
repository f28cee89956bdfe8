"""Losses that remember: the last score of every sample, or a row u of every block."""

from fcco.losses.auc import AUCLoss
from fcco.losses.average_precision import APLoss
from fcco.losses.contrastive import ContrastiveLoss
from fcco.losses.cox import CoxLoss
from fcco.losses.group_losses import GroupCVaRLoss, GroupDROLoss
from fcco.losses.list_net import ListNetLoss
from fcco.losses.nca import NCALoss
from fcco.losses.ndcg import NDCGLoss
from fcco.losses.partial_auc import PartialAUCLoss
from fcco.losses.push import PushLoss
from fcco.losses.row_loss import RowLoss
from fcco.losses.table import ScoreLoss
from fcco.losses.table_loss import TableLoss

__all__ = [
    "APLoss",
    "AUCLoss",
    "ContrastiveLoss",
    "CoxLoss",
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
