"""Merging of blocks that occur several times in a batch."""

import torch

from fcco.problem import Probe

__all__ = ["merge"]


def merge(probe: Probe, scaled: int, *, common: bool = False) -> Probe:
    """Return a probe in which every block occurs once, with the mean of its values over samples.

    Args:
        probe: a probe in which blocks may occur several times.
        scaled: the number of leading columns that have a log-scale, if there is one.
        common: whether the values of one block come from the same inner samples, and so have the
            same noise. Otherwise their noise is independent.

    Examples:
        >>> values = torch.tensor([[1.0], [5.0], [4.0]])
        >>> probe = merge(Probe(torch.tensor([7, 2, 7]), values, torch.tensor([1, 9, 2])), 1)
        >>> probe.blocks, probe.values.T, probe.samples
        (tensor([2, 7]), tensor([[5., 3.]]), tensor([9, 3]))
    """
    blocks, place = probe.blocks.unique(return_inverse=True)
    if len(blocks) == len(place):
        return probe
    values, samples, noise, scale = probe.values, probe.samples_per_row(), probe.noise, None
    if probe.log_scale is not None:
        # The scale of a row of zeros has no meaning, so it must not raise that of the others.
        empty = (values[:, :scaled] == 0).all(1)
        own = probe.log_scale.masked_fill(empty, -torch.inf)
        scale = torch.full_like(own[: len(blocks)], -torch.inf).scatter_reduce(
            0, place, own, "amax"
        )
        scale = scale.where(scale.isfinite(), 0)
        factor = (own - scale[place]).exp().unsqueeze(1)
        values = torch.cat([values[:, :scaled] * factor, values[:, scaled:]], dim=1)
        if noise is not None:
            noise = torch.cat([noise[:, :scaled] * factor, noise[:, scaled:]], dim=1)
    total = torch.zeros_like(blocks).index_add(0, place, samples)
    # A mean over all samples: each value counts by the samples behind it.
    share = (samples.double() / total[place]).to(values.dtype).unsqueeze(1)
    values = torch.zeros_like(values[: len(blocks)]).index_add(0, place, values * share)
    if noise is not None:
        # Independent errors add up in squares; the errors of the same samples add up themselves.
        power = 1 if common else 2
        parts = (noise * share) ** power
        noise = torch.zeros_like(parts[: len(blocks)]).index_add(0, place, parts) ** (1 / power)
    if common:  # the values of a block come from the same samples, which count once
        total = torch.zeros_like(blocks).scatter_reduce(0, place, samples, "amax")
    return Probe(blocks, values, total, loss=probe.loss, noise=noise, log_scale=scale)
