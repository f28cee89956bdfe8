"""Checks and weights for batches of embeddings in which samples are compared."""

from typing import Any

from torch import Tensor

from fcco.losses.batch import first_ten, read_index
from fcco.objectives.score import widened

__all__ = ["read_embeddings", "weights_of_others"]


def read_embeddings(index: Any, num_samples: int, **embeddings: Any) -> list[Tensor]:
    """Check an index and named embeddings; return (B,) and (B, d) each, in at least float32.

    Examples:
        >>> import torch
        >>> read_embeddings([0, 5], 9, first=torch.zeros(3, 2))
        Traceback (most recent call last):
        ValueError: first must have shape (2, d) for an index of 2 samples, got (3, 2)
    """
    index, columns = read_index(index, num_samples), list[Tensor]()
    for name, given in embeddings.items():
        if not isinstance(given, Tensor) or not given.is_floating_point():
            kind = given.dtype if isinstance(given, Tensor) else type(given).__name__
            raise ValueError(f"{name} must be a tensor of floats, got {kind}")
        if given.ndim != 2 or len(given) != len(index):
            raise ValueError(
                f"{name} must have shape ({len(index)}, d) for an index of {len(index)} samples, "
                f"got {tuple(given.shape)}"
            )
        if columns and given.shape != columns[0].shape:
            raise ValueError(
                f"{name} has shape {tuple(given.shape)}, the other embeddings have "
                f"{tuple(columns[0].shape)}"
            )
        index = index.to(given.device)
        columns.append(widened(given))
        if columns[-1].dtype != columns[0].dtype:
            raise ValueError(
                f"{name} is {given.dtype}, the other embeddings are {columns[0].dtype}"
            )
        # A norm may overflow although every entry is finite, and normalizing would then give 0.
        lost = ~columns[-1].detach().norm(dim=1).isfinite()
        if lost.any():
            raise FloatingPointError(
                f"{name} of samples {first_ten(index[lost])} is not finite, or its norm is not"
            )
    return [index, *columns]


def weights_of_others(index: Tensor) -> tuple[Tensor, int]:
    """Return the weights (B, B) of a mean over the other samples of a batch, and their number.

    A sample that occurs twice counts once, with half the weight for each draw. It is not compared
    with itself.

    Examples:
        >>> import torch
        >>> weights_of_others(torch.tensor([4, 7, 7]))
        (tensor([[0.0000, 0.5000, 0.5000],
                [1.0000, 0.0000, 0.0000],
                [1.0000, 0.0000, 0.0000]], dtype=torch.float64), 1)
    """
    samples, place, counts = index.unique(return_inverse=True, return_counts=True)
    others = len(samples) - 1
    if others < 1:
        raise ValueError(
            f"a sample is compared with others, and this batch holds {len(samples)}: at least two "
            "different samples are needed, of all ranks together (drop_last=True in a loader "
            "leaves a short last batch out)"
        )
    # Each of the ``others`` counts 1 / others, divided among its draws.
    weights = 1 / (others * counts[place]).double()
    return weights.expand(len(index), -1).masked_fill(index.unsqueeze(1) == index, 0), others
