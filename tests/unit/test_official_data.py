"""The official distributions: tiny files written as their authors do come back as the tensors."""

import bz2
import gzip
import io
import logging
import os
import pickle
import struct

import numpy as np
import pytest
import torch

from fcco_lab.datasets import load_classes

RANDOM = np.random.default_rng(0)


def images(*shape):
    return RANDOM.integers(0, 256, shape, dtype=np.uint8)


IDX = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")


def write_idx(directory, arrays, compress):
    directory.mkdir(parents=True, exist_ok=True)
    for name, array in zip(IDX, arrays, strict=True):
        header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
        content = header + array.astype(np.uint8).tobytes()
        if compress:
            (directory / f"{name}-ubyte.gz").write_bytes(gzip.compress(content))
        else:
            (directory / f"{name}-ubyte").write_bytes(content)


@pytest.mark.parametrize("compress", [True, False])
@pytest.mark.parametrize("folder", ["fashion_mnist", "fashion_mnist/raw", "FashionMNIST/raw"])
def test_idx(tmp_path, caplog, folder, compress):
    x, y = images(5, 3, 2), np.array([0, 9, 3, 3, 1])
    write_idx(tmp_path / folder, (x, y, x[:2], y[:2]), compress)
    with caplog.at_level(logging.INFO, logger="fcco"):
        train, test = load_classes("fashion_mnist", tmp_path)
    assert train.inputs.shape == (5, 1, 3, 2)
    assert train.inputs[4, 0, 2, 0] == pytest.approx(int(x[4, 2, 0]) / 255)
    assert (train.classes.tolist(), test.classes.tolist()) == (y.tolist(), y[:2].tolist())
    assert "official" in caplog.text


def test_idx_files_without_a_name_are_nobodys(tmp_path):
    arrays = (images(2, 3, 3), np.array([0, 1]), images(2, 3, 3), np.array([0, 1]))
    write_idx(tmp_path, arrays, compress=True)
    with pytest.raises(FileNotFoundError):
        load_classes("kmnist", tmp_path)


def test_broken_idx_files_are_named(tmp_path):
    arrays = (images(2, 3, 3), np.array([0, 1]), images(2, 3, 3), np.array([0, 1]))
    write_idx(tmp_path / "mnist", arrays, compress=True)
    path = tmp_path / "mnist" / "t10k-images-idx3-ubyte.gz"
    whole = path.read_bytes()
    short = gzip.compress(gzip.decompress(whole)[:-1])
    for content in (whole[:-9], b"plain text", short, gzip.compress(b"plain text")):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"cannot read .*t10k-images-idx3-ubyte.gz: .+"):
            load_classes("mnist", tmp_path)


class Python2Pickler(pickle._Pickler):
    """Strings as Python 2 wrote them, which is how CIFAR is distributed."""

    dispatch = dict(pickle._Pickler.dispatch)

    def save_string(self, value):
        raw = value if isinstance(value, bytes) else value.encode()
        self.write(pickle.BINSTRING + struct.pack("<i", len(raw)) + raw)
        self.memoize(value)

    dispatch[bytes] = dispatch[str] = save_string


def cifar_batch(x, labels, key):
    file = io.BytesIO()
    Python2Pickler(file, protocol=2).dump({"data": x, key: labels, "batch_label": "one of six"})
    # The module's name in the numpy that wrote the files.
    return file.getvalue().replace(b"numpy._core", b"numpy.core")


def cifar_files(key, names):
    """Contents by name, the images as written (N, 3072), and the labels."""
    x, y = images(2 * len(names), 3072), RANDOM.integers(0, 10, 2 * len(names)).tolist()
    rows = {name: slice(2 * k, 2 * k + 2) for k, name in enumerate(names)}
    return {name: cifar_batch(x[row], y[row], key) for name, row in rows.items()}, x, y


def check_cifar(loaded, x, y):
    train, test = loaded
    assert train.classes.tolist() + test.classes.tolist() == y
    both = torch.cat([train.inputs, test.inputs])
    assert both.shape[1:] == (3, 32, 32)
    for n, c, row, column in [(0, 0, 0, 1), (1, 2, 31, 7), (len(y) - 1, 1, 5, 30)]:
        byte = int(x[n, 1024 * c + 32 * row + column])  # red, green, blue, each row by row
        assert both[n, c, row, column] == pytest.approx(byte / 255)


@pytest.mark.parametrize(
    ("name", "folder", "key"),
    [
        ("cifar10", "cifar-10-batches-py", "labels"),
        ("cifar100", "cifar-100-python", "fine_labels"),
    ],
)
def test_cifar(tmp_path, name, folder, key):
    batches = [f"data_batch_{k}" for k in range(1, 6)] if name == "cifar10" else ["train"]
    last = "test_batch" if name == "cifar10" else "test"
    files, x, y = cifar_files(key, [*batches, last])
    (tmp_path / folder).mkdir()
    for file, content in files.items():
        (tmp_path / folder / file).write_bytes(content)
    check_cifar(load_classes(name, tmp_path), x, y)


def write_cifar100(directory, train):
    folder = directory / "cifar-100-python"
    folder.mkdir(exist_ok=True)
    (folder / "train").write_bytes(train)
    (folder / "test").write_bytes(cifar_batch(images(2, 3072), [0, 1], "fine_labels"))


