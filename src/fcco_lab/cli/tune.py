"""``fcco tune``: try settings on a held-out part of the training set, and keep the best."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from fcco_lab.cli.options import DataDir, Workers, takes_settings
from fcco_lab.files import write
from fcco_lab.training import Config

if TYPE_CHECKING:
    from fcco_lab.runs import Record

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
    **values: Sequence[float],
) -> None:
    """Run what is missing of the search, then a table of the best settings and ``best.toml``.

    Args:
        config: of every run; its lr, alpha and beta are replaced.
        search: "grid" or "optuna".
        trials: of Optuna, in all.
        data_dir: where data sets are.
        output: where runs are kept; the same place resumes.
        workers: processes of one thread each; None: all cores.
        values: lrs, alphas and betas of the grid, if not the paper's.
    """
    from fcco_lab.cli.searching import Place, grid_search, optuna_search
    from fcco_lab.datasets import is_own
    from fcco_lab.datasets.catalogue import kind_of_name, resolve, source_of
    from fcco_lab.runs import METRICS, main_metric
    from fcco_lab.tuning.best import as_toml, ranked
    from fcco_lab.tuning.settings import for_tuning, tuned_keys

    if search not in ("grid", "optuna"):
        raise ValueError(f"search must be grid or optuna, got {search!r}")
    if not is_own(config.data) and config.data != "digits":
        # Say what is missing before any process is started.
        source_of(resolve(config.data, kind_of_name(config.data)), data_dir)
    console = Console(highlight=False)
    config = for_tuning(config)
    place = Place(data_dir, output, workers, console)
    if search == "grid":
        records = grid_search(config, place, **values)
    else:
        records = optuna_search(config, place, trials=trials)
    best = ranked(records)
    if not best:
        reason = next((record["reason"] for record in records), "there was nothing to try")
        raise ValueError(f"none of {len(records)} settings came to an end: {reason}")
    console.print(_table(config, best, records))
    winner = best[0]
    key = main_metric(winner)
    held_out = f"held-out {METRICS[key].removeprefix('test ')} {winner[key]:.4f}"
    found = Config.of(winner["config"])
    write(
        output / "best.toml",
        f"# found by fcco tune: {held_out}\n{as_toml(found)}",
    )
    console.print(f"for fcco train --config: {output / 'best.toml'}", soft_wrap=True, markup=False)
    words = " ".join(f"{key}={getattr(found, key):g}" for key in tuned_keys(found.method))
    console.print(f"best: {words} {held_out}", soft_wrap=True, markup=False)


def _table(config: Config, best: list["Record"], records: list["Record"]) -> Table:
    from fcco_lab.runs import METRICS, contender_name
    from fcco_lab.tuning.settings import tuned_keys

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
