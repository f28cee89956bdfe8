"""The command: resuming, a stranger's problem and solver, and the report of records."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli.command import run_jobs
from typer.testing import CliRunner

from fcco_lab.benchmark.meter import GRID
from fcco_lab.benchmark.outcomes import Cell, read_outcomes
from fcco_lab.benchmark.report import write_report
from fcco_lab.cli.app import app

HERE = Path(__file__).parent
GUIDE = HERE.parents[1] / "docs" / "guide" / "benchmark.md"


def start(directory, *words):
    command = [sys.executable, "-m", "fcco_lab", "benchmark", "run", *map(str, words)]
    return subprocess.Popen(
        command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process):
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, out + err
    return out


def names(directory):
    lines = (directory / "runs.jsonl").read_text().splitlines()
    return [json.loads(line)["name"] for line in lines]


@pytest.mark.slow
def test_a_killed_run_goes_on_and_repeats_nothing(tmp_path):
    words = ("--problem", "tiny:tiny_push", "--solver", "sox", "--solver", "in-batch", "--batch")
    words += (12, "--tuned", 3, "--passes", 20, "--output", tmp_path)
    process = start(HERE, *words)
    runs = tmp_path / "runs.jsonl"
    end = time.monotonic() + 120
    while time.monotonic() < end and not (runs.exists() and runs.read_text().count("\n") >= 2):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    with runs.open("a") as file:
        file.write('{"name": "tiny:tiny_push sox 12 9')  # a line that was cut short
    kept = runs.read_text().splitlines()[:2]
    finish(start(HERE, *words))
    assert runs.read_text().splitlines()[:2] == kept
    whole = [line for line in runs.read_text().splitlines() if line.endswith("}")]
    found = [json.loads(line)["name"] for line in whole]
    expected = {
        f"tiny:tiny_push {solver} 12 {setting} 0"
        for solver in ("sox", "in-batch")
        for setting in range(4)
    }
    assert sorted(found) == sorted(expected)


@pytest.mark.slow
def test_ctrl_c_ends_in_one_line_and_keeps_what_was_done(tmp_path):
    words = ("--problem", "tiny:tiny_push", "--solver", "msvrm-v3", "--batch", 2)
    process = start(HERE, *words, "--tuned", 8, "--passes", 100, "--output", tmp_path)
    runs = tmp_path / "runs.jsonl"
    end = time.monotonic() + 120
    while time.monotonic() < end and not (runs.exists() and runs.read_text()):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "the same command goes on" in err
    assert names(tmp_path)


def test_the_problem_and_the_solver_of_the_guide_run(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    files = re.findall(r"`(my_\w+\.py)`", GUIDE.read_text())
    for name, block in zip(files, blocks, strict=True):
        (tmp_path / name).write_text(block)
    words = ("--problem", "my_push:my_push", "--solver", "my_solver:SIGNS", "--solver", "lbfgs")
    out = finish(start(tmp_path, *words, "--batch", 16, "--tuned", 2, "--output", tmp_path / "b"))
    assert "report.md" in out
    outcomes = read_outcomes(tmp_path / "b")
    cell = Cell("my_push:my_push", 16)
    assert outcomes.cost(cell, "my_solver:SIGNS", 0.1).passes < 30
    assert outcomes.cost(cell, "lbfgs", 1e-6).passes < 30
    report = (tmp_path / "b" / "report.md").read_text()
    for figure in re.findall(r"\((.*?\.png)\)", report):
        assert (tmp_path / "b" / figure).stat().st_size > 1000


# What a name does not say, in this process --------------------------------------------------------

OWN_SOLVERS = """
from fcco_lab.benchmark import Solver


def fail(task):
    raise RuntimeError("no [luck]")


