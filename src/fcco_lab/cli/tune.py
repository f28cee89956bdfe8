"""``fcco tune``: try settings on a held-out part of the training set, and keep the best."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from fcco_lab.choices import choose
from fcco_lab.cli.compare import run_configs
from fcco_lab.cli.options import DataDir, Workers, takes_settings
from fcco_lab.files import write
from fcco_lab.presentation.methods import contender_name
from fcco_lab.results import Results
from fcco_lab.runs import METRICS, Record, main_metric
from fcco_lab.training import Config
from fcco_lab.training.problem import load_problem
from fcco_lab.tuning import as_toml, best_first, for_tuning, grid, sobol, tuned_keys

__all__ = ["tune"]

SEARCHED = ("lr", "alpha", "beta")
"""The settings that are found, not given."""

SHOWN = 10
"""Settings in the table."""


@takes_settings(but=SEARCHED)
def tune(
    config: Config,
    search: Annotated[
        str, typer.Option(help="sobol (a quasi-random sequence) or grid (the paper's).")
    ] = "sobol",
    trials: Annotated[int, typer.Option(min=1, help="Settings to try, of the sequence.")] = 30,
    data_dir: DataDir = None,
    output: Annotated[
        Path, typer.Option(help="Where runs are kept; the same place resumes.")
    ] = Path("runs/tune"),
    workers: Workers = None,
) -> None:
    """Find lr, alpha and beta on a held-out part of the training set; the test set stays unseen.

    Writes best.toml, for fcco train --config.

    Example:

        fcco tune --data usps --data-dir ~/data --method sox --trials 20 --steps 300
    """
    choose("search", search, ("sobol", "grid"))
    console = Console(highlight=False)
    config = for_tuning(config)
    num_blocks = load_problem(config, data_dir).objective.num_blocks
    records = run_configs(
        grid(config, num_blocks) if search == "grid" else sobol(config, trials),
        Results(output / "runs.jsonl"),
        data_dir=data_dir,
        console=console,
        workers=workers,
        what="tuning",
    )
    best = best_first(records)
    if not best:
        reason = next((record["reason"] for record in records), "there was nothing to try")
        raise ValueError(f"none of {len(records)} settings came to an end: {reason}")
    console.print(_table(config, best, records))
    winner = Config.from_dict(best[0]["config"])
    key = main_metric(best[0])
    held_out = f"held-out {METRICS[key].removeprefix('test ')} {best[0][key]:.4f}"
    write(output / "best.toml", f"# found by fcco tune: {held_out}\n{as_toml(winner)}")
    settings = " ".join(f"{key}={getattr(winner, key):g}" for key in tuned_keys(winner.method))
    typer.echo(f"for fcco train --config: {output / 'best.toml'}")
    typer.echo(f"best: {settings} {held_out}")


def _table(config: Config, best: list[Record], records: list[Record]) -> Table:
    counts = Counter(record["status"] for record in records)
    table = Table(
        box=box.SIMPLE,
        title=f"{contender_name(config.as_record())} on {config.data}, "
        f"{config.holdout:.0%} of the training set held out",
        caption=f"{len(records)} settings: "
        + ", ".join(f"{counts[word]} {word}" for word in sorted(counts)),
    )
    keys = tuned_keys(config.method)
    metrics = [key for key in METRICS if key in best[0]]
    first, *others = (METRICS[key].removeprefix("test ") for key in metrics)
    for name in (*keys, f"held-out {first}", *others, "objective"):
        table.add_column(name, justify="right")
    for record in best[:SHOWN]:
        settings = [f"{record['config'][key]:g}" for key in keys]
        scores = [f"{record[key]:.4f}" for key in metrics]
        table.add_row(*settings, *scores, f"{record['objective']:.4g}")
    return table
