"""``fcco recipes`` prints programs that run; ``fcco data`` says what is there."""

import io
import re
import zipfile

import numpy as np
import pytest

from fcco.data import load_digits
from fcco.schedules import RECIPES
from fcco_lab.cli.data import DIGITS, data
from fcco_lab.cli.recipes import recipes
from fcco_lab.datasets.headers import npz_shapes

SMALL = {"m": 4, "blocks": 2, "horizon": 7, "inner_size": 3, "mu": 1.0, "epsilon": 0.3}

# From docs/theory.md: which theorem each label is.
THEOREMS = {
    "new:1": 1,
    "thm:1": 2,
    "thm:2": 3,
    "new:2": 4,
    "thm:3": 5,
    "new:3": 6,
    "thm:4": 7,
    "thm:4+": 8,
    "thm:6": 9,
    "new:4": 10,
    "new:5": 11,
    "new:6": 12,
    "adam": 13,
}


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.delenv("FCCO_DATA", raising=False)


def rows(text):
    """The first word of each line -> the line's words."""
    return {words[0]: words for line in text.splitlines() if (words := line.split())}


def test_every_recipe_is_in_the_table(capsys):
    recipes(None, **SMALL)
    found = rows(capsys.readouterr().out)
    assert found.keys() >= RECIPES.keys()
    for label, theorem in THEOREMS.items():
        assert found[label][1] == str(theorem)
    assert found["new:2"][2:] == ["msvrm-v2", "normalized", "non-convex", "1"]
    # I = ceil(4 * 3 / 2) steps between snapshots, gaps 1/2 and 1/4 are two stages.
    words = "msvrm-v3 plain PL or convex, finite sums 6 2"
    assert " ".join(found["thm:6"][2:]) == words
    assert "affine" in found["new:1/linear"]
    assert "experiment)" in found["new:3/literal"]


@pytest.mark.parametrize("label", RECIPES)
def test_the_program_that_is_printed_runs_to_the_end(label, capsys):
    recipes(label, **SMALL)
    text = capsys.readouterr().out
    names = {}
    exec(text[text.index("import torch") :], names)
    driver = names["driver"]
    assert driver.finished
    assert driver.recipe.label == label
    if THEOREMS.get(label, 0) in (1, 2, 3, 4, 5, 6, 13):
        assert driver.recipe.num_steps == 7, "these take T steps, the others what they need"
    assert ("exact_pass" in text) == driver.opt.method.anchored


def test_coefficients_are_those_of_the_theorem(capsys):
    recipes("new:2", m=10, blocks=5, horizon=1_000, inner_size=1)
    found = rows(capsys.readouterr().out)
    lr, alpha, beta = 0.5 ** (1 / 3) * 0.01, 10 ** (2 / 3) * 5 ** (1 / 3) * 0.01, 0.002 ** (2 / 3)
    gamma = 5 / (5 * (1 - beta)) + 1 - beta
    expected = [f"{value:.4g}" for value in (lr, alpha, beta, gamma)]
    for t in ("1", "500", "1,000"):
        assert found[t] == [t, "1", *expected]


def test_decaying_coefficients_and_a_method_without_a_table(capsys):
    recipes("thm:2", m=8, blocks=8, horizon=2_000_001, inner_size=1)
    text = capsys.readouterr().out
    assert "T=2000001" in text
    found = rows(text)
    for t in (1, 1_000_000, 2_000_001):
        assert float(found[f"{t:,}"][2]) == pytest.approx((1 + t) ** (-1 / 3), rel=1e-3)
    recipes("new:4", **SMALL)
    assert len(rows(capsys.readouterr().out)["1"]) == 4, "no beta and gamma"


def test_an_unknown_recipe_and_impossible_sizes_are_refused():
    with pytest.raises(
        ValueError, match=r"unknown recipe 'new:2/lin' \(did you mean 'new:2/linear'"
    ):
        recipes("new:2/lin", **SMALL)
    with pytest.raises(ValueError, match=r"B1 must lie in 1..m=4, got 5"):
        recipes("new:2", **(SMALL | {"blocks": 5}))


def save_classes(path, train, test, shape):
    arrays = {}
    for part, count in (("train", train), ("test", test)):
        arrays[f"x_{part}"] = np.zeros((count, *shape), np.uint8)
        arrays[f"y_{part}"] = np.zeros(count, np.int64)
    np.savez(path, **arrays)


def test_data_tells_complete_from_subset_from_missing(tmp_path, capsys, monkeypatch):
    save_classes(tmp_path / "usps.npz", 1234, 56, (16, 16))
    save_classes(tmp_path / "cifar10_sub.npz", 20, 10, (32, 32, 3))
    (tmp_path / "a9a.npz").write_bytes(b"PK not a zip file")
    (tmp_path / "svhn").mkdir()
    for part in ("train", "test"):
        (tmp_path / "svhn" / f"{part}_32x32.mat").touch()

    def load(*_, **__):
        raise AssertionError("an array was read")

    monkeypatch.setattr(np, "load", load)
    data(tmp_path)
    text = capsys.readouterr().out
    found = {name: " ".join(words) for name, words in rows(text).items()}
    assert found["usps"].startswith("usps classes usps.npz (complete) 1,234 + 56 of 16 x 16 paper:")
    assert "cifar10_sub.npz (a subset) 20 + 10 of 32 x 32 x 3" in found["cifar10"]
    assert "train_32x32.mat (complete, the official files) paper:" in found["svhn"]
    assert "figure 3" in found["svhn"]
    assert re.search(r"a9a +classes +a9a.npz \(complete\) +cannot be read", text)
    assert found["mnist"].startswith("mnist classes missing paper: tables, figure 1")
    assert "train-images-idx3-ubyte[.gz]" in found["mnist:"]
    assert (
        "put into the directory surv_gbsg.npz with x_train t_train e_train" in found["surv_gbsg:"]
    )
    assert "usps:" not in found
    assert found["surv_gbsg"].endswith("missing train: cox")
    assert re.search(r"a9a .*train: auc", text), "no experiment has it"
    assert f"5 of 15 are there; looked in {tmp_path}; name another with --data-dir" in text


def test_digits_are_always_there(capsys, tmp_path, monkeypatch):
    data(None)
    text = capsys.readouterr().out
    assert "1 of 15 are there; no directory was named; name one with --data-dir" in text
    (x, _), (x_test, _) = load_digits()
    assert f"{len(x):,} + {len(x_test)} of 8 x 8" == DIGITS
    assert DIGITS in text
    monkeypatch.setenv("FCCO_DATA", str(tmp_path))
    data(None)
    assert f"looked in {tmp_path};" in capsys.readouterr().out
    with pytest.raises(FileNotFoundError, match="must be a directory"):
        data(tmp_path / "nowhere")


def test_headers_of_every_version_and_layout(tmp_path):
    path = tmp_path / "a.npz"
    arrays = {"x": np.zeros((3, 4), order="F"), "scalar": np.array(1.0), "empty": np.zeros((0, 2))}
    np.savez_compressed(path, **arrays)
    assert npz_shapes(path) == {name: array.shape for name, array in arrays.items()}
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.zeros((5, 1)), version=(2, 0))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("later.npy", buffer.getvalue())
    assert npz_shapes(path) == {"later": (5, 1)}
