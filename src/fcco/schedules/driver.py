"""A driver that runs a recipe: it sets coefficients, changes stages and returns an iterate."""

import copy
from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from fcco.optim import CompositionalOptimizer
from fcco.problem.objective import Objective
from fcco.schedules.recipe import Recipe

__all__ = ["Driver", "Output"]

Output = Literal["last", "uniform", "average"]
"""The iterate that a stage returns: the last one, one drawn uniformly, or the average."""


class Driver:
    """A scheduler that sets the coefficients of every step from a recipe.

        driver = Driver(opt, recipe)
        for batch in loader:                      # recipe.num_steps of them
            if driver.snapshot_due:
                opt.snapshot(...)
            opt.step(...)
            driver.step()
        driver.finish()

    A stage that continues from the last iterate keeps w_{t-1} and u_{t-2}. If the coefficients do
    not change, the stages are then one long run, bit for bit. With another ``output``, a stage
    starts from (w, u, z) of one earlier step (for the average, from w alone) and restarts the
    corrections.

    Args:
        opt: an optimizer with the recipe's method and step rule.
        recipe: a recipe, see ``RECIPES``.
        output: the iterate that each stage returns, and that ``finish`` writes to the parameters.
        seed: the seed of the uniform choice.
    """

    def __init__(
        self,
        opt: CompositionalOptimizer,
        recipe: Recipe,
        *,
        output: Output = "last",
        seed: int = 0,
    ) -> None:
        if opt.method != recipe.method:
            raise ValueError(f"{recipe.label} runs {recipe.method.name}, not {opt.method.name}")
        if type(opt.update) is not type(recipe.update):
            raise ValueError(
                f"{recipe.label} steps with {type(recipe.update).__name__}, not "
                f"{type(opt.update).__name__}"
            )
        if output not in ("last", "uniform", "average"):
            raise ValueError(f'output must be "last", "uniform" or "average", got {output!r}')
        self.opt = opt
        self.recipe = recipe
        self.output = output
        self._generator = torch.Generator().manual_seed(seed)
        self._done = 0
        self._kept: dict[str, Any] = {}
        self._begin_step()

    @classmethod
    def build(
        cls,
        recipe: Recipe,
        params: ParamsT,
        objective: Objective,
        *,
        buffers: Iterable[Tensor] = (),
        initial: Tensor | float | None = None,
        output: Output = "last",
        seed: int = 0,
    ) -> "Driver":
        """Build a driver together with the optimizer of the recipe, ``driver.opt``.

        Args:
            recipe: a recipe, see ``RECIPES``.
            params: the parameters.
            objective: the problem.
            buffers: the buffers of the model, see ``CompositionalOptimizer``.
            initial: the initial table, estimated from ``recipe.initial_samples`` samples per
                block, or None.
            output: the iterate that each stage returns.
            seed: the seed of the uniform choice.
        """
        first = recipe.coefficients(1)
        assert not isinstance(first.gamma, Tensor)
        opt = CompositionalOptimizer(
            params,
            objective,
            recipe.method,
            recipe.update,
            lr=first.lr,
            alpha=first.alpha,
            beta=first.beta,
            gamma=first.gamma,
            snapshot_every=recipe.snapshot_every,
            buffers=buffers,
            initial=initial,
            weight_decay=recipe.weight_decay,
        )
        return cls(opt, recipe, output=output, seed=seed)

    @property
    def finished(self) -> bool:
        """Whether all steps were taken."""
        return self._done == self.recipe.num_steps

    @property
    def snapshot_due(self) -> bool:
        """Whether an exact pass is due before the next step, by its period or for a new stage."""
        if self.finished or not self.opt.method.anchored:
            return False
        stage, step = self.recipe.locate(self._done + 1)
        opens = step == 1 and self.recipe.stages[stage].exact
        return self.opt.snapshot_due or (opens and not self.opt.at_snapshot)

    def step(self) -> None:
        """End the stage if it is over and set the next coefficients; call it after ``opt.step``."""
        if self.finished:
            raise ValueError(f"{self.recipe.label} has no more than {self._done} steps")
        # w_t was stored before the step; u_t and z_t, which belong to it, are known only now.
        if self._kept.pop("incomplete", False):
            self._kept["z"] = [z.clone() for z in self._estimates()]
            if (table := self.opt.table) is not None:
                # The anchors belong to the last snapshot, as the anchors of parameters do, and not
                # to the iterate.
                state = table.state_dict().items()
                self._kept["table"] = {
                    name: buffer.clone() for name, buffer in state if name not in table.AT_SNAPSHOT
                }
        self._done += 1
        if not self.finished:
            if self._done + 1 in self.recipe.starts:
                self.finish()
            self._begin_step()

    @torch.no_grad()
    def finish(self) -> None:
        """Write the output of the last stage to the parameters, unless it is the last iterate."""
        if self.output == "last":
            return
        for p, w in zip(self._params(), self._kept["w"], strict=True):
            p.copy_(w)
        if "z" in self._kept:
            for z, kept in zip(self._estimates(), self._kept["z"], strict=True):
                z.copy_(kept)
        if "table" in self._kept and (table := self.opt.table) is not None:
            table.load_state_dict({**table.state_dict(), **self._kept["table"]})
        self.opt.restart()

    def get_last_lr(self) -> list[float]:
        """Return the step size of each group, under the name that torch's schedulers use."""
        return [group["lr"] for group in self.opt.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the run; the recipe is not part of it."""
        return {
            "label": self.recipe.label,
            "done": self._done,
            "generator": self._generator.get_state(),
            "kept": copy.deepcopy(self._kept),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved position; load the state of the optimizer as well."""
        if state["label"] != self.recipe.label:
            raise ValueError(f"the state is of {state['label']}, this runs {self.recipe.label}")
        self._done = state["done"]
        self._generator.set_state(state["generator"])
        self._kept = copy.deepcopy(state["kept"])
        if not self.finished:
            self._set_coefficients()

    def _set_coefficients(self) -> None:
        c = self.recipe.coefficients(self._done + 1)
        for group in self.opt.param_groups:
            group.update(lr=c.lr, alpha=c.alpha, beta=c.beta, gamma=c.gamma)

    @torch.no_grad()
    def _begin_step(self) -> None:
        """Set the coefficients of the next step, and store w_t if the output may need it."""
        self._set_coefficients()
        if self.output == "last":
            return
        _, t = self.recipe.locate(self._done + 1)
        if self.output == "average" and t > 1:
            for mean, p in zip(self._kept["w"], self._params(), strict=True):
                # The running mean of w_1, ..., w_t.
                mean.lerp_(p.detach(), 1 / t)
            return
        uniform = self.output == "uniform"
        # Reservoir sampling: w_t replaces the stored iterate with probability 1/t, so that each of
        # the t iterates so far is equally likely to remain.
        if uniform and t * torch.rand((), generator=self._generator, dtype=torch.float64) >= 1:
            return
        self._kept = {"w": [p.detach().clone() for p in self._params()], "incomplete": uniform}

    def _params(self) -> list[Tensor]:
        return [p for group in self.opt.param_groups for p in group["params"]]

    def _estimates(self) -> list[Tensor]:
        """Return z of every parameter that was trained."""
        z = (self.opt.state[p]["z"] for p in self._params())
        return [part for part in z if isinstance(part, Tensor)]
