"""Estimators with the interface of scikit-learn, for training without a loop."""

try:
    import sklearn  # noqa: F401
except ImportError as error:
    raise ImportError("fcco.estimators needs scikit-learn: pip install 'fcco[sklearn]'") from error

from fcco.estimators.base import Record
from fcco.estimators.classifiers import APClassifier, AUCClassifier, PartialAUCClassifier
from fcco.estimators.cox_regressor import CoxRegressor
from fcco.estimators.ranker import Ranker

__all__ = [
    "APClassifier",
    "AUCClassifier",
    "CoxRegressor",
    "PartialAUCClassifier",
    "Ranker",
    "Record",
]
