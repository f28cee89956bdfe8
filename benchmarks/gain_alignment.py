"""How well gradients point along the true one, for several shares of the fresh value in the slope.

    FCCO_DATA=DIR python -m benchmarks.gain_alignment --output docs/results/gain/alignment.json

A run of SOX with Adam-style steps, beta = 0.5 and slopes at u_t stops three times on its way. There
many batches are drawn, and with the table as it is each gives a gradient G_s for every share s: its
slopes lie at u + s (g - u). Reported is the alignment with the exact gradient,

    <grad F, E G_s> / (|grad F| sqrt(E |G_s|^2)),

in the metric of Adam's steps. Its square is the decrease that the best step size would give. Exact
slopes, at g, are the last place. Reported too is the mean error of the slopes, |f'(u) - f'(g)| in
units of 1/g. A result is written as soon as it is known.
"""

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import torch
from benchmarks.known import arguments

import fcco
from fcco.data import block_loader, exact_pass
from fcco.kernel.rows import rows_of
from fcco.methods import Weights
from fcco_lab.studies.fitting import compositional
from fcco_lab.studies.workloads import WORKLOADS

SIZES, SHARES = (4, 16), (0.0, 0.1, 0.2, 0.5, 0.9, 1.0)
STEPS, STOPS, DRAWS, MANY, LR, SEED = 400, (50, 200, 380), 250, 256, 0.01, 100


class Look:
    """Gradients at one point of a run.

    Args:
        problem: the workload.
        model: as it is there.
        opt: with the table as it is there.
    """

    def __init__(self, problem: Any, model: torch.nn.Module, opt: fcco.SOX) -> None:
        self.problem, self.model, self.params = problem, model, list(model.parameters())
        self.objective, self.rows = problem.objective, rows_of(problem.objective)
        table = opt.table.buffers
        self.table, self.visited = table["rows"], table["visited"].bool()
        roots = [(opt.state[p]["h"] / opt.state[p]["h_weight"]).sqrt() for p in self.params]
        self.metric = 1 / (torch.cat([root.flatten() for root in roots]) + 1e-8)
        self.exact = torch.zeros_like(self.table)
        with torch.no_grad():
            for chunk in exact_pass(model, problem.train, self.objective, chunk_size=4096):
                probe = chunk()
                self.exact[probe.blocks] = self._fresh(probe).to(self.exact.dtype)

    def _fresh(self, probe: fcco.Probe) -> torch.Tensor:
        values = probe.values.detach()
        return torch.cat([values, probe.log_scale[:, None]], 1) if self.rows.scaled else values

    def _probes(self, samples: int, seed: int) -> Iterator[fcco.Probe]:
        sizes = {"blocks_per_step": min(self.problem.blocks, self.problem.train.num_blocks)}
        sizes |= {"samples_per_block": samples, "num_steps": DRAWS}
        for batch in block_loader(self.problem.train, self.objective, **sizes, seed=seed):
            yield self.objective.inner(self.model, batch)

    def _gradient(self, probe: fcco.Probe, at: torch.Tensor) -> torch.Tensor:
        slopes = self.rows.slopes(at, self._fresh(probe), probe.blocks, supported=True)
        cost = (probe.values * slopes).sum() / len(probe.blocks)
        parts = torch.autograd.grad(cost, self.params, retain_graph=True)
        return torch.cat([part.flatten() for part in parts])

    def _places(self, probe: fcco.Probe) -> Iterator[torch.Tensor]:
        """The rows with every share of the fresh value, then the exact ones."""
        fresh, ids = self._fresh(probe), probe.blocks
        known = self.visited[ids].unsqueeze(1)
        old = torch.where(known, self.table[ids], self.rows.project(fresh, ids))
        for share in SHARES:
            u = self.rows.advance(old, 1 - share, Weights(share), fresh, {}, None, None)
            yield self.rows.project(u, ids)
        yield self.exact[ids]

    def errors(self, samples: int) -> list[float]:
        """Of the slopes of known rows, for every share."""
        errors, count = torch.zeros(len(SHARES), dtype=torch.float64), 0
        for probe in self._probes(samples, 2):
            ids = probe.blocks
            known = self.visited[ids]
            *places, exact = (
                self.rows.slopes(at, self.exact[ids], ids, supported=True).double()
                for at in self._places(probe)
            )
            unit = self.exact[ids, : exact.shape[1]].double()
            misses = torch.stack([((at - exact) * unit).norm(dim=1) for at in places])
            errors += misses[:, known].sum(1)
            count += int(known.sum())
        return (errors / count).tolist()

    def alignments(self, samples: int) -> list[float]:
        """Of every share, then of the exact slopes."""
        true = [self._gradient(p, self.exact[p.blocks]) for p in self._probes(MANY, 1)]
        truth = torch.stack(true).mean(0)
        found = [
            torch.stack([self._gradient(probe, at) for at in self._places(probe)])
            for probe in self._probes(samples, 2)
        ]
        gradients = torch.stack(found)
        along = (gradients.mean(0) * truth * self.metric).sum(1)
        lengths = (gradients.square() * self.metric).sum(2).mean(0).sqrt()
        return (along / lengths / (truth.square() * self.metric).sum().sqrt()).tolist()


def run(name: str, samples: int) -> dict[str, list[list[float]]]:
    """Alignments and errors at the stops of one run."""
    problem = WORKLOADS[name]()
    model, objective = problem.make_model(SEED), problem.objective
    options = {"alpha": 0.5, "beta": 0.5, "updated_slopes": True, "update": fcco.updates.Adam()}
    opt = fcco.SOX(model, objective, lr=LR, **options)
    sizes = {"steps": STEPS, "blocks": problem.blocks, "samples": samples}
    step, schedule = compositional(model, objective, problem.train, **sizes, seed=SEED, opt=opt)
    found: dict[str, list[list[float]]] = {"alignments": [], "errors": []}
    for number in range(1, STEPS + 1):
        step()
        schedule.step()
        if number in STOPS:
            look = Look(problem, model, opt)
            found["alignments"].append(look.alignments(samples))
            found["errors"].append(look.errors(samples))
    return found


def main() -> None:
    """Run what is not known yet, then print a table."""
    known = arguments(__doc__).known
    heads = ["problem", "k", *(f"s = {share:g}" for share in SHARES), "exact", "closest s"]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for samples, name in product(SIZES, WORKLOADS):
        found = known.of(f"{name} {samples}", partial(run, name, samples))
        words = [f"{cell:.3f}" for cell in torch.tensor(found["alignments"]).mean(0)]
        closest = [SHARES[k] for k in torch.tensor(found["errors"]).argmin(1)]
        words.append(", ".join(f"{share:g}" for share in closest))
        print(f"| {name} | {samples} | {' | '.join(words)} |", flush=True)


if __name__ == "__main__":
    main()
