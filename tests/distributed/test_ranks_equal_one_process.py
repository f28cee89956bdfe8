"""Several ranks, each with its own blocks, follow one process that probes all of them."""

from pathlib import Path

import pytest
import torch
from distributed.cluster import ALIGNED, CASES, RECOVERING, Run, finish, start

HERE, SLOW = Path(__file__).parent, pytest.mark.slow
STEPS = 9
"""With a snapshot every four steps: three exact passes."""

RESHARDED = ["sox", "v1", "v2", "v3", "v2 adam", "v2 normalized", "variant v3"]


def assert_equal(found, expected):
    for name in ("params", "z"):
        for one, other in zip(found[name], expected[name], strict=True):
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    if expected["table"] is None:
        assert found["table"] is None
    else:
        torch.testing.assert_close(found["table"], expected["table"], rtol=1e-12, atol=1e-12)
    assert found["objectives"] == pytest.approx(expected["objectives"], rel=1e-12, abs=1e-12)
    assert found["queries"] == expected["queries"]


@pytest.mark.parametrize(
    ("world", "parallel", "every"),
    [
        (2, "ddp", 1),
        (2, "fsdp", 3),
        *(pytest.param(*case, 1, marks=SLOW) for case in [(2, "fsdp"), (4, "ddp"), (4, "fsdp")]),
    ],
)
def test_ranks_equal_one_process(world, parallel, every, tmp_path):
    cases = list(CASES)[::every]
    finish(start(HERE / "equal.py", world, tmp_path, parallel, STEPS, *cases))
    results = torch.load(tmp_path / f"{parallel}.pt")
    assert list(results) == cases
    for case, found in results.items():
        assert_equal(found, Run(case, "alone").run(1, STEPS).result())


@pytest.mark.parametrize(
    ("world", "parallel"),
    [(1, "ddp"), (1, "fsdp"), (2, "ddp"), (2, "fsdp"), (4, "ddp"), (4, "fsdp")],
)
@SLOW
def test_saved_on_two_ranks_goes_on_with_any_number(world, parallel, tmp_path):
    script = HERE / "reshard.py"
    finish(start(script, 2, tmp_path / "two", parallel, "save", 7, *RESHARDED))
    finish(start(script, world, tmp_path / "any", parallel, "load", 7, *RESHARDED))
    results = torch.load(tmp_path / "any" / "results.pt")
    assert list(results) == RESHARDED
    for case, found in results.items():
        expected = Run(case, "alone").run(1, 27).result()
        expected["objectives"] = expected["objectives"][7:]
        assert_equal(found, expected)


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=SLOW)])
def test_what_ranks_exchange_and_refuse(every, tmp_path):
    finish(start(HERE / "words.py", 2, tmp_path, every))


@SLOW
@pytest.mark.parametrize("cases", [ALIGNED[k::4] for k in range(4)])
def test_any_operation_may_fail_on_two_ranks(cases, tmp_path):
    for said in finish(start(HERE / "faults.py", 2, tmp_path, *cases), timeout=1800):
        assert said.count("operations") == len(RECOVERING) * len(cases)
