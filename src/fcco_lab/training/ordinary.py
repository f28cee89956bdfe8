"""What a user would take instead: softmax cross-entropy, and the min-max loss of AUC."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from fcco.data import BlockSampler
from fcco.data.loader import filled
from fcco.distributed import Ranks
from fcco.kernel.queries import Queries
from fcco.objectives import one_vs_rest
from fcco.objectives.tasks import TaskObjective
from fcco.problem.batches import PairBatch
from fcco_lab.training.config import Config
from fcco_lab.training.learner import Learner
from fcco_lab.training.problem import Problem
from fcco_lab.training.ranks import shard_optimizer_state

__all__ = ["CrossEntropy", "MinMax"]


class _Ordinary(Learner):
    """A torch optimizer; every input of a step is passed forward and backward once."""

    def __init__(self, config: Config, problem: Problem, model: nn.Module, *extra: Tensor) -> None:
        if problem.num_outputs is None or problem.classes is None:
            raise ValueError(f"{config.method} needs classes, which {problem.name} does not have")
        self.config = config
        self.problem = problem
        self.model = model
        self.ranks = Ranks()
        params = [*model.parameters(), *extra]
        decay = config.weight_decay
        if config.update == "adam":
            self.opt = torch.optim.AdamW(params, lr=config.lr, weight_decay=decay)
        elif config.update == "plain":
            self.opt = torch.optim.SGD(params, lr=config.lr, momentum=0.9, weight_decay=decay)
        else:
            raise ValueError(f"{config.method} has update adam or plain (SGD), not {config.update}")
        self.classes, self.outputs = problem.classes, problem.num_outputs
        self.drawn = min(config.blocks_per_step, self.outputs) * config.samples_per_block
        self.steps = 0

    @property
    def queries(self) -> Queries:
        """One value and one gradient per sample."""
        return Queries(self.samples, self.samples)

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

    def state_dict(self) -> dict[str, Any]:
        """The optimizer and the counts; the stream follows from these."""
        counts = {"steps": self.steps, "work": self.work, "samples": self.samples}
        return {"opt": self.opt.state_dict(), **counts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.opt.load_state_dict(shard_optimizer_state(self.opt, state["opt"]))
        self.steps, self.work, self.samples = state["steps"], state["work"], state["samples"]


class CrossEntropy(_Ordinary):
    """Softmax cross-entropy on batches drawn uniformly, as large as a step of the others.

    Several ranks share the rows of a batch. Arguments as of ``Compositional``.
    """

    def __init__(
        self, config: Config, problem: Problem, model: nn.Module, stepped: nn.Module
    ) -> None:
        super().__init__(config, problem, model)
        self.stepped = stepped
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
        if self.outputs == 1:
            loss = binary_cross_entropy_with_logits(logits.squeeze(1), targets.to(logits.dtype))
        else:
            loss = cross_entropy(logits, targets)
        self._descend(loss)

    def scores(self, inputs: Tensor) -> Tensor:
        """Log-odds: the scores by which a user of softmax would rank."""
        logits = super().scores(inputs)
        return logits if self.outputs == 1 else one_vs_rest(logits)


class MinMax(_Ordinary):
    """The min-max margin loss of AUC, as LibAUC does it, on the batches that our methods see.

        min_{w,a,b} max_{c >= 0} E+ (h - a)^2 + E- (h - b)^2 + 2 c (1 + E- h - E+ h) - c^2

    for each task; w, a, b descend with momentum, c ascends with the same step size.

    It is for one process.
    """

    def __init__(self, config: Config, problem: Problem, model: nn.Module) -> None:
        if Ranks().size > 1:
            raise ValueError("method min-max runs in one process only: start it without torchrun")
        if not isinstance(problem.objective, TaskObjective):
            raise ValueError("method min-max is for the objectives of AUC tasks")
        tasks, device = problem.objective.num_blocks, next(model.parameters()).device
        self.centres = torch.zeros(2, tasks, device=device, requires_grad=True)
        self.dual = torch.zeros(tasks, device=device, requires_grad=True)
        super().__init__(config, problem, model, self.centres)
        self.sampler = BlockSampler(
            problem.objective,
            blocks_per_step=min(config.blocks_per_step, tasks),
            samples_per_block=config.samples_per_block,
            num_steps=2**62,
            seed=config.seed,
            shares=config.shares,
        )

    def step(self) -> None:
        """Descend in the network and the centres, ascend in the dual."""
        batch = filled(self.sampler.at(self.steps + 1), self.problem.train_inputs)
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
