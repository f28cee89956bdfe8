"""The demo: three small problems on data that comes with scikit-learn and lifelines.

Two show what a loss that remembers is good for when batches are small (``batch_sizes``), the third
what the methods of the paper are good for (``methods``).
"""

from fcco_lab.demo.batch_sizes import COX, F1
from fcco_lab.demo.figure import draw
from fcco_lab.demo.methods import METHODS
from fcco_lab.demo.part import Outcome, Part

__all__ = ["PARTS", "Outcome", "Part", "draw"]

PARTS = (F1, COX, METHODS)
"""In the order in which they run and are drawn."""
