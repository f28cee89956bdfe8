"""Step time, table size and time to build against the number of blocks, m = 1e3 to 1e8.

    make bench

The model is tiny, so that the table would show. Half of the blocks of a step are fresh, drawn
from all m, the other half were met in the step before.
"""

import tempfile
import time
from pathlib import Path

import torch
from memory import kept_bytes
from tables import arguments, markdown, save
from timing import Spread, interleave, milliseconds, ratio
from torch import nn

import fcco

BLOCKS, SAMPLES, FEATURES = 64, 2, 8
COLUMNS = ("m", "step ms", "step / step at 1e3", "table bytes a block", "build seconds")


class Squares(fcco.Objective):
    """f(u) = u^2 of the model's mean over a few random samples: as little work as there can be."""

    inner_dim = 1

    def __init__(self, num_blocks):
        self.num_blocks = num_blocks

    def inner(self, model, batch):
        values = model(batch.inputs).view(len(batch.blocks), SAMPLES).mean(1, keepdim=True)
        return fcco.Probe(batch.blocks, values, samples=SAMPLES)

    def outer(self, u, blocks):
        return u.square().sum(1)

    def outer_slope(self, u, blocks):
        return 2 * u


METHODS = {
    "SOX": lambda p, o: fcco.SOX(p, o, lr=1e-3, alpha=0.5, beta=0.5),
    "SOX, table in a mapped file": lambda p, o: fcco.SOX(
        p, o, lr=1e-3, alpha=0.5, beta=0.5, table_on=Path(tempfile.gettempdir())
    ),
    "MSVRM v2, gamma age": lambda p, o: fcco.MSVRM(p, o, version=2, lr=1e-3, alpha=0.5, beta=0.5),
}


def build(m, method):
    """A model and its optimizer with a table of m rows."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, 1))
    return model, METHODS[method](model.parameters(), Squares(m))


class Draws:
    """Distinct blocks in O(B1): one from each of B1 equal ranges; every second one is kept."""

    def __init__(self, m):
        self._size = m // BLOCKS
        self._start = torch.arange(BLOCKS) * self._size
        self._fresh = torch.arange(BLOCKS) % 2 == 0
        self._blocks = self._draw()

    def next(self):
        self._blocks = torch.where(self._fresh, self._draw(), self._blocks)
        self._fresh = ~self._fresh
        inputs = torch.randn(BLOCKS * SAMPLES, FEATURES)
        # In any order, as a sampler would give them.
        return fcco.Batch(self._blocks[torch.randperm(BLOCKS)], inputs)

    def _draw(self):
        return self._start + torch.randint(self._size, (BLOCKS,))


def stepper(m, method):
    model, opt = build(m, method)
    draws, ready = Draws(m), []

    def prepare():
        ready.append(draws.next())

    def step():
        batch = ready.pop()
        opt.step(lambda: opt.objective.inner(model, batch))

    return opt, prepare, step


def build_seconds(m, method, times=5):
    """Of the whole optimizer; the median of a few."""
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        built = build(m, method)
        seconds.append(time.perf_counter() - start)
        del built
    return Spread.of(seconds).median


def measure(method, sizes, seconds, clock):
    steppers = {m: stepper(m, method) for m in sizes}

    def prepare():
        for _, draw, _ in steppers.values():
            draw()

    runs = {m: step for m, (_, _, step) in steppers.items()}
    times = interleave({"m": runs}, seconds, warmup=50, before=prepare, clock=clock)["m"]
    rows = []
    for m, (opt, _, _) in steppers.items():
        table = dict(opt.table.named_buffers())
        whole = sum(t.nbytes for t in table.values() if len(t) == m)
        rows.append(
            {
                "method": method,
                "m": m,
                "step_ms": milliseconds(times, m),
                "relative": ratio(times, m, sizes[0]).json(),
                "table_bytes_a_block": whole / m,
                "kept_bytes": kept_bytes(opt),
            }
        )
    return rows


def main():
    args = arguments(__doc__, largest=(8, "log10 of the largest m; 8 takes 1.5 GB"))
    sizes = [10**k for k in range(3, args.largest + 1)]
    results = []
    for method in METHODS:
        rows = measure(method, sizes, 6 if args.quick else 40, args.timer)
        for row in rows:
            row["build_seconds"] = build_seconds(row["m"], method, 3 if row["m"] > 10**7 else 5)
        cells = [
            (
                f"{row['m']:.0e}",
                f"{row['step_ms']:.3f}",
                Spread(**row["relative"]),
                f"{row['table_bytes_a_block']:.1f}",
                f"{row['build_seconds']:.4f}",
            )
            for row in rows
        ]
        print(f"\n{method}, {BLOCKS} blocks a step\n\n{markdown(COLUMNS, cells)}", flush=True)
        results += rows
    save(args, {"any_m": results})


if __name__ == "__main__":
    main()
