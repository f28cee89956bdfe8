"""The demo: three small problems that show what a table of all samples or blocks is good for.

One row per sample makes single samples enough (``survival``), one row per block makes four inner
samples enough (``neighbours``), and ``methods`` has the methods of the paper. The data comes
with scikit-learn and lifelines.
"""

from fcco_lab.demo.figure import draw
from fcco_lab.demo.methods import METHODS
from fcco_lab.demo.neighbours import NEIGHBOURS
from fcco_lab.demo.part import Outcome, Part
from fcco_lab.demo.survival import SURVIVAL

__all__ = ["PARTS", "Outcome", "Part", "draw"]

PARTS = (SURVIVAL, NEIGHBOURS, METHODS)
"""In the order in which they run and are drawn."""
