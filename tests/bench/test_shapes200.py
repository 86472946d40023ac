"""Random shapes: what `gemm` chooses beside cuBLAS, and other configs beside it."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.stencil.emulator import EmulatedDevice, compiler
from tests.stencil.portable_harness import variant
from tests.stencil.test_simt_async import FAMILY, small
from tilewright.library.choose import Choice
from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.tuning import verify

ROOT = Path(__file__).parents[2]
THIN = Problem(20, 40, 64, "s", "T", "N")


@pytest.fixture
def shapes200(monkeypatch):
    """The script, imported as the shell runs it."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    before = set(sys.modules)
    import shapes200

    yield shapes200
    for name in set(sys.modules) - before:
        if name.split(".")[0] in ("hopper", "shapes200", "likely", "choice_fit", "ship"):
            del sys.modules[name]


@pytest.fixture
def live(tmp_path):
    if compiler() is None:
        pytest.skip("needs g++ or clang++")
    found = EmulatedDevice(tmp_path, multiprocessors=8)
    found.arch = "sm_90a"
    return found


class Peer:
    """Says that it took two nanoseconds."""

    def prepare(self, load):
        return lambda: 2


def matrices(live) -> dict[str, Any]:
    """Return memory of the problem's size, A and B random."""
    drawn = np.random.default_rng(0)
    elements = {"a": THIN.m * THIN.k, "b": THIN.n * THIN.k, "c": THIN.m * THIN.n}
    return {name: live.upload(drawn.random(n, np.float32)) for name, n in elements.items()}


def square_matrices(live, n: int) -> dict[str, Any]:
    return {name: live.upload(np.ones(n * n, np.float32)) for name in "abc"}


def configs(live) -> list[Config]:
    """Return a config, one that is expected to be slower, and one that is wrong."""
    first = small(variant("sTN"), live)
    return [first, first.replace(split_k=2), first.replace(stages=4)]


def test_what_is_named_is_timed_beside_the_choice(shapes200, live, monkeypatch):
    from hopper.beside import Beside

    *_, wrong = named = configs(live)
    screen = verify.screen

    def checked(device, kernel, family, config, of):
        if config["stages"] == wrong["stages"]:
            raise verify.WrongResultError("C[0, 0]\nis wrong")
        screen(device, kernel, family, config, of)

    monkeypatch.setattr(verify, "screen", checked)
    choice = Choice(FAMILY, named[0])
    monkeypatch.setattr(shapes200, "chosen", lambda live, problem, alone: {"tilewright": choice})
    memory = matrices(live)
    row = shapes200.row_of(live, Peer(), memory, "shape", THIN, Beside({"TN": named}, 3))
    assert "reason" not in row, row
    assert row["id"] == choice.config.id
    other = named[1]  # what `gemm` chose is not timed twice
    assert row["others"] == {other.id: dict(other)}
    assert row["ns"].keys() == row["tflops"].keys() == {"tilewright", other.id, "cublas"}
    assert row["refused"] == {wrong.id: "WrongResultError: C[0, 0]"}
    assert row["errors"][other.id]["eta"] < 1e-6


def test_what_won_is_timed_at_squares(shapes200, live, monkeypatch):
    """As it was named, not as it was fitted to the shape; the table takes it up."""
    import ship
    from hopper import beside

    default = FAMILY.default(variant("sTN"), live.spec)
    of = beside.Beside({"TN": [default]}, 1)
    (key,) = of.wanted(live.spec, THIN)
    monkeypatch.setattr(beside, "SQUARES", (32,))
    row = {"trans": "TN", "others": {key: {}}, "tflops": {"tilewright": 10.0, key: 10.1}}
    assert of.squares(live, matrices(live), [row], 1e12) == []
    row["tflops"][key] = 10.3
    assert of.winners([row, {"reason": "no"}]) == [("TN", default)]
    monkeypatch.setattr(of, "winners", lambda rows: [("TN", configs(live)[0])])
    (found,) = of.squares(live, square_matrices(live, 32), [row], 1e12)
    assert found["trans"] == "TN"
    assert found["config"] == dict(configs(live)[0])
    assert found["ns"].keys() == {32}
    assert of.squares(live, {}, [row], 0.0) == []
    path = Path(live.directory) / ship.BESIDE
    path.write_text(json.dumps({"squares": [found]}))
    monkeypatch.setattr(ship, "RESULTS", path.parent)
    (taken,) = ship.beside_rows([])
    assert taken["config"] == found["config"]
    assert [n for n, *_ in taken["times"]] == [32]
    assert list(ship.beside_rows([taken])) == []


def test_those_of_least_expected_time_are_wanted(shapes200, live):
    from hopper.beside import Beside

    first, split, _ = configs(live)
    problem = Problem(640, 640, 64, "s", "T", "N")
    beside = Beside({"TN": [split, first], "NT": [first]}, 1)
    (found,) = beside.wanted(live.spec, problem).values()
    assert found.config == first
    assert Beside().wanted(live.spec, problem) == {}
    # Copies are fitted to the shape.
    default = FAMILY.default(variant("sTN"), live.spec)
    (found,) = Beside({"TN": [default]}, 1).wanted(live.spec, THIN).values()
    assert found.config == default.replace(guarded=1)


