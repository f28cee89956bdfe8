"""The table: what it costs, and that its lazy parts equal the dense ones."""

import pytest
import torch
from support import CATALOGUE, Toy, make_model
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fcco import MSVRM, Variant
from fcco.distributed import Share
from fcco.kernel.table import Table
from fcco.methods import Point

CPU = torch.device("cpu")


def test_memory_is_p_numbers_a_row_and_little_more():
    def bytes_of(m, parts):
        table = Table(Share(m), 3, dtype=torch.float32, **parts)
        return sum(t.numel() * t.element_size() for t in table.buffers())

    def size(**parts):
        return (bytes_of(3000, parts) - bytes_of(1000, parts)) / 2000

    assert size() == 4 * 3 + 1
    assert size(previous=True) == 4 * 3 + 1
    assert size(ages=True) == 4 * 3 + 1 + 8
    assert bytes_of(1000, {"previous": True}) - bytes_of(1000, {}) == 4096 * (8 + 4 * 3)


@pytest.mark.parametrize(
    "betas", [[0.3] * 40, [0.05 + 0.02 * k for k in range(40)], [0.3] * 15 + [1.0] + [0.3] * 24]
)
def test_lazy_shrinking_equals_shrinking_every_row(betas):
    generator = torch.Generator().manual_seed(0)
    table = Table(Share(8), 2, dtype=torch.float64, shrinks=True, previous=True)
    dense = torch.randn((8, 2), generator=generator, dtype=torch.float64)
    table.fill(dense, step=0)
    before, everything = dense, torch.arange(8)
    for step, beta in enumerate(betas, start=1):
        blocks = torch.randperm(8, generator=generator)[:3]
        new = torch.randn((3, 2), generator=generator, dtype=torch.float64)
        table.write(blocks, table.gather(blocks), new, step=step, beta=beta)
        before, dense = dense, (1 - beta) * dense
        dense[blocks] = new
        torch.testing.assert_close(table.read(everything), dense, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(table.whole(), dense, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(
            table.gather(everything, Point.PREVIOUS), before, rtol=1e-12, atol=1e-12
        )


def test_the_older_generation_after_batches_of_any_size():
    """Of 1 to 9,000 blocks, of which the overlay has room for 4,096 at first."""
    generator, m = torch.Generator().manual_seed(0), 9_000
    table, everything = Table(Share(m), 1, previous=True), torch.arange(m)
    now = torch.zeros(m, 1)
    for step, size in enumerate((3, 1, 5_000, 2, 9_000, 4_096, 40), start=1):
        blocks = torch.randperm(m, generator=generator)[:size]
        before, new = now.clone(), torch.rand(size, 1, generator=generator)
        table.write(blocks, table.gather(blocks), new, step=step, beta=0.5)
        now[blocks] = new
        assert table.gather(everything).equal(now)
        assert table.gather(everything, Point.PREVIOUS).equal(before)


class Largest(TorchDispatchMode):
    """Notes the largest new tensor that any operation returns."""

    def __init__(self, known):
        super().__init__()
        self.known = {t.untyped_storage().data_ptr() for t in known}
        self.numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for t in tree_leaves(result):
            if not isinstance(t, torch.Tensor):
                continue
            if t._is_zerotensor() or t.untyped_storage().data_ptr() not in self.known:
                self.numel = max(self.numel, t.numel())
        return result


@pytest.mark.parametrize("name", [n for n, e in CATALOGUE.items() if e.has_table])
def test_nothing_in_a_step_is_as_long_as_the_table(name):
    entry, m = CATALOGUE[name], 20_011
    problem = Toy(m, 1, inner_size=2)
    model = make_model("network", 1)
    opt = entry.build(model.parameters(), problem)
    generator = torch.Generator().manual_seed(0)
    if opt.snapshot_due:
        opt.snapshot(lambda: problem.inner(model, problem.everything()))
    for _ in range(4):
        draw = problem.draw(5, 2, generator)
        with Largest([*opt.table.buffers(), problem.x, problem.c]) as largest:
            opt.step(lambda: problem.inner(model, draw))  # noqa: B023
        assert 0 < largest.numel < 1000


@pytest.mark.parametrize("cls", [MSVRM, Variant])
def test_moves_with_its_parameters_between_devices(cls):
    """Only the bookkeeping can be seen without a second device: meta stands for it."""
    problem, model = Toy(), make_model("network", 1)
    opt = cls(model.parameters(), problem, version=2, lr=0.1, alpha=0.5, beta=0.5)
    table = opt.table
    table.follow(torch.device("meta"))
    assert opt.table.device.type == "meta"
    on_host = {name for name, t in table.named_buffers() if t.device.type == "cpu"}
    assert on_host == ({"clock"} if cls is Variant else set())


def test_initial_dtype_and_number():
    problem, model = Toy(), make_model("network", 1).float()

    def build(initial):
        return MSVRM(
            model.parameters(), problem, version=1, lr=0.1, alpha=0.5, beta=0.5, initial=initial
        )

    assert build(None).table.dtype == torch.float32
    assert build(torch.zeros(6, 1, dtype=torch.float64)).table.dtype == torch.float64
    assert build(2.5).table.read(torch.tensor([4])).tolist() == [[2.5]]
    given = torch.ones(6, 1)
    opt = build(given)
    given.zero_()
    assert opt.table.read(torch.tensor([0])).item() == 1.0, "initial is copied"
    model.double()
    assert build(None).table.dtype == torch.float64
    assert build(given).table.dtype == torch.float64, "at least the precision of the parameters"
