"""A step stays readable: it runs through few functions of few files."""

import collections
import os
import sys

import torch
from torch import nn

import fcco

ROOT = os.path.dirname(fcco.__file__) + os.sep


class Square(fcco.Objective):
    """An outer function that is not the package's, so that its calls do not count."""

    num_blocks, inner_dim = 10, 1

    def outer(self, u, blocks):
        return u[:, 0].square()


def calls_of_one_step(steps=20):
    """(file, function) to calls: one step of MSVRM-v2 with Adam after ``steps`` others."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    opt = fcco.MSVRM(model, Square(), version=2, lr=1e-2, update=fcco.updates.Adam())
    calls = collections.Counter()

    def note(frame, event, argument):
        code = frame.f_code
        if code.co_name.startswith("<") or code.co_name == "_close_all":
            return  # a comprehension (no call from Python 3.12 on), or the hook of losses
        if event == "call" and code.co_filename.startswith(ROOT):
            calls[os.path.relpath(code.co_filename, ROOT), code.co_qualname] += 1

    for step in range(steps + 1):
        blocks, x = torch.randperm(10)[:5], torch.randn(5, 3)

        def closure(blocks=blocks, x=x):
            return fcco.Probe(blocks, model(x))

        if step == steps:
            sys.setprofile(note)
        try:
            opt.step(closure)
        finally:
            sys.setprofile(None)
    return calls


def test_one_steady_step_is_short():
    counted = calls_of_one_step()
    files = {file for file, _ in counted}
    assert counted.total() <= 123, sorted(counted.items())
    assert len(files) <= 16, sorted(files)
    assert "kernel/step.py" in files
