"""Figures and tables of runs against what hand calculations say of small records."""

import math
import statistics

import numpy as np
import pytest

from fcco.methods import REGISTRY
from fcco_lab.entries import BASELINES
from fcco_lab.presentation.curves import final, mean_curve, shared_end
from fcco_lab.presentation.figures import plot_axes, plot_panels, plot_profiles
from fcco_lab.presentation.methods import contender_name, label_and_colour
from fcco_lab.presentation.naming import grouped, in_order
from fcco_lab.presentation.profiles import profile
from fcco_lab.presentation.styles import styles
from fcco_lab.presentation.tables import markdown_table, rich_rows


def run(
    points,
    *,
    method="sox",
    update="plain",
    data="usps",
    seed=0,
    status="finished",
    cost=1,
    key="auc",
):
    """A record whose curve has ``key`` = y at samples = x; a sample is ``cost`` values and as many
    gradients, and a second is four queries."""
    curve = [
        {"samples": x, "values": cost * x, "gradients": cost * x, "seconds": cost * x / 2, key: y}
        for x, y in points
    ]
    config = {"method": method, "update": update, "data": data, "seed": seed, "blocks_per_step": 5}
    name = f"{data} {method} {update} seed={seed} {cost}"
    end = points[-1][1]
    return {"name": name, "config": config, "status": status, "curve": curve, key: end}


def ends(values, **options):
    """One run a seed that ends at the value; None diverges."""
    return [
        run(
            [(0, 0.5), (10, math.nan if value is None else value)],
            seed=seed,
            status="diverged" if value is None else "finished",
            **options,
        )
        for seed, value in enumerate(values)
    ]


def test_mean_curve_interpolates_over_the_range_that_seeds_share():
    records = [run([(0, 1.0), (10, 0.0)], seed=0), run([(0, 1.0), (4, 0.6), (8, 0.0)], seed=1)]
    grid, mean, sd = mean_curve(records, "samples", "auc")
    np.testing.assert_allclose(grid, [0, 4, 8])
    first, second = [1.0, 0.6, 0.2], [1.0, 0.6, 0.0]
    np.testing.assert_allclose(mean, np.mean([first, second], axis=0))
    expected = [statistics.stdev(pair) for pair in zip(first, second, strict=True)]
    np.testing.assert_allclose(sd, expected, atol=1e-15)


@pytest.mark.parametrize(("x", "end"), [("samples", 8), ("queries", 48), ("seconds", 12)])
def test_each_axis_counts_its_own(x, end):
    grid, _, sd = mean_curve([run([(0, 0.5), (8, 0.9)], cost=3)], x, "auc")
    assert (grid[0], grid[-1], len(grid)) == (0, end, 2)
    assert not sd.any()  # one seed has no deviation


def test_mean_curve_leaves_out_diverged_and_unfinished_runs():
    done = run([(0, 0.5), (10, 0.9)], seed=0)
    others = [
        run([(0, 0.5), (2, 0.1)], seed=s, status=t) for s, t in ((1, "diverged"), (2, "running"))
    ]
    grid, mean, _ = mean_curve([done, *others], "samples", "auc")
    assert (grid[-1], mean[-1]) == (10, 0.9)
    grid, mean, _ = mean_curve(others, "samples", "auc")
    assert (grid[-1], mean[-1]) == (2, 0.1)  # as long as none is finished, those under way
    assert all(len(part) == 0 for part in mean_curve(others[:1], "samples", "auc"))


def test_final_counts_what_it_leaves_out():
    found = final([*ends([0.8, 0.9, None]), run([(0, 0.1)], seed=3, status="running")], "auc")
    assert found == pytest.approx((0.85, statistics.stdev([0.8, 0.9]), 2, 1))
    lost = final(ends([None, None]), "auc")
    assert math.isnan(lost.mean)
    assert lost[2:] == (0, 2)
    assert final([run([(0, math.inf)])], "auc").diverged == 1  # finished, but with nothing to show


def test_runs_that_are_not_seeds_of_one_setting_are_not_averaged(tmp_path):
    pair = [run([(0, 0.5)], cost=1), run([(0, 0.5)], cost=2)]
    path = tmp_path / "a.png"
    for read in (lambda: final(pair, "auc"), lambda: plot_axes(pair, path, y="auc", title="")):
        with pytest.raises(ValueError, match=r"usps sox plain seed=0 1.*same seed"):
            read()


