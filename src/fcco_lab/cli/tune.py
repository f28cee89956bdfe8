"""``fcco tune``: try settings on a held-out part of the training set, and keep the best."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fcco_lab.cli.options import DataDir, Output, Workers, takes_settings
from fcco_lab.cli.tables import print_table
from fcco_lab.comparison import run_configs
from fcco_lab.files import write
from fcco_lab.runs import METRICS, Record, main_metric
from fcco_lab.training import Config
from fcco_lab.training.problem import load_problem
from fcco_lab.tuning import as_toml, best_first, for_tuning, sobol, tuned_keys

__all__ = ["tune"]

SEARCHED = ("lr", "alpha", "beta")
"""The settings that are found, not given."""

SHOWN = 10
"""Settings in the table."""


@takes_settings(but=SEARCHED)
def tune(
    config: Config,
    trials: Annotated[
        int, typer.Option(min=1, help="Settings to try, of a quasi-random (Sobol) sequence.")
    ] = 30,
    data_dir: DataDir = None,
    output: Output = Path("runs/tune"),
    workers: Workers = None,
) -> None:
    """Find lr, alpha and beta on a held-out part of the training set; the test set stays unseen.

    Writes best.toml, for fcco train --config.

    Example:

        fcco tune --data usps --data-dir ~/data --method sox --trials 20 --steps 300
    """
    console = Console(highlight=False)
    config = for_tuning(config)
    load_problem(config, data_dir)  # or say what is wrong with it before anything runs
    records = run_configs(
        sobol(config, trials),
        output / "runs.jsonl",
        data_dir=data_dir,
        workers=workers,
        what="tuning",
    )
    best = best_first(records)
    if not best:
        reason = next((record["reason"] for record in records), "there was nothing to try")
        raise ValueError(f"none of {len(records)} settings came to an end: {reason}")
    _print_best(console, config, best)
    counts = Counter(record["status"] for record in records)
    tried = ", ".join(f"{counts[word]} {word}" for word in sorted(counts))
    console.print(f"{len(records)} settings: {tried}")
    winner = Config.from_dict(best[0]["config"])
    key = main_metric(best[0])
    held_out = f"held-out {METRICS[key].removeprefix('test ')} {best[0][key]:.4f}"
    write(output / "best.toml", f"# found by fcco tune: {held_out}\n{as_toml(winner)}")
    settings = " ".join(f"{key}={getattr(winner, key):g}" for key in tuned_keys(winner.method))
    typer.echo(f"for fcco train --config: {output / 'best.toml'}")
    typer.echo(f"best: {settings} {held_out}")


def _print_best(console: Console, config: Config, best: list[Record]) -> None:
    keys = tuned_keys(config.method)
    metrics = [key for key in METRICS if key in best[0]]
    names = [f"held-out {METRICS[key].removeprefix('test ')}" for key in metrics]
    rows = [
        [
            *(f"{record['config'][key]:g}" for key in keys),
            *(f"{record[key]:.4f}" for key in metrics),
            f"{record['objective']:.4g}",
        ]
        for record in best[:SHOWN]
    ]
    title = f"{config.method} {config.update} on {config.data}"
    print_table(console, title, [*keys, *names, "objective"], rows)
