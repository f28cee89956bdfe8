"""The studies on real data, run small on made-up files: every problem, method and contender."""

import math

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from fcco_lab.cli.app import app
from fcco_lab.studies import batches, rivals, rivals_embeddings, rivals_structured
from fcco_lab.studies.case import Case
from fcco_lab.studies.catalogue import STUDIES, run_case
from fcco_lab.studies.fitting import fit, held_out
from fcco_lab.studies.summaries import plot_batches, summary
from fcco_lab.studies.workloads import WORKLOADS

SMALL = {"test": 60, "train": 240}


@pytest.fixture(autouse=True)
def data_dir(tmp_path, monkeypatch):
    """A directory with small sets of the right form, in which features tell the labels."""
    random = np.random.RandomState(0)

    def save(name, make):
        arrays = {}
        for part, count in SMALL.items():
            arrays |= {f"{key}_{part}": value for key, value in make(count).items()}
        np.savez(tmp_path / f"{name}.npz", **arrays)

    def images(side):
        def make(count):
            y = np.arange(count) % 10
            x = random.randint(0, 60, (count, side, side)) + 15 * y[:, None, None]
            return {"x": x.astype(np.uint8), "y": y.astype(np.int64)}

        return make

    def people(count):
        x = (random.rand(count, 123) < 0.3).astype(np.uint8)
        x[:, 66:73] = 0
        x[np.arange(count), 66 + np.arange(count) % 5] = 1
        x[np.arange(count), 71 + np.arange(count) // 5 % 2] = 1
        return {"x": x, "y": (x[:, 0] | (random.rand(count) < 0.2)).astype(np.int64)}

    def subjects(count):
        x = random.normal(size=(count, 4)).astype(np.float32)
        times = random.exponential(np.exp(-x[:, 0])).round(1).astype(np.float32) + 0.1
        return {"x": x, "t": times, "e": (random.rand(count) < 0.7).astype(np.int64)}

    def queries(count):
        x = random.normal(size=(count, 6)).astype(np.float32)
        return {"x": x, "y": np.digitize(x[:, 0], [0, 1]), "q": np.full(count // 10, 10)}

    save("usps", images(4))
    save("fashion_mnist", images(4))
    save("a9a", people)
    save("surv_gbsg", subjects)
    save("lgb_lambdarank", queries)
    monkeypatch.setenv("FCCO_DATA", str(tmp_path))
    for cached in (batches._load, rivals._images, rivals._a9a, rivals_structured._least):
        cached.cache_clear()
    yield tmp_path
    for cached in (batches._load, rivals._images, rivals._a9a, rivals_structured._least):
        cached.cache_clear()


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_workload_trains_and_is_measured(workload, monkeypatch):
    monkeypatch.setattr(batches, "SEEDS", 2)
    monkeypatch.setattr(batches, "_RATES", (0.003,))
    methods = list(batches.CONTENDERS)
    method = methods[list(WORKLOADS).index(workload) % len(methods)]
    case = next(
        case
        for case in STUDIES["batches"]()
        if case.options == {"workload": workload, "method": method, "samples": 4}
    )
    record = run_case(Case("batches", case.name, case.options | {"steps": 4}))
    assert len(record["objectives"]) == len(record["metrics"]) == 2
    assert all(map(math.isfinite, record["objectives"] + record["metrics"]))
    assert str(record["samples"]) in summary("batches", [record])[0][2]


CONTENDERS = [(problem, name) for problem, (_, names) in rivals.PROBLEMS.items() for name in names]


@pytest.mark.parametrize(("problem", "contender"), CONTENDERS)
def test_a_contender_trains_and_is_measured(problem, contender, monkeypatch):
    monkeypatch.setattr(rivals, "STEPS", 4)
    monkeypatch.setattr(rivals_structured, "STEPS", 4)
    monkeypatch.setattr(rivals_embeddings, "STEPS", 4)
    monkeypatch.setattr(rivals, "RATES", (0.01,))
    record = run_case(Case("rivals", "", {"problem": problem, "contender": contender, "seeds": 1}))
    if contender == "LibAUC min-max" and not record["scores"]:
        assert summary("rivals", [record])[1][2] == "cannot be imported here"
        return
    assert record["scores"]
    for values in record["scores"].values():
        assert all(map(math.isfinite, values))
    assert "±" in summary("rivals", [record])[1][2]


def test_fit_keeps_the_weights_that_validated_best():
    model = torch.nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(0.0)

    def step():
        with torch.no_grad():
            model.weight.add_(1.0)

    best, _ = fit(model, step, None, 20, lambda model: -abs(model.weight.item() - 7))
    assert (best, model.weight.item()) == (0.0, 7.0)
    fit(model, step, None, 20, None)
    assert model.weight.item() == 27.0
    train, valid = held_out(50, seed=3)
    assert sorted([*train.tolist(), *valid.tolist()]) == list(range(50))


def test_a_diverged_run_is_counted_and_left_out_of_the_figure(tmp_path):
    records = [
        {
            "workload": "cox",
            "method": method,
            "samples": k,
            "metric": "C-index",
            "objectives": [1.0, math.inf if k == 4 and method == "BSGD" else 2.0],
            "metrics": [0.5, math.nan if k == 4 and method == "BSGD" else 0.6],
        }
        for method in ("BSGD", "SOX")
        for k in (16, 4)
    ]
    plot_batches(records, tmp_path)
    assert (tmp_path / "cox.png").stat().st_size > 1000
    rows = {row[1]: row[2:] for row in summary("batches", records)[1:]}
    assert rows["BSGD"][1].startswith("diverged (1 of 2)")
    assert rows["SOX"][0].startswith("1.5000 ± 0.7071")


def test_missing_data_is_named_before_anything_runs(tmp_path, monkeypatch):
    (tmp_path / "usps.npz").unlink()
    result = CliRunner().invoke(app, ["study", "rivals", "--data-dir", str(tmp_path)])
    assert "study rivals needs the data sets usps:" in str(result.exception)