FAILS = Solver(fail)
WAITS = Solver(lambda task: None)
NUMBER = 3
"""


@pytest.fixture
def own(tmp_path, monkeypatch, request):
    """The start of the names of two modules, as another test may have imported some."""
    start = f"own_{abs(hash(request.node.name))}"
    (tmp_path / f"{start}_problem.py").write_text((HERE / "tiny.py").read_text())
    (tmp_path / f"{start}_solver.py").write_text(OWN_SOLVERS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr("fcco_lab.cli.benchmark.run_jobs", run_jobs)
    return start


def run_own(own, *more, problem="tiny_push", solvers=("WAITS",)):
    words = ["benchmark", "run", "--problem", f"{own}_problem:{problem}", "--batch", 12]
    words += [word for name in solvers for word in ("--solver", f"{own}_solver:{name}")]
    words += ["--tuned", 0, "--output", "out", *more]
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.mark.parametrize("changed", ["passes", "seconds", "solver_source", "problem_source"])
def test_records_made_otherwise_are_refused(tmp_path, own, changed):
    for _ in range(2):
        done = run_own(own, "--passes", 1)
        assert done.exit_code == 0, done.output
    more = {"passes": ("--passes", 2), "seconds": ("--passes", 1, "--seconds", 5)}
    if changed not in more:
        with (tmp_path / f"{own}_{changed.removesuffix('_source')}.py").open("a") as file:
            file.write("# changed\n")
    words = more.get(changed, ("--passes", 1))
    done = run_own(own, *words)
    assert isinstance(done.exception, ValueError)
    assert re.search(rf"was made otherwise \({changed} is .* there, .* here\)", str(done.exception))
    for name in ("problems", "runs"):  # of records of before nothing is known
        file = tmp_path / "out" / f"{name}.jsonl"
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        assert all(line.pop("terms") is not None for line in lines)
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert run_own(own, *words).exit_code == 0


def test_runs_that_failed_are_counted(own):
    done = run_own(own, solvers=["FAILS", "WAITS"])
    failed = f"{own}_problem:tiny_push {own}_solver:FAILS 12 0 0 ended with RuntimeError: no [luck]"
    assert (done.exit_code, f"1 of 2 runs failed; {failed}" in done.output) == (0, True)
    done = run_own(own, "--output", "other", solvers=["FAILS"])
    assert isinstance(done.exception, ValueError)
    assert str(done.exception) == f"1 of 1 runs failed; {failed}"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"solvers": ["NUMBER"]}, "_solver:NUMBER must be a Solver, got int"),
        ({"solvers": ["WAIT"]}, "the module has no 'WAIT' (did you mean 'WAITS'?)"),
        ({"problem": "__doc__"}, "_problem:__doc__ must be a function, got str"),
        ({"problem": "_linear"}, "_problem:_linear must return a Problem, got function"),
    ],
)
def test_what_is_no_solver_or_problem_is_said_before_anything_is_computed(own, wrong, message):
    done = run_own(own, **wrong)
    assert isinstance(done.exception, ValueError)
    assert message in str(done.exception)
    assert not Path("out").exists()


# The report, from records that are written by hand ------------------------------------------------


def record(name, gaps, *, seconds=10.0, passes=100.0):
    return {
        "name": name,
        "settings": {},
        "status": "done",
        "passes": passes,
        "seconds": seconds,
        "gaps": gaps,
    }


def falling(**drops):
    """A gap of 1 that falls to the given values from the given points of the grid on."""
    points = sorted((int(place[1:]), gap) for place, gap in drops.items())
    gaps, now = [], 1.0
    for k in range(len(GRID)):
        now = dict(points).get(k, now)
        gaps.append(now)
    return gaps


@pytest.fixture
def records(tmp_path):
    facts = {"first": 1.0, "best": 0.0, "certificate": 1e-15, "curvature": 1.0}
    sizes = {"num_blocks": 1, "num_samples": 10, "num_params": 2}
    problems = [
        {"name": "a", "known": True, **facts, **sizes},
        {"name": "b", "known": False, **facts, **sizes, "certificate": float("nan")},
    ]
    runs = [
        record("a sox 16 0 0", falling(k40=0.05)),
        record("a sox 16 1 0", falling(k10=0.05, k20=0.005)),
        record("a in-batch 16 0 0", falling(k15=0.05, k30=0.005), seconds=1.0),
        record("b sox 16 0 0", falling(k5=-0.25)),
        record("b in-batch 16 0 0", falling(k5=0.0)),
        record("b libauc 16 0 0", []) | {"status": "error", "error": "ValueError: no positives"},
    ]
    for file, lines in (("problems", problems), ("runs", runs)):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (tmp_path / f"{file}.jsonl").write_text(text)
    return tmp_path


def test_costs_are_those_of_the_best_setting(records):
    outcomes = read_outcomes(records)
    cell = Cell("a", 16)
    assert outcomes.cost(cell, "sox", 0.1) == (GRID[10], pytest.approx(GRID[10] / 10))
    assert outcomes.cost(cell, "sox", 0.1, tuned=False).passes == GRID[40]
    assert outcomes.cost(cell, "sox", 0.01).passes == GRID[20]
    assert outcomes.cost(cell, "sox", 1e-6).passes == float("inf")
    assert outcomes.best(cell, ["sox", "in-batch"], 0.01)[0] == "sox"


def test_without_a_known_optimum_gaps_refer_to_the_best_run(records):
    outcomes = read_outcomes(records)
    cell = Cell("b", 16)
    assert outcomes.cost(cell, "sox", 1e-6).passes == GRID[5]
    # F fell from 1 to 0, and -0.25 is the best that was found: a gap of 0.2.
    assert outcomes.cost(cell, "in-batch", 0.21).passes == GRID[5]
    assert outcomes.cost(cell, "in-batch", 0.19).passes == float("inf")


def test_a_value_that_no_run_reached_is_no_reference(records):
    halfway = [
        record("b sox 16 0 0", falling(k5=0.5)),
        record("b in-batch 16 0 0", falling(k9=0.54)),
        record("b sox 64 0 0", falling(k7=0.8)),
    ]
    (records / "runs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in halfway))
    outcomes = read_outcomes(records)
    assert outcomes.cost(Cell("b", 16), "sox", 0.1).passes == GRID[5]
    assert outcomes.cost(Cell("b", 16), "in-batch", 0.1).passes == GRID[9]  # a gap of 0.08
    assert outcomes.cost(Cell("b", 64), "sox", 0.1).passes == GRID[7]  # the best of this cell
    assert outcomes.cost(Cell("b", 16), "sox", 0.01).passes == float("inf")  # no such target
    write_report(records)
    assert "| b**, 16 | sox 0.22 |  |  |  |  |" in (records / "report.md").read_text()


def test_the_report_says_who_wins_by_which_factor(records):
    write_report(records)
    report = (records / "report.md").read_text()
    assert "| a, 16 | sox 0.46 | sox 2.2 | - | - | - |" in report
    # 10 points of the grid are a factor of 10^(10/15) = 4.6.
    assert "| a, 16 | sox 2.2; 0.22 s | in-batch 10; 0.1 s | **4.6** |" in report
    assert "b*, 16" in report
    assert "b libauc 16 0 0 ended with ValueError: no positives." in report
    assert {path.name for path in records.glob("*.png")} == {"a.png", "b.png", "profiles.png"}


ODD = {
    "no gaps": {"name": "a odd 16 0 0", "seconds": 1.0, "passes": 1.0},
    "no time": {"name": "a odd 16 0 0", "gaps": [1.0], "passes": 1.0},
    "a word": record("a odd 16 0 0", ["low"]),
    "a number for gaps": record("a odd 16 0 0", 3),
    "words for numbers": record("a odd 16 0 0", [1.0], seconds="long"),
    "a short name": record("odd", [1.0]),
    "a batch of words": record("a odd many 0 0", [1.0]),
    "another problem": record("gone odd 16 0 0", [1.0]),
}


@pytest.mark.parametrize("flaw", ODD)
def test_an_odd_record_is_named_and_the_others_are_shown(records, flaw):
    file = records / "runs.jsonl"
    text = file.read_text()
    file.write_text(json.dumps(ODD[flaw]) + "\n{cut short\n" + text)
    with (
        pytest.warns(UserWarning, match=r"left out line 2 of .*runs\.jsonl: it is no record"),
        pytest.warns(UserWarning, match=rf"left out '{ODD[flaw]['name']}' of .*runs\.jsonl"),
    ):
        outcomes = read_outcomes(records)
    assert outcomes.solvers == ["sox", "in-batch", "libauc"]
    assert outcomes.cost(Cell("a", 16), "sox", 0.01).passes == GRID[20]


def test_a_name_that_is_no_text_is_left_out(records):
    with (records / "runs.jsonl").open("a") as file:
        file.write('{"name": 3}\n')
    with pytest.warns(UserWarning, match=r"left out line 7 of .*runs\.jsonl: it is no record"):
        assert read_outcomes(records).solvers == ["sox", "in-batch", "libauc"]