def test_a_run_without_names_is_what_it_was(shapes200, live, monkeypatch, capsys):
    from hopper.beside import Beside

    choice = Choice(FAMILY, configs(live)[0])
    monkeypatch.setattr(shapes200, "chosen", lambda live, problem, alone: {"tilewright": choice})
    memory = matrices(live)
    row = shapes200.row_of(live, Peer(), memory, "shape", THIN, Beside())
    assert row["others"] == row["refused"] == {}
    shapes200.table([row])
    assert "1 random shapes, 0 problems failed" in capsys.readouterr().out


def test_what_was_faster_is_said(shapes200, capsys):
    row = {
        "kind": "shape", "trans": "TN", "m": 20, "n": 40, "k": 64, "ratio": 0.8,
        "tflops": {"tilewright": 8.0, "cublas": 10.0, "a": 9.0}, "others": {"a": {"block_m": 64}},
        "refused": {"b": "no"},
    }  # fmt: skip
    shapes200.overtaken([row, {"reason": "no memory"}])
    said = capsys.readouterr().out
    assert "0.800, by a 0.900: {'block_m': 64}" in said
    assert "b was refused: no" in said


def test_a_file_of_promises_is_one_that_races_read(shapes200):
    """The committed list names points of the space, that differ from each other."""
    from hopper.named import named_in

    path = ROOT / "benchmarks" / "results" / "sm_90a" / "likely_s.json"
    found = named_in(path, "s", ("NN", "NT", "TN", "TT"))
    assert sum(map(len, found.values())) == len(json.loads(path.read_text())) > 20
    assert all(len(set(configs)) == len(configs) for configs in found.values())


def test_each_slow_shape_gets_what_promises_most(shapes200):
    import likely

    a, b, c = (Config("simt_async", {"block_m": side}) for side in (32, 64, 128))
    shapes = [
        likely.Slow(THIN, 0.8, 80.0, 100.0, {a: 70.0, b: 71.0}),
        likely.Slow(THIN, 0.9, 90.0, 100.0, {b: 60.0, c: 90.0}),
    ]
    assert likely.picked(shapes, 1) == [("TN", b)]  # both like it
    assert likely.picked(shapes, 9) == [("TN", b), ("TN", a)]  # c is far from the best of its shape


def random_elements(drawn, count, dtype):
    parts = drawn.standard_normal((2, count))
    return (
        parts[0] + 1j * parts[1] if np.issubdtype(dtype, np.complexfloating) else parts[0]
    ).astype(dtype)


def operand(flat, rows, columns, trans):
    """Return op(X) of a matrix that lies column by column."""
    shape = (rows, columns) if trans == "N" else (columns, rows)
    x = flat.reshape(shape, order="F")
    return {"N": x, "T": x.T, "C": x.conj().T}[trans]


@dataclass
class Load:
    """What is in memory of a problem."""

    problem: Problem
    elements: dict[str, int]
    memory: dict[str, Any]


class Downloads:
    """A device whose memory is the host's."""

    def download(self, memory, to):
        to[...] = memory


@pytest.mark.parametrize(
    "case", ["sNT", "dNN", "dTN", "cTC", "zCN", "zCT"], ids=lambda case: str(case)
)
def test_sums_that_errors_are_told_by_are_wider_than_what_is_tested(shapes200, case):
    """And conjugates are: right results in the problem's own precision are off by rounding only."""
    letter, trans = case[0], case[1:]
    problem = Problem(40, 50, 300, letter, *trans)
    of, drawn = problem.precision, np.random.default_rng(3)
    sides = (problem.m * problem.k, problem.n * problem.k)
    a, b = (random_elements(drawn, n, of.dtype) for n in sides)
    load = Load(problem, {"a": a.size, "b": b.size}, {"a": a, "b": b})
    part, product, size = shapes200.reference(Downloads(), load)
    x = operand(a, problem.m, problem.k, trans[0])
    y = operand(b, problem.k, problem.n, trans[1])
    wide = shapes200.WIDER[letter]
    assert product.dtype == wide
    if np.finfo(wide).eps == np.finfo(of.dtype).eps:
        pytest.skip("long doubles are no longer than doubles here")
    right = (x.astype(wide) @ y.astype(wide))[part]
    assert (np.abs(product - right) <= problem.k * np.finfo(wide).eps * size).all()
    load.memory["c"] = np.asfortranarray(x @ y).ravel(order="F").reshape(problem.n, -1)
    found = shapes200.errors(Downloads(), load, (part, product, size))
    assert 0 < found["frobenius"] < found["eta"] < 30 * np.finfo(of.dtype).eps
    load.memory["c"] = load.memory["c"] * (1 + 1e-3)
    assert shapes200.errors(Downloads(), load, (part, product, size))["eta"] > 1e-5


def test_rows_of_another_precision_than_is_named_are_told(shapes200, tmp_path, monkeypatch, capsys):
    path = tmp_path / "run.json"
    row = {"kind": "shape", "m": 8, "n": 9, "k": 10, "trans": "NT", "ratio": 0.5}
    path.write_text(json.dumps({"precision": "d", "rows": [row]}))
    known = ["shapes200.py", "--below", "0.9", "--of", str(path), "--list"]
    monkeypatch.setattr(sys, "argv", known)
    with pytest.raises(SystemExit):
        shapes200.main()
    assert f"--of={path} is of precision d; name it" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", [*known, "--precision", "d"])
    shapes200.main()
    assert capsys.readouterr().out == "NT 8 9 10\n"
