"""Training with several processes: which rank owns which blocks, and how ranks agree."""

from fcco.distributed.ranks import Ranks
from fcco.distributed.reduction import Reduction
from fcco.distributed.share import Share

__all__ = ["Ranks", "Reduction", "Share"]
