"""A small training job, and checks that nothing in it changed."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from fcco.distributed.sharded import local
from fcco.optim import CompositionalOptimizer
from fcco.problem.probe import Probe
from support.catalogue import Entry, flat
from support.toy import Draw, Toy, make_model


class Job:
    """A problem, a model with BatchNorm and dropout, an optimizer and a stream of draws."""

    def __init__(self, entry: Entry, *, kind: str = "batchnorm", blocks: int = 3, **options: Any):
        torch.manual_seed(0)
        self.entry = entry
        self.problem = Toy(6, 2, affine=entry.affine)
        self.model = make_model(kind, 2)
        self.blocks = blocks
        self.calls = 0
        self.generator = torch.Generator().manual_seed(7)
        options.setdefault("snapshot_every", 5 if entry.anchored else None)
        self.opt = entry.build(
            options.pop("params", self.model.parameters()),
            self.problem,
            lr=0.05,
            alpha=0.4,
            beta=0.3,
            buffers=self.model.buffers(),
            **options,
        )

    def draw(self) -> Draw:
        """The next draw."""
        return self.problem.draw(self.blocks, 2, self.generator)

    def inner(self, draw: Draw) -> Probe:
        """The closure's body."""
        self.calls += 1
        return self.problem.inner(self.model, draw)

    def snapshot(self) -> None:
        """Take a snapshot if one is due."""
        if self.opt.snapshot_due:
            self.opt.snapshot(lambda: self.inner(self.problem.everything()))

    def step(self, draw: Draw | None = None) -> Tensor:
        """One step."""
        self.snapshot()
        draw = draw or self.draw()
        return self.opt.step(lambda: self.inner(draw))

    def run(self, steps: int) -> "Job":
        """Several steps."""
        for _ in range(steps):
            self.step()
        return self

    @property
    def w(self) -> Tensor:
        """All parameters."""
        return flat(self.model.parameters())


def capture(model: nn.Module, opt: CompositionalOptimizer) -> dict[str, Any]:
    """Deep copies of everything that an error must not change."""
    return copy.deepcopy(_alive(model, opt))


def _alive(model: nn.Module, opt: CompositionalOptimizer) -> dict[str, Any]:
    return {
        "model": model.state_dict(),
        "optimizer": opt.state_dict(),
        "rng": torch.get_rng_state(),
    }


def assert_unchanged(before: dict[str, Any], model: nn.Module, opt: CompositionalOptimizer) -> None:
    """Everything is bit for bit as it was, and ``.grad`` is empty."""
    assert_same(before, _alive(model, opt))
    assert all(p.grad is None for p in model.parameters()), ".grad is not empty"


def assert_same(a: Any, b: Any, where: str = "") -> None:
    """Two nested states are equal bit for bit; the error names the first difference."""
    if isinstance(a, dict):
        assert a.keys() == b.keys(), where
        for key in a:
            assert_same(a[key], b[key], f"{where}.{key}")
    elif isinstance(a, list):
        assert len(a) == len(b), where
        for k, (x, y) in enumerate(zip(a, b, strict=True)):
            assert_same(x, y, f"{where}[{k}]")
    elif isinstance(a, Tensor):
        assert a.dtype == b.dtype, where
        a, b = local(a), local(b)
        assert torch.allclose(a, b, rtol=0, atol=0, equal_nan=True), f"{where} changed"
    else:
        assert a == b, f"{where}: {a} became {b}"
