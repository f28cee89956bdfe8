"""The notebooks run from top to bottom, and reach what their text says."""

import json
from pathlib import Path

import pytest
import torch

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples" / "notebooks").glob("*.ipynb"))


def code_cells(path):
    return [c for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code"]


def run(name):
    """Run the code cells of a notebook in order; returns the names that they leave."""
    (path,) = (path for path in NOTEBOOKS if path.stem == name)
    names = {"__name__": name}
    for k, cell in enumerate(code_cells(path)):
        exec(compile("".join(cell["source"]), f"{path.name}, code cell {k}", "exec"), names)
    return names


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_cleared(path):
    cells = code_cells(path)
    assert cells
    assert not any(cell["outputs"] or cell["execution_count"] for cell in cells)


@pytest.mark.slow
def test_f1_batch_size_1():
    names = run("f1_batch_size_1")
    y = names["y_train"]
    soft = {
        name: 1 - 2 * (p * y).sum().item() / (p.sum() + y.sum()).item()
        for name, (p, _) in names["runs"].items()
    }
    assert names["objective"] == pytest.approx(soft, abs=1e-5)
    assert soft["F1 of the batch"] > 0.88, "about that of calling everything positive"
    assert soft["fcco.losses.F1Loss"] < 0.76
    assert min(soft, key=soft.get) == "fcco.losses.F1Loss"
    torch.testing.assert_close(names["resumed"].state_dict(), names["criterion"].state_dict())


def test_cox_one_patient():
    names = run("cox_one_patient")
    assert names["start"] - names["optimum"] > 0.2
    assert 0 < names["reached"] - names["optimum"] < 0.03, "lifelines has the optimum"
    assert names["in_batch"][1] > names["start"], "one patient has no gradient: as initialized"
    assert names["in_batch"][8] < names["start"] - 0.1
    assert names["c_index"] > 0.62
    torch.testing.assert_close(names["resumed"].scores, names["criterion"].scores)


def test_methods_of_the_paper():
    names = run("methods_of_the_paper")
    work = {}
    for name, (curve, test, queries) in names["results"].items():
        assert curve[-1][1] < 0.1 * curve[0][1], name
        assert test < 0.2 * curve[0][1], name
        work[name] = queries
    samples = 500 * 5 * 4
    assert work["SOX"] == work["BSGD (no table)"] == 3 * samples
    # The first step evaluates one point.
    assert work["MSVRM-v1"] == 4 * samples - 20
    assert work["MSVRM-v2"] == 6 * samples - 60
    assert work["MSVRM-v3"] > 9 * (samples - 40), "and two exact passes"
    assert names["clipped"] < 0.5 * names["results"]["SOX"][0][0][1]
    assert len(names["axes"].lines) == len(names["methods"])
