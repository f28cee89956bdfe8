"""The training engine: steps until the budget is used up, evaluations, checkpoints, resumption."""

import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from zlib import crc32

import torch

import fcco
from fcco.data import exact_value
from fcco.distributed import Ranks
from fcco.distributed.sharded import cut
from fcco_lab.choices import choose
from fcco_lab.files import append, write
from fcco_lab.runs import METRICS, Record
from fcco_lab.training.checkpoints import Checkpoints
from fcco_lab.training.config import Config
from fcco_lab.training.directory import claim, difference
from fcco_lab.training.learners import make_learner
from fcco_lab.training.problem import Problem, load_problem
from fcco_lab.training.ranks import (
    PARALLEL,
    align_buffers,
    all_reduce_max,
    distribute,
    release,
    whole_weights,
)
from fcco_lab.training.signals import noted_signals

__all__ = ["Diverged", "Training", "advice"]


class Diverged(RuntimeError):
    """Values, slopes or z were no longer finite; the message says what to change."""


Report = Callable[[float, dict[str, Any]], None]
"""For a progress bar: the fraction that is done, and the latest evaluation."""


class Training:
    """One run of a config; with an ``output`` directory it can be interrupted and goes on there.

    The directory holds config.json (the settings and what the data is), metrics.jsonl (one line
    per evaluation), checkpoints/ (the last two), and at the end model.pt (the weights) and
    record.json. One process at a time may run there. Another run there, or a checkpoint of one, is
    an error.

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
        >>> record["status"], [point["step"] for point in record["curve"]]
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
        self.config = config
        self.output = output
        self.tensorboard = tensorboard
        self.checkpoint_seconds = checkpoint_seconds
        self.restart = restart
        self.ranks = Ranks()
        self.seconds = 0.0
        self.curve: list[dict[str, Any]] = []
        self._events: Any = None
        self.signal = 0
        """The number of the signal that interrupted the last ``run``, or 0."""
        self.resumed = 0
        """The step that the last ``run`` went on from."""
        choose("parallel", parallel, PARALLEL)
        if self.ranks.size > 1 and torch.device(config.device).index is not None:
            raise ValueError("device must have no number: every process takes its own")
        self.problem = load_problem(config, data_dir) if problem is None else problem
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            self.model = self.problem.network(config).to(config.device)
        stepped = distribute(self.model, parallel)
        self.learner = make_learner(config, self.problem, self.model, stepped)
        version = ".".join(fcco.__version__.split(".")[:2])
        self.identity = config.as_record() | self.problem.content | {"version": version}
        # Nodes that read other data would train on without a word.
        digest = crc32(json.dumps(self.identity, sort_keys=True, default=str).encode())
        most, least = all_reduce_max(config.device, digest, -digest)
        if most != -least:
            raise ValueError("the processes have different data or settings")
        self.checkpoints: Checkpoints | None = None
        if output is not None:
            self.checkpoints = Checkpoints(output / "checkpoints", device=config.device)

    @property
    def is_lead(self) -> bool:
        """Whether this process writes files and prints."""
        return self.ranks.rank == 0

    @property
    def step(self) -> int:
        """The number of steps taken."""
        return self.learner.steps

    @property
    def fraction(self) -> float:
        """How much of the budget is used up."""
        config = self.config
        by_steps = self.step / config.steps if config.steps else 0.0
        by_work = self.learner.work / config.work if config.work else 0.0
        return min(1.0, max(by_steps, by_work))

    def run(self, report: Report = lambda fraction, latest: None) -> Record:
        """Train to the end of the budget, or until a signal asks to stop.

        Raises:
            Diverged: with what to change; the last checkpoint stays.
        """
        with ExitStack() as held:
            held.enter_context(torch.random.fork_rng(devices=[]))
            held.callback(torch.set_num_threads, torch.get_num_threads())
            torch.set_num_threads(self.config.threads)
            signals = held.enter_context(noted_signals())
            if self.output is not None and self.is_lead:
                held.enter_context(claim(self.output, self.identity, restart=self.restart))
            self.restart = False
            return self._run(report, signals)

    def _run(self, report: Report, signals: list[int]) -> Record:
        torch.manual_seed(self.config.seed + (self.ranks.rank << 32))
        self._resume()
        if self.output is not None and self.is_lead:
            self._begin_metrics(self.output)
        if not self.curve:
            self._evaluate()
            self.save()  # so that there is always one to go back to
        self._train(report, signals)
        self.save()
        record = self.record("running" if self.signal else "finished")
        if self.output is not None and not self.signal:
            weights = whole_weights(self.model)
            if self.is_lead:
                write(self.output / "model.pt", lambda file: torch.save(weights, file))
                write(self.output / "record.json", json.dumps(record) + "\n")
        return record

    def _begin_metrics(self, output: Path) -> None:
        """Drop the evaluations after the step that the run goes on from: it makes them again."""
        lines = "".join(json.dumps(point) + "\n" for point in self.curve)
        write(output / "metrics.jsonl", lines)
        if self.tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            # From here on a reader forgets what a run that was killed had written before.
            onwards = self.step + 1 if self.curve else 0
            self._events = SummaryWriter(output / "tensorboard", purge_step=onwards)

    def _train(self, report: Report, signals: list[int]) -> None:
        saved = shown = time.monotonic()
        saved_step = self.step
        self.signal = 0
        while self.fraction < 1:
            # The lead's clock decides; a signal is for all, whichever rank has seen it.
            late = time.monotonic() - saved > self.checkpoint_seconds
            due = late and self.is_lead and self.step > saved_step
            seen = signals[0] if signals else 0
            self.signal, save = all_reduce_max(self.config.device, seen, due)
            if self.signal:
                return
            if save:
                self.save()
                saved, saved_step = time.monotonic(), self.step
            self._step()
            evaluated = self.fraction >= len(self.curve) / self.config.evaluations
            if evaluated:
                self._evaluate()
            if evaluated or time.monotonic() - shown > 0.2:
                report(self.fraction, self.curve[-1])
                shown = time.monotonic()

    def _step(self) -> None:
        if self.config.decay == "linear":
            for group in self.learner.opt.param_groups:
                group["lr"] = self.config.lr * (1 - self.fraction)
        started = time.process_time()
        try:
            self.learner.step()
        except FloatingPointError as error:
            raise self._diverged(self.step + 1, str(error)) from error
        self.seconds += time.process_time() - started

    @torch.no_grad()
    def _evaluate(self) -> None:
        """The exact objective and the test metrics, with the model in evaluation mode."""
        problem, learner = self.problem, self.learner
        align_buffers(self.model)
        self.model.eval()
        scores = torch.cat([learner.model(part) for part in problem.test_inputs.split(1024)]).cpu()
        point: dict[str, Any] = {
            "step": self.step,
            "samples": learner.samples,
            "values": learner.queries.values,
            "gradients": learner.queries.gradients,
            "work": learner.work,
            "seconds": round(self.seconds, 4),
        }
        try:
            point["objective"] = exact_value(learner.model, problem.train_inputs, problem.objective)
        except FloatingPointError as error:  # on all ranks, which have the same weights
            raise self._diverged(self.step, str(error)) from error
        self.model.train()
        release(self.model)
        if all_reduce_max(self.config.device, not scores.isfinite().all())[0]:
            raise self._diverged(self.step, "the network's outputs are not finite")
        point |= problem.measure(scores)
        self.curve.append(point)
        if self.output is not None and self.is_lead:
            append(self.output / "metrics.jsonl", json.dumps(point))
        if self._events is not None:
            for name, value in point.items():
                self._events.add_scalar(name, value, self.step)
            self._events.flush()

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
            align_buffers(self.model)
            streams = self.ranks.gather(torch.get_rng_state().to(self.config.device))
            state = {
                "identity": self.identity,
                "seconds": self.seconds,
                "curve": self.curve,
                "model": self.model.state_dict(),
                "learner": self.learner.state_dict(),
                "rng": torch.stack(streams).cpu(),
            }
            self.checkpoints.save(state, step=self.step)

    def _resume(self) -> None:
        state = None if self.checkpoints is None else self.checkpoints.load()
        if state is None:
            return
        if what := difference(state["identity"], self.identity):
            raise ValueError(
                f"a checkpoint in {self.output} is of another run ({what}): move it away, or begin "
                "anew with --restart"
            )
        live = self.model.state_dict()
        self.model.load_state_dict({name: cut(state["model"][name], live[name]) for name in live})
        self.learner.load_state_dict(state["learner"])
        self.seconds, self.curve = state["seconds"], state["curve"]
        self.resumed = self.step
        if self.ranks.rank < len(state["rng"]):  # else it has one of its own already
            # A copy: torch reads from the beginning of the memory, wherever a view lies in it.
            torch.set_rng_state(state["rng"][self.ranks.rank].clone())

    def _diverged(self, step: int, what: str) -> Diverged:
        reason = f"diverged at step {step}: {what}; {advice(self.config)}"
        if self.output is not None and self.is_lead:
            record = self.record("diverged", reason)
            write(self.output / "record.json", json.dumps(record) + "\n")
        return Diverged(reason)


def advice(config: Config) -> str:
    """The coefficients that are likely to blame for divergence, and what to set them to.

    Examples:
        >>> advice(Config(lr=3.0))
        'lower lr (it is 3; try 0.3)'
        >>> advice(Config(gamma="theory"))
        'lower lr (it is 0.01; try 0.001), or gamma (it is theory; try age)'
    """
    text = f"lower lr (it is {config.lr:g}; try {config.lr / 10:g})"
    is_large = config.gamma == "theory"  # about m/B1
    if not isinstance(config.gamma, str):
        is_large = config.gamma > 1
    return f"{text}, or gamma (it is {config.gamma}; try age)" if is_large else text
