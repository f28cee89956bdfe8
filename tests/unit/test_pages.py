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
from sklearn.metrics import average_precision_score, roc_auc_score

from fcco.methods import REGISTRY

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"(<!-- not run: \S.*? -->\n+)?^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
OWN_TESTS = {"README.md", "libauc.md", "losses.md"}
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


def test_libauc_page(capsys):
    """Every block trains a model that scikit-learn finds good on samples it never saw."""

    def printed():
        return float(capsys.readouterr().out)

    def score(metric, labels, **options):
        torch.manual_seed(0)
        names = next(pages)
        with torch.no_grad():
            return metric(labels, names["model"](names["x"][1200:]), **options)

    pages = run(ROOT / "docs" / "libauc.md")
    names = next(pages)
    tasks, eight = names["labels"][1200:], names["eight"][1200:]
    assert score(average_precision_score, eight) > 0.8
    assert score(roc_auc_score, tasks) > 0.98
    assert printed() < 0.05
    assert score(average_precision_score, eight) > 0.8
    assert printed() > 0.95
    assert score(roc_auc_score, eight, max_fpr=0.1) > 0.9
    assert printed() < 0.05
    assert score(roc_auc_score, eight) > 0.95
    optimizer, stream = names["saved"]
    assert stream["step"] == 100
    assert "table" in optimizer["param_groups"][-1]["shared"]
    assert score(roc_auc_score, tasks) > 0.98
    assert not list(pages)


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