def test_a_malicious_pickle_is_refused(tmp_path):
    class Malicious:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "owned"),)

    write_cifar100(tmp_path, pickle.dumps({"data": Malicious()}, protocol=2))
    with pytest.raises(ValueError, match=r"train: it asks for \w+\.mkdir, which is not allowed"):
        load_classes("cifar100", tmp_path)
    assert not (tmp_path / "owned").exists()


def test_arrays_of_objects_in_a_pickle_are_refused(tmp_path):
    write_cifar100(tmp_path, cifar_batch(np.array([{}]), [0], "fine_labels"))
    with pytest.raises(ValueError, match=r"cannot read .*train: .*'dict'"):
        load_classes("cifar100", tmp_path)


def test_broken_cifar_files_are_named(tmp_path):
    good = cifar_batch(images(2, 3072), [0, 1], "fine_labels")
    wrong_key = cifar_batch(images(2, 3072), [0, 1], "coarse_labels")
    for content, why in ((good[:-50], ".+"), (b"", ".+"), (wrong_key, "no b'fine_labels'")):
        write_cifar100(tmp_path, content)
        with pytest.raises(ValueError, match=rf"cannot read .*train: .*{why}"):
            load_classes("cifar100", tmp_path)


@pytest.mark.parametrize("folder", [".", "svhn"])
def test_svhn(tmp_path, folder):
    scipy_io = pytest.importorskip("scipy.io")
    (tmp_path / folder).mkdir(exist_ok=True)
    x, y = images(32, 32, 3, 4), np.array([[10], [1], [9], [10]], np.uint8)
    for part in ("train", "test"):
        scipy_io.savemat(tmp_path / folder / f"{part}_32x32.mat", {"X": x, "y": y})
    for data in load_classes("svhn", tmp_path):
        assert data.classes.tolist() == [0, 1, 9, 0]
        assert data.inputs.shape == (4, 3, 32, 32)
        assert data.inputs[3, 1, 30, 2] == pytest.approx(int(x[30, 2, 1, 3]) / 255)
    scipy_io.savemat(tmp_path / folder / "test_32x32.mat", {"X": x})
    with pytest.raises(ValueError, match=r"test_32x32\.mat: there is no 'y'"):
        load_classes("svhn", tmp_path)


def test_stl10(tmp_path):
    folder = tmp_path / "stl10_binary"
    folder.mkdir()
    raw = images(2, 3 * 96 * 96)
    for part in ("train", "test"):
        (folder / f"{part}_X.bin").write_bytes(raw.tobytes())
        (folder / f"{part}_y.bin").write_bytes(bytes([10, 1]))
    for data in load_classes("stl10", tmp_path):
        assert data.classes.tolist() == [9, 0]
        assert data.inputs.shape == (2, 3, 96, 96)
        for c, row, column in [(0, 1, 0), (2, 95, 3), (1, 4, 90)]:
            byte = int(raw[1, 9216 * c + 96 * column + row])  # column by column
            assert data.inputs[1, c, row, column] == pytest.approx(byte / 255)
    (folder / "test_y.bin").write_bytes(bytes([10, 0]))  # labels start at 1
    with pytest.raises(
        ValueError, match="y_test: classes must be finite and at least 0, got -1 at 1"
    ):
        load_classes("stl10", tmp_path)
    (folder / "test_X.bin").write_bytes(raw.tobytes()[:-1])
    with pytest.raises(ValueError, match=r"cannot read .*test_X\.bin"):
        load_classes("stl10", tmp_path)


@pytest.mark.parametrize("suffix", ["", ".bz2"])
def test_usps(tmp_path, suffix):
    text = b"10 1:-1 2:-0.5 256:1\n1 17:0.25\n"
    for name in ("usps", "usps.t"):
        content = bz2.compress(text) if suffix else text
        (tmp_path / f"{name}{suffix}").write_bytes(content)
    for data in load_classes("usps", tmp_path):
        assert data.classes.tolist() == [9, 0]
        expected = torch.full((2, 1, 16, 16), 0.5)  # what is not written is 0, half-way
        expected[0, 0, 0, 0], expected[0, 0, 0, 1], expected[0, 0, 15, 15] = 0, 0.25, 1
        expected[1, 0, 1, 0] = 0.625
        assert torch.equal(data.inputs, expected)
    (tmp_path / f"usps.t{suffix}").write_bytes(b"no numbers here")
    with pytest.raises(ValueError, match=r"cannot read .*usps\.t"):
        load_classes("usps", tmp_path)


def test_a9a_text(tmp_path):
    (tmp_path / "a9a").write_text("-1 3:1 123:1\n+1 1:1 \n")
    (tmp_path / "a9a.t").write_text("+1 2:1 122:1\n")
    train, test = load_classes("a9a", tmp_path)
    assert (train.classes.tolist(), test.classes.tolist()) == ([0, 1], [1])
    assert [row.nonzero().flatten().tolist() for row in train.inputs] == [[2, 122], [0]]
    assert test.inputs.shape == (1, 123)
    (tmp_path / "a9a.t").write_text("+1 124:1\n")
    with pytest.raises(ValueError, match=r"cannot read .*a9a\.t"):
        load_classes("a9a", tmp_path)
