"""What each method is called and how it is coloured in figures and tables."""

import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from fcco.methods import REGISTRY
from fcco_lab.entries import BASELINES

__all__ = ["UPDATES", "MethodStyle", "contender_name", "contenders", "style_of"]

UPDATES = ("plain", "normalized", "adam", "amsgrad", "projected")
"""The step rules, in the order of a table."""

_PREFIXES = {"normalized": "Ada"}
_SUFFIXES = {"adam": " Adam", "amsgrad": " AMSGrad", "projected": " projected"}


class MethodStyle(NamedTuple):
    """The label in tables and legends, and the colours on a light and on a dark page."""

    label: str
    light: str
    dark: str


# Hues after Okabe and Ito, which the colour-blind can tell apart.
_STYLES = {
    "cross-entropy": MethodStyle("cross-entropy", "#555555", "#a8adb5"),
    "min-max": MethodStyle("min-max", "#96680f", "#d0a35a"),
    "sox": MethodStyle("SOX", "#d55e00", "#ff8a3d"),
    "soap": MethodStyle("SOAP", "#0b7f8a", "#5fd6e0"),
    "bsgd": MethodStyle("BSGD", "#111827", "#f3f4f6"),
    "msvrm-v1": MethodStyle("MSVRM-v1", "#0072b2", "#4ba3e3"),
    "msvrm-v2": MethodStyle("MSVRM-v2", "#008a64", "#1fb88a"),
    "msvrm-v3": MethodStyle("MSVRM-v3", "#aa3e98", "#e58bd3"),
    "msvrm-v1-sp": MethodStyle("MSVRM-v1-sp", "#5b3fa8", "#a893f5"),
    "msvrm-v2-sp": MethodStyle("MSVRM-v2-sp", "#7b3f00", "#c79a6b"),
    "svrg": MethodStyle("SVRG", "#9f1239", "#ff9aa8"),
    "variant-v1": MethodStyle("Variant-v1", "#2a8fcc", "#9fd8ff"),
    "variant-v2": MethodStyle("Variant-v2", "#b87d00", "#f0b53a"),
    "variant-v3": MethodStyle("Variant-v3", "#7b8a00", "#c5d04a"),
    "fresh-pair-v1": MethodStyle("fresh pair v1", "#4d7c0f", "#a3d65c"),
    "fresh-pair-v2": MethodStyle("fresh pair v2", "#be185d", "#f48fb1"),
    "fresh-pair-v3": MethodStyle("fresh pair v3", "#475569", "#b6c2d1"),
    "alexr": MethodStyle("ALEXR", "#9a3412", "#fdba74"),
    "mars": MethodStyle("MARS", "#1d4ed8", "#93b4ff"),
}

_OTHERS = (("#57534e", "#d6d3d1"), ("#a21caf", "#f0abfc"), ("#0f766e", "#5eead4"))
"""Colours of methods that are not in the table."""


def style_of(method: str) -> MethodStyle:
    """The style of a method; one that is not in the table has its own name as its label.

    Examples:
        >>> style_of("msvrm-v2").label, style_of("python:mine").label
        ('MSVRM-v2', 'mine')
    """
    if method in _STYLES:
        return _STYLES[method]
    return MethodStyle(
        method.removeprefix("python:"), *_OTHERS[zlib.crc32(method.encode()) % len(_OTHERS)]
    )


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
    label, update = style_of(config["method"]).label, config["update"]
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
