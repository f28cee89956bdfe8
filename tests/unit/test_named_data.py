"""Data sets by name: which file is taken, what becomes of it, and what errors say."""

import logging
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from fcco.data import load_digits
from fcco_lab.datasets import available, load_classes, load_ranking, load_survival
from fcco_lab.datasets.catalogue import locate

RANDOM = np.random.default_rng(0)


def images(*shape):
    return RANDOM.integers(0, 256, shape, dtype=np.uint8)


def write_npz(directory, name, **arrays):
    np.savez(directory / f"{name}.npz", **arrays)


def classes_arrays(x, y):
    return {"x_train": x, "y_train": np.array(y), "x_test": x[:2], "y_test": np.array(y[:2])}


# npz files


def test_grey_images_get_a_channel_and_lie_between_0_and_1(tmp_path):
    x = images(3, 5, 4)
    x[0, 0, 0], x[2, 4, 3] = 0, 255
    write_npz(tmp_path, "kmnist", **classes_arrays(x, [2, 0, 1]))
    train, test = load_classes("kmnist", tmp_path)
    assert train.inputs.shape == (3, 1, 5, 4)
    assert train.inputs.dtype == torch.float32
    assert train.inputs[1, 0, 3, 2] == pytest.approx(int(x[1, 3, 2]) / 255)
    assert (train.inputs.min(), train.inputs.max()) == (0, 1)
    assert train.classes.tolist() == [2, 0, 1]
    assert (len(test), test.classes.tolist()) == (2, [2, 0])


def test_colour_images_become_channel_first(tmp_path):
    x = images(3, 4, 6, 3)
    write_npz(tmp_path, "stl10", **classes_arrays(x, [0, 1, 2]))
    train, _ = load_classes("stl10", str(tmp_path))
    assert train.inputs.shape == (3, 3, 4, 6)
    for c in range(3):
        assert train.inputs[2, c, 1, 5] == pytest.approx(int(x[2, 1, 5, c]) / 255)


def test_the_directory_may_come_from_the_environment(tmp_path, monkeypatch):
    write_npz(tmp_path, "mnist", **classes_arrays(images(2, 3, 3), [0, 1]))
    monkeypatch.setenv("FCCO_DATA", str(tmp_path))
    assert len(load_classes("mnist")[0]) == 2


@pytest.mark.parametrize(
    ("present", "used"),
    [
        (["cifar10", "cifar10_sub", "cifar10_a"], "cifar10"),
        (["cifar10_sub", "cifar10_a", "cifar100"], "cifar10_sub"),
        (["cifar10_b", "cifar10_a", "cifar100"], "cifar10_a"),
    ],
)
def test_the_whole_comes_before_a_subset_and_the_log_says_which(tmp_path, caplog, present, used):
    for name in present:
        write_npz(tmp_path, name, **classes_arrays(images(2, 4, 4, 3), [0, 1]))
    with caplog.at_level(logging.INFO, logger="fcco"):
        load_classes("cifar10", tmp_path)
    (record,) = caplog.records
    assert f"{used}.npz" in record.getMessage()
    assert record.levelno == (logging.INFO if used == "cifar10" else logging.WARNING)
    assert ("subset" in record.getMessage()) == (used != "cifar10")


def test_tasks_stand_for_classes(tmp_path):
    arrays = classes_arrays(images(3, 4, 4, 3), [97, 4, 33])
    tasks = {"task_train": np.array([2, 0, 1]), "task_test": np.array([2, 0])}
    write_npz(tmp_path, "cifar100_3cls", **arrays, **tasks)
    train, test = load_classes("cifar100", tmp_path)
    assert (train.classes.tolist(), test.classes.tolist()) == ([2, 0, 1], [2, 0])


def test_gaps_between_classes_are_closed_alike_in_both_parts(tmp_path):
    arrays = classes_arrays(images(3, 4, 4), [9, 4, 7]) | {"y_test": np.array([7, 5])}
    write_npz(tmp_path, "mnist_sub", **arrays)
    train, test = load_classes("mnist", tmp_path)
    assert (train.classes.tolist(), test.classes.tolist()) == ([3, 0, 2], [2, 1])


@pytest.mark.parametrize("labels", [[0, 1, 1], [-1, 1, 1], [-1.0, 1.0, 1.0]])
def test_a9a_is_not_scaled_and_its_classes_are_0_and_1(tmp_path, labels):
    x = RANDOM.integers(0, 2, (3, 123), dtype=np.uint8)
    write_npz(tmp_path, "a9a", **classes_arrays(x, labels))
    train, _ = load_classes("a9a", tmp_path)
    assert train.inputs.tolist() == x.tolist()
    assert train.classes.tolist() == [0, 1, 1]


