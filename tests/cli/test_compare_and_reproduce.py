"""``fcco compare`` and ``fcco reproduce``: what is run is fair, kept, and drawn."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace

import pytest
from cli.report_page import Page
from typer.testing import CliRunner

from fcco.methods import REGISTRY
from fcco_lab.cli.app import app
from fcco_lab.comparison import run_configs
from fcco_lab.files import file_name
from fcco_lab.reproduction.artefacts import draw
from fcco_lab.reproduction.plan import ARTEFACTS, CONTENDERS, Contender, Item
from fcco_lab.reproduction.scales import SCALES
from fcco_lab.reproduction.tuning import chosen, final_runs, grid, tuning_runs
from fcco_lab.results import Results
from fcco_lab.runs import read_runs
from fcco_lab.training import Config
from fcco_lab.tuning import for_tuning

PAPER, LAPTOP = SCALES["paper"], SCALES["laptop"]


def run(*arguments):
    return CliRunner().invoke(app, [str(word) for word in arguments])


@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
def test_every_contender_is_tuned_alike(scale):
    own = [c for c in CONTENDERS if c.method in REGISTRY]
    assert {len(grid(scale, contender)) for contender in own} == {
        len(scale.weights) * len(next(iter(scale.lrs.values())))
    }
    if scale.name != "paper":  # where the paper's grid has sixteen pairs of alpha and beta
        assert {len(grid(scale, contender)) for contender in CONTENDERS} == {
            len(grid(scale, own[0]))
        }


def test_paper_scale_is_the_papers():
    items = list(ARTEFACTS["table-auc"](PAPER))
    assert len({item.data for item in items}) == 8
    configs = tuning_runs(PAPER, items).values()
    assert {config.network for config in configs} == {"resnet18"}
    assert {config.samples_per_block for config in configs} == {128}
    blocks = {config.data: config.blocks_per_step for config in configs}
    assert blocks.pop("cifar100") == 50
    assert set(blocks.values()) == {5}
    ours = [config for config in configs if config.method == "msvrm-v2"]
    assert (
        {config.alpha for config in ours} == {config.beta for config in ours} == {0.1, 0.5, 0.9, 1}
    )
    assert {config.lr for config in ours} == {1e-4, 1e-3, 2e-3, 5e-3, 1e-2}
    assert PAPER.seeds == 5
    networks = Counter(item.options["network"] for item in ARTEFACTS["figure3"](PAPER))
    assert networks == {"resnet18": 7, "resnet34": 7, "densenet121": 7}
    assert {item.data for item in ARTEFACTS["figure3"](PAPER)} == {"svhn"}
    assert {item.data for item in ARTEFACTS["figure2"](PAPER)} == {"cifar100"}
    assert {i.options["blocks_per_step"] for i in ARTEFACTS["figure4"](PAPER)} == {2, 5, 9}
    assert {item.data for item in ARTEFACTS["figure4"](PAPER)} == {"fashion_mnist"}


def tuning_records(scale, items, auc=lambda config: config.lr):
    for config in tuning_runs(scale, items).values():
        record = {"config": config.as_record(), "status": "finished", "auc": auc(config)}
        yield {"name": config.name, **record}


@pytest.mark.parametrize("name", ARTEFACTS)
def test_runs_of_a_figure_have_equal_work_and_other_seeds_than_tuning(name):
    items = list(ARTEFACTS[name](LAPTOP))
    tuned = list(tuning_records(LAPTOP, items))
    runs = final_runs(LAPTOP, items, tuned).values()
    assert len(runs) == sum(item.options.get("seeds", 3) for item in items)
    tasks = {(config.data, config.network) for config in runs}
    assert len({(config.data, config.network, config.work) for config in runs}) == len(tasks)
    assert {config.steps for config in runs} == {0}
    assert {config.seed for config in runs} == {0, 1, 2}
    assert {config.holdout for config in runs} == {0.0}
    for record in tuned:
        assert record["config"]["holdout"] == 0.2
        assert record["config"]["seed"] not in (0, 1, 2)


def test_the_setting_with_the_best_held_out_auc_is_taken():
    item = Item("mnist", Contender("sox", "plain"))  # tuned on usps
    best = {"lr": 1.0, "alpha": 0.9, "beta": 0.9}

    def auc(config):
        return 0.9 if (config.lr, config.alpha, config.beta) == (1.0, 0.9, 0.9) else 0.8

    records = list(tuning_records(LAPTOP, [item], auc))
    other = dict(records[0], config={**records[0]["config"], "method": "msvrm-v1"}, auc=1.0)
    diverged = dict(records[1], status="diverged", auc=None)
    assert chosen(LAPTOP, item, [*records, other, diverged]) == best
    with pytest.raises(ValueError, match="every setting of sox plain diverged"):
        chosen(LAPTOP, item, [diverged])


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", ARTEFACTS)
def test_every_figure_and_table_is_drawn_from_records_alone(tmp_path, name):
    scale = replace(LAPTOP, sets=("usps", "mnist"), networks=("cnn",), seeds=1)
    items = list(ARTEFACTS[name](scale))
    curve = [
        dict.fromkeys(("step", "samples", "values", "gradients", "work", "seconds"), k * 10)
        | {"objective": 0.5 / (k + 1), "auc": 0.5 + 0.1 * k, "ap": 0.4}
        for k in range(3)
    ]
    last = {key: curve[-1][key] for key in ("objective", "auc", "ap")}
    records = [
        {"name": run, "config": config.as_record(), "status": "finished", "curve": curve} | last
        for run, config in final_runs(scale, items, tuning_records(scale, items)).items()
    ]
    # A contender that one data set lacks is left out of the profiles, and nothing else.
    written = draw(name, records[:-1], tmp_path)
    assert written
    for path in written:
        assert path.stat().st_size > 100
    if name == "table-auc":
        assert "| min-max | **.7000** | |" in written[0].read_text()
        assert tmp_path / "profiles-queries.png" in written


@pytest.fixture
def small(monkeypatch):
    scale = replace(SCALES["quick"], network="linear", networks=("linear", "mlp"), passes=12)
    monkeypatch.setitem(SCALES, "quick", scale)


@pytest.mark.slow
def test_reproduce_tunes_runs_draws_and_resumes(tmp_path, small):
    first = run("reproduce", "figure2", "--quick", "--output", tmp_path, "--workers", 1)
    assert first.exit_code == 0, first.output
    records = read_runs([tmp_path / "quick" / "runs.jsonl"])
    assert Counter(r["config"]["method"] for r in records) == dict.fromkeys(
        [f"{family}-v{k}" for family in ("msvrm", "variant") for k in (1, 2, 3)], 2
    )
    for x in ("samples", "queries", "seconds"):
        image = tmp_path / "quick" / f"figure2-{x}.png"
        assert image.read_bytes().startswith(b"\x89PNG")
    kept = (tmp_path / "quick" / "runs.jsonl").read_text()
    again = run("reproduce", "figure2", "--quick", "--output", tmp_path, "--workers", 1)
    assert again.exit_code == 0
    assert (tmp_path / "quick" / "runs.jsonl").read_text() == kept


def test_reproduce_says_what_it_lacks(tmp_path, small, monkeypatch):
    monkeypatch.delenv("FCCO_DATA", raising=False)
    wrong = run("reproduce", "figure9")
    assert isinstance(wrong.exception, ValueError)
    assert "did you mean 'figure" in str(wrong.exception)
    empty = run("reproduce", "figure1", "--data-dir", tmp_path)
    assert isinstance(empty.exception, ValueError)
    assert "--data-dir" in str(empty.exception)
    listed = run("reproduce", "figure4", "--quick", "--dry-run")
    assert "6 runs to tune, 36 runs" in listed.output
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_compare_gives_all_the_same_work(tmp_path):
    words = ("--methods", "sox,msvrm-v1,msvrm-v3:normalized,cross-entropy,min-max", "--seeds", 2)
    budget = ("--steps", 15, "--network", "linear", "--evaluations", 3)
    done = run("compare", *words, *budget, "--output", tmp_path)
    assert done.exit_code == 0, done.output
    records = read_runs([tmp_path])
    assert len(records) == 10
    budget = 15 * 3 * 5 * 32
    for record in records:
        work = [look["work"] for look in record["curve"]]
        assert work[-1] >= budget > work[-2]
    assert "AdaMSVRM-v3" in done.output
    report = (tmp_path / "report.html").read_text()
    assert len(report) < 1_000_000
    assert len(Page(report).rows(0)) == 5
    assert (tmp_path / "curves.png").exists()


def test_compare_names_the_method_it_does_not_know(tmp_path):
    wrong = run("compare", "--methods", "sox,msvrm-v22", "--output", tmp_path)
    assert "did you mean 'msvrm-v2'" in str(wrong.exception)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_sigterm_ends_the_workers_and_the_same_command_goes_on(tmp_path):
    """One worker: the second run is under way when the first has been kept."""
    command = [sys.executable, "-m", "fcco_lab", "compare", "--methods", "cross-entropy,msvrm-v2"]
    command += ["--network", "linear", "--steps", "400", "--seeds", "2", "--output", tmp_path]
    command += ["--evaluations", "2", "--workers", "1"]
    started = subprocess.Popen(
        command,
        start_new_session=True,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    path = tmp_path / "runs.jsonl"
    deadline = time.monotonic() + 120
    while not (path.exists() and path.read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    started.send_signal(signal.SIGTERM)
    _, errors = started.communicate(timeout=60)
    assert started.returncode == 1
    assert "the same command goes on" in errors
    assert "Traceback" not in errors
    for _ in range(100):  # the session is empty soon after
        try:
            os.killpg(started.pid, 0)
        except ProcessLookupError:
            break
        time.sleep(0.1)
    else:
        pytest.fail("a worker is left")
    before = set(Results(path).records)
    assert 1 <= len(before) < 4
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=200)
    assert "test AUC" in done.stdout
    assert set(Results(path).records) > before
    assert len(Results(path).records) == 4


def record(config, **more):
    """The record of a run without an evaluation."""
    known = {"name": config.name, "config": config.as_record(), "status": "finished", "curve": []}
    return known | more


@pytest.mark.parametrize("command", ["compare", "tune", "reproduce figure2 --quick"])
def test_records_of_other_data_are_refused(tmp_path, monkeypatch, command):
    monkeypatch.setattr("fcco_lab.comparison.run_jobs", lambda *_, **__: pytest.fail("it ran"))
    config, file = Config(objective="auc-exp"), tmp_path / "runs.jsonl"
    if command == "tune":
        config = for_tuning(config)
    elif command != "compare":
        quick = SCALES["quick"]
        config = next(iter(tuning_runs(quick, list(ARTEFACTS["figure2"](quick))).values()))
        file = tmp_path / "quick" / "tuning.jsonl"
    Results(file).add(record(config, content={"training_data": "others"}))
    objective = () if "reproduce" in command else ("--objective", config.objective)
    done = run(*command.split(), *objective, "--output", tmp_path)
    assert isinstance(done.exception, ValueError), done.output
    assert f"digits has changed since {file} was written (others there, " in str(done.exception)


def test_a_record_that_cannot_be_used_is_named(tmp_path):
    file, config = tmp_path / "runs.jsonl", Config()
    Results(file).add({"name": config.name, "status": "finished"})
    with pytest.raises(ValueError, match=r"a record of .*runs\.jsonl: it has no config"):
        run_configs([config], file, data_dir=None, workers=1, what="")


def test_unfinished_runs_of_another_command_stay(tmp_path):
    file, config = tmp_path / "runs.jsonl", Config()
    Results(file).add(record(config))
    mine, other = (tmp_path / "unfinished-runs" / file_name(name) for name in (config.name, "o"))
    for run_directory in (mine, other):
        run_directory.mkdir(parents=True)
    run_configs([config], file, data_dir=None, workers=1, what="")
    assert list(other.parent.iterdir()) == [other]
    other.rmdir()
    run_configs([config], file, data_dir=None, workers=1, what="")
    assert not other.parent.exists()
