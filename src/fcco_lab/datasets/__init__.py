"""Data sets by name, read from a directory that the user names, and a user's own files."""

from fcco_lab.datasets.catalogue import available, load_classes, load_ranking, load_survival
from fcco_lab.datasets.own import is_own, load_own

__all__ = ["available", "is_own", "load_classes", "load_own", "load_ranking", "load_survival"]
