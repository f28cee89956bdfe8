"""What the tests of the optimizers share: reference loops, a small problem, a catalogue, checks."""

from support.catalogue import CATALOGUE, RULES, Entry, flat, make_update
from support.job import assert_same
from support.reference import EQUATIONS, Act, Rule, Settings, Trace, reference, replay
from support.toy import Draw, Toy, make_model

__all__ = [
    "CATALOGUE",
    "EQUATIONS",
    "RULES",
    "Act",
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
    "replay",
]
