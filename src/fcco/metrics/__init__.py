"""Metrics of scores and embeddings: pure functions from tensors to a number."""

from fcco.metrics.classification import macro_auroc, macro_average_precision, partial_auroc
from fcco.metrics.embedding import knn_accuracy, recall_at_k, retrieval_recall
from fcco.metrics.groups import worst_group_accuracy
from fcco.metrics.ranking import ndcg
from fcco.metrics.survival import concordance_index

__all__ = [
    "concordance_index",
    "knn_accuracy",
    "macro_auroc",
    "macro_average_precision",
    "ndcg",
    "partial_auroc",
    "recall_at_k",
    "retrieval_recall",
    "worst_group_accuracy",
]
