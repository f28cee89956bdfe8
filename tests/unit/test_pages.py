"""Every Python block of the README and of the pages in docs runs as it stands.

The blocks of one page share a namespace and run in order. A block below a comment
``<!-- not run: why -->`` is only compiled.
"""

import re
import socket
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from sklearn.metrics import average_precision_score

import fcco
from fcco.methods import REGISTRY

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"(<!-- not run: \S.*? -->\n+)?^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
OWN_TESTS = {"README.md", "losses.md", "other_libraries.md"}
LONG = {"estimators.md"}
"""Pages that train for minutes."""
PAGES = [
    page
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if "results" not in page.parts and BLOCK.search(page.read_text())
]


@pytest.fixture(autouse=True)
def one_rank_with_data(tmp_path, monkeypatch):
    """What pages may rely on: small data sets in ``data``, torchrun's variables, a seed."""
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    parts = {"train": 240, "test": 60}
    x = {part: random.normal(size=(n, 4)).astype(np.float32) for part, n in parts.items()}
    kinds = {
        "usps": {
            "x": lambda n, x: random.integers(256, size=(n, 4, 4), dtype=np.uint8),
            "y": lambda n, x: np.arange(n) % 10,
        },
        "surv_gbsg": {
            "x": lambda n, x: x,
            "t": lambda n, x: random.exponential(np.exp(-x[:, 0])).astype(np.float32),
            "e": lambda n, x: (random.random(n) < 0.7).astype(np.int64),
        },
        "lgb_lambdarank": {
            "x": lambda n, x: x,
            "y": lambda n, x: np.digitize(x[:, 0], [0, 1]),
            "q": lambda n, x: np.full(n // 10, 10),
        },
    }
    for name, makers in kinds.items():
        arrays = {
            f"{key}_{part}": make(n, x[part])
            for part, n in parts.items()
            for key, make in makers.items()
        }
        np.savez(tmp_path / "data" / f"{name}.npz", **arrays)
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    ranks = {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "localhost", "MASTER_PORT": port}
    for variable, value in ranks.items():
        monkeypatch.setenv(variable, str(value))
    registered = set(REGISTRY)
    torch.manual_seed(0)
    yield
    for name in set(REGISTRY) - registered:
        del REGISTRY[name]
    if dist.is_initialized():
        dist.destroy_process_group()


def run(page):
    """Run the blocks of a page one by one, and give the namespace after each."""
    names = {"__name__": page.stem}
    text = page.read_text()
    assert text.count("```python") == len(BLOCK.findall(text)), "a block that was not recognised"
    for reason, block in BLOCK.findall(text):
        program = compile(block, str(page), "exec")
        if not reason:
            exec(program, names)
            yield names


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.name, marks=[pytest.mark.slow] if page.name in LONG else [])
        for page in PAGES
        if page.name not in OWN_TESTS
    ],
)
def test_page(page):
    assert list(run(page))


def test_readme(capsys):
    means, loss, loop = (float(capsys.readouterr().out) for _ in run(ROOT / "README.md"))
    assert means < 0.6, "1 - F1; 0.64 with the F1 of a batch"
    assert loss < -0.1, "below the partial likelihood of equal scores"
    assert loop < 0.05, "the exact objective of the test set; 0.5 at the start"


def test_losses_guide(capsys):
    pages = run(ROOT / "docs" / "guide" / "losses.md")
    next(pages)
    value, start = map(float, re.findall(r"\d+\.\d+", capsys.readouterr().out))
    assert value < start - 0.2
    assert list(pages)


def test_other_libraries_page():
    """The blocks train models that are good on samples they never saw, or at least train them."""
    pages = run(ROOT / "docs" / "guide" / "other_libraries.md")
    names = next(pages)
    x, eight = names["x"], names["eight"]
    next(pages)
    with torch.no_grad():
        assert average_precision_score(eight[1200:], names["model"](x[1200:])) > 0.8
    next(pages)
    with torch.no_grad():
        assert names["criterion"].objective.metric(names["model"](x)) > 0.55  # 0.5: no order
    assert list(pages)


def test_inputs_page():
    """Every call of the table runs, with tensors of the shapes that its row describes."""
    text = (ROOT / "docs" / "guide" / "inputs.md").read_text()
    rows = [line.split("|") for line in text.splitlines() if "`L." in line]
    n, group_of = 12, torch.arange(12) % 4
    names = {
        "L": fcco.losses,
        "O": fcco.objectives,
        "N": n,
        "f": lambda u: u.square().sum(-1),
        "p": torch.rand(n, requires_grad=True),
        "y": torch.arange(n) % 2,
        "p_tasks": torch.rand(n, 3, requires_grad=True),
        "y_tasks": torch.arange(3 * n).view(n, 3) % 2,
        "soft": torch.rand(2, 1, 4, 4, requires_grad=True),
        "masks": torch.rand(2, 1, 4, 4) < 0.5,
        "predicted": torch.rand(n, requires_grad=True),
        "real": torch.rand(n),
        "statistics": torch.rand(n, 3, requires_grad=True),
        "groups": group_of,
        "group_of": group_of,
        "targets": torch.arange(n) % 2,
        "labels": torch.arange(n) % 2,
        "scores": torch.randn(n, requires_grad=True),
        "losses": torch.rand(n, requires_grad=True),
        "index": torch.arange(n),
        "times": torch.rand(n),
        "events": torch.rand(n) < 0.7,
        "grades": torch.arange(n) % 3,
        "lengths": torch.tensor([6, 6]),
        "w": torch.rand(n),
        "first": torch.randn(n, 5, requires_grad=True),
        "second": torch.randn(n, 5, requires_grad=True),
        "classes": torch.arange(n) % 3,
        "model": torch.nn.Linear(5, 2),
    }
    names["objective"] = fcco.objectives.GroupDRO(group_of, names["targets"], temperature=0.5)
    names["batch"] = names["objective"].batch(torch.randn(n, 5), names["index"])
    assert len(rows) > 20
    assert sum("<br>`O." in row[2] for row in rows) > 18
    for row in rows:
        (call,) = re.findall(r"`(L\..*?)`", row[2])
        loss = eval(call, names)
        assert loss.isfinite(), call
        assert loss.requires_grad, call
        for objective in re.findall(r"`(O\..*?)`", row[2]):
            assert isinstance(eval(objective, names), fcco.Objective), objective


def test_a_block_that_fails_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nx = 1\n```\n\n```python\nassert x == 2\n```\n")
    with pytest.raises(AssertionError):
        list(run(page))
    page.write_text("<!-- not run: it would fail -->\n```python\nassert False\n```\n")
    assert not list(run(page))
    page.write_text("<!-- not run: -->\n```python\nassert False\n```\n")
    with pytest.raises(AssertionError):  # a reason is needed
        list(run(page))
