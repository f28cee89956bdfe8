"""What each method is called and how it is coloured in figures and tables."""

import zlib
from collections.abc import Mapping
from typing import Any

from fcco.methods import REGISTRY
from fcco_lab.entries import BASELINES

__all__ = ["UPDATES", "contender_name", "contenders", "label_and_colour"]

UPDATES = ("plain", "normalized", "adam", "amsgrad", "projected")
"""The step rules, in the order of a table."""

_PREFIXES = {"normalized": "Ada"}
_SUFFIXES = {"adam": " Adam", "amsgrad": " AMSGrad", "projected": " projected"}

# Hues after Okabe and Ito, which the colour-blind can tell apart.
_METHODS = {
    "cross-entropy": ("cross-entropy", "#555555"),
    "min-max": ("min-max", "#96680f"),
    "sox": ("SOX", "#d55e00"),
    "soap": ("SOAP", "#0b7f8a"),
    "bsgd": ("BSGD", "#111827"),
    "msvrm-v1": ("MSVRM-v1", "#0072b2"),
    "msvrm-v2": ("MSVRM-v2", "#008a64"),
    "msvrm-v3": ("MSVRM-v3", "#aa3e98"),
    "msvrm-v1-sp": ("MSVRM-v1-sp", "#5b3fa8"),
    "msvrm-v2-sp": ("MSVRM-v2-sp", "#7b3f00"),
    "svrg": ("SVRG", "#9f1239"),
    "variant-v1": ("Variant-v1", "#2a8fcc"),
    "variant-v2": ("Variant-v2", "#b87d00"),
    "variant-v3": ("Variant-v3", "#7b8a00"),
    "fresh-pair-v1": ("fresh pair v1", "#4d7c0f"),
    "fresh-pair-v2": ("fresh pair v2", "#be185d"),
    "fresh-pair-v3": ("fresh pair v3", "#475569"),
    "alexr": ("ALEXR", "#9a3412"),
    "mars": ("MARS", "#1d4ed8"),
}

_OTHERS = ("#57534e", "#a21caf", "#0f766e")
"""Colours of methods that are not in the table."""


def label_and_colour(method: str) -> tuple[str, str]:
    """The label of a method in tables and legends, and the colour of its lines.

    A method that is not in the table has its own name as its label.

    Examples:
        >>> label_and_colour("msvrm-v2")[0], label_and_colour("python:mine")[0]
        ('MSVRM-v2', 'mine')
    """
    if method in _METHODS:
        return _METHODS[method]
    return method.removeprefix("python:"), _OTHERS[zlib.crc32(method.encode()) % len(_OTHERS)]


def contender_name(config: Mapping[str, Any]) -> str:
    """A method with its step rule, by the paper's name if there is one.

    Examples:
        >>> contender_name({"method": "msvrm-v2", "update": "normalized"})
        'AdaMSVRM-v2'
        >>> contender_name({"method": "sox", "update": "adam"})
        'SOX Adam'
        >>> contender_name({"method": "cross-entropy", "update": "adam"})
        'cross-entropy'
    """
    label, _ = label_and_colour(config["method"])
    update = config["update"]
    if config["method"] in BASELINES:
        return label
    return _PREFIXES.get(update, "") + label + _SUFFIXES.get(update, "")


def contenders() -> dict[str, tuple[str, str]]:
    """The method and the step rule of each known contender, in the order of a table.

    Examples:
        >>> contenders()["AdaSOX"]
        ('sox', 'normalized')
    """
    pairs = [(method, update) for method in REGISTRY for update in UPDATES]
    # The baselines have one name for every update, and are drawn solid.
    pairs = [(method, "plain") for method in BASELINES] + pairs
    return {
        contender_name({"method": method, "update": update}): (method, update)
        for method, update in pairs
    }