def survival_arrays():
    part = {"x": np.eye(3), "t": np.array([1.5, 0, 9]), "e": np.array([1, 0, 1], np.int32)}
    return {f"{key}_{end}": value for end in ("train", "test") for key, value in part.items()}


@pytest.mark.parametrize("name", ["gbsg", "surv_gbsg"])
def test_survival(tmp_path, name):
    write_npz(tmp_path, "surv_gbsg", **survival_arrays())
    for data in load_survival(name, tmp_path):
        assert data.inputs.dtype == torch.float32
        assert data.inputs.tolist() == np.eye(3).tolist()
        assert data.times.tolist() == [1.5, 0, 9]
        assert data.events.tolist() == [True, False, True]


def ranking_arrays():
    part = {"x": np.eye(4), "y": np.array([0, 4, 1, 2], np.uint8), "q": np.array([3, 1])}
    return {f"{key}_{end}": value for end in ("train", "test") for key, value in part.items()}


def test_ranking(tmp_path):
    write_npz(tmp_path, "lgb_lambdarank", **ranking_arrays())
    for data in load_ranking("lgb_lambdarank", tmp_path):
        assert (data.grades.tolist(), data.lengths.tolist()) == ([0, 4, 1, 2], [3, 1])
        assert len(data) == 4


# Errors


def test_neither_directory_nor_environment(monkeypatch):
    monkeypatch.delenv("FCCO_DATA", raising=False)
    with pytest.raises(ValueError, match=r"data_dir.*FCCO_DATA"):
        load_classes("mnist")


