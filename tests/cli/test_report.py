"""What is on the page that ``fcco report`` writes, read without a browser."""

import json
import math
import re

import pytest
from cli.report_page import Page
from cli.report_runs import run

from fcco.cli.report import show_report
from fcco.experiments.report import write_report


def page(tmp_path, records, title="A title"):
    write_report(records, tmp_path / "page.html", title=title)
    return (tmp_path / "page.html").read_text()


def test_table_has_means_deviations_and_the_best_in_bold(tmp_path):
    records = [
        run(seed=0, values=(1.0, 0.2)),
        run(seed=1, values=(1.0, 0.4)),
        run(method="msvrm-v2", update="adam", values=(1.0, 0.1), cost=3),
        run(method="msvrm-v3", values=(1.0, 0.01), seed=0),
        run(method="msvrm-v3", values=(1.0, 9.0), seed=1, status="diverged"),
        run(method="msvrm-v1", update="normalized", values=(1.0, 0.7), status="diverged"),
    ]
    found = Page(page(tmp_path, records))
    rows = found.rows(0)
    assert list(rows) == ["SOX", "AdaMSVRM-v1", "MSVRM-v2 Adam", "MSVRM-v3"]
    # runs, objective, AUC, AP, steps, queries, seconds, diverged: sd of 0.2 and 0.4 is 0.1 √2
    assert rows["SOX"] == [
        *("2", "0.3000 ± 0.1414", "0.8500 ± 0.0707", "0.7300 ± 0.1273"),
        *("10", "1,920", "1.0", "0"),
    ]
    assert rows["MSVRM-v2 Adam"][:6] == ["1", "0.1000", "0.9500", "0.9100", "10", "2,560"]
    assert rows["MSVRM-v3"][1] == "0.0100"
    assert rows["MSVRM-v3"][-1] == "1"
    assert rows["AdaMSVRM-v1"] == ["1", *["\u2013"] * 6, "1"]
    # MSVRM-v3 has a lower objective, but over the seed that survived.
    assert found.bold == ["1,920", "1.0", "0.1000", "0.9500", "0.9100"]  # of SOX, then of v2


def test_settings_are_told_only_where_they_differ(tmp_path):
    records = [
        *(run(update="adam", blocks_per_step=b, gamma=0.5) for b in (10, 2)),
        run(method="bsgd", blocks_per_step=2),
    ]
    found = Page(page(tmp_path, records))
    assert list(found.rows(0)) == ["SOX Adam, B1=2", "SOX Adam, B1=10", "BSGD"]
    looks = {s["name"]: (*s["colour"], s["dash"], s["mark"]) for s in found.figures[0]["series"]}
    assert len(set(looks.values())) == 3
    assert looks["SOX Adam, B1=2"][:3] == looks["SOX Adam, B1=10"][:3]


def test_runs_on_their_way_count_until_one_is_finished(tmp_path):
    running = [run(seed=s, values=(1.0, 0.5 + s / 10), status="running") for s in (0, 1)]
    rows = Page(page(tmp_path, running)).rows(0)
    assert rows["SOX 2 running"][1] == "0.5500 ± 0.0707"
    rows = Page(page(tmp_path, [*running, run(seed=2)])).rows(0)
    assert rows["SOX 2 running"][:2] == ["3", "0.2500"]


def test_text_of_records_is_escaped(tmp_path):
    evil = "</script><img src=x onerror=alert(1)>&\"'"
    records = [
        run(evil, "sox", evil, name=evil, status="diverged", reason=evil, note=evil),
        run(evil, evil, note="other"),
    ]
    text = page(tmp_path, records, title=evil)
    assert "<img" not in text.split('id="figures"')[0]
    found = Page(text)
    assert not [tag for tag, _ in found.tags if tag == "img"]
    assert found.tables[-1][1][0] == found.tables[-1][1][2] == evil
    assert found.figures[0]["series"][0]["name"].startswith(evil)


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_missing_numbers_are_dashes(tmp_path, value):
    broken = run() | {"objective": value, "auc": value, "ap": value, "curve": run()["curve"][:1]}
    broken["curve"] = [broken["curve"][0] | {"objective": value, "auc": value, "ap": value}]
    empty = run(method="bsgd", status="diverged") | {"curve": []}
    found = Page(page(tmp_path, [broken, empty]))
    assert found.rows(0)["SOX"][1:4] == ["\u2013"] * 3
    assert found.figures[0]["series"] == []


def test_it_is_whole_or_not_there(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="no runs"):
        write_report([], tmp_path / "page.html", title="")
    page(tmp_path, [run()], title="before")

    def full(*arguments):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="disk full"):
        page(tmp_path, [run()], title="after")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    assert "<title>before</title>" in (tmp_path / "page.html").read_text()


def test_command_says_what_went_in(tmp_path, capsys):
    records = [run(), run(seed=1), run("mnist", "msvrm-v2")]
    (tmp_path / "runs.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    show_report([tmp_path], output=tmp_path, title=None)
    out = capsys.readouterr().out
    assert "3 runs of 2 contenders on usps, mnist went in" in out
    assert f"the page is {tmp_path / 'report.html'}" in out
    assert "<title>Runs on usps, mnist</title>" in (tmp_path / "report.html").read_text()
    (tmp_path / "none").mkdir()
    for path, words in ((tmp_path / "none", "no runs"), (tmp_path / "gone", "does not exist")):
        with pytest.raises(SystemExit, match=f"fcco: .*{re.escape(words)}"):
            show_report([path], output=tmp_path / "other.html", title="x")
    assert not (tmp_path / "other.html").exists()
