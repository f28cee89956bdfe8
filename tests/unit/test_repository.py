"""Files at the top of the repository agree with one another and with the code."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

import fcco

ROOT = Path(__file__).parents[2]


def anchors(page):
    """The anchors of the headings of a page, as GitHub and mkdocs make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def broken_links(page):
    for path, anchor in re.findall(r"\]\(([^):#]*)(?:#([^)]+))?\)", page.read_text()):
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield f"{path}#{anchor}"


@pytest.mark.parametrize("page", sorted(ROOT.glob("*.md")), ids=lambda page: page.name)
def test_links(page):
    assert not list(broken_links(page))


def test_a_broken_link_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A page\n[here](#a-page), [there](other.md), [nowhere](#b-page)\n")
    assert list(broken_links(page)) == ["other.md#", "#b-page"]


def test_one_version():
    cited = dict(
        re.findall(r"^([\w-]+): (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    )
    sections = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    released = [section for section in sections if section != "Unreleased"]
    assert released[0] == f"{cited['version']} ({cited['date-released']})"
    if ".dev" not in fcco.__version__:  # between releases, both are those of the last one
        assert cited["version"] == fcco.__version__


def test_ci_runs_what_a_contributor_runs():
    assert "run: .ci/run\n" in (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    targets = re.findall(r"^make (\w+)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    rules = (ROOT / "CONTRIBUTING.md").read_text()
    assert targets
    assert all(f"`make {target}`" in rules for target in targets)


def test_every_mutant_fits_its_file():
    """A fault whose line has changed would no longer be tried out."""
    spec = importlib.util.spec_from_file_location("mutants", ROOT / "tools" / "mutants.py")
    tool = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = tool  # where data classes look for their module
    spec.loader.exec_module(tool)
    mutants = tool.read_list()
    assert all((ROOT / test).exists() for mutant in mutants for test in mutant.tests)
    assert len({mutant.fault for mutant in mutants}) == len(mutants)
    with pytest.raises(SystemExit, match="occurs 0 times"):
        mutants[0].apply("")
