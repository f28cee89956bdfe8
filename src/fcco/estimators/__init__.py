"""Estimators with the interface of scikit-learn, for training without a loop."""

try:
    import sklearn  # noqa: F401
except ImportError as error:
    raise ImportError("fcco.estimators needs scikit-learn: pip install 'fcco[sklearn]'") from error

from fcco.estimators.auc import AUCClassifier
from fcco.estimators.average_precision import APClassifier
from fcco.estimators.cox import CoxRegressor
from fcco.estimators.partial_auc import PartialAUCClassifier
from fcco.estimators.ranking import Ranker
from fcco.estimators.training import Record

__all__ = [
    "APClassifier",
    "AUCClassifier",
    "CoxRegressor",
    "PartialAUCClassifier",
    "Ranker",
    "Record",
]
