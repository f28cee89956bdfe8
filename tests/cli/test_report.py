"""What is on the page that ``fcco report`` writes, read without a browser."""

import json
import math
import re
import tempfile
import warnings
from pathlib import Path

import pytest
from cli.command import call
from cli.report_page import Page
from cli.report_runs import run
from hypothesis import given, settings
from hypothesis import strategies as st

from fcco_lab.cli.report import report
from fcco_lab.report import write_report
from fcco_lab.runs import read_runs


@pytest.fixture
def undrawn(monkeypatch):
    """Without pictures, which take most of the time."""
    monkeypatch.setattr("fcco_lab.report.page._draw", lambda pictures: "")


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
    assert rows["SOX"] == {  # the deviation of 0.2 and 0.4 is 0.1 √2
        "exact training objective": "0.300 ± 0.1",
        "test AUC": ".8500 ± .0707",
        "test AP": ".7300 ± .1273",
        **{"steps": "10", "queries": "1.92k", "CPU seconds": "1"},
        **{"finished": "2", "diverged": ""},
    }
    assert list(rows["MSVRM-v2 Adam"].values())[:4] == ["0.100", ".9500", ".9100", "10"]
    assert rows["MSVRM-v3"]["exact training objective"] == "0.0100 †"
    assert rows["MSVRM-v3"]["diverged"] == "1"
    assert set(list(rows["AdaMSVRM-v1"].values())[:6]) == {"diverged †"}
    # MSVRM-v3 has a lower objective, but over the seed that survived.
    assert found.bold == ["0.100", ".9500", ".9100"]  # of v2; steps and cost are not judged
    assert list(found.pictures) == ["exact training objective", "test AUC", "test AP"]
    assert {picture.width for picture in found.pictures.values()} == {902}


def test_settings_are_told_only_where_they_differ(tmp_path, monkeypatch):
    lines = []
    save = "fcco_lab.presentation.figures.save"
    monkeypatch.setattr(save, lambda figure, axes, path, **_: lines.append(axes[0].lines))
    records = [
        *(run(update="adam", blocks_per_step=b, gamma=0.5) for b in (10, 2)),
        run(method="bsgd", blocks_per_step=2),
    ]
    found = Page(page(tmp_path, records))
    assert list(found.rows(0)) == ["SOX Adam, B1=2", "SOX Adam, B1=10", "BSGD"]
    two, ten, other = lines[0]
    assert [line.get_label() for line in lines[0]] == list(found.rows(0))
    assert two.get_color() == ten.get_color() != other.get_color(), "the method's colour"
    assert two.get_marker() != ten.get_marker(), "told apart without colours"


@pytest.mark.usefixtures("undrawn")
def test_runs_that_share_a_seed_are_not_averaged(tmp_path):
    twice = [run(name="a", values=(1.0, 0.2)), run(name="b", values=(1.0, 0.4))]
    rows = Page(page(tmp_path, twice)).rows(0)
    objectives = {label: row["exact training objective"] for label, row in rows.items()}
    assert objectives == {"SOX": "0.200", "SOX, b": "0.400"}


@pytest.mark.usefixtures("undrawn")
def test_runs_on_their_way_count_until_one_is_finished(tmp_path):
    running = [run(seed=s, values=(1.0, 0.5 + s / 10), status="running") for s in (0, 1)]
    rows = Page(page(tmp_path, running)).rows(0)
    assert (rows["SOX"]["test AUC"], rows["SOX"]["running"]) == (".7250 ± .0354", "2")
    rows = Page(page(tmp_path, [*running, run(seed=2)])).rows(0)
    assert (rows["SOX"]["exact training objective"], rows["SOX"]["finished"]) == ("0.250", "1")


def test_text_of_records_is_escaped(tmp_path):
    evil = "</script><img src=x onerror=alert(1)>&\"'$"
    records = [
        run(evil, "sox", evil, name=evil, status="diverged", reason=evil, note=evil),
        run(evil, evil, note="other"),
    ]
    text = page(tmp_path, records, title=evil)
    assert "<img src=x" not in text
    found = Page(text)
    assert found.tables[-1][1][0] == found.tables[-1][1][2] == evil
    assert next(iter(found.rows(0))).startswith("SOX")


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_missing_numbers_leave_a_cell_without_a_number(tmp_path, value):
    broken = run() | {"objective": value, "auc": value, "ap": value, "curve": run()["curve"][:1]}
    broken["curve"] = [broken["curve"][0] | {"objective": value, "auc": value, "ap": value}]
    empty = run(method="bsgd", status="diverged") | {"curve": []}
    good = run(method="soap")
    rows = Page(page(tmp_path, [broken, empty, good])).rows(0)
    word = "" if value is None else "diverged †"
    assert [rows["SOX"][key] for key in ("exact training objective", "test AUC")] == [word] * 2
    assert Page(page(tmp_path, [broken, empty])).pictures == {}


