"""What takes the steps of a run: one of our methods, cross-entropy, or the min-max loss of AUC."""

from abc import ABC, abstractmethod
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from fcco.data import BlockLoader, block_loader, exact_pass
from fcco.data.loader import filled
from fcco.distributed import Ranks
from fcco.kernel.queries import Queries
from fcco.kernel.safeguard import ChangeBound
from fcco.objectives import one_vs_rest
from fcco.objectives.tasks import TaskObjective
from fcco.optim import CompositionalOptimizer
from fcco.problem.batches import Batch, PairBatch, leaves
from fcco.updates import Adam, AMSGrad, Normalized, Plain
from fcco_lab.entries import entry_of
from fcco_lab.training.config import Config
from fcco_lab.training.problem import Problem
from fcco_lab.training.ranks import shard_optimizer_state

__all__ = ["Compositional", "CrossEntropy", "Learner", "MinMax", "inputs_of_a_step", "make_learner"]

_UPDATES = {"plain": Plain, "normalized": Normalized, "adam": Adam, "amsgrad": AMSGrad}


class Learner(ABC):
    """A model's optimizer with its stream of batches.

    ``work`` counts inputs passed forward + 2 x inputs passed backward, ``samples`` what the paper
    counts: B1 x inner batch a step, whatever is done with them.

    Args:
        config: of the run.
        problem: its data and objective.
        model: its network.
        stepped: what steps call: ``model``, or that distributed over ranks.
    """

    opt: torch.optim.Optimizer

    def __init__(
        self, config: Config, problem: Problem, model: nn.Module, stepped: nn.Module
    ) -> None:
        self.config = config
        self.problem = problem
        self.model = model
        self.stepped = stepped
        self.ranks = Ranks()
        blocks = min(config.blocks_per_step, problem.objective.num_blocks)
        self.drawn = blocks * config.samples_per_block
        self.steps = 0
        self.work = 0
        self.samples = 0
        self._prepare()

    @abstractmethod
    def _prepare(self) -> None:
        """Build the optimizer."""

    @property
    def queries(self) -> Queries:
        """Values and gradients of inner samples; here one of each per sample."""
        return Queries(self.samples, self.samples)

    @abstractmethod
    def step(self) -> None:
        """Take one step."""

    def state_dict(self) -> dict[str, Any]:
        """Everything but the model's weights; the batches follow from the number of steps."""
        counts = {"steps": self.steps, "work": self.work, "samples": self.samples}
        return {"opt": self.opt.state_dict(), **counts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a whole state, which may be of another number of ranks."""
        self.opt.load_state_dict(state["opt"])
        self.steps, self.work, self.samples = state["steps"], state["work"], state["samples"]


def make_learner(config: Config, problem: Problem, model: nn.Module, stepped: nn.Module) -> Learner:
    """The learner that the config's method names."""
    kinds: dict[str, type[Learner]] = {"cross-entropy": CrossEntropy, "min-max": MinMax}
    return kinds.get(config.method, Compositional)(config, problem, model, stepped)


def _make_loader(config: Config, problem: Problem) -> BlockLoader:
    return block_loader(
        problem.train_inputs,
        problem.objective,
        blocks_per_step=min(config.blocks_per_step, problem.objective.num_blocks),
        samples_per_block=config.samples_per_block,
        num_steps=2**62,  # the budget ends a run
        seed=config.seed,
        shares=config.shares,
    )


def inputs_of_a_step(config: Config, problem: Problem) -> int:
    """Inputs that a step passes through the network at each of its points."""
    return len(_make_loader(config, problem).sampler.at(1).inputs)


def _batch_at(loader: BlockLoader, step: int) -> Batch:
    return filled(loader.sampler.at(step), loader.inputs)


class LogOdds(nn.Module):
    """A network that ends in the log-odds of each class against the rest.

    Args:
        network: gives one logit per class.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Tensor) -> Tensor:
        """Of all classes; the one logit of two classes is their log-odds."""
        logits: Tensor = self.network(inputs)
        return logits if logits.shape[1] == 1 else one_vs_rest(logits)


class Compositional(Learner):
    """Batches of blocks, an optimizer of ours, and its exact passes when they are due."""

    opt: CompositionalOptimizer

    def _prepare(self) -> None:
        config, problem = self.config, self.problem
        self.loader = _make_loader(config, problem)
        objective = problem.objective
        entry = entry_of(config.method)
        assert entry is not None
        method = entry.method
        if config.updated_slopes:
            method = method.updated()
        elif config.objective == "auc-exp":
            with suppress(ValueError):  # it has no slopes at u_t, and was not asked for them
                method = method.updated()
        settings = entry.arguments(
            update=_UPDATES[config.update](),
            lr=config.lr,
            alpha=config.alpha,
            beta=config.beta,
            gamma=config.gamma,
            weight_decay=config.weight_decay,
            safeguard=ChangeBound() if config.safeguard else None,
            # By default a pass over the data costs about as much as the steps between two passes.
            snapshot_every=config.snapshot_every or max(1, objective.num_samples // self.drawn),
        )
        self.opt = CompositionalOptimizer(self.model, objective, method, **settings)
        if config.of_log_odds:
            self.model, self.stepped = LogOdds(self.model), LogOdds(self.stepped)

    @property
    def queries(self) -> Queries:
        """Values and gradients, as the optimizer counts them."""
        return self.opt.queries

    def step(self) -> None:
        """Take the exact pass that is due, then a step."""
        objective = self.problem.objective
        before = self.opt.queries.work
        if self.opt.snapshot_due:
            # Chunks of a step's size, for BatchNorm normalises by the chunk.
            size = self.drawn // self.ranks.size
            inputs = self.problem.train_inputs
            self.opt.snapshot(exact_pass(self.stepped, inputs, objective, chunk_size=size))
            # Counted for every block, but one pass of an input serves them all.
            self.work += (self.opt.queries.work - before) // objective.num_blocks
            before = self.opt.queries.work
        batch = _batch_at(self.loader, self.steps + 1)
        self.opt.step(partial(objective.inner, self.stepped, batch))
        passed = len(next(leaves(batch.inputs))) * self.ranks.size
        self.work += (self.opt.queries.work - before) * passed // self.drawn
        self.samples += self.drawn
        self.steps += 1


class _Ordinary(Learner):
    """A torch optimizer; every input of a step is passed forward and backward once."""

    def _prepare(self) -> None:
        config, problem = self.config, self.problem
        if problem.classes is None:
            raise ValueError(f"{config.method} needs classes, which {problem.name} does not have")
        self.classes = problem.classes
        params, decay = self.model.parameters(), config.weight_decay
        if config.update == "adam":
            self.opt = torch.optim.AdamW(params, lr=config.lr, weight_decay=decay)
        elif config.update == "plain":
            self.opt = torch.optim.SGD(params, lr=config.lr, momentum=0.9, weight_decay=decay)
        else:
            raise ValueError(f"{config.method} has update adam or plain (SGD), not {config.update}")

    def _descend(self, loss: Tensor) -> None:
        value = self.ranks.sum(loss.detach().clone())
        if not value.isfinite():
            raise FloatingPointError(f"the loss is {float(value)} at step {self.steps + 1}")
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.steps += 1
        self.samples += self.drawn
        self.work += 3 * self.drawn

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        super().load_state_dict(state | {"opt": shard_optimizer_state(self.opt, state["opt"])})


class CrossEntropy(_Ordinary):
    """Softmax cross-entropy on batches drawn uniformly, as large as a step of the others.

    Several ranks share the rows of a batch. It is tested by log-odds, by which a user of softmax
    would rank.
    """

    def _prepare(self) -> None:
        super()._prepare()
        self.model = LogOdds(self.model)
        if self.drawn % self.ranks.size:
            raise ValueError(
                f"a batch of {self.drawn} (blocks_per_step x samples_per_block) is not a multiple "
                f"of {self.ranks.size} ranks"
            )

    def step(self) -> None:
        """One batch."""
        # As the others' samplers do: step t draws from a stream of its own.
        generator = torch.Generator().manual_seed((self.config.seed << 32) + self.steps)
        inputs = self.problem.train_inputs
        rows = torch.randint(len(inputs), (self.drawn,), generator=generator)
        rows = rows[self.ranks.rank :: self.ranks.size]
        logits = self.stepped(inputs[rows.to(inputs.device)])
        targets = self.classes[rows].to(logits.device)
        if logits.shape[1] == 1:
            loss = binary_cross_entropy_with_logits(logits.squeeze(1), targets.to(logits.dtype))
        else:
            loss = cross_entropy(logits, targets)
        self._descend(loss)


class MinMax(_Ordinary):
    """The min-max margin loss of AUC, as LibAUC does it, on the batches that our methods see.

        min_{w,a,b} max_{c >= 0} E+ (h - a)^2 + E- (h - b)^2 + 2 c (1 + E- h - E+ h) - c^2

    for each task; w, a, b descend with momentum, c ascends with the same step size.

    It is for one process.
    """

    def _prepare(self) -> None:
        if self.ranks.size > 1:
            raise ValueError("method min-max runs in one process only: start it without torchrun")
        if not isinstance(self.problem.objective, TaskObjective):
            raise ValueError("method min-max is for the objectives of AUC tasks")
        super()._prepare()
        tasks = self.problem.objective.num_blocks
        device = next(self.model.parameters()).device
        self.centres = torch.zeros(2, tasks, device=device, requires_grad=True)
        self.dual = torch.zeros(tasks, device=device, requires_grad=True)
        self.opt.add_param_group({"params": self.centres})
        self.loader = _make_loader(self.config, self.problem)

    def step(self) -> None:
        """Descend in the network and the centres, ascend in the dual."""
        batch = _batch_at(self.loader, self.steps + 1)
        assert isinstance(batch, PairBatch)
        blocks = batch.blocks
        h = self.model(batch.inputs).sigmoid()[batch.partners, blocks.unsqueeze(1)]
        # The weights of the samples of each block in E+ and in E-.
        positive, negative = batch.weights.to(h.dtype)
        a, b = self.centres[:, blocks].unsqueeze(2)
        dual = self.dual[blocks]
        variances = positive * (h - a).square() + negative * (h - b).square()
        gap = ((negative - positive) * h).sum(1)
        margin = 2 * dual * (1 + gap) - dual.square()
        self._descend((variances.sum(1) + margin).mean())
        with torch.no_grad():
            assert self.dual.grad is not None
            self.dual.add_(self.dual.grad, alpha=self.opt.param_groups[0]["lr"]).clamp_(min=0)
            self.dual.grad = None

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's state, with the centres and the dual."""
        own = {"centres": self.centres.detach(), "dual": self.dual.detach()}
        return {**super().state_dict(), **own}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        super().load_state_dict(state)
        with torch.no_grad():
            self.centres.copy_(state["centres"])
            self.dual.copy_(state["dual"])
