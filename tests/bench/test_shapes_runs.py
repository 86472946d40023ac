"""Runs of random shapes beside each other: what changed, and what cuBLAS's own changes hide."""

from __future__ import annotations

import argparse
import json
import sys

import pytest

from tests.library.test_shipped import script


@pytest.fixture
def runs():
    before = set(sys.modules)
    yield script("shapes_runs")
    for name in set(sys.modules) - before:
        if name.split(".")[0] in ("hopper", "shapes200", "ship"):
            del sys.modules[name]


def row(m, ours, theirs, config=1, **others):
    ns = {"tilewright": [ours] * 3, "cublas": [theirs, theirs, 9 * theirs]}
    return {"kind": "shape", "trans": "NT", "m": m, "n": 65, "k": 66, "config": config, "ns": ns,
            **others}  # fmt: skip


def run(path, *rows):
    path.write_text(json.dumps({"rows": rows}))
    return str(path)


def test_changes_are_told_apart_by_config(runs, tmp_path, monkeypatch, capsys):
    """One shape has another config and takes half the time, one the same and as long as before."""
    failed = {"kind": "shape", "trans": "NN", "m": 1, "n": 1, "k": 1, "reason": "no memory"}
    square = row(512, 1, 1, kind="cliff")
    new = run(tmp_path / "new.json", row(70, 50, 100, 2), row(71, 100, 80), failed, square)
    old = run(tmp_path / "old.json", row(70, 100, 25), row(71, 100, 80), row(72, 1, 1))
    monkeypatch.setattr(sys, "argv", ["shapes_runs.py", new, old])
    runs.main()
    first, least, last = capsys.readouterr().out.splitlines()
    assert "2 shapes: cuBLAS took 2.000 of its time, ours 0.707;" in first
    assert "1.000 where the config is the same (1), 0.500 where it is not" in first
    # The least of cuBLAS's times: 25 and 80 beside our 50 and 100.
    assert least.endswith("geometric mean 0.632, 2 below 0.9")
    # At one it took four times its least, which says nothing of ours: 80 over 100 is left.
    assert last.endswith("1 shapes, geometric mean 0.800, 1 below 0.9")


def test_shapes_are_told_apart_by_how_long_cublas_takes(runs, tmp_path, monkeypatch, capsys):
    us = 1000
    first = run(tmp_path / "first.json", row(70, 10 * us, 20 * us), row(71, 90 * us, 99 * us))
    other = run(tmp_path / "other.json", row(72, 40 * us, 49 * us), row(73, 125 * us, 100 * us))
    monkeypatch.setattr(sys, "argv", ["shapes_runs.py", "--by-time", first, other])
    runs.main()
    short, middle, long = capsys.readouterr().out.splitlines()
    # Twice as fast, and 1.225 times.
    assert "0 to 50 us: 2 shapes, geometric mean 1.565, ahead in 2, 0 below" in short
    assert middle.startswith("50 to 100 us: 1 shapes, geometric mean 1.100")
    assert long.startswith("100 to 500 us: 1 shapes, geometric mean 0.800, ahead in 0, 1 below 0.9")


def test_what_is_no_run_is_refused_in_one_line(runs, tmp_path):
    other = tmp_path / "other.json"
    for text in ("[]", "{", '{"rows": [{}]}'):
        other.write_text(text)
        with pytest.raises(argparse.ArgumentTypeError, match="is no run; give what"):
            runs.shapes_of(str(other))
    with pytest.raises(argparse.ArgumentTypeError, match="nowhere cannot be read: No such file"):
        runs.shapes_of("nowhere")


def test_the_committed_runs_are_of_the_same_shapes(runs):
    first, *others = map(runs.shapes_of, runs.DEFAULT)
    assert len(first) == 200
    assert all(one.keys() == first.keys() for one in others)
