"""The curves, profiles and colours that the report draws."""

import math

import pytest
from cli.report_page import Page
from cli.report_runs import run

from fcco.methods import REGISTRY
from fcco_lab.entries import BASELINES
from fcco_lab.presentation.curves import mean_curve
from fcco_lab.presentation.methods import style_of
from fcco_lab.report import write_report
from fcco_lab.report.plots import DASHES, MARKS


def test_mean_curve_is_over_the_shared_range():
    short = run(values=(1.0, 0.6))
    long = run(seed=1, values=(0.8, 0.4, 0.2))
    grid, mean, sd = mean_curve([short, long], "samples", "objective")
    assert grid.tolist() == [0.0, 640.0]
    assert mean == pytest.approx([0.9, 0.5])
    assert sd == pytest.approx([0.1 * math.sqrt(2)] * 2)
    fast = run(seed=2, values=(1.0, 0.0), cost=4)  # evaluated at 0 and 2 seconds; long: 0, 1, 2
    grid, mean, _ = mean_curve([fast, long], "seconds", "objective")
    assert grid.tolist() == [0.0, 1.0, 2.0]
    assert mean == pytest.approx([0.9, (0.5 + 0.4) / 2, 0.1])
    grid, _, sd = mean_curve([long], "queries", "auc")
    assert grid.tolist() == [0.0, 1920.0, 3840.0]
    assert not sd.any()


def test_profiles_need_two_data_sets_and_two_shared_contenders(tmp_path):
    usps = [run(), run(method="msvrm-v1", values=(1.0, 0.3, 0.2), cost=4)]
    mnist = [run("mnist"), run("mnist", "msvrm-v1", values=(1.0, 0.9, 0.8)), run("mnist", "soap")]
    path = tmp_path / "page.html"
    write_report([*usps, *mnist[:1]], path, title="one shared")
    kinds = [figure["kind"] for figure in Page(path.read_text()).figures]
    assert kinds == ["curves", "curves"]
    write_report([*usps, *mnist], path, title="two shared")
    text = path.read_text()
    *_, profiles = Page(text).figures
    assert "(not on every data set): SOAP." in text
    # usps: target 0.25, SOX 1920 * 2 queries, v1 0.2 at 3200 * 2; mnist: target 0.8, SOX 1920 at
    # its first look, v1 3840.
    curves = {s["name"]: s["curves"]["queries"]["objective"] for s in profiles["series"]}
    taus = [1.0, pytest.approx(5 / 3, abs=1e-5), 2.0, 10.0]
    assert curves["SOX"] == {"x": taus, "mean": [1.0] * 4, "sd": []}
    assert curves["MSVRM-v1"] == {"x": taus, "mean": [0.0, 0.5, 1.0, 1.0], "sd": []}


@pytest.mark.parametrize(("ground", "which"), [("#ffffff", 0), ("#12151a", 1)])
def test_lines_can_be_seen_on_both_grounds(ground, which):
    """WCAG asks for 3 : 1 of graphics."""

    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    colours = [style_of(method)[1 + which] for method in (*BASELINES, *REGISTRY)]
    for colour in colours:
        low, high = sorted((luminance(colour), luminance(ground)))
        assert (high + 0.05) / (low + 0.05) >= 3, colour
    assert len(set(colours)) == len(colours)


def test_forty_lines_can_be_told_apart_without_colours():
    pairs = {(DASHES[k % len(DASHES)], MARKS[k % len(MARKS)]) for k in range(40)}
    assert len(pairs) == 40
