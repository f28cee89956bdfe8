"""Tools to test fcco and your own methods: plain references, small problems, conformance."""

from fcco.testing.catalogue import CATALOGUE, RULES, Entry, flat, make_update
from fcco.testing.job import assert_same
from fcco.testing.reference import EQUATIONS, Rule, Settings, Trace, reference
from fcco.testing.toy import Draw, Toy, make_model

__all__ = [
    "CATALOGUE",
    "EQUATIONS",
    "RULES",
    "Draw",
    "Entry",
    "Rule",
    "Settings",
    "Toy",
    "Trace",
    "assert_same",
    "flat",
    "make_model",
    "make_update",
    "reference",
]
