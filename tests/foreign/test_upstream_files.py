"""PyTorch's own ``test_modules.py`` and ``test_optim.py`` over the losses and the optimizers.

The wheel does not contain these files, and they are not ours to copy. Where ``FCCO_PYTORCH_TESTS``
names the directory ``test`` of a source tree, they run as they are, in a process of their own, with
the classes of fcco in the place of torch's. Debian's source package has them:

    apt-get source --download-only pytorch    # a line deb-src in sources.list
    tar xf pytorch_*.orig.tar.xz --wildcards '*/test/test_modules.py' '*/test/test_optim.py'
    FCCO_PYTORCH_TESTS=pytorch-*/test pytest -m slow tests/foreign/test_upstream_files.py

A test that fails must be one of those that ``NOT_GIVEN`` gives a reason for, with the error that is
expected of it, and each of these must fail somewhere.
"""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from foreign import test_torch_modules, test_torch_optimizers

pytestmark = pytest.mark.slow

SOURCES = os.environ.get("FCCO_PYTORCH_TESTS")

ERRORS = {
    "modules": {
        "factory_kwargs": r"TypeError: .* got an unexpected keyword argument 'device'",
        "device_ctx_init": r"(NotImplemented|Runtime)Error: .* meta tensors?\b",
        "to_empty": r"(NotImplemented|Runtime)Error: .* meta (tensors?|device)\b",
        "forward": r"Buffer \w+(\.\w+)? is of dtype torch.float\d+ instead of the expected",
        "if_train_and_eval_modes_differ": r"AttributeError: .* has no attribute '_writes'",
        "memory_format": r"AssertionError: False is not true",
        "to": r"RuntimeError: where expected condition to be a boolean tensor",
    },
    "optimizers": {
        "errors": r"TypeError: 'NoneType' object is not iterable",
        "tensor_lr": r".*not found in 'lr must be a finite number >= 0",
        "state_dict_deterministic": r"(The failure occurred for item|Additional keys).*",
    },
}
"""The error of a property that is not given, by the name of PyTorch's test."""

REASONS = {
    "modules": test_torch_modules.NOT_GIVEN,
    "optimizers": test_torch_optimizers.NOT_GIVEN,
}


@pytest.mark.skipif(SOURCES is None, reason="FCCO_PYTORCH_TESTS names no source tree of PyTorch")
@pytest.mark.parametrize(
    ("what", "file", "least"),
    [("modules", "test_modules.py", 600), ("optimizers", "test_optim.py", 500)],
)
def test_pytorchs_file(what, file, least):
    done = subprocess.run(
        [sys.executable, Path(__file__).parent / "upstream_run.py", what, Path(SOURCES) / file],
        env=os.environ | {"PYTORCH_PRINT_REPRO_ON_FAILURE": "0", "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    outcomes = json.loads(done.stdout.splitlines()[-1])
    counts: Counter[str] = Counter()
    unexpected, met = {}, set()
    for name, outcome in outcomes.items():
        kind, _, error = outcome.partition(": ")
        counts[kind] += 1
        if kind != "failed":
            continue
        expected = [
            key
            for key, pattern in ERRORS[what].items()
            if re.match(rf"test_{key}(_is_named\w+)?_[A-Za-z]", name) and re.match(pattern, error)
        ]
        met.update(expected)
        if not expected:
            unexpected[name] = error
    assert not unexpected
    assert met == ERRORS[what].keys() <= REASONS[what].keys()
    assert counts["passed"] >= least, counts