def test_a_curve_that_goes_back_and_an_unknown_axis_are_refused():
    with pytest.raises(ValueError, match=r"samples must not go down.*usps sox"):
        mean_curve([run([(5, 0.5), (4, 0.6)])], "samples", "auc")
    with pytest.raises(ValueError, match="x must be one of samples, queries, seconds, got 'step'"):
        mean_curve([run([(0, 0.5)])], "step", "auc")


def equal_records():
    """SOX ends at 20 queries with 1 a sample and v2 at 60 with 3, both after 10 samples."""
    sox = [run([(0, 0.5), (10, end)], seed=s) for s, end in enumerate((0.7, 0.8))]
    better = [run([(0, 0.5), (10, 0.95)], method="msvrm-v2", cost=3, seed=s) for s in (0, 1)]
    return sox + better + ends([None], method="msvrm-v3")


def test_equal_cost_is_what_the_first_to_stop_spent():
    records = equal_records()
    reached = {x: shared_end(records, x, "auc") for x in ("samples", "queries", "seconds")}
    assert reached == {"samples": 10, "queries": 20, "seconds": 5}
    v2, v3, sox = grouped(records, lambda record: record["config"]["method"]).values()
    assert final(v2, "auc", at=("samples", 10)).mean == pytest.approx(0.95)
    at = ("queries", 20)
    assert final(sox, "auc", at=at) == pytest.approx((0.75, statistics.stdev([0.7, 0.8]), 2, 0))
    # v2 is a third of its way from 0.5 to 0.95.
    assert final(v2, "auc", at=at) == pytest.approx((0.65, 0.0, 2, 0))
    assert final(v3, "auc", at=at)[2:] == (0, 1)


def test_table_orders_rows_and_columns_and_marks_the_best():
    records = [
        *ends([0.9912, 0.9920], method="msvrm-v1", data="mnist"),
        *ends([0.99, 0.98], data="mnist"),
        *ends([0.99], method="cross-entropy", update="adam", data="usps"),
        *ends([0.999, None], method="msvrm-v1", update="normalized", data="usps"),
        *ends([None], data="usps"),
    ]
    assert markdown_table(records).splitlines() == [
        "| | usps | mnist |",
        "|---|---|---|",
        "| cross-entropy | **.9900** | |",
        "| SOX | diverged † | .9850 ± .0071 |",
        "| MSVRM-v1 | | **.9916 ± .0006** |",
        "| AdaMSVRM-v1 | .9990 † | |",
        "",
        "† diverged, and left out of the mean: SOX on usps 1 of 1, AdaMSVRM-v1 on usps 1 of 2.",
    ]
    table = rich_rows(records)
    assert table.headings == ["contender", "usps", "mnist"]
    assert table.rows[2] == ["MSVRM-v1", "", "[bold].9916 ± .0006[/bold]"]


def test_the_least_objective_is_best_and_what_is_written_alike_is_best_alike():
    values = {"sox": 0.0301, "msvrm-v1": 0.00500, "msvrm-v2": 0.0050001, "msvrm-v3": 123.0}
    records = [r for m, v in values.items() for r in ends([v], method=m, key="objective")]
    cells = [row[1] for row in rich_rows(records, "objective").rows]
    assert cells == ["0.0301", "[bold]0.00500[/bold]", "[bold]0.00500[/bold]", "123"]


def test_table_at_equal_cost():
    text = markdown_table(equal_records(), equal="queries")
    assert "| usps, at 20 queries |" in text
    assert "| SOX | **.7500 ± .0707** |" in text
    assert "| MSVRM-v2 | .6500 ± .0000 |" in text


def test_order_of_contenders():
    names = ["Variant-v1", "SOX Adam", "zeta", "MSVRM-v2", "MSVRM-v1 Adam", "AdaSOX", "BSGD"]
    names += ["AdaMSVRM-v1", "min-max", "MSVRM-v1", "SOX", "cross-entropy"]
    expected = "cross-entropy,min-max,SOX,AdaSOX,SOX Adam,BSGD,MSVRM-v1,AdaMSVRM-v1,MSVRM-v1 Adam,"
    assert in_order(names) == (expected + "MSVRM-v2,Variant-v1,zeta").split(",")


