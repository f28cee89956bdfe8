"""Where a table lies changes nothing but the memory it takes."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from support import CATALOGUE, Toy, flat, make_model
from support.job import Job, assert_same, capture

import fcco


def anonymous():
    """Bytes of memory that no file stands behind."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("RssAnon:")[1].split()[0])


@pytest.mark.parametrize("name", ["sox", "msvrm-v2-age", "msvrm-v3-age", "variant-v3"])
def test_a_mapped_table_gives_the_same_run(name, tmp_path):
    plain = Job(CATALOGUE[name]).run(12)
    mapped = Job(CATALOGUE[name], table_on=tmp_path).run(12)
    assert_same(capture(plain.model, plain.opt), capture(mapped.model, mapped.opt))


def test_a_mapped_table_resumes_bit_for_bit(tmp_path):
    first = Job(CATALOGUE["msvrm-v2-age"], table_on=tmp_path).run(7)
    torch.save(first.opt.state_dict(), tmp_path / "state.pt")
    saved = torch.load(tmp_path / "state.pt", weights_only=True)
    second = Job(CATALOGUE["msvrm-v2-age"], table_on=tmp_path)
    second.model.load_state_dict(first.model.state_dict())
    second.opt.load_state_dict(saved)
    second.generator.set_state(first.generator.get_state())
    state = torch.get_rng_state()
    first.run(5)
    torch.set_rng_state(state)
    second.run(5)
    assert torch.equal(flat(first.model.parameters()), flat(second.model.parameters()))


def test_the_file_has_no_name_and_takes_no_memory(tmp_path):
    before = anonymous()
    problem = Toy(8, 1)
    problem.num_blocks = 50_000_000
    model = make_model("linear", 1)
    opt = fcco.MSVRM(
        model.parameters(), problem, version=2, lr=0.1, alpha=0.5, beta=0.5, table_on=tmp_path
    )
    assert opt.table.rows.numel() == 50_000_000
    old, new = torch.zeros(1, 1).double(), torch.ones(1, 1).double()
    opt.table.write(torch.tensor([7]), old, new, step=1, beta=0.5)
    assert opt.table.read(torch.tensor([7, 49_999_999])).tolist() == [[1.0], [0.0]]
    assert list(tmp_path.iterdir()) == []
    assert anonymous() - before < 20e6  # of 650 MB


def test_places_that_are_none(tmp_path):
    def build(place):
        model = make_model("linear", 1)
        return fcco.SOX(model.parameters(), Toy(4, 1), lr=0.1, alpha=0.5, beta=0.5, table_on=place)

    for nowhere in (tmp_path / "nowhere", os.fspath(tmp_path / "nowhere"), 3.5):
        with pytest.raises(ValueError, match=r"table_on must be a device or a directory"):
            build(nowhere)
    assert build("cpu").table.device == torch.device("cpu")


def test_a_directory_may_be_given_as_a_string(tmp_path):
    model = make_model("linear", 1)
    table = fcco.SOX(model, Toy(4, 1), lr=0.1, table_on=os.fspath(tmp_path)).table
    maps = Path("/proc/self/maps").read_text()
    assert f"{tmp_path}/fcco-table-" in maps, "the rows lie in a file there"
    assert table.read(torch.arange(4)).tolist() == [[0.0]] * 4


def test_rows_may_lie_on_another_device_than_the_blocks():
    """The meta device stands for a GPU: ids and rows must be moved, or the operation fails."""
    share = fcco.distributed.Share(10)
    table = fcco.Table(
        share,
        2,
        dtype=torch.float32,
        zeros=lambda shape, dtype: torch.zeros(shape, dtype=dtype, device="meta"),
        ages=True,
        previous=True,
        anchor=True,
    )
    blocks = torch.tensor([3, 1])
    for part in (table._places(blocks), table.rows):
        assert part.device.type == "meta"
    table.write(blocks, torch.zeros(2, 2), torch.ones(2, 2), step=1, beta=0.5)


def test_a_directory_without_room_is_an_error_at_once(tmp_path):
    """A mapped file that finds no room later would kill the process while it steps."""
    program = """
import resource, sys, torch, fcco
from support import Toy
resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))
try:
    fcco.SOX(torch.nn.Linear(3, 1).double(), Toy(2_000_000), lr=0.1, table_on=sys.argv[1])
except ValueError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert f"table_on: no room for 16000000 bytes in {tmp_path}" in done.stdout


def test_room_is_reserved_when_the_table_is_made(tmp_path, monkeypatch):
    def full(descriptor, offset, length):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(ValueError, match=f"no room for .* bytes in {tmp_path}: No space left"):
        fcco.SOX(make_model("linear", 1), Toy(4, 1), lr=0.1, table_on=tmp_path)
