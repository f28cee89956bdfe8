"""The docs cannot fall behind: an undocumented public name is found."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("mkdocs", reason="installed by `make docs`, which runs the same hook")

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import public_names  # noqa: E402


def test_every_public_name_is_on_a_page():
    assert public_names.problems(ROOT / "docs") == []


def test_a_missing_page_is_found(tmp_path):
    (tmp_path / "page.md").write_text("::: fcco.MSVRM\n")
    found = public_names.problems(tmp_path)
    assert "fcco.SOX is on no page" in found
    assert "fcco.MSVRM is on no page" not in found


def test_a_missing_docstring_is_found(monkeypatch):
    monkeypatch.setattr("fcco.SOX.__doc__", None)
    assert "fcco.SOX has no docstring" in public_names.problems(ROOT / "docs")
