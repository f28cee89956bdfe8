"""For tests of fcco and of your own methods: plain references, small problems, conformance."""

from fcco.testing.catalogue import CATALOGUE, RULES, Entry, flat, make_update
from fcco.testing.reference import Rule, Settings, Trace, reference
from fcco.testing.toy import Draw, Toy, make_model

__all__ = [
    "CATALOGUE",
    "RULES",
    "Draw",
    "Entry",
    "Rule",
    "Settings",
    "Toy",
    "Trace",
    "flat",
    "make_model",
    "make_update",
    "reference",
]
