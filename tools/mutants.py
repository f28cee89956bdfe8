"""Break the library on purpose, one small fault at a time, and see whether its tests notice.

The faults are listed in ``mutants.toml`` beside this file. Each of them is applied to a copy of the
tree, never to the tree itself, and the tests of its room run there until the first one fails. A
fault that no test notices survives. This is an error unless the list says why it changes nothing.

    python tools/mutants.py                    # all of them
    python tools/mutants.py --only losses      # those whose room, file or fault contains "losses"

Results are appended to a file as they come. A later call skips what it finds there, unless the
fault, the file that it breaks or its tests have changed since.
"""

import argparse
import compileall
import hashlib
import json
import os
import py_compile
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch  # noqa: F401

ROOT = Path(__file__).resolve().parent.parent
LIST = Path(__file__).with_suffix(".toml")
TIMEOUT = 600
"""Seconds after which a fault that makes its tests hang counts as noticed."""


@dataclass(frozen=True)
class Mutant:
    """One fault: ``old`` occurs once in ``file`` and is replaced by ``new``."""

    room: str
    fault: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    select: str = ""  # which of these tests, as pytest's -k
    slow: bool = False  # whether it takes the slow tests to notice it
    equivalent: str = ""  # the reason why no test can notice it

    def apply(self, text: str) -> str:
        """Return the text of the file with the fault."""
        if (count := text.count(self.old)) != 1:
            raise SystemExit(
                f"{self.file}: the text to replace occurs {count} times, not once: {self.old!r}"
            )
        return text.replace(self.old, self.new)

    def digest(self, tree: Path) -> str:
        """Return a hash of what the result depends on, but for what the tests import."""
        files = {self.file, *(test.partition("::")[0] for test in self.tests)}
        return hashed(repr(self), *((tree / name).read_text() for name in sorted(files)))


def hashed(*texts: str) -> str:
    """Return a short hash of some texts."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def read_list() -> list[Mutant]:
    """Read the list, and check that every fault still fits its file."""
    mutants = [
        Mutant(room=room, **fault | {"tests": tuple(fault["tests"])})
        for room, faults in tomllib.loads(LIST.read_text()).items()
        for fault in faults
    ]
    for mutant in mutants:
        mutant.apply((ROOT / mutant.file).read_text())
        if mutant.old == mutant.new:
            raise SystemExit(f"{mutant.file}: {mutant.fault!r} changes nothing")
    return mutants


def copy_tree(target: Path) -> None:
    """Copy the files that git knows or would add, as they are now."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    # Caches of bytecode are usually matched by time and size, which a fault may not change. These
    # are matched by a hash of the source.
    mode = py_compile.PycInvalidationMode.CHECKED_HASH
    compileall.compile_dir(target / "src", quiet=1, invalidation_mode=mode)


def run(tree: Path, *arguments: str) -> tuple[int, str]:
    """Run some tests in a copy; return pytest's exit status, and the test that failed."""
    output = tree / "pytest.out"
    # A forked process has torch already, whose import would take longer than most of the tests.
    process = get_context("fork").Process(target=run_pytest, args=(tree, arguments, output))
    process.start()
    process.join(TIMEOUT)
    if process.is_alive():
        process.kill()
        process.join()
        return 1, ""
    text = output.read_text()
    if process.exitcode not in (0, 1, 2):
        raise SystemExit(f"pytest cannot run {' '.join(arguments)}:\n{text}")
    failures = [line for line in text.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return process.exitcode, failures[0].split(" ", 1)[1].split(" - ")[0] if failures else ""


def run_pytest(tree: Path, arguments: tuple[str, ...], output: Path) -> NoReturn:
    """Run pytest in this process, which ends with its status."""
    os.chdir(tree)
    sys.path[:0] = [str(tree / "src")]
    os.environ["PYTHONPATH"] = str(tree / "src")  # for the processes that tests start
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # the tests need none
    with output.open("w") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    status = 3  # pytest's own status of an internal error
    try:
        status = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *arguments]))
    finally:
        sys.stdout.flush()
        os._exit(status)


class Results:
    """The results so far, one JSON object per line of a file, by the hash of what they are of."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        self.path = path
        self.found = {}
        for line in path.read_text().splitlines():
            result = json.loads(line)
            self.found[result["digest"]] = result

    def add(self, **result: Any) -> None:
        """Append a result to the file."""
        self.found[result["digest"]] = result
        with self.path.open("a") as file:
            file.write(json.dumps(result) + "\n")


def try_out(tree: Path, mutant: Mutant) -> dict[str, Any]:
    """Apply a fault to the copy, run its tests, and take it back."""
    path = tree / mutant.file
    text, start = path.read_text(), time.monotonic()
    path.write_text(mutant.apply(text))
    marks = ["-m", ""] if mutant.slow else []
    status, test = run(tree, *marks, *mutant.tests, "-k", mutant.select)
    path.write_text(text)
    seconds = round(time.monotonic() - start, 1)
    verdict = "killed" if status else "SURVIVED"
    print(f"{verdict:8} {seconds:6} s  {mutant.room}: {mutant.fault}", flush=True)
    return {
        "digest": mutant.digest(tree),
        "room": mutant.room,
        "fault": mutant.fault,
        "killed": status != 0,
        "by": test,
        "seconds": seconds,
    }


def check_clean(tree: Path, tests: set[str], results: Results) -> None:
    """Run the tests that noticed a fault without any: a test that fails anyway notices nothing."""
    sources = [path.read_text() for path in sorted((tree / "src").rglob("*.py"))]
    digest = hashed(*sorted(tests), *sources)
    if tests and digest not in results.found:
        status, test = run(tree, "-m", "", *sorted(tests))
        if status:
            raise SystemExit(f"{test} fails without any fault")
        results.add(digest=digest, clean=sorted(tests))


def main() -> int:
    """Apply the chosen faults one after the other, and print what became of them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="a part of the room, the file or the fault")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after these")
    parser.add_argument("--results", type=Path, default=ROOT / "runs" / "mutants.jsonl")
    given = parser.parse_args()
    chosen = [m for m in read_list() if given.only in f"{m.room} {m.file} {m.fault}"]
    results, began = Results(given.results), time.monotonic()
    counts: Counter[str] = Counter()
    noticed: set[str] = set()
    with tempfile.TemporaryDirectory() as directory:
        tree = Path(directory)
        copy_tree(tree)
        for mutant in chosen:
            found = results.found.get(mutant.digest(tree))
            if found is None:
                if time.monotonic() - began > given.seconds:
                    print("out of time: call again to go on")
                    return 2
                found = try_out(tree, mutant)
                results.add(**found)
            if found["killed"]:
                counts["killed"] += 1
                noticed |= {found["by"]} - {""}
            elif mutant.equivalent:
                counts["equivalent"] += 1
            else:
                counts["survived"] += 1
                print(f"SURVIVED {mutant.room}: {mutant.fault} ({mutant.file})")
        check_clean(tree, noticed, results)
    print(f"{len(chosen)} mutants:", ", ".join(f"{n} {what}" for what, n in counts.items()))
    return 1 if counts["survived"] else 0


if __name__ == "__main__":
    sys.exit(main())
