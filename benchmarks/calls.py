"""How much of the package one steady step runs through: calls, functions and files.

    python benchmarks/calls.py [--list]

Counted with sys.setprofile, the package's own files alone, on a problem whose closure and outer
function are not the package's.
"""

import argparse
import collections
import os
import sys

import torch
from torch import nn

import fcco

ROOT = os.path.dirname(fcco.__file__) + os.sep


class Square(fcco.Objective):
    num_blocks, inner_dim = 10, 1

    def outer(self, u, blocks):
        return u[:, 0].square()


def count(build, steps=20):
    """(file, function) -> calls of one MSVRM step after ``steps`` others."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    opt = build(model, Square())
    calls = collections.Counter()

    def note(frame, event, argument):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(ROOT):
            calls[os.path.relpath(code.co_filename, ROOT), code.co_qualname] += 1

    for step in range(steps + 1):
        blocks, x = torch.randperm(10)[:5], torch.randn(5, 3)

        def closure(blocks=blocks, x=x):
            return fcco.Probe(blocks, model(x))

        if step == steps:
            sys.setprofile(note)
        opt.step(closure)
        sys.setprofile(None)
    return calls


def msvrm_v2_adam(model, objective):
    """The step that is counted."""
    return fcco.MSVRM(
        model, objective, version=2, lr=1e-2, alpha=0.5, beta=0.5, update=fcco.updates.Adam()
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="every function")
    arguments = parser.parse_args()
    calls = count(msvrm_v2_adam)
    files = {file for file, _ in calls}
    print(f"{calls.total()} calls, {len(calls)} functions, {len(files)} files")
    if arguments.list:
        for (file, function), times in sorted(calls.items()):
            print(f"{times:5}  {file}  {function}")


if __name__ == "__main__":
    main()