@pytest.mark.usefixtures("undrawn")
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


def without(record, key, place=None):
    """The record with one key less, of itself or of a point of its curve."""
    record = json.loads(json.dumps(record))
    (record if place is None else record["curve"][place]).pop(key)
    return record


FLAWS = {
    "cut short": ('{"name": "a", ', "it cannot be read"),
    "not text": (b"\xff\xfe\x00", "it cannot be read"),
    "no record": ([], "it is none"),
    **{key: (without(run(), key), f"it has no {key}") for key in ("name", "config", "status")},
    "no curve": (without(run(), "curve"), "it has no curve"),
    "no samples": (
        without(run(name="r"), "samples", 1),
        "evaluation 1 of 'r' has None for samples",
    ),
    "no seconds": (
        without(run(name="r"), "seconds", 2),
        "evaluation 2 of 'r' has None for seconds",
    ),
    "going back": (run(name="r", cost=-1), "evaluation 1 of 'r' has -640 for values"),
    "no look": (run(name="r") | {"curve": [3]}, "evaluation 0 of 'r' has None for step"),
    "a word": (run(name="r") | {"auc": "high"}, "'r' has 'high' for auc"),
    "no method": (run(name="r", method=None), "the config of 'r' has no method"),
    "status": (run(name="r", status="asleep"), "the status of 'r' is 'asleep'"),
    "seeds": (run(name="r", seed=[1]), "the config of 'r' has [1] for seed"),
    "sizes": (run(name="r") | {"num_blocks": [1]}, "'r' has [1] for num_blocks"),
    "beyond floats": (run(name="r") | {"objective": 10**400}, "'r' has 1000"),
    "beyond floats in a curve": (
        run(name="r") | {"curve": [run()["curve"][0] | {"values": 10**400}]},
        "evaluation 0 of 'r' has 1000",
    ),
    "nested": ("[" * 100000 + "]" * 100000, "it cannot be read"),
    "surrogate": (json.dumps(run(name="\ud800")), "it has text that is not Unicode"),
}


@pytest.mark.usefixtures("undrawn")
@pytest.mark.filterwarnings("always:left out")  # the command prints it
@pytest.mark.parametrize("flaw", FLAWS)
def test_a_broken_record_is_named_and_the_others_are_shown(tmp_path, capsys, flaw):
    content, why = FLAWS[flaw]
    content = content if isinstance(content, str | bytes) else json.dumps(content)
    content = content.encode() if isinstance(content, str) else content
    for name in ("good", "bad"):
        (tmp_path / name).mkdir()
    (tmp_path / "bad" / "record.json").write_bytes(content)
    (tmp_path / "good" / "record.json").write_text(json.dumps(run(name="one that is whole")))
    done = call(capsys, "report", tmp_path, "--output", tmp_path / "page.html")
    (line,) = done.err.splitlines()
    assert line.startswith("fcco: warning: left out ")
    assert f"{tmp_path / 'bad' / 'record.json'}: {why}" in line
    assert done.code == 0
    assert done.out.startswith("1 runs of 1 contenders on usps are in ")
    assert "one that is whole" in (tmp_path / "page.html").read_text()
    alone = call(capsys, "report", tmp_path / "bad", "--output", tmp_path / "other.html")
    assert (alone.code, alone.err.splitlines()[1]) == (1, "fcco: there are no runs to report on")
    assert not (tmp_path / "other.html").exists()


ODD = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.just(10**400),
        st.floats(),
        st.text(st.characters(exclude_categories=())),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.text(), inner, max_size=2)
    ),
    max_leaves=4,
)
KEYS = ["name", "config", "status", "reason", "curve", "objective", "auc", "num_blocks", "content"]
IN_CONFIG = ["data", "method", "update", "seed", "lr", "blocks_per_step", "note"]
IN_CURVE = ["step", "samples", "values", "gradients", "seconds", "objective", "ap"]


CHANGES = st.one_of(
    st.tuples(st.just(None), st.sampled_from(KEYS), ODD),
    st.tuples(st.just("config"), st.sampled_from(IN_CONFIG), ODD),
    st.tuples(st.just("curve"), st.sampled_from(IN_CURVE), ODD),
)


