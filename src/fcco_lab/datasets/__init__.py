"""Data sets by name, read from a directory that the user names."""

from fcco_lab.datasets.catalogue import Found, available
from fcco_lab.datasets.named import load_classes, load_ranking, load_survival

__all__ = ["Found", "available", "load_classes", "load_ranking", "load_survival"]
