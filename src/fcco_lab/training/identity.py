"""What makes a run itself: its settings and the content of its data."""

import hashlib
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fcco_lab.training.config import Config

__all__ = ["difference", "fingerprint"]

_FREE = {"device"}
"""Settings that may change while a run goes on: a machine may have no other device."""


def fingerprint(*tensors: Tensor) -> str:
    """The size of a data set and a digest of its content, wherever it was read from.

    Examples:
        >>> import torch
        >>> fingerprint(torch.zeros(3, 2), torch.tensor([0, 1, 1]))
        '3 samples, sha256 ea7607259a9837e1'
    """
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        for part in tensor.split(1024):
            digest.update(part.contiguous().cpu().numpy())
    return f"{len(tensors[0])} samples, sha256 {digest.hexdigest()[:16]}"


def difference(there: Mapping[str, Any], here: Mapping[str, Any]) -> str | None:
    """The first thing that tells two runs apart, in words; None: it is the same run.

    Args:
        there: the identity found on the disk: a config as a record, and its data.
        here: that of this run.

    Examples:
        >>> run = Config().as_record() | {"training_data": "3 samples", "test_data": "1 samples"}
        >>> difference(run, run | {"lr": 0.5, "device": "cuda"})
        'lr is 0.01 there, 0.5 here'
    """
    if "training_data" not in there:
        return "fcco 0.1.0 wrote it, and did not record on which data"
    there = Config().as_record() | dict(there)  # what an earlier version could not choose
    for key in (*here, *there):
        if key not in _FREE and there.get(key) != here.get(key):
            return f"{key} is {there.get(key)!r} there, {here.get(key)!r} here"
    return None