def test_colour_is_the_method_and_dash_the_step_rule():
    few, many = styles(["SOX Adam"]), styles(["SOX", "SOX Adam", "MSVRM-v1 Adam", "5 blocks"])
    for key in ("color", "ls"):  # whoever else is in the figure
        assert few["SOX Adam"][key] == many["SOX Adam"][key]
    assert many["SOX"]["color"] == many["SOX Adam"]["color"] != many["MSVRM-v1 Adam"]["color"]
    assert many["SOX"]["ls"] != many["SOX Adam"]["ls"] == many["MSVRM-v1 Adam"]["ls"]
    settings = styles(["SOX, B1=2", "SOX, B1=5"])
    assert len({style["marker"] for style in settings.values()}) == 2
    assert {style["color"] for style in settings.values()} == {many["SOX"]["color"]}


def test_lines_can_be_told_apart_in_grey():
    rules = ("plain", "adam", "normalized")
    methods = ["sox", "bsgd", "soap", "msvrm-v1", "msvrm-v2", "msvrm-v3"]
    labels = [contender_name({"method": m, "update": rule}) for m in methods for rule in rules]
    labels += ["cross-entropy", "mine"]
    found = styles(labels)
    assert len({(style["ls"], style["marker"]) for style in found.values()}) == len(labels) == 20


def falling(method, seed, *, data="usps", status="finished"):
    points = [(x, 2.0 ** -(x + seed)) for x in range(8)]
    return run(points, method=method, seed=seed, data=data, status=status, key="objective")


@pytest.mark.sweep(3)
@pytest.mark.parametrize("share_y", [False, True])
@pytest.mark.parametrize("y", ["objective", "auc"])
def test_figures_are_written(tmp_path, y, share_y):
    from matplotlib import image

    records = [falling(m, s, data=d) for m in ("sox", "bsgd") for s in (0, 1) for d in "abcde"]
    records += [falling("msvrm-v1", 0, data="e", status="diverged")]
    records += [falling("soap", 0, data="f", status="diverged")]  # a panel without a line
    for record in records:
        for look in record["curve"]:
            look["auc"] = 1 - look["objective"] / 4
    by_data = grouped(records, lambda record: record["config"]["data"])
    panels = [(data, runs, "samples") for data, runs in by_data.items()]
    paths = [tmp_path / "new" / f"{name}.png" for name in ("panels", "axes", "profiles")]
    plot_panels(panels, paths[0], y=y, title="panels", share_y=share_y)
    plot_axes(by_data["e"], paths[1], y=y, title="axes")
    solved = profile({"SOX": {"a": 1.0, "b": 2.0}, "BSGD": {"a": 3.0, "b": math.inf}})
    plot_profiles(solved, paths[2], title="profiles")
    for path in paths:
        assert path.stat().st_size < 200_000
        pixels = image.imread(path)
        assert pixels.shape[1] == 902
        assert pixels[..., :3].std() > 0.03  # something is drawn


def test_a_figure_tells_what_diverged_and_draws_the_rest(tmp_path, monkeypatch):
    from fcco_lab.presentation import figures

    drawn = []
    monkeypatch.setattr(figures, "save", lambda figure, axes, *_, **__: drawn.extend(axes))
    records = [falling("sox", 0), falling("sox", 1), falling("sox", 2, status="diverged")]
    records += [falling("msvrm-v2", 0, status="diverged")]
    plot_panels([("usps", records, "queries")], tmp_path / "a.png", title="t")
    (place,) = drawn
    assert [line.get_label() for line in place.lines] == ["SOX"]
    assert place.texts[0].get_text() == "diverged:\nSOX 1 of 3\nMSVRM-v2 1 of 1"
    (line,) = place.lines
    assert line.get_xdata()[-1] == 14  # values and gradients of seven samples
    assert line.get_ydata()[-1] == pytest.approx(1.5 * 2.0**-8)
    assert place.get_yscale() == "log"
    assert 0 < place.get_ylim()[0] < 1.5 * 2.0**-8


def test_lines_can_be_seen_and_methods_told_apart():
    """WCAG asks for 3 : 1 of graphics, here on white."""

    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    colours = [label_and_colour(method)[1] for method in (*BASELINES, *REGISTRY)]
    for colour in colours:
        assert 1.05 / (luminance(colour) + 0.05) >= 3, colour
    assert len(set(colours)) == len(colours)
