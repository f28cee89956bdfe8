"""SOX with slopes at u_t for many gains, step sizes and seeds at once, in one stacked program.

A run of a study is a small model, and most of its time is overhead. Here runs differ in the leading
dimensions of every tensor: (seeds, variants, ...). Runs of one seed see the same batches.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from fcco.data import block_loader
from fcco.kernel.rows import rows_of
from fcco.methods import RULES, Beta, Weights, chosen_gain, cosine_gain, next_gain
from fcco.methods.gain import learns
from fcco_lab.studies.workloads import Workload

__all__ = ["Stack", "Variant"]

_BETA2, _EPS = 0.999, 1e-8  # Adam's


@dataclass(frozen=True)
class Variant:
    """A gain and a step size; the gain may also be "cosine", FastCLIP's schedule."""

    beta: Beta
    lr: float


class Stack:
    """Runs of all seeds and variants.

    Args:
        problem: the workload.
        samples: inner samples per block.
        steps: the number of steps.
        seeds: of the models and of the batches.
        variants: the gains and step sizes; beta = 1 is BSGD.
        alpha: weight of the new in z.
    """

    def __init__(
        self,
        problem: Workload,
        samples: int,
        steps: int,
        seeds: Sequence[int],
        variants: Sequence[Variant],
        alpha: float = 0.5,
    ) -> None:
        self.problem, self.steps, self.variants, self.alpha = problem, steps, variants, alpha
        objective, blocks = problem.objective, min(problem.blocks, problem.train.num_blocks)
        self.epoch = objective.num_blocks / blocks  # in steps
        self.rows = rows_of(objective)
        self.model = problem.make_model(0)
        models = [dict(problem.make_model(seed).named_parameters()) for seed in seeds]
        self.params = {
            name: torch.stack([model[name].detach() for model in models])
            .unsqueeze(1)
            .repeat(1, len(variants), *[1] * p.ndim)
            for name, p in self.model.named_parameters()
        }
        self.z, self.h = ({n: torch.zeros_like(p) for n, p in self.params.items()} for _ in "zh")
        self.lr = torch.tensor([variant.lr for variant in variants])
        shape = len(seeds), len(variants), objective.num_blocks
        self.table = torch.zeros(*shape, self.rows.width)
        self.visited = torch.zeros(len(seeds), objective.num_blocks, dtype=torch.bool)
        self.auto = torch.tensor([v.beta == "auto" for v in variants])
        self.memory = torch.zeros(len(seeds), int(self.auto.sum()), 4, dtype=torch.float64)
        self.gains: list[Tensor] = []
        """The mean gain of every variant, of each step."""
        self._loaders = [
            iter(
                block_loader(
                    problem.train,
                    objective,
                    blocks_per_step=blocks,
                    samples_per_block=samples,
                    num_steps=steps,
                    seed=seed,
                )
            )
            for seed in seeds
        ]

    def run(self) -> None:
        """Take all steps."""
        for step in range(1, self.steps + 1):
            self._step(step)

    def models(self) -> Iterator[tuple[int, int, nn.Module]]:
        """Number of the seed, number of the variant, and the model as it is."""
        for i, j in torch.cartesian_prod(*map(torch.arange, self.table.shape[:2])).tolist():
            self.model.load_state_dict({n: p[i, j].detach() for n, p in self.params.items()})
            yield i, j, self.model

    def _step(self, step: int) -> None:
        batches = [next(loader) for loader in self._loaders]
        params = {name: p.requires_grad_() for name, p in self.params.items()}
        values, noise, scale = self._look(params, batches)
        ids = torch.stack([batch.blocks for batch in batches])
        with torch.no_grad():
            slopes = self._track(step, ids, values.detach(), noise, scale)
        grads = torch.autograd.grad((values * slopes).sum(), list(params.values()))
        with torch.no_grad():
            self._move(step, dict(zip(params, grads, strict=True)))

    def _look(self, params: dict[str, Tensor], batches: list[Any]) -> tuple[Tensor, ...]:
        """Values, noise and log-scales: (seeds, variants, B1, ...)."""
        objective, model, first = self.problem.objective, self.model, batches[0]
        every = {
            f.name: [getattr(batch, f.name) for batch in batches]
            for f in fields(first)
            if isinstance(getattr(first, f.name), Tensor)
        }
        alike = {name for name in every if name in ("owner", "counts")}
        dims = {name: None if name in alike else 0 for name in every}
        stacked = {n: x[0] if n in alike else torch.stack(x) for n, x in every.items()}

        def inner(params: dict[str, Tensor], tensors: dict[str, Tensor]) -> tuple[Tensor, ...]:
            probe = objective.inner(
                lambda x: functional_call(model, params, (x,)), replace(first, **tensors)
            )
            assert probe.noise is not None
            scale = probe.log_scale
            plain = torch.zeros_like(probe.values[:, 0])
            return probe.values, probe.noise, plain if scale is None else scale

        each = vmap(vmap(inner, in_dims=(0, None)), in_dims=(0, dims))
        found: tuple[Tensor, ...] = each(params, stacked)
        return found

    def _track(
        self, step: int, ids: Tensor, values: Tensor, noise: Tensor, scale: Tensor
    ) -> Tensor:
        """Update the table; the slopes at u_t."""
        shape, seeds = values.shape, torch.arange(len(ids)).unsqueeze(1)
        fresh = values.flatten(0, 2)
        if self.rows.scaled:
            fresh = torch.cat([fresh, scale.reshape(-1, 1)], dim=1)
        blocks = ids.unsqueeze(1).expand(shape[:3])
        flat = blocks.flatten()
        known = self.visited[seeds, ids].unsqueeze(1).expand(shape[:3])
        old = self.table[seeds, :, ids].transpose(1, 2).flatten(0, 2)
        old = torch.where(known.reshape(-1, 1), old, self.rows.project(fresh, flat))
        keep, beta = self._shares(step, old, fresh)
        if self.auto.any():
            self._learn(old, fresh, noise, known, blocks)
        weights = Weights(current=beta)
        u = self.rows.advance(old, keep, weights, fresh, {}, None, None)
        u = self.rows.project(torch.where(known.reshape(-1, 1), u, old), flat)
        self.table[seeds, :, ids] = u.view(*shape[:3], -1).transpose(1, 2)
        self.visited[seeds, ids] = True
        slopes = self.rows.slopes(u, fresh, flat, supported=True)
        return slopes.view(shape) / shape[2]

    def _shares(self, step: int, old: Tensor, fresh: Tensor) -> tuple[Tensor, Tensor]:
        """1 - beta and beta of every row, (rows, 1) each."""
        shape = *self.table.shape[:2], -1, 1
        logs = [self.rows.logs(x).view(shape) for x in (old, fresh)]
        beta, by_rule = torch.empty_like(logs[0]), {}
        for j, variant in enumerate(self.variants):
            match variant.beta:
                case "auto":
                    continue
                case "cosine":  # over the first half of the epochs, as FastCLIP does
                    epochs = max(self.steps / self.epoch / 2, 1)
                    beta[:, j] = cosine_gain(int((step - 1) / self.epoch), round(epochs))
                case (rule, number):
                    by_rule[j] = RULES[str(rule)](float(number), logs[0][:, j], logs[1][:, j])
                case number:
                    beta[:, j] = float(number)
        if self.auto.any():
            chosen = torch.tensor([[chosen_gain(run) for run in seed] for seed in self.memory])
            beta[:, self.auto] = chosen[:, :, None, None].to(beta.dtype)
        keep = 1 - beta
        for j, shares in by_rule.items():
            keep[:, j], beta[:, j] = shares
        self.gains.append(beta.mean((0, 2, 3)))
        return keep.view(-1, 1).to(old.dtype), beta.view(-1, 1).to(old.dtype)

    def _learn(
        self, old: Tensor, fresh: Tensor, noise: Tensor, known: Tensor, blocks: Tensor
    ) -> None:
        """``fcco.methods.next_gain``, of all runs that have a memory."""
        shape = known.shape

        def mine(rows: Tensor) -> Tensor:
            return rows.view(*shape, -1)[:, self.auto].flatten(0, 2)

        ids = blocks[:, self.auto].flatten()
        both = torch.stack(self.rows.surprise(mine(old), mine(fresh), mine(noise), ids)).double()
        both = both.square().sum(2).view(2, shape[0], -1, shape[2])
        counts = both.isfinite().all(0) & known[:, self.auto]
        seen = torch.stack([counts.double(), *both.where(counts, 0)]).sum(3).movedim(0, 2)
        for memory, sums in zip(self.memory.view(-1, 4), seen.view(-1, 3).tolist(), strict=True):
            memory.copy_(next_gain(memory, sums if learns(memory) else ()))

    def _move(self, step: int, gradients: dict[str, Tensor]) -> None:
        """A step of momentum and Adam, with a step size that decays linearly."""
        keep = 0.0 if step == 1 else 1 - self.alpha
        decay = 1 - (step - 1) / self.steps
        for name, gradient in gradients.items():
            z = self.z[name] = keep * self.z[name] + (1 - keep) * gradient
            h = self.h[name].mul_(_BETA2).addcmul_(z, z, value=1 - _BETA2)
            direction = z / ((h / (1 - _BETA2**step)).sqrt() + _EPS)
            lr = (decay * self.lr).view(1, -1, *[1] * (z.ndim - 2))
            self.params[name] = self.params[name].detach() - lr * direction
