"""``fcco train``: one run, with a progress bar while it goes and its test scores at the end."""

import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fcco_lab.cli.options import DataDir, takes_settings
from fcco_lab.files import file_name
from fcco_lab.runs import METRICS, main_metric
from fcco_lab.training import Config, Training

__all__ = ["default_output", "train"]


def default_output(config: Config) -> Path:
    """Where a run is kept unless told otherwise: the same command finds it again.

    Every setting that is not the default is in the name, so no two runs share a directory, except
    on files of the same name.

    Examples:
        >>> default_output(Config(data="usps", lr=0.1, seed=3)).as_posix()
        'runs/train/usps-auc-msvrm-v2-adam-lr=0.1-seed=3'
        >>> default_output(Config(data="~/data/patients.csv", objective="cox")).name
        'patients-cox-msvrm-v2-adam-seed=0'
    """
    name = config.name.replace(config.data, Path(config.data).stem, 1)
    # It may continue on another device.
    return Path("runs/train") / file_name(name.replace(f" device={config.device}", ""))


@takes_settings()
def train(
    config: Config,
    data_dir: DataDir = None,
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
    """Train a network on a data set by name or on your own file, and test it.

    Without options: digits as one AUC task per class, a compact convolutional network, MSVRM
    version 2 with Adam-style steps and coefficients that need no tuning. Ctrl-C saves and stops;
    the same command goes on. So does the same command after a crash.

    Started by torchrun, the processes share the tasks, and the run is the same one.

    Examples:

        fcco train --data usps --data-dir ~/data

        fcco train --data patients.csv --objective cox

        fcco train --config run.toml --method sox --lr 0.003 --decay none

        torchrun --nproc-per-node 2 -m fcco_lab train --data usps --blocks-per-step 4 --shares 2
    """
    output = default_output(config) if output is None else output
    training = Training(
        config,
        data_dir=data_dir,
        output=output,
        tensorboard=tensorboard,
        checkpoint_seconds=checkpoint_every,
        parallel=parallel,
        # Not when torchrun starts its processes again.
        restart=restart and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0",
    )
    console = Console(stderr=True, quiet=not training.is_lead, highlight=False)
    console.print(_describe(training), markup=False)
    columns = (
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%  {task.fields[text]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("", total=1.0, text="")

        def report(fraction: float, latest: dict[str, Any]) -> None:
            key = main_metric(latest)
            text = f"objective {latest['objective']:.4f}  {METRICS[key]} {latest[key]:.4f}"
            progress.update(bar, completed=fraction, text=text)

        last = training.run(report)["curve"][-1]
        report(training.fraction, last)
    if training.signal:
        name = signal.Signals(training.signal).name
        console.print(f"{name}: saved at step {training.step}; the same command goes on from here")
        sys.exit(128 + training.signal)
    if not training.is_lead:
        return
    if training.resumed == training.step:
        console.print("this run had finished before: no step was left to take")
    # A path may hold brackets, and must not be broken.
    console.out(f"weights, metrics and record: {output}", highlight=False)
    typer.echo(
        f"steps {last['step']}, queries {last['values']} values + {last['gradients']} gradients, "
        f"{last['seconds']:.1f} CPU seconds"
    )
    typer.echo(f"training objective {last['objective']:.5f}")
    for key, label in METRICS.items():
        if key in last:
            typer.echo(f"{label} {last[key]:.4f}")


def _describe(training: Training) -> str:
    objective = training.problem.objective
    weights = sum(p.numel() for p in training.model.parameters())
    return (
        f"{training.config.name}: {objective.num_samples:,} training samples, "
        f"{objective.num_blocks:,} blocks, {weights:,} weights"
    )
