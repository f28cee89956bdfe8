"""The commands."""

from pathlib import Path
from typing import Annotated

import typer

from fcco import __version__
from fcco.cli.demo import show_demo
from fcco.cli.rates import show_rates
from fcco.cli.study import show_study
from fcco.experiments.demo import WORK

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Finite-sum coupled compositional optimization: train, compare and measure.",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fcco {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version.")
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    work: Annotated[
        int,
        typer.Option(
            min=10_000, help="Oracle work for each method: values + 2 x gradients of inner samples."
        ),
    ] = WORK,
    seed: Annotated[int, typer.Option(help="Of the data split, the network and the batches.")] = 0,
    output: Annotated[
        Path, typer.Option(help="Where the plot and the numbers are written.")
    ] = Path("runs/demo"),
) -> None:
    """Train a small network on digits as 10 one-vs-rest AUC tasks, with every method in turn.

    Each method gets the same amount of oracle work. Ends with a table, and a plot of the exact
    objective against work.
    """
    show_demo(work=work, seed=seed, output=output)


@app.command()
def rates(
    quick: Annotated[
        bool, typer.Option(help="Shorter horizons and 16 seeds: about 3 minutes on 2 cores.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(help="A question by its key, such as norm-4; may be given several times."),
    ] = None,
    output: Annotated[
        Path, typer.Option(help="Where results and figures are written; the same place resumes.")
    ] = Path("runs/rates"),
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes, one thread each (default: all cores).")
    ] = None,
) -> None:
    """Measure the rate of every theorem on problems with known gradients, beside what it claims.

    Fits an exponent with an interval for each, shows which appear, and keeps every run: an
    interrupted measurement goes on with the same command.
    """
    show_rates(quick=quick, only=only or [], output=output, workers=workers)


@app.command()
def study(
    name: Annotated[str, typer.Argument(help="gamma, stability, network, batches or rivals.")],
    data_dir: Annotated[
        Path | None,
        typer.Option(
            envvar="FCCO_DATA", help="Where the data sets are (batches and rivals read them)."
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option(help="Where results are written; the same place resumes.")
    ] = Path("runs/studies"),
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes, one thread each (default: all cores).")
    ] = None,
) -> None:
    """What the theorems leave open, measured.

    gamma: the tracking error of each correction over step sizes, m/B1, alpha and beta.
    stability: where versions 2 and 3 hold on the synthetic family, bare and with ChangeBound.
    network: the same for a small network on digits. A star marks a run that did not get anywhere.
    batches: what the table is for: quality as the inner batch shrinks, with it and without it.
    rivals: each objective on real data, untuned, beside what one would pick instead.
    """
    show_study(name, output=output, workers=workers, data_dir=data_dir)
