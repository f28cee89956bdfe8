"""Run one of PyTorch's own test files over the classes of fcco: a program of its own.

    python upstream_run.py modules path/to/pytorch/test/test_modules.py
    python upstream_run.py optimizers path/to/pytorch/test/test_optim.py

The file is loaded as it is, after ``module_db`` or ``optim_db`` was replaced in the installed
torch. The last line of the output is a JSON object: the outcome of every test by its name.
"""

import importlib.util
import json
import sys
import types
import unittest
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))


def stand_in(name: str, **contents: Any) -> None:
    """Put a module in the place of one that is not here and that no test of ours needs."""
    module = types.ModuleType(name)
    vars(module).update(contents)
    sys.modules.setdefault(name, module)


def replace_modules() -> None:
    """Let ``module_db`` hold the losses."""
    from foreign.loss_cases import CASES, LossCase
    from torch.testing._internal import common_modules as theirs

    by_class: dict[type, list[LossCase]] = defaultdict(list)
    for case in CASES:
        by_class[case.cls].append(case)

    def info(cls: type, cases: list[LossCase]) -> Any:
        def inputs(module_info, device, dtype, requires_grad, training, **kwargs):
            return [
                theirs.ModuleInput(
                    constructor_input=theirs.FunctionInput(*case.args, **case.kwargs),
                    forward_input=theirs.FunctionInput(
                        *(part.to(device) for part in case.call_inputs(dtype, requires_grad))
                    ),
                    desc=case.name,
                )
                for case in cases
            ]

        return theirs.ModuleInfo(
            cls, module_inputs_func=inputs, supports_gradgrad=False, train_and_eval_differ=True
        )

    theirs.module_db[:] = [info(cls, cases) for cls, cases in by_class.items()]


def replace_optimizers() -> None:
    """Let ``optim_db`` hold the optimizers."""
    from foreign.plain_optimizers import ADAPTED, SETTINGS
    from torch.testing._internal import common_optimizers as theirs

    for name in ("test_lrscheduler", "test_optim", "test_swa_utils"):
        stand_in("optim")
        classes = ("TestLRScheduler", "TestDifferentiableOptimizer", "TestSWAUtils")
        stand_in(f"optim.{name}", **dict.fromkeys(classes, object))

    def info(cls: type) -> Any:
        def inputs(device, dtype=None):
            return [
                theirs.OptimizerInput(params=None, kwargs=dict(more), desc=name)
                for name, more in SETTINGS.items()
            ]

        return theirs.OptimizerInfo(
            cls,
            optim_inputs_func=inputs,
            optim_error_inputs_func=theirs.get_error_inputs_for_all_optims,
            supported_impls=(),
            not_og_supported_flags=(),
            supports_complex=False,
        )

    theirs.optim_db[:] = [info(cls) for cls in ADAPTED]


def tests(suite: Any) -> Iterator[unittest.TestCase]:
    for part in suite:
        if isinstance(part, unittest.TestCase):
            yield part
        else:
            yield from tests(part)


def main(what: str, file: str) -> None:
    stand_in("expecttest", TestCase=unittest.TestCase)
    {"modules": replace_modules, "optimizers": replace_optimizers}[what]()
    spec = importlib.util.spec_from_file_location("upstream", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["upstream"] = module
    spec.loader.exec_module(module)
    outcomes = {}
    for test in tests(unittest.defaultTestLoader.loadTestsFromModule(module)):
        result = unittest.TestResult()
        test.run(result)
        name, outcome = test.id().rsplit(".", 1)[1], "passed"
        for kind, found in (
            ("skipped", result.skipped),
            ("failed", result.failures + result.errors),
        ):
            if found:
                outcome = f"{kind}: {found[0][1].strip().splitlines()[-1]}"
        outcomes[name] = outcome
    sys.stdout.write(f"{json.dumps(outcomes)}\n")


if __name__ == "__main__":
    torch.manual_seed(0)
    main(sys.argv[1], sys.argv[2])
