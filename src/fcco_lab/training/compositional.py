"""Learning with one of our own methods."""

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from torch import Tensor, nn

from fcco.data import BlockLoader, block_loader, exact_pass
from fcco.distributed import Ranks
from fcco.kernel.queries import Queries
from fcco.kernel.safeguard import ChangeBound
from fcco.objectives import one_vs_rest
from fcco.optim import CompositionalOptimizer
from fcco.problem.batches import leaves
from fcco.updates import Adam, AMSGrad, Normalized, Plain, Update
from fcco_lab.entries import entry_of
from fcco_lab.training.config import Config
from fcco_lab.training.learner import Learner
from fcco_lab.training.problem import Problem

__all__ = ["Compositional", "build_optimizer", "inputs_of_a_step"]

_UPDATES: dict[str, type[Update]] = {
    "plain": Plain,
    "normalized": Normalized,
    "adam": Adam,
    "amsgrad": AMSGrad,
}

ENDLESS = 2**62
"""Steps of a run that only its work limits."""


def build_optimizer(config: Config, problem: Problem, model: nn.Module) -> CompositionalOptimizer:
    """The config's method with its step rule and coefficients, on ``model``."""
    entry = entry_of(config.method)
    assert entry is not None
    method = entry.method
    if config.one_slope:
        method = method.with_one_slope()
    elif config.updated_slopes or config.objective == "auc-exp":
        with suppress(ValueError):  # it cannot, and was not asked to: the config has checked that
            method = method.updated()
    # By default a pass over the data costs about as much as the steps between two passes.
    pass_of_steps = problem.objective.num_samples // _samples_of_a_step(config, problem)
    settings = entry.arguments(
        update=_UPDATES[config.update](),
        lr=config.lr,
        alpha=config.alpha,
        beta=config.beta,
        gamma=config.gamma,
        weight_decay=config.weight_decay,
        safeguard=ChangeBound() if config.safeguard else None,
        snapshot_every=config.snapshot_every or max(1, pass_of_steps),
    )
    return CompositionalOptimizer(model, problem.objective, method, **settings)


def _samples_of_a_step(config: Config, problem: Problem) -> int:
    return min(config.blocks_per_step, problem.objective.num_blocks) * config.samples_per_block


def _make_loader(config: Config, problem: Problem) -> BlockLoader:
    return block_loader(
        problem.train_inputs,
        problem.objective,
        blocks_per_step=min(config.blocks_per_step, problem.objective.num_blocks),
        samples_per_block=config.samples_per_block,
        num_steps=config.steps or ENDLESS,
        seed=config.seed,
        shares=config.shares,
    )


def inputs_of_a_step(config: Config, problem: Problem) -> int:
    """Inputs that a step passes through the network at each of its points."""
    return len(_make_loader(config, problem).sampler.at(1).inputs)


class LogOdds(nn.Module):
    """A network that ends in the log-odds of each class against the rest.

    Args:
        network: gives one logit per class.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Tensor) -> Tensor:
        """Of all classes."""
        return one_vs_rest(self.network(inputs))


class Compositional(Learner):
    """Batches of blocks, an optimizer of ours, and its exact passes when they are due.

    Args:
        config: of the run.
        problem: its data and objective.
        model: its network.
        stepped: what steps call: ``model``, or that distributed over ranks.
    """

    opt: CompositionalOptimizer

    def __init__(
        self, config: Config, problem: Problem, model: nn.Module, stepped: nn.Module
    ) -> None:
        self.opt = build_optimizer(config, problem, model)
        self.problem = problem
        self.model = model
        self.stepped = stepped
        # The one logit of two classes is their log-odds.
        if config.of_log_odds and problem.num_outputs != 1:
            self.model, self.stepped = LogOdds(model), LogOdds(stepped)
        self.num_ranks = Ranks().size
        self.loader = _make_loader(config, problem)
        self.drawn = _samples_of_a_step(config, problem)
        self._batches: Iterator[Any] | None = None

    @property
    def queries(self) -> Queries:
        """Values and gradients, as the optimizer counts them."""
        return self.opt.queries

    def step(self) -> None:
        """Take the exact pass that is due, then a step."""
        objective = self.problem.objective
        if self._batches is None:
            self._batches = iter(self.loader)
        before = self.opt.queries.work
        if self.opt.snapshot_due:
            # Chunks of a step's size, for BatchNorm normalises by the chunk.
            size = self.drawn // self.num_ranks
            inputs = self.problem.train_inputs
            self.opt.snapshot(exact_pass(self.stepped, inputs, objective, chunk_size=size))
            # Counted for every block, but one pass of an input serves them all.
            self.work += (self.opt.queries.work - before) // objective.num_blocks
            before = self.opt.queries.work
        batch = next(self._batches)
        self.opt.step(partial(objective.inner, self.stepped, batch))
        passed = len(next(leaves(batch.inputs))) * self.num_ranks
        self.work += (self.opt.queries.work - before) * passed // self.drawn
        self.samples += self.drawn

    def state_dict(self) -> dict[str, Any]:
        """The optimizer, the stream and the counts."""
        return {
            "opt": self.opt.state_dict(),
            "loader": self.loader.state_dict(),
            "work": self.work,
            "samples": self.samples,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.opt.load_state_dict(state["opt"])
        self.loader.load_state_dict(state["loader"])
        self.work, self.samples, self._batches = state["work"], state["samples"], None
