"""Configs of the whole space beside what `gemm` chooses: the list, a shape's row, the table."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.stencil.emulator import EmulatedDevice, compiler
from tests.stencil.portable_harness import variant
from tests.stencil.test_simt_async import FAMILY, small
from tilewright.library.choose import Choice, fitted, served
from tilewright.problem import Problem

ROOT = Path(__file__).parents[2]
# Aligned and not, one short of every block, one long along k.
SHAPES = ((512, 768, 1024), (511, 77, 1023), (20, 3000, 65), (100, 90, 7000))
THIN = Problem(20, 40, 64, "s", "T", "N")


@pytest.fixture
def wide(monkeypatch):
    """The script, imported as the shell runs it."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    before = set(sys.modules)
    import wide

    yield wide
    for name in set(sys.modules) - before:
        if name.split(".")[0] in ("hopper", "wide", "shapes200", "ship", "choice_fit"):
            del sys.modules[name]


@pytest.fixture
def space(wide, monkeypatch):
    """What lists candidates, of a grid that takes no seconds."""
    import hopper.wide_space as found

    monkeypatch.setattr(found, "SIDES", (32, 64, 96, 128))
    monkeypatch.setattr(found, "DEPTHS", (8, 16))
    monkeypatch.setattr(found, "STAGES", (2, 4))
    monkeypatch.setattr(found, "RESIDENT", (1, 2))
    return found


@pytest.fixture
def h100(wide):
    from choice_fit import device

    return device()


def problems(*cases):
    return [Problem(*side, "s", *trans) for trans in cases for side in SHAPES]


