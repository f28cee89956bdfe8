"""A process that saves and loads an optimizer with a large table, for tests of its memory.

``python large_table.py DIRECTORY BLOCKS [HEADROOM]`` prints the bytes of the table and the memory
it holds when the table is there, before it saves. HEADROOM bounds what the address space may grow
by from there.
"""

import resource
import shutil
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import fcco
from fcco_lab.training.checkpoints import Checkpoints


def status(field, process="self"):
    """Bytes, from the kernel's account of a process; None once it is gone."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) << 10
    return None


class Square(fcco.Objective):
    """As small an objective as there is."""

    def __init__(self, num_blocks):
        self.num_blocks, self.inner_dim = num_blocks, 1

    def outer(self, u, blocks):
        return u.square().sum(1)


def build(num_blocks):
    """Adam-style MSVRM-v2 with gamma by age: 9 bytes a block."""
    update, params = fcco.updates.Adam(), nn.Linear(8, 1).parameters()
    objective = Square(num_blocks)
    return fcco.MSVRM(params, objective, version=2, lr=0.1, alpha=0.5, beta=0.5, update=update)


def tensors(state):
    """All in a state_dict, in order."""
    if isinstance(state, torch.Tensor):
        yield state
    elif isinstance(state, dict | list):
        for part in state.values() if isinstance(state, dict) else state:
            yield from tensors(part)


def pattern(tensor, start, stop):
    """What the test keeps in these rows: something else in each, as far as the type has it."""
    return (torch.arange(start, stop) % 1_000_003).to(tensor.dtype).view(-1, *tensor.shape[1:])


def pieces(opt):
    """(tensor, start, stop) of all that has a row for each block, a little at a time."""
    for tensor in tensors(opt.state_dict()):
        if len(tensor.shape) and len(tensor) == opt.objective.num_blocks:
            for start in range(0, len(tensor), 1 << 16):
                yield tensor, start, min(start + (1 << 16), len(tensor))


def bound(headroom):
    """Let the address space grow by this many bytes from here, and no more."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (status("VmSize") + headroom, hard))


def main(directory, num_blocks, headroom=None):
    small, large = Checkpoints(Path(directory) / "small"), Checkpoints(Path(directory) / "large")
    small.save(build(8).state_dict(), step=0)  # what torch imports and keeps at its first use
    build(8).load_state_dict(small.load())
    opt, held = build(int(num_blocks)), 0
    for tensor, start, stop in pieces(opt):
        tensor[start:stop] = pattern(tensor, start, stop)
        held += tensor[start:stop].nbytes
    sys.stdout.write(f"{held} {status('RssAnon')}\n")
    sys.stdout.flush()
    if headroom is not None:
        bound(int(headroom))
    path = large.save(opt.state_dict(), step=1)
    for tensor, start, stop in pieces(opt):
        tensor[start:stop] = 0
    if headroom is not None:
        bound(int(headroom))
        with pytest.raises(MemoryError, match=path.name):
            large.load()
        bound(path.stat().st_size + int(headroom))  # a mapped file takes addresses, not memory
    opt.load_state_dict(large.load())
    shutil.rmtree(large.directory)
    for tensor, start, stop in pieces(opt):
        assert torch.equal(tensor[start:stop], pattern(tensor, start, stop))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])
