"""Figures and Markdown tables of ``batch_one.py`` and ``loss_cost.py``, from their records.

    python benchmarks/batch_figures.py docs/results/losses

One figure and one table for each problem, and one of each for the costs, in that directory.
"""

import json
import statistics
import sys
from pathlib import Path

import matplotlib
from batch_one import best_rate, own
from tables import markdown

matplotlib.use("Agg")
from matplotlib import pyplot as plt

TUNING_SEED = 100
METRICS = {"cox": "C-index", "deep": "C-index", "bags": "C-index", "ap": "AP", "auc": "AUC"}


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def mean(values):
    return statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def cells(records, problem, rule):
    """{(method, batch): the records of its seeds}; the start and the optimum have no batch.

    Of two step sizes the one counts that is best by ``rule``, "objective" or "valid".
    """
    found, tried = {}, {}
    for record in records:
        if record["problem"] == problem:
            which = tried if record.get("seed") == TUNING_SEED else found
            which.setdefault((record["method"], record.get("batch")), []).append(record)
    for key, runs in found.items():
        if len({r.get("lr") for r in runs}) > 1:
            best = best_rate(tried[key], rule)
            found[key] = [r for r in runs if r["lr"] == best]
    return found


def lowest(found):
    """The optimum, or 0 where it is not known."""
    return found.get(("optimum", None), [{"objective": 0.0}])[0]["objective"]


def table(records, problem):
    found, ranked = cells(records, problem, "objective"), cells(records, problem, "valid")
    base, rows = lowest(found), []
    for method in dict.fromkeys(method for method, batch in found if batch is not None):
        for batch in sorted(batch for name, batch in found if name == method):
            fits, tests = found[method, batch], ranked[method, batch]
            fit, spread = mean([r["objective"] - base for r in fits])
            test, apart = mean([r["test"] for r in tests])
            shown = f"{fit:.1e} ± {spread:.0e}" if base else f"{fit:.4f} ± {spread:.4f}"
            rates = dict.fromkeys(f"{runs[0]['lr']:.2g}" for runs in (fits, tests))
            row = (method, batch, ", ".join(rates), shown if own(method) else "–")  # noqa: RUF001
            rows.append((*row, f"{test:.4f} ± {apart:.4f}", len(tests)))
    first = "objective above the optimum" if base else "objective"
    return markdown(("method", "B", "step size", first, f"test {metric(problem)}", "seeds"), rows)


def metric(problem):
    return METRICS.get(problem.split()[0], "NDCG@10")


def figure(records, problem, folder):
    found, ranked = cells(records, problem, "objective"), cells(records, problem, "valid")
    methods = dict.fromkeys(method for method, batch in found if batch is not None)
    if not methods:
        return
    base = lowest(found)
    drawing, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for colour, method in enumerate(methods):
        sizes = sorted(batch for name, batch in found if name == method)
        panels = (left, found, "objective", base), (right, ranked, "test", 0.0)
        for axes, runs, key, lower in panels:
            if key == "objective" and not own(method):
                continue
            points = [mean([r[key] - lower for r in runs[method, size]]) for size in sizes]
            middle, spread = zip(*points, strict=True)
            bold = {"lw": 2.5, "zorder": 5} if method == "table" else {"lw": 1.2}
            style = {"marker": "o", "capsize": 3, "color": f"C{colour}", "label": method}
            axes.errorbar(sizes, middle, spread, **style, **bold)
    sizes = sorted({batch for _, batch in found if batch is not None})
    for axes in (left, right):
        axes.set(xscale="log", xlabel="batch size")
        axes.set_xticks(sizes, [str(size) for size in sizes], minor=False)
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    left.set_ylabel("training objective above the optimum" if base else "training objective")
    if base:
        left.set_yscale("log")
    right.set_ylabel(f"test {metric(problem)}")
    right.legend(fontsize="small")
    drawing.suptitle(problem)
    drawing.savefig(folder / f"{problem.replace(' ', '-')}.png", dpi=90)
    plt.close(drawing)


def cost_table(records, batch, value):
    """Losses down, N across."""
    mine = [r for r in records if r["batch"] == batch]
    sizes = sorted({r["N"] for r in mine})
    rows = []
    for loss in dict.fromkeys(r["loss"] for r in mine):
        by_size = {r["N"]: value(r) for r in mine if r["loss"] == loss}
        rows.append((loss, *(by_size.get(size, "–") for size in sizes)))  # noqa: RUF001
    return markdown((f"B = {batch}", *(f"N = {size:.0e}" for size in sizes)), rows)


def cost_figure(records, folder):
    batches = sorted({r["batch"] for r in records})
    drawing, panels = plt.subplots(
        1, len(batches), figsize=(10, 3.6), sharey=True, layout="constrained"
    )
    for axes, batch in zip(panels, batches, strict=True):
        mine = [r for r in records if r["batch"] == batch]
        for k, loss in enumerate(dict.fromkeys(r["loss"] for r in records)):
            points = sorted((r["N"], r["ms"]) for r in mine if r["loss"] == loss)
            if points:
                line = {
                    "ls": "--" if loss == "BCE" or "torchsurv" in loss or "Lib" in loss else "-"
                }
                axes.plot(
                    *zip(*points, strict=True),
                    **line,
                    marker=".",
                    color=f"C{k - 1}" if k else "k",
                    label=loss,
                )
        axes.set(xscale="log", yscale="log", xlabel="training samples N", title=f"B = {batch}")
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("ms per step")
    drawing.legend(*panels[-1].get_legend_handles_labels(), loc="outside right", fontsize="small")
    drawing.savefig(folder / "cost.png", dpi=90)
    plt.close(drawing)


def memory_table(records):
    """At the largest N that each loss was measured at."""
    rows = {r["loss"]: (r["loss"], r["saved"], r["bytes"]) for r in records if "bytes" in r}
    return markdown(("loss", "saved, bytes per sample", "all, bytes per sample"), rows.values())


def main():
    folder = Path(sys.argv[1])
    records = read(folder / "batch_one.jsonl")
    for problem in dict.fromkeys(r["problem"] for r in records):
        figure(records, problem, folder)
        slug = problem.replace(" ", "-")
        (folder / f"{slug}.md").write_text(table(records, problem) + "\n")
    costs = read(folder / "cost.jsonl")
    cost_figure(costs, folder)
    parts = [
        cost_table(costs, batch, lambda r: f"{r['ms']:.1f} ({r['ratio']['median']:.1f})")
        for batch in sorted({r["batch"] for r in costs})
    ]
    (folder / "cost.md").write_text("\n\n".join(parts) + "\n")
    (folder / "memory.md").write_text(memory_table(costs) + "\n")


if __name__ == "__main__":
    main()
