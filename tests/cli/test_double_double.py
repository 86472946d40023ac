"""Commands take double-double: files of hi and lo, letters e, f, w, v."""

from __future__ import annotations

import json

import numpy as np
import pytest

import tilewright as tw
from tilewright.cli.app import run


@pytest.fixture
def files(tmp_path):
    x = tw.DoubleDouble([["0.1", "0.2"], ["0.3", "0.4"]])
    x.save(tmp_path / "x.npz")
    np.save(tmp_path / "y.npy", np.eye(2) * 3)
    (tmp_path / "t.npz").write_bytes((tmp_path / "x.npz").read_bytes()[:-30])
    return tmp_path, x


def test_npz_files_are_multiplied(files):
    path, x = files
    out = path / "c.npz"
    assert run(["multiply", str(path / "x.npz"), str(path / "x.npz"), "-o", str(out)]) == 0
    assert (tw.DoubleDouble.load(out) == x @ x).all()


@pytest.mark.parametrize(
    "extra", [["--precision", "f"], ["--precision", "e", "--accuracy", "fast"]]
)
def test_npy_files_are_converted(files, extra, capsys):
    path, x = files
    words = ["multiply", str(path / "x.npz"), str(path / "y.npy"), "-o", str(path / "c.npz")]
    assert run([*words, "--alpha", "0.1", *extra, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["dtype"] == "double-double"
    right = x * tw.DoubleDouble("0.1") * 3
    assert ((tw.DoubleDouble.load(path / "c.npz") - right).norm() < 1e-31).all()


def test_complex_double_double(files):
    path, x = files
    words = ["multiply", str(path / "x.npz"), str(path / "y.npy"), "-o", str(path / "c.npz")]
    assert run([*words, "--precision", "w", "--alpha", "1j"]) == 0
    assert (tw.DoubleDouble.load(path / "c.npz") == x * 3j).all()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["x.npz", "x.npz", "--precision", "d"], "loses digits"),
        (["x.npz", "y.npy"], "holds double-double but"),
        (["x.npz", "x.npz", "--accuracy", "ham"], "accuracy='ham'"),
        (["t.npz", "x.npz"], "t.npz is not a double-double .npz file"),
        (["y.npy", "y.npy", "--accuracy", "fast"], "accuracy='fast'"),
    ],
)
def test_what_does_not_fit_is_refused(files, words, message, capsys):
    path, _ = files
    named = [str(path / w) if w[1:2] == "." else w for w in words]
    target = path / f"c{words[0][1:]}"
    assert run(["multiply", *named, "-o", str(target)]) != 0
    assert not target.exists()
    assert message in capsys.readouterr().err
    assert not (path / "c.npz").exists()


def test_systems_are_solved(capsys):
    assert run(["solve", "--size", "40", "--precision", "e", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["accepted"]
    assert told["residual"] > 0
    assert told["dtype"] == "double-double"


def test_space_and_bound(capsys):
    assert run(["space", "--precision", "e"]) == 0
    assert run(["bound", "--device", "h100", "--precision", "f", "--size", "4096"]) == 0