def test_a_directory_that_is_not_there(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"data_dir must be a directory.*nowhere"):
        load_classes("mnist", tmp_path / "nowhere")
    monkeypatch.setenv("FCCO_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match=r"FCCO_DATA must be a directory.*nowhere"):
        load_classes("mnist")


def test_a_missing_set_says_what_was_looked_for_and_where_to_get_it(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        load_classes("kmnist", tmp_path)
    for part in (str(tmp_path), "kmnist.npz", "kmnist_sub.npz", "train-images-idx3-ubyte[.gz]"):
        assert part in str(caught.value)
    assert "https://github.com/rois-codh/kmnist" in str(caught.value)
    with pytest.raises(FileNotFoundError, match=r"t_train e_train.*DeepSurv"):
        load_survival("support", tmp_path)


@pytest.mark.parametrize(
    ("load", "name", "nearest"),
    [
        (load_classes, "CIFAR-10", "cifar10"),
        (load_classes, "fashionmnist", "fashion_mnist"),
        (load_survival, "metabrick", "metabric"),
        (load_ranking, "lambdarank", "lgb_lambdarank"),
    ],
)
def test_an_unknown_name_suggests_the_nearest(load, name, nearest):
    with pytest.raises(ValueError, match=rf"data set {name!r} \(did you mean {nearest!r}"):
        load(name)


def test_a_name_of_another_kind(tmp_path):
    with pytest.raises(ValueError, match="gbsg is for load_survival, not for load_classes"):
        load_classes("gbsg", tmp_path)


def test_a_broken_npz_is_named(tmp_path):
    (tmp_path / "mnist.npz").write_bytes(b"nothing of the kind")
    with pytest.raises(ValueError, match=r"cannot read .*mnist\.npz"):
        load_classes("mnist", tmp_path)
    with (tmp_path / "mnist.npz").open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(ValueError, match=r"mnist\.npz: it is not an npz"):
        load_classes("mnist", tmp_path)


def test_a_truncated_npz_is_named(tmp_path):
    write_npz(tmp_path, "mnist", **classes_arrays(images(3, 4, 4), [0, 1, 2]))
    whole = bytearray((tmp_path / "mnist.npz").read_bytes())
    (tmp_path / "mnist.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"cannot read .*mnist\.npz"):
        load_classes("mnist", tmp_path)
    whole[140] ^= 255  # inside the first array: its checksum no longer fits
    (tmp_path / "mnist.npz").write_bytes(whole)
    with pytest.raises(ValueError, match=r"mnist\.npz, key 'x_train'"):
        load_classes("mnist", tmp_path)


def test_an_npz_with_objects_is_not_unpickled(tmp_path):
    arrays = classes_arrays(images(2, 4, 4), [0, 1]) | {"y_train": np.array([{}, {}])}
    write_npz(tmp_path, "mnist", **arrays)
    with pytest.raises(ValueError, match=r"mnist\.npz, key 'y_train'"):
        load_classes("mnist", tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y_test": None}, r"mnist\.npz has no key 'y_test', only \['x_test'"),
        ({"x_test": images(2, 5)}, r"x_train has samples of shape \(1, 4, 4\), x_test of \(5,\)"),
        ({"x_test": images(2, 5, 5, 4)}, r"mnist\.npz, key 'x_test': inputs must be .* images"),
        ({"x_train": np.full((3, 4, 4), 2.0)}, r"key 'x_train': images of float64 .* \[0, 1\]"),
        ({"y_train": np.array([0, 1.5, 2])}, "key 'y_train': it must hold whole numbers"),
        ({"y_train": np.eye(3)}, "key 'y_train': it must hold whole numbers"),
        ({"y_train": np.array([0, 1])}, "x_train and y_train: classes has 2 entries"),
        ({"y_train": np.array([0, np.inf, 1])}, "'y_train': .* got inf in row 1"),
        ({"y_train": np.array([0, np.nan, 1])}, "'y_train': .* got nan in row 1"),
        ({"y_train": np.array([0, 1, 1e300])}, r"'y_train': .* got 1e\+300 in row 2"),
        ({"y_train": np.array([0, 1, 2**64 - 1], dtype="u8")}, "got 18446744073709551615 in row 2"),
        ({"y_train": np.array(["a", "b", "c"])}, "'y_train': it must hold real numbers, got <U1"),
        ({"y_train": np.arange(3) + 0j}, "'y_train': it must hold real numbers, got complex128"),
        ({"x_train": np.ones((3, 4, 4)) + 1j}, "'x_train': it must hold real .* complex128"),
        ({"x_train": np.zeros((3, 4, 4), dtype="M8[s]")}, "'x_train': .* got datetime64"),
        (
            {"x_test": images(2, 4, 4, 3)},
            r"x_train has samples of shape \(1, 4, 4\), .* \(3, 4, 4\)",
        ),
        ({"x_test": images(2, 5, 4)}, r"x_train has samples of shape \(1, 4, 4\), .* \(1, 5, 4\)"),
    ],
)
def test_wrong_contents_name_file_and_key(tmp_path, change, message):
    arrays = classes_arrays(images(3, 4, 4), [0, 1, 2]) | change
    write_npz(tmp_path, "mnist", **{k: v for k, v in arrays.items() if v is not None})
    with pytest.raises(ValueError, match=message):
        load_classes("mnist", tmp_path)


def test_wrong_survival_and_ranking_contents(tmp_path):
    write_npz(tmp_path, "surv_gbsg", **survival_arrays() | {"e_test": np.array([0, 2, 1])})
    with pytest.raises(ValueError, match=r"surv_gbsg\.npz.*e_test must hold only 0 and 1"):
        load_survival("gbsg", tmp_path)
    write_npz(tmp_path, "surv_gbsg", **survival_arrays() | {"x_train": np.zeros(3)})
    with pytest.raises(ValueError, match="key 'x_train': features must have shape"):
        load_survival("gbsg", tmp_path)
    wide = survival_arrays()
    write_npz(tmp_path, "surv_gbsg", **wide | {"x_test": np.tile(wide["x_test"], 2)})
    with pytest.raises(ValueError, match=r"gbsg\.npz: x_train has samples of shape"):
        load_survival("gbsg", tmp_path)
    for wrong in (np.nan, 1e300):
        holed = survival_arrays()
        holed["x_train"] = holed["x_train"].astype(float)
        holed["x_train"][1, 0] = wrong
        write_npz(tmp_path, "surv_gbsg", **holed)
        with pytest.raises(ValueError, match=r"gbsg\.npz.*inputs must be finite.*row 1, column 0"):
            load_survival("gbsg", tmp_path)
    write_npz(tmp_path, "lgb_lambdarank", **ranking_arrays() | {"q_test": np.array([3, 2])})
    with pytest.raises(ValueError, match="q_test: lengths must sum to the 4 rows"):
        load_ranking("lgb_lambdarank", tmp_path)
    for key, wrong, message in (
        ("y_test", np.arange(5), r"y_test: grades has 5 entries, inputs 4 rows"),
        ("y_test", np.arange(3), r"y_test: grades has 3 entries, inputs 4 rows"),
        ("q_test", np.array(3), r"key 'q_test': it must hold whole numbers in one dimension"),
    ):
        each = {"q_train": np.zeros(4, int), "q_test": np.zeros(4, int)}
        write_npz(tmp_path, "lgb_lambdarank", **ranking_arrays() | each | {key: wrong})
        with pytest.raises(ValueError, match=rf"lgb_lambdarank\.npz.*{message}"):
            load_ranking("lgb_lambdarank", tmp_path)


# What is there


def test_digits_are_those_of_load_digits(monkeypatch):
    monkeypatch.delenv("FCCO_DATA", raising=False)
    for named, (x, y) in zip(load_classes("digits"), load_digits(seed=0), strict=True):
        assert named.inputs.shape[1:] == (1, 8, 8)
        assert torch.equal(named.inputs.flatten(1), x)
        assert torch.equal(named.classes, y)


def test_available(tmp_path, monkeypatch):
    monkeypatch.delenv("FCCO_DATA", raising=False)
    assert available() == available(tmp_path) == ["digits"]
    write_npz(tmp_path, "mnist", **classes_arrays(images(2, 3, 3), [0, 1]))
    write_npz(tmp_path, "cifar100_2cls", **classes_arrays(images(2, 3, 3, 3), [0, 1]))
    (tmp_path / "a9a").write_text("-1 3:1\n")
    (tmp_path / "a9a.t").write_text("-1 3:1\n")
    assert sorted(available(tmp_path)) == ["a9a", "cifar100", "digits", "mnist"]


# The real files, where a directory of them is named

FOUND = {}
if os.environ.get("FCCO_DATA") and Path(os.environ["FCCO_DATA"]).is_dir():
    FOUND = {name: locate(name, None)[0] for name in available() if name != "digits"}
real = pytest.mark.skipif("FCCO_DATA" not in os.environ, reason="FCCO_DATA names no directory")


def need(name, *stems):
    """Skip unless the set is there in one of the versions whose sizes are known here."""
    if name not in FOUND or FOUND[name].stem not in stems:
        pytest.skip(f"FCCO_DATA holds no {' or '.join(stems)}")


@real
@pytest.mark.parametrize(
    ("name", "stem", "train", "test", "shape", "classes"),
    [
        ("mnist", "mnist", 60000, 10000, (1, 28, 28), 10),
        ("fashion_mnist", "fashion_mnist_sub", 20000, 5000, (1, 28, 28), 10),
        ("usps", "usps", 7291, 2007, (1, 16, 16), 10),
        ("cifar10", "cifar10_sub", 8000, 2000, (3, 32, 32), 10),
        ("cifar100", "cifar100_12cls", 6000, 1200, (3, 32, 32), 12),
        ("svhn", "svhn_sub", 8000, 2000, (3, 32, 32), 10),
        ("tinyimagenet100", "tinyimagenet100_32", 6000, 1500, (3, 32, 32), 100),
        ("a9a", "a9a", 32561, 16281, (123,), 2),
    ],
)
def test_real_classes(name, stem, train, test, shape, classes):
    need(name, stem)
    for data, size in zip(load_classes(name), (train, test), strict=True):
        assert data.inputs.shape == (size, *shape)
        assert data.inputs.dtype == torch.float32
        assert (data.inputs.min(), data.inputs.max()) == (0, 1)
        assert data.classes.unique().tolist() == list(range(classes))
    if name == "a9a":
        assert data.classes.double().mean() == pytest.approx(0.24, abs=0.01)
    if stem in ("fashion_mnist_sub", "cifar10_sub", "cifar100_12cls"):
        assert data.classes.bincount().unique().tolist() == [test // classes]


@real
@pytest.mark.parametrize(
    ("name", "train", "test", "features"),
    [("metabric", 1523, 381, 9), ("gbsg", 1546, 686, 7), ("support", 7098, 1775, 14)],
)
def test_real_survival(name, train, test, features):
    need(f"surv_{name}", f"surv_{name}")
    for data, size in zip(load_survival(name), (train, test), strict=True):
        assert data.inputs.shape == (size, features)
        assert data.inputs.isfinite().all()
        assert 0.3 < data.events.double().mean() < 0.9


@real
def test_real_ranking():
    need("lgb_lambdarank", "lgb_lambdarank")
    sizes = (3005, 201), (768, 50)
    for data, (documents, queries) in zip(load_ranking("lgb_lambdarank"), sizes, strict=True):
        assert data.inputs.shape == (documents, 300)
        assert len(data.lengths) == queries
        assert data.grades.unique().tolist() == [0, 1, 2, 3, 4]
