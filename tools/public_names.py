"""A mkdocs hook: the build fails if a public name is undocumented.

Public is what a package lists in ``__all__``. Documented means that it has a docstring (or, for a
constant, a string below it) and that some page has a line ``::: its.path``.
"""

import ast
import importlib
import inspect
import itertools
import re
from pathlib import Path

from mkdocs.exceptions import PluginError

PACKAGES = (
    "fcco",
    "fcco.data",
    "fcco.distributed",
    "fcco.estimators",
    "fcco.losses",
    "fcco.methods",
    "fcco.objectives",
    "fcco.optim",
    "fcco.schedules",
    "fcco.updates",
    "fcco_lab.datasets",
)
EXEMPT = {"__version__"}


def public_names() -> dict[str, object]:
    """Every public name with its object, by the path it is imported from."""
    names = {}
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in module.__all__:
            value = getattr(module, name)
            if name not in EXEMPT and not inspect.ismodule(value):
                names[f"{package}.{name}"] = value
    return names


def pages(docs: Path) -> set[str]:
    """What the pages show, by the last part of its path."""
    shown = set()
    for page in docs.rglob("*.md"):
        for path in re.findall(r"^::: (\S+)", page.read_text(), flags=re.MULTILINE):
            shown.add(path.rsplit(".", 1)[1])
    return shown


def constant_has_docstring(path: str) -> bool:
    """Whether the constant ``path`` is followed by a string, wherever its package defines it."""
    package, name = path.rsplit(".", 1)
    for file in Path(importlib.import_module(package).__file__).parent.glob("*.py"):
        body = ast.parse(file.read_text()).body
        for here, below in itertools.pairwise(body):
            targets = here.targets if isinstance(here, ast.Assign) else [getattr(here, "target", 0)]
            if any(getattr(target, "id", None) == name for target in targets):
                value = getattr(below, "value", None)
                return isinstance(value, ast.Constant) and isinstance(value.value, str)
    return False


def problems(docs: Path) -> list[str]:
    """What is missing."""
    shown, missing = pages(docs), []
    for path, value in public_names().items():
        if path.rsplit(".", 1)[1] not in shown:
            missing.append(f"{path} is on no page")
        described = inspect.isclass(value) or inspect.isfunction(value)
        if not (value.__doc__ if described else constant_has_docstring(path)):
            missing.append(f"{path} has no docstring")
    return missing


def on_pre_build(config) -> None:
    """Called by mkdocs."""
    missing = problems(Path(config["docs_dir"]))
    if missing:
        raise PluginError("undocumented public names:\n  " + "\n  ".join(missing))
