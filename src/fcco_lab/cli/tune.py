"""``fcco tune``: try settings on a held-out part of the training set, and keep the best."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from fcco_lab.cli.options import DataDir, Workers, takes_settings
from fcco_lab.cli.searching import Place, grid_search, optuna_search
from fcco_lab.datasets.catalogue import resolve, source_of
from fcco_lab.files import write
from fcco_lab.runs import Record, contender_name
from fcco_lab.training import Config
from fcco_lab.tuning.best import as_toml, ranked
from fcco_lab.tuning.settings import LRS, WEIGHTS, for_tuning, tuned_keys

__all__ = ["show_tune", "tune"]

SEARCHED = ("lr", "alpha", "beta")
"""The settings that are found, not given."""

SHOWN = 10
"""Settings in the table."""


def show_tune(
    config: Config,
    *,
    search: str,
    trials: int,
    data_dir: Path | None,
    output: Path,
    workers: int | None,
    lrs: Sequence[float] = LRS,
    alphas: Sequence[float] = WEIGHTS,
    betas: Sequence[float] = WEIGHTS,
) -> None:
    """Run what is missing of the search, then a table of the best settings and ``best.toml``.

    Args:
        config: of every run; its lr, alpha and beta are replaced.
        search: "grid" or "optuna".
        trials: of Optuna, in all.
        data_dir: where data sets are.
        output: where runs are kept; the same place resumes.
        workers: processes of one thread each; None: all cores.
        lrs: of the grid.
        alphas: of the grid.
        betas: of the grid.
    """
    if search not in ("grid", "optuna"):
        raise ValueError(f"search must be grid or optuna, got {search!r}")
    if resolve(config.data, "classes") != "digits":
        source_of(config.data, data_dir)  # say what is missing before any process is started
    console = Console(highlight=False)
    config = for_tuning(config)
    place = Place(data_dir, output, workers, console)
    if search == "grid":
        records = grid_search(config, place, lrs=lrs, alphas=alphas, betas=betas)
    else:
        records = optuna_search(config, place, trials=trials)
    best = ranked(records)
    if not best:
        reason = next((record["reason"] for record in records), "there was nothing to try")
        raise ValueError(f"none of {len(records)} settings came to an end: {reason}")
    console.print(_table(config, best, records))
    winner = best[0]
    found = Config.of(winner["config"])
    write(
        output / "best.toml",
        f"# found by fcco tune: held-out AUC {winner['auc']:.4f}\n{as_toml(found)}",
    )
    console.print(f"for fcco train --config: {output / 'best.toml'}", soft_wrap=True, markup=False)
    words = " ".join(f"{key}={getattr(found, key):g}" for key in tuned_keys(found.method))
    console.print(f"best: {words} held-out AUC {winner['auc']:.4f}", soft_wrap=True, markup=False)


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
    for name in (*keys, "held-out AUC", "AP", "objective"):
        table.add_column(name, justify="right")
    for record in best[:SHOWN]:
        settings = [f"{record['config'][key]:g}" for key in keys]
        table.add_row(
            *settings, f"{record['auc']:.4f}", f"{record['ap']:.4f}", f"{record['objective']:.4g}"
        )
    return table


@takes_settings(but=SEARCHED)
def tune(
    config: Config,
    search: Annotated[
        str, typer.Option(help="grid (the paper's) or optuna (with pruning).")
    ] = "optuna",
    trials: Annotated[int, typer.Option(min=1, help="Settings that optuna tries.")] = 30,
    data_dir: DataDir = None,
    output: Annotated[
        Path, typer.Option(help="Where trials are kept; the same place resumes.")
    ] = Path("runs/tune"),
    workers: Workers = None,
) -> None:
    """Find lr, alpha and beta on a held-out part of the training set; the test set stays unseen.

    Writes best.toml, for fcco train --config.

    Example:

        fcco tune --data usps --data-dir ~/data --method sox --trials 20 --steps 300
    """
    show_tune(
        config,
        search=search,
        trials=trials,
        data_dir=data_dir,
        output=output,
        workers=workers,
    )
