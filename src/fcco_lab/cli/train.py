"""``fcco train``: one run, with a progress bar while it goes and its test scores at the end."""

import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fcco_lab.cli.options import (
    ConfigFile,
    DataDir,
    DataName,
    MethodName,
    NetworkName,
    Settings,
    UpdateName,
    make_config,
)
from fcco_lab.training import Config, Diverged, Training
from fcco_lab.training import Progress as Standing
from fcco_lab.training.config import choose
from fcco_lab.training.crew import Crew, step_aside
from fcco_lab.training.parallel import PARALLEL, process_group, said_once
from fcco_lab.training.problem import load_problem

__all__ = ["default_output", "show_train", "train"]


def default_output(config: Config) -> Path:
    """Where a run is kept unless told otherwise: the same command finds it again.

    Examples:
        >>> default_output(Config(data="usps", seed=3)).as_posix()
        'runs/train/usps-cnn-auc-msvrm-v2-adam-seed3'
    """
    words = (config.data, config.network, config.objective, config.method, config.update)
    return Path("runs/train") / "-".join([*words, f"seed{config.seed}"])


def show_train(
    config: Config,
    *,
    data_dir: Path | None,
    output: Path | None,
    tensorboard: bool,
    checkpoint_seconds: float,
    restart: bool,
    parallel: str,
) -> None:
    """Train, or go on where the same command stopped; ends with the lines of the test scores.

    Every process of ``torchrun`` calls this, and the first one speaks.
    """
    crew = Crew(config.device)
    output = default_output(config) if output is None else output
    console = Console(stderr=True, quiet=not crew.lead)
    with crew.together():
        problem = load_problem(config, data_dir)
    training = Training(
        config,
        output=output,
        tensorboard=tensorboard,
        checkpoint_seconds=checkpoint_seconds,
        problem=problem,
        parallel=parallel,
        # Not when torchrun starts its processes again.
        restart=restart and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0",
    )
    console.print(
        f"{config.data}: {len(problem.train)} training and {len(problem.test_inputs)} test "
        f"samples, {problem.num_tasks} tasks; {config.network}, "
        f"{sum(p.numel() for p in training.model.parameters()):,} weights; {config.method} with "
        f"{config.update} steps, lr {config.lr:g}",
        highlight=False,
    )
    columns = (
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%  {task.fields[text]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("", total=1.0, text="")

        def report(standing: Standing) -> None:
            look = standing.look
            text = (
                f"objective {look['objective']:.4f}  AUC {look['auc']:.4f}  "
                f"{standing.queries_per_second:,.0f} queries/s"
            )
            progress.update(bar, completed=standing.fraction, text=text)

        try:
            record = training.run(report)
        except Diverged:  # on all ranks
            if not crew.lead:
                step_aside()
            raise
        progress.update(bar, completed=training.fraction)
    if training.signal is not None:
        name = signal.Signals(training.signal).name
        console.print(f"{name}: saved at step {training.step}; the same command goes on from here")
        sys.exit(128 + training.signal)
    if not crew.lead:
        return
    look = record["curve"][-1]
    if training.resumed == training.step:
        console.print("this run had finished before: no step was left to take")
    # A path may hold brackets, and must not be broken.
    console.out(f"weights, metrics and record: {output}", highlight=False)
    typer.echo(
        f"steps {look['step']}, queries {look['values']} values + {look['gradients']} gradients, "
        f"{look['seconds']:.1f} CPU seconds"
    )
    typer.echo(f"training objective {look['objective']:.5f}")
    typer.echo(f"test AUC {look['auc']:.4f}")
    typer.echo(f"test AP {look['ap']:.4f}")


def train(
    config: ConfigFile = None,
    data: DataName = None,
    data_dir: DataDir = None,
    method: MethodName = None,
    update: UpdateName = None,
    network: NetworkName = None,
    objective: Annotated[
        str | None,
        typer.Option(
            help="auc (moments of the scores), gap (the paper's form) or ap (average precision).",
            show_default="auc",
        ),
    ] = None,
    lr: Annotated[float | None, typer.Option(help="Step size.", show_default="0.01")] = None,
    alpha: Annotated[
        float | None,
        typer.Option(help="Weight of the new gradient in z, in (0, 1].", show_default="0.5"),
    ] = None,
    beta: Annotated[
        float | None,
        typer.Option(help="Weight of the new value in u, in (0, 1].", show_default="0.5"),
    ] = None,
    gamma: Annotated[
        str | None,
        typer.Option(help="Correction of u: age, theory, storm or a number.", show_default="age"),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="How many; 0: until the work is done.", show_default="2000")
    ] = None,
    work: Annotated[
        int | None,
        typer.Option(help="Inputs forward + 2 x backward, at most; 0: no limit.", show_default="0"),
    ] = None,
    blocks_per_step: Annotated[
        int | None, typer.Option(help="B1: tasks probed a step.", show_default="5")
    ] = None,
    samples_per_block: Annotated[
        int | None, typer.Option(help="Inner samples of each.", show_default="32")
    ] = None,
    shares: Annotated[
        int | None,
        typer.Option(
            help="Into which tasks are cut, so that up to as many processes see the same batches.",
            show_default="1",
        ),
    ] = None,
    evaluations: Annotated[
        int | None,
        typer.Option(help="Looks at the objective and the test set.", show_default="20"),
    ] = None,
    diagnostics: Annotated[
        bool | None,
        typer.Option(
            "--diagnostics",
            help="Also measure how far u and z are from what they estimate, exactly.",
            show_default="no",
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Of the network and the batches.", show_default="0")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Of torch.", show_default="1")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, ...", show_default="cpu")] = None,
    settings: Settings = None,
    output: Annotated[
        Path | None,
        typer.Option(help="The run's directory.", show_default="runs/train/, by the run's name"),
    ] = None,
    tensorboard: Annotated[bool, typer.Option(help="Write events for TensorBoard.")] = True,
    checkpoint_every: Annotated[
        float, typer.Option(min=0.0, help="Seconds between checkpoints.")
    ] = 30.0,
    parallel: Annotated[
        str, typer.Option(help="Under torchrun: ddp, or fsdp for a network in parts (FSDP2).")
    ] = "ddp",
    restart: Annotated[
        bool, typer.Option("--restart", help="Remove the run that is in the output directory.")
    ] = False,
) -> None:
    """Train a network on a data set, one AUC task a class, and test it.

    Without options: digits, a compact convolutional network, MSVRM version 2 with Adam-style steps
    and coefficients that need no tuning. Ctrl-C saves and stops; the same command goes on. So does
    the same command after a crash.

    Started by torchrun, the processes share the tasks, and the run is the same one.

    Further settings (`--set key=value`, or keys of the TOML file): train_size, holdout, safeguard,
    updated_slopes, one_slope, snapshot_every, weight_decay, decay.

    Examples:

        fcco train --data usps --data-dir ~/data

        fcco train --config run.toml --method sox --lr 0.003 --set decay=none

        torchrun --nproc-per-node 2 -m fcco_lab train --data usps --blocks-per-step 4 --shares 2
    """
    flags = {
        "data": data,
        "method": method,
        "update": update,
        "network": network,
        "objective": objective,
        "lr": lr,
        "alpha": alpha,
        "beta": beta,
        "gamma": gamma,
        "steps": steps,
        "work": work,
        "blocks_per_step": blocks_per_step,
        "samples_per_block": samples_per_block,
        "shares": shares,
        "evaluations": evaluations,
        "diagnostics": diagnostics,
        "seed": seed,
        "threads": threads,
        "device": device,
    }
    with said_once():
        run = make_config(config, settings, flags)
        choose("parallel", parallel, PARALLEL)
    with process_group(run.device):
        show_train(
            run,
            data_dir=data_dir,
            output=output,
            tensorboard=tensorboard,
            checkpoint_seconds=checkpoint_every,
            restart=restart,
            parallel=parallel,
        )
