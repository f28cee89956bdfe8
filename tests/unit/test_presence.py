"""What the project says of itself to newcomers, package indexes and coding assistants is true."""

import re
import tomllib
from pathlib import Path

import pytest
import torch
import yaml

import fcco

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ADDRESS = PROJECT["urls"]["Homepage"]


def test_one_address():
    """Every file names the same repository, and only files that exist."""
    files = [ROOT / "llms.txt", ROOT / "CITATION.cff", ROOT / "pyproject.toml"]
    found = [url for file in files for url in re.findall(rf"{ADDRESS}[^\s)\"]*", file.read_text())]
    paths = [re.sub(rf"^{ADDRESS}(/(blob|tree)/main/)?", "", url) for url in found]
    assert len(paths) > 15
    missing = [path for path in paths if path != "/issues" and not (ROOT / path).exists()]
    assert not missing


def test_the_site_serves_what_the_repository_says():
    assert (ROOT / "docs" / "llms.txt").read_text() == (ROOT / "llms.txt").read_text()


def test_one_promise_of_versions():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "versions.yml").read_text())
    matrix = workflow["jobs"]["test"]["strategy"]["matrix"]
    lowest, newest = matrix["torch"]
    assert PROJECT["dependencies"] == [f"torch>={lowest.removesuffix('.0')}"]
    assert re.search(rf"^TORCH \?= {lowest}$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {cell["torch"] for cell in matrix["include"]} == {newest}
    pythons = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    assert matrix["python"] == [pythons[0], pythons[-1]]
    assert PROJECT["requires-python"] == f">={pythons[0]}"


def test_the_page_for_assistants():
    """It is short, its table builds losses that exist, and its program runs."""
    text = (ROOT / "AGENTS.md").read_text()
    assert len(text.split()) <= 400
    known = {
        "num_classes": 3,
        "num_groups": 4,
        "N": 8,
        "labels": torch.arange(8) % 2,
        "times": torch.rand(8),
        "events": torch.arange(8) % 2,
        "grades": torch.arange(8) % 3,
        "lengths": [4, 4],
    }
    calls = re.findall(r"`(\w+Loss\(.*?\))`", text[: text.index("## Change")])
    assert len(calls) == 10
    for call in calls:
        assert isinstance(eval(call, vars(fcco.losses) | known), torch.nn.Module)
    names = {}
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 2
    for block in blocks:
        exec(block, names)
    criterion = names["criterion"]
    assert criterion.seen.all()
    assert criterion.objective.on(names["labels"]).metric(names["scores"]) > 0


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.md")), ids=lambda path: path.stem
)
def test_issue_templates(path):
    """Each has what GitHub needs to list it, and names only pages that exist."""
    _, header, body = path.read_text().split("---\n", 2)
    assert {"name", "about", "labels"} <= set(yaml.safe_load(header))
    assert all((ROOT / page).exists() for page in re.findall(r"`(docs/\S+\.md)`", body))


def test_only_the_upload_may_sign():
    """The job that publishes runs no code of the repository."""
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "publish.yml").read_text())
    assert workflow["permissions"] == {"contents": "read"}
    build, publish = workflow["jobs"]["build"], workflow["jobs"]["publish"]
    assert "permissions" not in build
    assert publish["permissions"] == {"id-token": "write"}
    assert not any("run" in step or "checkout" in step["uses"] for step in publish["steps"])
