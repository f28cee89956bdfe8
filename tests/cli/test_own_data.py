"""Files of a user: what is read from them, what is wrong with them, and runs on them."""

import csv
import json
import math
import re
import tempfile
import time
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
from cli.command import SMALL, call
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import ndcg_score, roc_auc_score

from fcco_lab.datasets import is_own, load_own
from fcco_lab.datasets.own import _in_order
from fcco_lab.runs import read_runs
from fcco_lab.training import Config
from fcco_lab.training.problem import load_problem


def write_csv(path, header, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


CLASSES = (["a", "b", "label"], [[k, -k % 3, "yes" if k % 2 else "no"] for k in range(20)])
SURVIVAL = (["a", "time", "event"], [[k % 7, 1 + k, k % 3 > 0] for k in range(30)])
RANKING = (["a", "query", "grade"], [[k, f"q{k % 5}", k % 4 // 2] for k in range(40)])


def test_words_are_classes_in_their_order_and_columns_features(tmp_path):
    rows = [[*row, "train" if k < 15 else "test"] for k, row in enumerate(CLASSES[1])]
    train, test = load_own(write_csv(tmp_path / "t.csv", [*CLASSES[0], "split"], rows))
    assert train.inputs.tolist() == [[k, -k % 3] for k in range(15)]
    assert test.classes.tolist() == [k % 2 for k in range(15, 20)], "no is 0, yes is 1"
    rows = [[0, y, part] for part in ("train", "test") for y in (2, 10, 2, 10, 10)]
    ten = write_csv(tmp_path / "ten.csv", ["a", "y", "split"], rows)
    assert load_own(ten)[0].classes.tolist() == [0, 1, 0, 1, 1], "2 comes before 10"


def test_without_a_split_a_fifth_is_held_out_and_always_the_same(tmp_path, caplog):
    path = write_csv(tmp_path / "t.csv", *CLASSES)
    train, test = load_own(path)
    assert "no split" in caplog.text
    assert (len(train), len(test)) == (16, 4)
    assert test.classes.bincount().tolist() == [2, 2]
    assert sorted(torch.cat([train.inputs, test.inputs])[:, 0].tolist()) == list(range(20))
    again = load_own(path)
    assert torch.equal(again[1].inputs, test.inputs)


def test_survival_and_rankings(tmp_path):
    train, test = load_own(write_csv(tmp_path / "s.csv", *SURVIVAL))
    times = torch.cat([train.times, test.times])
    assert sorted(times.tolist()) == list(range(1, 31))
    assert train.events.tolist() == [(t - 1) % 3 > 0 for t in train.times.tolist()]
    train, test = load_own(write_csv(tmp_path / "r.csv", *RANKING))
    assert train.lengths.tolist() == [8] * 4, "a query is never cut"
    assert test.lengths.tolist() == [8]
    for part in (train, test):
        for rows in part.inputs[:, 0].split(8):
            assert len({int(k) % 5 for k in rows}) == 1, "one query"
            assert rows.tolist() == sorted(rows.tolist()), "in its order"
        assert part.grades.tolist() == [int(k) % 4 // 2 for k in part.inputs[:, 0]]


def test_npz_with_and_without_parts(tmp_path):
    x, y = np.arange(40.0).reshape(20, 2), np.arange(20) % 2
    np.savez(tmp_path / "whole.npz", x=x, y=y)
    assert [len(part) for part in load_own(tmp_path / "whole.npz")] == [16, 4]
    np.savez(tmp_path / "parts.npz", x_train=x, y_train=y, x_test=x[:3], y_test=y[:3])
    assert load_own(tmp_path / "parts.npz")[1].inputs.tolist() == x[:3].tolist()
    np.savez(tmp_path / "images.npz", x=np.zeros((20, 4, 5), np.uint8), y=y)
    assert load_own(tmp_path / "images.npz")[0].inputs.shape == (16, 1, 4, 5)
    np.savez(tmp_path / "s.npz", x=x, t=np.arange(20.0), e=y)
    assert load_own(tmp_path / "s.npz")[0].events.sum() == 8
    np.savez(tmp_path / "r.npz", x=x, y=y, q=np.arange(20) % 4)
    assert load_own(tmp_path / "r.npz")[0].lengths.tolist() == [5] * 3, "a query per document"
    np.savez(tmp_path / "r.npz", x=x, y=y, q=[12, 8])
    assert sorted(len(part) for part in load_own(tmp_path / "r.npz")) == [8, 12], "lengths"


def changed(table, row, column, cell):
    header, rows = table
    rows = [list(one) for one in rows]
    rows[row][header.index(column)] = cell
    return header, rows


WRONG = {
    "a word": (changed(CLASSES, 3, "b", "old"), "number: encode the column as numbers"),
    "empty": (changed(CLASSES, 0, "a", ""), "column 'a', line 2: it is empty"),
    "nan": (changed(CLASSES, 1, "a", "nan"), "column 'a', line 3: 'nan' is not a finite"),
    "infinite": (changed(CLASSES, 1, "a", "inf"), "column 'a', line 3: 'inf' is not a finite"),
    "large": (changed(CLASSES, 1, "a", "1e300"), "column 'a', line 3: '1e+300' is not a finite"),
    "underscored": (changed(CLASSES, 1, "a", "1_0"), "column 'a', line 3: '1_0' is not a finite"),
    "no label": (changed(CLASSES, 4, "label", " "), "column 'label', line 6: it is empty"),
    "early": (changed(SURVIVAL, 2, "time", -1), "column 'time', line 4: a time must not be neg"),
    "perhaps": (changed(SURVIVAL, 2, "event", 2), "column 'event', line 4: it must be 1 (event)"),
    "half": (changed(RANKING, 9, "grade", 1.5), "column 'grade', line 11: a grade is 0, 1, 2"),
    "long": ((["a", "label"], [[1, 0], [1, 0, 2]]), "Expected 2 fields in line 3, saw 3"),
    "all long": ((["a", "label"], [[1, 0, 2], [1, 0, 2]]), "Length of header"),
    "short": ((["a", "label"], [[1, 0], [1]]), "column 'label', line 3: it is empty"),
    "twice": ((["a", "a", "y"], [[1, 2, 0]]), "Duplicate names are not allowed"),
    "pandas": ((["", "y"], [[1, 0]]), "column 1 has no name (pandas"),
    "semicolons": ((["a;b;label"], [["1;2;0"]]), "has no target column (label or y; time,event;"),
    "no header": ((["0.5", "1"], [[0.1, 0]]), "has no target column"),
    "no feature": ((["label"], [[1], [0]]), "has no column left that is a feature"),
    "a split": (
        (["a", "y", "split"], [[1, 0, "dev"], [1, 1, "test"]]),
        "line 2: it must be train or test, got dev",
    ),
    "one part": (
        (["a", "y", "split"], [[1, 0, "train"], [1, 1, "train"]]),
        "column 'split': every row is train",
    ),
    "no rows": ((["a", "label"], []), "has no rows"),
    "one class": ((["a", "y"], [[1, "in"], [2, "in"]]), "column 'y': every row is 'in', nothing"),
    "a rare class": (
        (["a", "y"], [[k, "rare" if k == 3 else "common"] for k in range(30)]),
        "column 'y': no test sample is of class 'rare'; a class needs samples in both parts",
    ),
    "ids": ((["a", "y"], [[k, k] for k in range(9)]), "no training sample is of class '7', '8'; a"),
    "censored": ((SURVIVAL[0], [[1, 2, 0]]), "column 'event': no event was observed, only censor"),
    "irrelevant": ((RANKING[0], [[1, 2, 0]]), "column 'grade': every grade is 0, no row is relev"),
    "one query": ((RANKING[0], [[1, 2, 0], [1, 2, 1]]), "there is one query, which cannot be div"),
    "nothing": (([], []), "its first line, the header, is blank"),
    "blank": (([" "], [["a", "label"], [1, 0]]), "its first line, the header, is blank"),
}


@pytest.mark.parametrize("flaw", WRONG)
def test_errors_name_file_column_and_row(tmp_path, flaw):
    table, words = WRONG[flaw]
    path = write_csv(tmp_path / "my.csv", *table)
    with pytest.raises(ValueError, match=r"my\.csv") as caught:
        load_own(path)
    assert words in str(caught.value)


FLAWS = {
    "a": ["", "old", "nan", "inf", "-inf", "1e300", "1_0", "0x1", "1,5"],
    "label": ["", " "],
    "time": ["", "soon", "-1", "nan"],
    "event": ["", "2", "0.5", "perhaps"],
    "query": ["", "  "],
    "grade": ["", "1.5", "-1", "good"],
}
TABLES = {
    "classes": (["a", "label"], [[k, f"c{k % 2}"] for k in range(20)]),
    "survival": (["a", "time", "event"], [[k, 1 + k, k % 2] for k in range(20)]),
    "ranking": (["a", "query", "grade"], [[k, f"q{k % 4}", k % 3] for k in range(20)]),
}


@given(st.data())
@settings(max_examples=60, deadline=None, derandomize=True)
def test_one_bad_cell_is_named_wherever_it_is(data):
    """By the file, the column, and the line or the row."""
    header, rows = TABLES[data.draw(st.sampled_from(sorted(TABLES)))]
    column = data.draw(st.sampled_from(header))
    row = data.draw(st.integers(0, len(rows) - 1))
    flaw = data.draw(st.sampled_from(FLAWS[column]))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / data.draw(st.sampled_from(["my.csv", "my.parquet"]))
        table = changed((header, rows), row, column, flaw)
        if path.suffix == ".csv":
            write_csv(path, *table)
        else:
            pandas.DataFrame(table[1], columns=header).astype(str).to_parquet(path)
        with pytest.raises(ValueError, match=re.escape(str(path))) as caught:
            load_own(path)
    place = f"line {row + 2}" if path.suffix == ".csv" else f"row {row}"
    assert f"column {column!r}, {place}: " in str(caught.value)


def test_errors_of_the_file_itself(tmp_path):
    (tmp_path / "my.csv").write_bytes(b"a,label\n\xff,1\n")
    with pytest.raises(ValueError, match=r"cannot read .*my\.csv: .*codec can't decode"):
        load_own(tmp_path / "my.csv")
    (tmp_path / "my.csv").write_bytes(b"")
    with pytest.raises(ValueError, match=r"my\.csv: No columns to parse from file"):
        load_own(tmp_path / "my.csv")
    with pytest.raises(FileNotFoundError, match=r"no file .*gone\.csv"):
        load_own(tmp_path / "gone.csv")
    with pytest.raises(ValueError, match=r"must end in \.npz, \.csv, \.parquet"):
        load_own(tmp_path / "my.xlsx")
    assert is_own("my.xlsx"), "a file, though of the wrong kind, not a name"
    np.savez(tmp_path / "my.npz", x=[[1.0]], z=[1])
    with pytest.raises(ValueError, match=r"my\.npz has no key 'y', only \['x', 'z'\]"):
        load_own(tmp_path / "my.npz")
    np.savez(tmp_path / "my.npz", x=[[1.0, np.nan]], y=[1])
    with pytest.raises(ValueError, match=r"my\.npz, x and y: .* nan in row 0, column 1"):
        load_own(tmp_path / "my.npz")
    (tmp_path / "my.parquet").write_text("a,label\n1,0\n")
    with pytest.raises(ValueError, match=r"my\.parquet"):
        load_own(tmp_path / "my.parquet")


def test_lines_are_those_of_the_file(tmp_path):
    """Also after empty lines, and with the mark that Windows puts first."""
    (tmp_path / "my.csv").write_bytes(b"\xef\xbb\xbfa,label\r\n1,x\r\n\r\n\r\n2,y\r\nold,x\r\n\r\n")
    with pytest.raises(ValueError, match=r"column 'a', line 6: 'old' is not a finite"):
        load_own(tmp_path / "my.csv")


NAMES = ["007", "7", "07", "1_0", "10", "1e1", "10.0", "9007199254740993", "9007199254740992"]
NAMES += ["²", "①", "--1", "1" * 5000, "nan", "NA", "None", "inf", "True", "true", "0x1", "-0", "0"]


@pytest.mark.parametrize(
    "names", [NAMES, NAMES[:3], NAMES[4:7], NAMES[-2:]], ids=["all", "sevens", "tens", "zeros"]
)
@pytest.mark.parametrize("end", ["csv", "parquet"])
def test_names_are_never_parsed(tmp_path, end, names):
    """What only names a class or a query: no two texts are one, whatever numbers they look like.

    In some of the files every name looks like a number, so that no other name keeps them texts.
    """
    label = [name for name in names for _ in range(6)]
    split = ["train", "test"] * (len(label) // 2)
    frame = pandas.DataFrame({"x": range(len(label)), "label": label, "split": split})
    save(frame, tmp_path / f"names.{end}")
    for part in load_own(tmp_path / f"names.{end}"):
        by_name = {}
        for row, place in zip(
            part.inputs[:, 0].long().tolist(), part.classes.tolist(), strict=True
        ):
            by_name.setdefault(label[row], set()).add(place)
        assert sorted(place for places in by_name.values() for place in places) == list(
            range(len(names))
        ), "one number for each name"
    frame = frame.rename(columns={"label": "query"}).assign(grade=1).drop(columns="split")
    save(frame, tmp_path / f"queries.{end}")
    train, test = load_own(tmp_path / f"queries.{end}", kind="ranking")
    assert sorted([*train.lengths.tolist(), *test.lengths.tolist()]) == [6] * len(names)


def test_numbers_come_by_size_and_before_words():
    """In many lists, because a name that cannot be compared may be in its place by chance."""
    for count in range(50):
        ordered = [*map(str, range(count)), "inf", "nan", "word"]
        assert _in_order(reversed(ordered)) == ordered


def save(frame, path):
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path)


@pytest.mark.parametrize("dtype", ["int64", "uint64", "float64", "str", "category", "bool"])
@pytest.mark.parametrize("end", ["csv", "parquet", "npz"])
def test_queries_of_every_type(tmp_path, end, dtype):
    """Two hundred queries of five documents; nineteen digits where the type holds them."""
    numbers = np.arange(200).repeat(5)
    if dtype in ("int64", "uint64", "str", "category"):
        numbers = numbers * 100 + 1580000000000000000
    if dtype == "bool":
        numbers = numbers % 2
    queries = pandas.Series(numbers).astype(dtype)
    path = tmp_path / f"q.{end}"
    if end == "npz":
        array = np.asarray(queries, dtype=str if dtype in ("str", "category") else None)
        np.savez(path, x=np.zeros((1000, 1)), y=np.ones(1000, int), q=array)
    else:
        save(pandas.DataFrame({"x": 0.0, "grade": 1, "query": queries}), path)
    parts = load_own(path)
    assert sum(len(part.lengths) for part in parts) == len(set(numbers.tolist()))
    if dtype != "bool":
        assert {length for part in parts for length in part.lengths.tolist()} == {5}


def test_survival_times_are_not_rounded(tmp_path):
    """Seconds, all different; a float32 would make ties of them."""
    times = 1_600_000_000 + 7 * np.arange(1000)
    frame = pandas.DataFrame({"x": range(1000), "time": times, "event": 1})
    for end in ("csv", "parquet"):
        save(frame, tmp_path / f"t.{end}")
    np.savez(tmp_path / "t.npz", x=np.zeros((1000, 1)), t=times, e=np.ones(1000, int))
    np.savez(tmp_path / "s.npz", x=np.zeros((9, 1)), t=np.float32(range(9)), e=np.ones(9, int))
    for end in ("csv", "parquet", "npz"):
        train, test = load_own(tmp_path / f"t.{end}")
        assert sorted([*train.times.tolist(), *test.times.tolist()]) == times.tolist()
    assert load_own(tmp_path / "s.npz")[0].times.dtype == torch.float32, "no more than there was"


@pytest.mark.parametrize("time", ["y", "label", "query", "t"])
@pytest.mark.parametrize("kind", ["csv", "spaced", "int64", "decimal", "text", "category"])
def test_whole_times_beyond_those_of_floats_make_no_ties(tmp_path, time, kind):
    times = [2**53 + k for k in range(40)]
    cells = {"decimal": list(map(Decimal, times)), "text": list(map(str, times))}
    cells["spaced"] = [f" {t} " for t in times]
    frame = pandas.DataFrame({"x": range(40), time: cells.get(kind, times), "dead": 1})
    if kind == "category":
        frame[time] = frame[time].astype("category")
    path = tmp_path / ("t.csv" if kind in ("csv", "spaced") else "t.parquet")
    save(frame, path)
    parts = load_own(path, kind="survival", target=[time, "dead"])
    assert sorted(t for part in parts for t in part.times.tolist()) == times


def test_decimal_times_that_are_too_large_or_not_whole(tmp_path):
    times = [Decimal(2**53 + k) / 2 for k in range(40)]
    save(pandas.DataFrame({"x": range(40), "time": times, "event": 1}), tmp_path / "t.parquet")
    parts = load_own(tmp_path / "t.parquet")
    assert sorted(t for part in parts for t in part.times.tolist()) == sorted(map(float, times))
    times = [Decimal(2**63 if k == 7 else k) for k in range(40)]
    save(pandas.DataFrame({"x": range(40), "time": times, "event": 1}), tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"column 'time', row 7: it is 2\^63 or more"):
        load_own(tmp_path / "t.parquet")


@given(st.lists(st.floats(0, 1e30), min_size=10, max_size=10, unique=True))
@settings(max_examples=30, deadline=None)
def test_numbers_are_read_to_the_last_digit(times):
    """pandas' own way of reading them is a unit in the last place off now and then."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [[k, repr(t), 1] for k, t in enumerate(times)]
        parts = load_own(write_csv(Path(folder) / "t.csv", ["x", "time", "event"], rows))
    assert sorted(t for part in parts for t in part.times.tolist()) == sorted(times)


def test_a_feature_that_float32_blurs_is_named(tmp_path, caplog):
    rows = [[1_600_000_000 + k, k, 0.1, k % 2] for k in range(40)]
    load_own(write_csv(tmp_path / "t.csv", ["date", "age", "constant", "y"], rows))
    assert "column 'date': float32 blurs it" in caplog.text
    assert "age" not in caplog.text
    assert "constant" not in caplog.text


def test_wide_tables_take_time_in_proportion(tmp_path):
    def seconds(columns):
        header = [*(f"gene_{k}" for k in range(columns)), "label"]
        rows = [[*([1] * columns), k % 2] for k in range(10)]
        path = write_csv(tmp_path / "wide.csv", header, rows)
        started = time.process_time()
        load_own(path)
        return time.process_time() - started

    seconds(100)  # imports
    # Eight times the columns: 7 to 14 times the time if it is linear, 55 if it is quadratic.
    assert seconds(32000) < 24 * seconds(4000)


def test_columns_of_parquet_may_be_numbered(tmp_path, monkeypatch):
    path, rows = tmp_path / "t.parquet", np.stack([np.arange(40), np.arange(40) % 2], axis=1)
    pandas.DataFrame(rows).to_parquet(path)
    for part in load_own(path, target=["1"]):
        assert part.classes.tolist() == [k % 2 for k in part.inputs[:, 0].tolist()]
    monkeypatch.setattr(pandas, "read_parquet", lambda _: pandas.DataFrame(rows, columns=[0, "0"]))
    with pytest.raises(ValueError, match=r"t\.parquet: .*two columns.* '0'"):
        load_own(path, target=["0"])


@pytest.fixture
def cancer_frame():
    """As a user of pandas has it: shuffled, a categorical target, numbers of several types."""
    pytest.importorskip("pyarrow", reason="pyarrow writes and reads Parquet")
    found = load_breast_cancer(as_frame=True)
    frame = found.data.assign(
        state=pandas.Categorical(np.where(found.target == 1, "well", "ill")),
        large=found.data["mean radius"] > 14,
        visits=np.arange(len(found.data)).astype("int16") % 7,
    )
    return frame.sample(frac=1, random_state=0)


@pytest.mark.filterwarnings("always")
def test_train_on_parquet_as_on_csv(tmp_path, capsys, monkeypatch, cancer_frame):
    monkeypatch.chdir(tmp_path)
    cancer_frame.to_parquet("cancer.parquet")  # with its index, which is no feature
    cancer_frame.to_csv("cancer.csv", index=False)
    one, other = (load_own(f"cancer.{end}", target=["state"]) for end in ("parquet", "csv"))
    for mine, theirs in zip(one, other, strict=True):
        assert torch.equal(mine.inputs, theirs.inputs)
        assert torch.equal(mine.classes, theirs.classes)
    assert one[0].inputs.shape[1] == 32
    said = []
    for end in ("parquet", "csv"):
        done = call(capsys, "train", "--data", f"cancer.{end}", "--target", "state", *SMALL[:-1],
                    "--output", end)  # fmt: skip
        assert done.code == 0, done.err
        said.append(done.out.splitlines()[-2:])
    assert said[0] == said[1]
    assert float(said[0][0].removeprefix("test AUC ")) > 0.9


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (lambda n: [None, *range(1, n)], "row 0: it is empty"),
        (lambda n: [*range(n - 1), math.nan], "row 568: it is empty"),
        (lambda n: [True, None] * (n // 2) + [True], "row 1: it is empty"),
        (lambda n: [datetime(2020, 1, 2)] * n, "row 0: '2020-01-02 00:00:00' is not a finite"),
        (lambda n: [[1.0, 2.0]] * n, "row 0: '[1. 2.]' is not a finite"),
        (lambda n: ["1.5"] * (n - 1) + ["old"], "row 568: 'old' is not a finite"),
    ],
)
def test_errors_name_column_and_row_of_parquet(tmp_path, cancer_frame, column, message):
    frame = cancer_frame.reset_index(drop=True)
    arrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(
        arrow.table({"state": frame.state.astype(str), "new": column(len(frame))}),
        tmp_path / "my.parquet",
    )
    with pytest.raises(ValueError, match=r"my\.parquet, column 'new'") as caught:
        load_own(tmp_path / "my.parquet", target=["state"])
    assert message in str(caught.value)


@pytest.fixture(scope="module")
def cancer(tmp_path_factory):
    x, y = load_breast_cancer(return_X_y=True)
    rows = [[*x[k], "well" if y[k] else "ill", k] for k in range(len(x))]
    header = [f"f{k}" for k in range(30)] + ["state", "patient"]
    return write_csv(tmp_path_factory.mktemp("own") / "cancer.csv", header, rows)


@pytest.mark.filterwarnings("always")
def test_train_on_a_table(tmp_path, capsys, monkeypatch, cancer):
    monkeypatch.chdir(tmp_path)
    words = ("train", "--data", cancer, "--target", "state", "--drop", "patient", *SMALL)
    done = call(capsys, *words)
    assert done.code == 0, done.err
    (output,) = (tmp_path / "runs" / "train").iterdir()
    assert output.name.startswith("cancer-auc-")
    config = Config(data=str(cancer), target="state", drop="patient")
    problem = load_problem(config)
    weights = torch.load(output / "model.pt", weights_only=True)
    scores = problem.test_inputs @ weights["1.weight"].T + weights["1.bias"]
    _, test = load_own(cancer, target=["state"], drop=["patient"])
    assert test.inputs.shape[1] == 30
    auc = roc_auc_score(test.classes, scores[:, 0])
    assert auc > 0.9
    assert done.out.splitlines()[-2] == f"test AUC {auc:.4f}"
    # The same file elsewhere is the same data; another content is not.
    copy = tmp_path / "elsewhere" / "cancer.csv"
    copy.parent.mkdir()
    copy.write_text(cancer.read_text())
    again = ("--output", output, "--target", "state", "--drop", "patient", *SMALL)
    assert "had finished before" in call(capsys, "train", "--data", copy, *again).err
    copy.write_text(cancer.read_text().replace(",well,", ",ill,", 1))
    done = call(capsys, "train", "--data", copy, *again)
    assert done.code == 1
    assert "holds another run (training_data is" in done.err or "test_data is" in done.err


def test_a_second_setting_has_a_directory_of_its_own(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words in ((), ("--lr", "0.1"), ("--alpha", "0.25"), ("--lr", "0.1")):
        assert call(capsys, "train", *SMALL, *words).code == 0
    names = sorted(path.name for path in Path("runs/train").iterdir())
    assert len(names) == 3
    assert [name for name in names if "-lr=0.1-" in name]
    assert [name for name in names if "-alpha=0.25-" in name]


@pytest.mark.parametrize(
    ("table", "words", "message"),
    [
        (SURVIVAL, (), "objective auc-exp needs classes, but {} has survival times: use cox"),
        (RANKING, (), "objective auc-exp needs classes, but {} has grades of queries: use ndcg"),
        (CLASSES, ("--target", "lable"), "{} has no column 'lable' (did you mean 'label'?)"),
        (
            SURVIVAL,
            ("--objective", "cox", "--target", "time"),
            "target names one column (label), or",
        ),
        (
            (["a", "b"], [[1, 2]]),
            ("--objective", "cox"),
            "{} has no target column (time,event); it has: a, b. Name",
        ),
        (CLASSES, ("--target", "a,b"), "target names one column (label), or two with an objective"),
        (CLASSES, ("--drop", "Label"), "{} has no column 'Label' (did you mean 'label'?)"),
        (SURVIVAL, ("--objective", "cox", "--method", "cross-entropy"), "cross-entropy needs clas"),
    ],
)
def test_what_does_not_fit_is_said_with_a_remedy(tmp_path, capsys, table, words, message):
    path = write_csv(tmp_path / "my.csv", *table)
    done = call(capsys, "train", "--data", path, "--output", tmp_path / "run", *words)
    assert done.code == 1
    assert done.err.splitlines()[-1].startswith("fcco: " + message.format(path))


def test_survival_and_ranking_runs_end_with_their_metrics(tmp_path, capsys):
    generator = np.random.default_rng(0)
    x = generator.normal(size=(200, 3))
    times = np.exp(-2 * x[:, 0]) * generator.exponential(size=200)
    rows = [[*a, t, int(t < 2)] for a, t in zip(x, times, strict=True)]
    path = write_csv(tmp_path / "s.csv", ["a", "b", "c", "months", "died"], rows)
    words = ("--objective", "cox", "--target", "months,died", *SMALL, "--lr", "0.05")
    done = call(capsys, "train", "--data", path, "--output", tmp_path / "s", *words)
    assert done.code == 0, done.err
    assert float(done.out.splitlines()[-1].removeprefix("test C-index ")) > 0.75
    (record,) = read_runs([tmp_path / "s"])
    assert "auc" not in record

    grades = (2 * x[:, 0] + generator.normal(size=200) > 1.5).astype(int)
    np.savez(tmp_path / "r.npz", x=x, y=grades, q=np.full(10, 20))
    words = ("--objective", "ndcg", *SMALL, "--lr", "0.05", "--output", tmp_path / "r")
    done = call(capsys, "train", "--data", tmp_path / "r.npz", *words)
    assert done.code == 0, done.err
    problem = load_problem(Config(data=str(tmp_path / "r.npz"), objective="ndcg"))
    weights = torch.load(tmp_path / "r" / "model.pt", weights_only=True)
    scores = (problem.test_inputs @ weights["1.weight"].T + weights["1.bias"])[:, 0]
    _, test = load_own(tmp_path / "r.npz")
    lists = [part.split(20) for part in (test.grades, scores)]
    expected = np.mean(
        [ndcg_score([g.numpy()], [s.numpy()], k=10) for g, s in zip(*lists, strict=True)]
    )
    assert done.out.splitlines()[-1] == f"test NDCG@10 {expected:.4f}"


@pytest.mark.slow
def test_compare_refuses_records_of_a_changed_file(tmp_path, capsys):
    path = write_csv(tmp_path / "my.csv", *CLASSES)
    words = (
        "compare",
        "--data",
        path,
        "--methods",
        "sox",
        "--seeds",
        1,
        "--output",
        tmp_path / "c",
    )
    words = (*words, "--network", "linear", "--steps", 10, "--evaluations", 2)
    assert call(capsys, *words).code == 0
    before = json.loads((tmp_path / "c" / "runs.jsonl").read_text())
    assert before["content"]["data"] == "my.csv"
    write_csv(path, *changed(CLASSES, 3, "a", 99))
    done = call(capsys, *words)
    assert done.code == 1
    assert "my.csv has changed since" in done.err


def test_two_columns_that_may_be_the_target(tmp_path):
    """Silently one of them was the target, and the other a feature that told the answer."""
    path = tmp_path / "my.csv"
    path.write_text("x,y,label\n" + "".join(f"{k},{k % 2},{'ab'[k // 10]}\n" for k in range(20)))
    with pytest.raises(ValueError, match="columns 'label' and 'y', which may both be the target"):
        load_own(path)
    train, _ = load_own(path, drop=["y"])
    assert train.inputs.shape == (16, 1)
    assert train.classes.equal((train.inputs[:, 0] >= 10).long())
    train, _ = load_own(path, drop=["label"])
    assert train.classes.equal(train.inputs[:, 0].long() % 2)
    train, _ = load_own(path, target=["label"])
    assert train.inputs.shape == (16, 2)


@pytest.mark.parametrize(("kind", "target", "drop", "said"), [
    ("classes", ["label"], ["label"], "both target and drop name 'label'"),
    ("survival", ["time", "time"], [], "target names 'time' twice"),
    (None, [], ["label"], r"has no target column \(label or y"),
])  # fmt: skip
def test_targets_that_contradict_each_other(tmp_path, kind, target, drop, said):
    (tmp_path / "my.csv").write_text("x,time,label\n" + "1,2,0\n2,3,1\n" * 10)
    with pytest.raises(ValueError, match=said):
        load_own(tmp_path / "my.csv", kind=kind, target=target, drop=drop)


@pytest.mark.parametrize("header", ["a,note,label", 'a,"no\nte",label'], ids=["one", "two"])
def test_lines_are_those_of_the_file_after_cells_of_several_lines(tmp_path, header):
    text = header + "\n" + '1,"x\ny",0\n' * 30 + 'bad,"x\ny",0\n' + '1,"x\ny",1\n' * 9
    (tmp_path / "my.csv").write_text(text)
    line = text[: text.index("bad")].count("\n") + 1
    note = "note" if "note" in header else "no\nte"
    with pytest.raises(ValueError, match=f"column 'a', line {line}: 'bad'"):
        load_own(tmp_path / "my.csv", drop=[note])
