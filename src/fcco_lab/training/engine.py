"""The training engine: steps until the budget is used up, looks, checkpoints, resumption."""

import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fcco.data import exact_value
from fcco.distributed.sharded import cut
from fcco_lab.files import write
from fcco_lab.runs import METRICS, Record
from fcco_lab.training.checkpoints import Checkpoints
from fcco_lab.training.compositional import Compositional
from fcco_lab.training.config import Config
from fcco_lab.training.crew import Crew
from fcco_lab.training.diagnostics import diagnose
from fcco_lab.training.directory import claimed
from fcco_lab.training.divergence import Diverged, advice
from fcco_lab.training.interruption import Interruption
from fcco_lab.training.journal import Journal
from fcco_lab.training.learner import Learner
from fcco_lab.training.ordinary import CrossEntropy, MinMax
from fcco_lab.training.parallel import (
    align_buffers,
    release,
    spread,
    whole_weights,
)
from fcco_lab.training.problem import Problem, load_problem

__all__ = ["Progress", "Training"]


@dataclass(frozen=True)
class Progress:
    """Where a run stands, for a progress bar."""

    step: int
    fraction: float
    look: dict[str, Any]
    queries_per_second: float


Report = Callable[[Progress], None]


class Training:
    """One run of a config; with an ``output`` directory it can be interrupted and goes on there.

    The directory holds config.json (the settings and what the data is), metrics.jsonl (one line a
    look), checkpoints/ (the last two), and at the end model.pt (the weights) and record.json. One
    process at a time may run there. Another run there, or a checkpoint of one, is an error.

    Where ``torch.distributed`` is set up all ranks make one, and it is one run: the first writes,
    the others see the same directory. It may go on with another number of ranks.

    Args:
        config: what to run.
        data_dir: where data sets are.
        output: the run's directory; None keeps everything in memory.
        tensorboard: also write events.
        checkpoint_seconds: how much work a crash may lose.
        problem: the config's data, if it was read already.
        parallel: with several ranks, "ddp" or "fsdp" (FSDP2).
        restart: first remove the run that is in the directory.

    Examples:
        >>> training = Training(Config(network="linear", steps=20, evaluations=2))
        >>> record = training.run()
        >>> record["status"], [look["step"] for look in record["curve"]]
        ('finished', [0, 10, 20])
    """

    def __init__(
        self,
        config: Config,
        *,
        data_dir: Path | None = None,
        output: Path | None = None,
        tensorboard: bool = False,
        checkpoint_seconds: float = 30.0,
        problem: Problem | None = None,
        parallel: str = "ddp",
        restart: bool = False,
    ) -> None:
        self.config, self.output = config, output
        self.tensorboard, self.checkpoint_seconds = tensorboard, checkpoint_seconds
        self.restart = restart
        self.crew = Crew(config.device)
        with self.crew.together():
            if config.diagnostics and self.crew.size > 1:
                raise ValueError("diagnostics are for one process: they need the whole table")
            self.problem = load_problem(config, data_dir) if problem is None else problem
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(config.seed)
                self.model = self.problem.network(config).to(config.device)
        stepped = spread(self.model, parallel)
        with self.crew.together():
            self.learner = _learner(config, self.problem, self.model, stepped)
        self.identity = config.as_record() | self._agreed_content()
        self.checkpoints: Checkpoints | None = None
        if output is not None:
            self.checkpoints = Checkpoints(
                output / "checkpoints", identity=self.identity, crew=self.crew
            )
        self.step = 0
        self.seconds = 0.0
        self.curve: list[dict[str, Any]] = []
        self.signal: int | None = None
        """The number of the signal that interrupted the last ``run``."""
        self.resumed = 0
        """The step that the last ``run`` went on from."""

    def _agreed_content(self) -> dict[str, str]:
        """The fingerprint of the data, which must be the same on all ranks."""
        found = self.crew.gathered(self.problem.content)
        with self.crew.together():
            for rank, content in enumerate(found):
                if content != found[0]:
                    raise ValueError(f"rank {rank} reads other data than rank 0: {content}")
        return found[0]

    @property
    def _writes(self) -> Path | None:
        """Where this process is to write; None: nowhere."""
        return self.output if self.crew.lead else None

    @property
    def fraction(self) -> float:
        """How much of the budget is used up."""
        config = self.config
        by_steps = self.step / config.steps if config.steps else 0.0
        by_work = self.learner.work / config.work if config.work else 0.0
        return min(1.0, max(by_steps, by_work))

    def run(self, report: Report = lambda progress: None) -> Record:
        """Train to the end of the budget, or until a signal asks to stop.

        Raises:
            Diverged: with what to change; the last checkpoint stays.
        """
        threads = torch.get_num_threads()
        torch.set_num_threads(self.config.threads)
        with torch.random.fork_rng(devices=[]), Interruption() as wish, ExitStack() as held:
            try:
                with self.crew.together():
                    if self._writes is not None:
                        mine = claimed(self._writes, self.identity, restart=self.restart)
                        held.enter_context(mine)
                self.restart = False
                return self._run(report, wish)
            finally:
                torch.set_num_threads(threads)

    def _run(self, report: Report, wish: Interruption) -> Record:
        torch.manual_seed(self.config.seed + (self.crew.rank << 32))
        self._resume()
        journal = None
        with self.crew.together():
            if self._writes is not None:
                journal = Journal(self._writes, self.curve, tensorboard=self.tensorboard)
        try:
            self._train(journal, report, wish)
        finally:
            if journal is not None:
                journal.close()
        self.save()
        record = self.record("running" if self.signal else "finished")
        if self.output is not None and not self.signal:
            weights = whole_weights(self.model, keep=self.crew.lead)
            with self.crew.together():
                if self._writes is not None:
                    write(self._writes / "model.pt", lambda file: torch.save(weights, file))
                    write(self._writes / "record.json", json.dumps(record) + "\n")
        return record

    def _train(self, journal: Journal | None, report: Report, wish: Interruption) -> None:
        if not self.curve:
            self._look(journal)
            self.save()  # so that there is always one to go back to
        saved = shown = time.monotonic()
        kept = self.step
        asked, since = self.learner.queries, time.monotonic()
        self.signal = None
        while self.fraction < 1:
            # Of the clocks the lead's decides; a signal is for all, whoever has seen it.
            late = self.step > kept and time.monotonic() - saved > self.checkpoint_seconds
            signal, due = self.crew.highest(wish.signal or 0, late and self.crew.lead)
            if signal:
                self.signal = signal
                break
            if due:
                self.save()
                saved, kept = time.monotonic(), self.step
            if self.config.decay == "linear":
                self.learner.set_lr(self.config.lr * (1 - self.fraction))
            started = time.process_time()
            try:
                self.learner.step()
            except FloatingPointError as error:
                raise self._diverged(self.step + 1, str(error)) from error
            self.seconds += time.process_time() - started
            self.step += 1
            looked = self.fraction >= len(self.curve) / self.config.evaluations
            if looked:
                self._look(journal)
            now = time.monotonic()
            if looked or now - shown > 0.2:
                done = self.learner.queries
                count = done.values + done.gradients - asked.values - asked.gradients
                rate = count / max(now - since, 1e-9)
                report(Progress(self.step, self.fraction, self.curve[-1], rate))
                shown = now

    @torch.no_grad()
    def _look(self, journal: Journal | None) -> None:
        """Evaluate exactly; the model is in evaluation mode for it."""
        problem, learner = self.problem, self.learner
        align_buffers(self.model, self.crew)
        self.model.eval()
        scores = torch.cat([learner.scores(part) for part in problem.test_inputs.split(1024)]).cpu()
        look: dict[str, Any] = {
            "step": self.step,
            "samples": learner.samples,
            "values": learner.queries.values,
            "gradients": learner.queries.gradients,
            "work": learner.work,
            "seconds": round(self.seconds, 4),
            "objective": exact_value(learner.scores, problem.train_inputs, problem.objective),
        }
        self.model.train()
        release(self.model)
        if not self.crew.highest(not scores.isfinite().all())[0]:
            look |= problem.measure(scores)
        else:
            raise self._diverged(self.step, "the network's outputs are not finite")
        if self.config.diagnostics and isinstance(learner, Compositional):
            look |= diagnose(learner.opt, learner.model, problem.train_inputs, problem.objective)
        self.curve.append(look)
        if journal is not None:
            journal.add(look)

    def record(self, status: str, reason: str = "") -> Record:
        """What is kept of the run."""
        last = self.curve[-1] if self.curve else {}
        return {
            "name": self.config.name,
            "config": self.config.as_record(),
            "status": status,
            "reason": reason,
            "curve": self.curve,
            "objective": last.get("objective"),
            **{key: last[key] for key in METRICS if key in last},
            "content": self.problem.content,
            "num_blocks": self.problem.objective.num_blocks,
            "train_size": self.problem.objective.num_samples,
            "test_size": len(self.problem.test_inputs),
        }

    def save(self) -> None:
        """Write a checkpoint now."""
        if self.checkpoints is not None:
            align_buffers(self.model, self.crew)
            streams = self.crew.ranks.gather(torch.get_rng_state().to(self.crew.device))
            state = {
                "step": self.step,
                "seconds": self.seconds,
                "curve": self.curve,
                **self._live(),
                "rng": torch.stack(streams).cpu(),
            }
            self.checkpoints.save(state, step=self.step)

    def _live(self) -> dict[str, Any]:
        """The tensors of the run, themselves."""
        return {"model": self.model.state_dict(), "learner": self.learner.state_dict()}

    def _resume(self) -> None:
        live = self._live()
        state = None if self.checkpoints is None else self.checkpoints.load(live)
        if state is None:
            return
        weights = {name: cut(state["model"][name], like) for name, like in live["model"].items()}
        self.model.load_state_dict(weights)
        self.learner.load_state_dict(state["learner"])
        self.step, self.seconds, self.curve = state["step"], state["seconds"], state["curve"]
        self.resumed = self.step
        streams = torch.atleast_2d(state["rng"])
        if self.crew.rank < len(streams):  # else it has one of its own already
            torch.set_rng_state(streams[self.crew.rank].clone())

    def _diverged(self, step: int, what: str) -> Diverged:
        reason = f"diverged at step {step}: {what}; {advice(self.config)}"
        if self._writes is not None:
            record = self.record("diverged", reason)
            write(self._writes / "record.json", json.dumps(record) + "\n")
        return Diverged(reason)


def _learner(
    config: Config, problem: Problem, model: torch.nn.Module, stepped: torch.nn.Module
) -> Learner:
    if config.method == "cross-entropy":
        return CrossEntropy(config, problem, model, stepped)
    if config.method == "min-max":
        return MinMax(config, problem, model)
    return Compositional(config, problem, model, stepped)
