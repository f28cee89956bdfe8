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
from fcco_lab.baselines import Baseline
from fcco_lab.entries import entry_of
from fcco_lab.training.config import Config
from fcco_lab.training.learner import Learner
from fcco_lab.training.problem import Problem

__all__ = ["Compositional", "build_optimizer", "inputs_of_a_step"]

_RULES: dict[str, type[Update]] = {
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
    assert not isinstance(entry, Baseline)
    method = entry.method
    if config.one_slope:
        method = method.with_one_slope()
    elif config.updated_slopes or config.objective == "auc-exp":
        with suppress(ValueError):  # it cannot, and was not asked to: the config has checked that
            method = method.updated()
    settings = entry.arguments(
        update=_RULES[config.update](),
        lr=config.lr,
        alpha=config.alpha,
        beta=config.beta,
        gamma=config.gamma,
        weight_decay=config.weight_decay,
        safeguard=ChangeBound() if config.safeguard else None,
        snapshot_every=config.snapshot_every or _steps_of_a_pass(config, problem),
    )
    return CompositionalOptimizer(model, problem.objective, method, **settings)


def _steps_of_a_pass(config: Config, problem: Problem) -> int:
    """Steps between exact passes such that a pass costs about as much as the steps."""
    drawn = _blocks(config, problem) * config.samples_per_block
    return max(1, problem.objective.num_samples // drawn)


def _blocks(config: Config, problem: Problem) -> int:
    return min(config.blocks_per_step, problem.objective.num_blocks)


def _loader(config: Config, problem: Problem) -> BlockLoader:
    return block_loader(
        problem.train_inputs,
        problem.objective,
        blocks_per_step=_blocks(config, problem),
        samples_per_block=config.samples_per_block,
        num_steps=config.steps or ENDLESS,
        seed=config.seed,
        shares=config.shares,
    )


def inputs_of_a_step(config: Config, problem: Problem) -> int:
    """Inputs that a step passes through the network at each of its points."""
    return len(_loader(config, problem).sampler.at(1).inputs)


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
        stepped: what steps call, if the network is spread over ranks.
    """

    opt: CompositionalOptimizer

    def __init__(
        self,
        config: Config,
        problem: Problem,
        model: nn.Module,
        stepped: nn.Module | None = None,
    ) -> None:
        self.problem = problem
        self.model, self.stepped = model, model if stepped is None else stepped
        # The one logit of two classes is their log-odds.
        if config.of_log_odds and problem.num_outputs != 1:
            self.model, self.stepped = LogOdds(self.model), LogOdds(self.stepped)
        self.ranks = Ranks()
        self.opt = build_optimizer(config, problem, model)
        self.loader = _loader(config, problem)
        self.drawn = _blocks(config, problem) * config.samples_per_block
        self._batches: Iterator[Any] | None = None

    @property
    def queries(self) -> Queries:
        """Values and gradients, as the optimizer counts them."""
        return self.opt.queries

    def step(self) -> Tensor:
        """Take the exact pass that is due, then a step."""
        if self._batches is None:
            self._batches = iter(self.loader)
        before = self.opt.queries.work
        if self.opt.snapshot_due:
            # Chunks of a step's size, for BatchNorm normalises by the chunk.
            size = self.drawn // self.ranks.size
            chunks = exact_pass(
                self.stepped, self.problem.train_inputs, self.problem.objective, chunk_size=size
            )
            self.opt.snapshot(chunks)
            # Counted for every block, but one pass of an input serves them all.
            self.work += (self.opt.queries.work - before) // self.problem.objective.num_blocks
            before = self.opt.queries.work
        batch = next(self._batches)
        value = self.opt.step(partial(self.problem.objective.inner, self.stepped, batch))
        passed = len(next(leaves(batch.inputs))) * self.ranks.size
        self.work += (self.opt.queries.work - before) * passed // self.drawn
        self.samples += self.drawn
        return value

    def scores(self, inputs: Tensor) -> Tensor:
        """The network's outputs, or their log-odds."""
        outputs: Tensor = self.model(inputs)
        return outputs

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
