"""What the README and the examples show runs as it stands."""

import re
import runpy
from pathlib import Path

import pytest
import torch

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
