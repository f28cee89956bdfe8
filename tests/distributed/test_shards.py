"""The directory that several ranks write: read back whole, or found to be spoiled."""

import os
import pickle
import zlib

import pytest
import torch

from fcco_lab.training import pieces
from fcco_lab.training.checkpoints import Checkpoints
from fcco_lab.training.crew import Crew
from fcco_lab.training.shards import INDEX, read_shards, write_shards
from fcco_lab.training.trees import layout


def state():
    return {
        "step": 7,
        "curve": [{"step": 0, "objective": 0.1 + 0.2}],
        "rng": torch.get_rng_state(),
        "model": {"0.weight": torch.arange(6.0).view(2, 3), "count": torch.tensor(3)},
        "learner": {
            "opt": {
                "state": {0: {"z": torch.ones(2, 3)}, 1: {"z": {}}},
                "param_groups": [
                    {"lr": 0.1, "betas": [0.9, 0.99], "params": [0, 1]},
                    {"params": [0], "shared": {"table": {"rows": torch.rand(5, 2)}}},
                ],
            }
        },
    }


@pytest.fixture
def written(tmp_path):
    """A directory as ``Checkpoints`` names it, and what is in it."""
    Checkpoints(tmp_path).save({"step": 6}, step=6)  # by one process: a file
    kept = state()
    return write(tmp_path, kept), kept


def write(directory, kept):
    content = {"identity": {}, "layout": layout(kept), "state": kept}
    path = write_shards(directory / "step-0000000007", content, Crew())
    assert path == named(path), "its name vouches for its index"
    return path


def read(path, live):
    return read_shards(path, torch.load(path / INDEX)["state"], live, Crew())


def named(directory):
    """Moved to the name that vouches for its index."""
    total = zlib.crc32((directory / INDEX).read_bytes())
    path = directory.with_name(f"step-0000000007-{total:08x}")
    os.replace(directory, path)
    return path


def assert_same(found, kept):
    assert type(found) is type(kept)
    if isinstance(kept, dict):
        assert found.keys() == kept.keys()
        for key in kept:
            assert_same(found[key], kept[key])
    elif isinstance(kept, list):
        assert_same(dict(enumerate(found)), dict(enumerate(kept)))
    elif isinstance(kept, torch.Tensor):
        assert found.dtype == kept.dtype
        assert torch.equal(found, kept)
    else:
        assert found == kept


def test_everything_comes_back(written):
    path, kept = written
    assert_same(read(path, {}), kept)
    assert_same(Checkpoints(path.parent).load(), kept)


def test_live_tensors_are_filled_and_those_of_another_size_made(written):
    path, kept = written
    model = {"0.weight": torch.zeros(2, 3), "count": torch.tensor(0)}
    rows = torch.zeros(4, 2)
    groups = [{}, {"shared": {"table": {"rows": rows}}}]
    live = {"model": model, "learner": {"opt": {"param_groups": groups}}}
    found = read(path, live)
    assert_same(found, kept)
    assert found["model"]["0.weight"] is model["0.weight"]
    assert not rows.any(), "it was too small, and is left alone"


def test_large_tensors_are_written_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(pieces, "LARGEST", 64)
    kept = state() | {"wide": torch.rand(3, 40), "none": torch.zeros(0, 4)}
    path, seen = write(tmp_path, kept), []
    load = torch.load
    monkeypatch.setattr(torch, "load", lambda *a, **k: (seen.append(load(*a, **k)), seen[-1])[1])
    assert_same(read(path, {}), kept)
    pieces_of = [part for part in seen if isinstance(part, torch.Tensor)]
    assert max(t.nbytes for t in pieces_of if t.ndim and len(t) > 1) <= 64
    assert sum(t.shape == (1, 40) for t in pieces_of) == 3, "one row is as little as can be"


class Command:
    """What an attacker puts into a pickle."""

    def __reduce__(self):
        return os.system, ("touch attacked",)


def vouched(path, name, data):
    """Replace a file by bytes that the index, and the name of the directory, vouch for."""
    (path / name).write_bytes(data)
    index = torch.load(path / INDEX)
    index["files"][name] = zlib.crc32(data)
    return indexed(path, index)


def indexed(path, index):
    torch.save(index, path / INDEX)
    return named(path)


def flipped(path):
    (file,) = path.glob("*.distcp")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 8
    file.write_bytes(data)


def missing(path):
    next(path.glob("*.distcp")).unlink()


def of_another_index(path):
    torch.save(torch.load(path / INDEX) | {"more": 1}, path / INDEX)


def without_index(path):
    (path / INDEX).unlink()


def attacked(path):
    vouched(path, ".metadata", pickle.dumps(Command()))


def attacked_through_a_module(path):
    data = b"\x80\x04\x8c\x25torch.distributed.checkpoint.metadata\x8c\x09os.system\x93\x8c\x0e"
    vouched(path, ".metadata", data + b"touch attacked\x85R.")


def of_something_else(path):
    vouched(path, ".metadata", pickle.dumps([1, 2, 3]))


def no_pickle(path):
    vouched(path, ".metadata", b"")


def no_index(path):
    indexed(path, [])


def without_a_part(path):
    index = torch.load(path / INDEX)
    del index["state"]["learner"]["opt"]["state"][0]
    indexed(path, index)


def of_another_shape(path):
    index = torch.load(path / INDEX)
    index["state"]["model"]["0.weight"] = torch.empty(3, 2, device="meta")
    indexed(path, index)


def a_fifo_for_a_file(path):
    (file,) = path.glob("*.distcp")
    file.unlink()
    os.mkfifo(file)


def a_fifo_for_the_index(path):
    (path / INDEX).unlink()
    os.mkfifo(path / INDEX)


SPOILERS = (
    flipped,
    missing,
    of_another_index,
    without_index,
    attacked,
    attacked_through_a_module,
    of_something_else,
    no_pickle,
    no_index,
    without_a_part,
    of_another_shape,
    a_fifo_for_a_file,
    a_fifo_for_the_index,
)


@pytest.mark.parametrize("spoil", SPOILERS, ids=lambda spoil: spoil.__name__)
def test_a_spoiled_directory_is_passed_over(written, spoil, monkeypatch):
    path, _ = written
    monkeypatch.chdir(path.parent)
    spoil(path)
    with pytest.warns(UserWarning, match=r"step-0000000007-\w+ is spoiled .*one before") as all:
        assert Checkpoints(path.parent).load() == {"step": 6}
    (warning,) = all
    assert len(str(warning.message).splitlines()) == 1
    assert not os.path.exists("attacked")
    again = Checkpoints(path.parent).save({"step": 6}, step=6)
    assert list(path.parent.iterdir()) == [again], "the spoiled one is gone"


def test_directories_and_files_share_the_places(written):
    path, kept = written
    checkpoints = Checkpoints(path.parent)
    assert_same(checkpoints.load(), kept)
    checkpoints.save({"step": 8}, step=8)
    assert checkpoints.load() == {"step": 8}
    assert path.exists(), "the last two are kept"
    checkpoints.save({"step": 9}, step=9)
    assert sorted(p.name[:15] for p in path.parent.iterdir()) == [
        "step-0000000008",
        "step-0000000009",
    ]


def test_a_full_disk_is_an_error_of_one_line(tmp_path, monkeypatch):
    def full(file):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device"):
        write(tmp_path, state())
