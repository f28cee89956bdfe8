"""What the README and the examples show runs as it stands."""

import re
import runpy
from pathlib import Path

import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.name)
def test_example(path, capsys):
    runpy.run_path(str(path))
    lines = capsys.readouterr().out.splitlines()
    numbers = [float(re.findall(r"[\d.]+", line)[1]) for line in lines]
    assert numbers[-1] < numbers[0], "the objective fell"


def test_readme(capsys):
    loop, estimator = re.findall(
        r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL
    )
    torch.manual_seed(0)
    exec(compile(loop, "README.md", "exec"), {})
    assert float(capsys.readouterr().out) < 0.05
    exec(compile(estimator, "README.md", "exec"), {})
    assert float(capsys.readouterr().out) > 0.98


def test_guide_objective_is_runnable():
    text = (ROOT / "docs" / "guide" / "objective.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names = {}
    exec(compile(code, "objective.md", "exec"), names)
    objective = names["GroupDRO"](3)
    batch = (torch.tensor([2, 0]), torch.randn(2, 4, 5), torch.zeros(2, 4, dtype=torch.int64))
    assert objective.inner(torch.nn.Linear(5, 3), batch).values.shape == (2, 1)


def test_libauc_page(capsys):
    """Every block of ours trains a model that scikit-learn finds good on samples it never saw."""
    text = (ROOT / "docs" / "libauc.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    ours = [block for block in blocks if not block.startswith("# LibAUC")]
    for block in blocks:
        compile(block, "libauc.md", "exec")  # LibAUC's side is Python, at least
    data, auc, precision, partial, groups, loss = ours
    names = {}
    exec(data, names)
    held_out = names["x"][1200:]
    tasks, eight = names["labels"][1200:], names["eight"][1200:]

    def scores(block):
        torch.manual_seed(0)
        names.pop("model", None)  # each block makes its own
        exec(compile(block, "libauc.md", "exec"), names)
        with torch.no_grad():
            return names["model"](held_out)

    assert roc_auc_score(tasks, scores(auc)) > 0.98
    assert float(capsys.readouterr().out) < 0.05
    assert average_precision_score(eight, scores(precision)) > 0.8
    assert float(capsys.readouterr().out) > 0.95
    assert roc_auc_score(eight, scores(partial), max_fpr=0.1) > 0.9
    assert float(capsys.readouterr().out) < 0.05
    assert roc_auc_score(eight, scores(groups)) > 0.95
    optimizer, stream = names["saved"]
    assert stream["step"] == 100
    assert "table" in optimizer["param_groups"][-1]["shared"]
    assert roc_auc_score(tasks, scores(loss)) > 0.98