@pytest.mark.parametrize("trans", ["NN", "NT", "TN", "TT"])
def test_members_are_points_of_the_space(space, h100, trans):
    found, points = space.members(trans, h100), space.space_of(trans, h100)
    assert len(found) > 100
    assert all(one in points for one in found[:: len(found) // 100])
    assert any(one.get("tma", 0) for one in found) == (trans == "NT")
    assert any(one["k_vectors"] for one in found) == (trans != "NT")


@pytest.mark.parametrize("trans", ["NN", "NT", "TN", "TT"])
def test_candidates_are_points_as_named_and_as_fitted(space, h100, trans):
    points = space.space_of(trans, h100)
    device = SimpleNamespace(spec=h100, fingerprint="")
    for shape in space.listed(problems(trans), h100, 20, 1000):
        assert shape.chosen == served(device, shape.problem).config
        assert len({one.fitted for one in shape.candidates}) == len(shape.candidates) <= 20
        assert {one.why for one in shape.candidates[1:]} <= {"best", "table", "class"}
        for one in shape.candidates[1:]:
            assert one.config in points
            assert one.fitted in points
            assert fitted(Choice(FAMILY, one.config), shape.problem, h100).config == one.fitted


def test_the_list_is_the_same_each_time(space, h100):
    first = space.listed(problems("TN"), h100, 12, 1000)
    space.members.cache_clear()
    assert space.listed(problems("TN"), h100, 12, 1000) == first


def test_what_other_processes_say_is_of_the_right_problem(space, h100, monkeypatch):
    class Here:
        """Processes that are none; those would have the whole grid."""

        def __init__(self, *_):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def map(self, work, *lists, chunksize):
            assert chunksize == 2
            return [work(*one) for one in zip(*lists, strict=False)]

    monkeypatch.setattr(space, "ProcessPoolExecutor", Here)
    mixed = [one for pair in zip(problems("TN"), problems("NN"), strict=True) for one in pair][:4]
    assert space.all_likely(mixed, h100, 2) == [space.likely(one, h100) for one in mixed]


def test_few_kernels_leave_the_choice_and_what_is_shared(space, h100):
    whole = space.listed(problems("NN"), h100, 20, 1000)
    few = space.listed(problems("NN"), h100, 20, 30)
    assert {one.problem for one in few} == {one.problem for one in whole}
    assert all(one.candidates[0].why == "choice" for one in few)
    many, some = ({k for one in shapes for k in one.kernels} for shapes in (whole, few))
    assert len(many) > 40
    assert len(some) == 30
    assert some < many


def test_cases_come_in_turns(space, h100):
    found = space.listed(problems("NN", "TT"), h100, 3, 1000)
    assert [one.problem.trans for one in found] == ["NN", "TT"] * len(SHAPES)
    first, second = (one for one in found[:4] if one.problem.trans == "NN")
    assert len(set(first.kernels)) <= len(set(second.kernels))


class Peer:
    """Says that it took two nanoseconds."""

    def prepare(self, load):
        return lambda: 2


@pytest.fixture
def live(tmp_path):
    if compiler() is None:
        pytest.skip("needs g++ or clang++")
    return EmulatedDevice(tmp_path, multiprocessors=8)


def test_a_shape_is_timed_beside_cublas(wide, live, monkeypatch):
    """What is wrong, or was not compiled, has a reason and no time."""
    from hopper.wide_space import Candidate, Shape

    plain = small(variant("sTN"), live)
    guarded, other = plain.replace(guarded=1), plain.replace(split_k=2)
    late = plain.replace(stages=2)
    pairs = [(plain, guarded), (other, other), (late, late)]
    shape = Shape(THIN, [Candidate(one, fit, 1.0, "best") for one, fit in pairs])
    drawn = np.random.default_rng(0)
    sizes = {"a": THIN.m * THIN.k, "b": THIN.n * THIN.k, "c": THIN.m * THIN.n}
    memory = {name: live.upload(drawn.random(n, np.float32)) for name, n in sizes.items()}
    reasons = {("TN", guarded): "", ("TN", other): ""}
    row = wide.shape_row(live, Peer(), memory, shape, reasons)
    assert row.keys() == {"trans", "m", "n", "k", "chosen", "cublas", "candidates"}
    assert row["cublas"] == [2] * 10
    assert row["chosen"] == guarded.id
    first, second, third = row["candidates"]
    assert (first["config"], first["fitted"]) == (dict(plain), dict(guarded))
    assert second.keys() == {"config", "ns", "eta"}
    assert 0 < first["eta"] < 1e-6
    assert third == {"config": dict(late), "reason": "not compiled in time"}

    monkeypatch.setattr(wide.shapes200, "run_of", lambda *_: lambda: 1)  # which computes nothing
    row = wide.shape_row(live, Peer(), memory, shape, reasons)
    assert row["candidates"][1]["reason"] == "ArithmeticError: parts of C were not written"


def made():
    chosen = {"block_m": 64, "block_n": 64, "tile_m": 8, "tile_n": 8, "block_k": 8}
    other = {**chosen, "block_m": 128, "stages": 5}
    from tilewright.space import Config

    row = {
        "trans": "NT", "m": 100, "n": 200, "k": 300, "cublas": [500, 500, 90, 90],
        "chosen": Config("simt_async", {**chosen, "narrow": 1}).id,
        "candidates": [
            {"config": chosen, "fitted": {**chosen, "narrow": 1}, "ns": 100, "eta": 1e-7},
            {"config": other, "ns": 80, "eta": 1e-7},
            {"config": other, "reason": "too late"},
        ],
    }  # fmt: skip
    failed = {"trans": "NN", "m": 1, "n": 2, "k": 3, "chosen": "", "cublas": [], "candidates": []}
    return {"seed": 3, "rows": [row, {**failed, "reason": "no memory"}]}


def test_the_file_has_a_row_a_line_and_the_table_prints_it(wide, tmp_path, monkeypatch, capsys):
    path = tmp_path / "wide.json"
    wide.write(path, made())
    text = path.read_text()
    stored = json.loads(text)
    assert [[one["config"] for one in row["candidates"]] for row in stored["rows"]] == [
        [0, 2, 2],
        [],
    ]
    assert len(stored["configs"]) == 3, "each config once"
    assert wide.unpacked(stored) == json.loads(json.dumps(made()))
    assert len(text.splitlines()) == 4 + len(stored["configs"]) + len(stored["rows"]) + 2
    monkeypatch.setattr(sys, "argv", ["wide.py", "--table", "--json", str(path)])
    wide.main()
    said = capsys.readouterr().out
    assert "NT   100   200   300  0.900 1.125 of  2  128x64/8x8 narrow 0 stages 5" in said
    assert "NN     1     2     3  no memory" in said
    assert "choice: geometric mean 0.900 of 1 shapes, 1 at 0.9 and more, 0 at 0.97" in said
    assert "1 without times: too late" in said


def test_shapes_are_those_of_shapes200(wide, tmp_path):
    import shapes200

    assert wide.problems_of(3, 5, None, None) == shapes200.shapes(3)[:5]
    rows = [{"kind": kind, "trans": "NT", "m": 9, "n": 8, "k": 7, "ratio": ratio}
            for kind, ratio in (("shape", 0.9), ("shape", 1.1), ("cliff", 0.5))]  # fmt: skip
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"rows": rows}))
    assert wide.problems_of(3, 5, path, 0.97) == [Problem(9, 8, 7, "s", "N", "T")]


def test_shapes_may_be_squares_of_all_cases(wide):
    found = wide.squares(wide.sides("512,96"))
    assert [(one.trans, one.m, one.n, one.k) for one in found[:5]] == [
        ("NN", 512, 512, 512), ("NT", 512, 512, 512), ("TN", 512, 512, 512),
        ("TT", 512, 512, 512), ("NN", 96, 96, 96),
    ]  # fmt: skip
    for wrong in ("", "512,", "0", "-4", "a square"):
        with pytest.raises(argparse.ArgumentTypeError, match="has no sides; give 512,1024"):
            wide.sides(wrong)


def test_a_wrong_command_is_told(wide, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["wide.py", "--below", "0.9"])
    with pytest.raises(SystemExit):
        wide.main()
    assert "--below and --of belong together" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--having", "slices", "--list"], "--having=slices is no parameter of simt_async"),
        (["--table"], "no results of wide.py; give a file that it wrote"),
    ],
)
def test_wrong_words_are_told(wide, tmp_path, monkeypatch, capsys, words, told):
    path = tmp_path / "portfolio.json"
    path.write_text('{"configs": {}, "rows": [{"ns": []}]}')
    monkeypatch.setattr(sys, "argv", ["wide.py", *words, "--json", str(path)])
    with pytest.raises(SystemExit):
        wide.main()
    assert told in capsys.readouterr().err