@pytest.mark.parametrize("count", [3, pytest.param(50, marks=pytest.mark.slow)])
def test_whatever_a_record_holds_the_others_are_shown(count):
    settings(max_examples=count, deadline=None)(given(CHANGES)(show_beside_a_good_record))()


def show_beside_a_good_record(change):
    part, key, value = change
    odd = json.loads(json.dumps(run(name="odd")))
    place = {None: odd, "config": odd["config"], "curve": odd["curve"][1]}[part]
    place[key] = value
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file = Path(folder) / "record.json"
        file.write_text(json.dumps(odd))
        (Path(folder) / "good").mkdir()
        (Path(folder) / "good" / "record.json").write_text(json.dumps(run(name="whole", seed=1)))
        records = read_runs([Path(folder)])
        write_report(records, Path(folder) / "page.html", title="t")
        assert "whole" in (Path(folder) / "page.html").read_text()


def test_a_broken_line_costs_no_other(tmp_path):
    file = tmp_path / "runs.jsonl"
    records = [run(name="a"), without(run(name="b"), "status"), run(name="c")]
    file.write_text("".join(json.dumps(r) + "\n" for r in records))
    with pytest.warns(UserWarning, match=r"a record of .*runs\.jsonl: it has no status") as caught:
        assert [record["name"] for record in read_runs([tmp_path])] == ["a", "c"]
    assert [warning.filename for warning in caught] == [__file__]
    lines = [json.dumps(run(name="a")), '{"name": "b", "curve"', "[1]", json.dumps(run(name="c"))]
    file.write_text("\n".join(lines))
    with pytest.warns(UserWarning, match="it is no record") as caught:
        assert [record["name"] for record in read_runs([tmp_path])] == ["a", "c"]
    said = [str(warning.message) for warning in caught]
    assert said == [f"left out line {n} of {file}: it is no record" for n in (2, 3)]
    file.write_text("nothing of the kind\n")
    with pytest.warns(UserWarning, match=r"runs\.jsonl: .*no line of it is a record"):
        assert read_runs([tmp_path]) == []


@pytest.mark.parametrize("words", [("report", ""), ("report", ".", "--output=")])
def test_an_empty_path_is_not_the_current_directory(tmp_path, capsys, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "record.json").write_text(json.dumps(run()))
    done = call(capsys, *words)
    assert done.code == 1
    assert done.err.startswith("fcco: nothing was given for ")
    assert [path.name for path in tmp_path.iterdir()] == ["record.json"]


@pytest.mark.usefixtures("undrawn")
def test_command_says_what_went_in(tmp_path, capsys):
    records = [run(), run(seed=1), run("mnist", "msvrm-v2")]
    (tmp_path / "runs.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    report([tmp_path], output=tmp_path, title=None)
    out = capsys.readouterr().out
    assert f"3 runs of 2 contenders on usps, mnist are in {tmp_path / 'report.html'}" in out
    assert "<title>Runs on usps, mnist</title>" in (tmp_path / "report.html").read_text()
    (tmp_path / "none").mkdir()
    for path, words in ((tmp_path / "none", "no runs"), (tmp_path / "gone", "does not exist")):
        with pytest.raises(ValueError, match=re.escape(words)):
            report([path], output=tmp_path / "other.html", title="x")
    assert not (tmp_path / "other.html").exists()


@pytest.mark.usefixtures("undrawn")
def test_different_runs_of_one_name_are_all_shown(tmp_path):
    for place, end in {"a": 0.2, "b": 0.4, "c": 0.6, "copy": 0.2}.items():
        (tmp_path / place).mkdir()
        text = json.dumps(run(name="r", values=(1.0, end)))
        (tmp_path / place / "record.json").write_text(text)
    rows = Page(page(tmp_path, read_runs([tmp_path]))).rows(0)
    objectives = {label: row["exact training objective"] for label, row in rows.items()}
    assert objectives == {"SOX": "0.200", "SOX, r": "0.400", "SOX, r, r": "0.600"}


def test_a_byte_that_is_not_utf_8_costs_only_its_line(tmp_path):
    file = tmp_path / "runs.jsonl"
    lines = [json.dumps(run(name=name)).encode() for name in "abc"]
    file.write_bytes(b"\n".join([lines[0], lines[1].replace(b"usps", b"\xff"), lines[2]]))
    with pytest.warns(UserWarning, match=r"left out line 2 of .*runs\.jsonl: it is no record"):
        assert [record["name"] for record in read_runs([tmp_path])] == ["a", "c"]
