"""Several processes, one problem: who owns which blocks, and how they agree."""

from fcco.distributed.ranks import Ranks
from fcco.distributed.reduction import Reduction
from fcco.distributed.share import Share

__all__ = ["Ranks", "Reduction", "Share"]
