"""The benchmark of C against C, on a driver and a cuBLAS that compute on the host."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from tests.export.building import ARITHMETIC, COMPILER, HERE, needs_c, run
from tests.export.conftest import Exported
from tilewright.bench.benchmarks.c_calls import Program, compiled, numbers, sum_of
from tilewright.bench.benchmarks.calls import WORKSPACE
from tilewright.bench.call_arrays import arrays_of
from tilewright.bench.call_cases import Case
from tilewright.bench.peers import UnavailableError
from tilewright.precision import PRECISIONS
from tilewright.problem import Trans

pytestmark = needs_c

N, T, C = Trans.N, Trans.T, Trans.C


@pytest.fixture(scope="module")
def command(exported: Exported, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The program with the library, and the two that it is run with."""
    folder = tmp_path_factory.mktemp("c_calls")
    program = compiled(folder, exported.sources, [str(exported.fake)])
    blas = folder / "libcublas.so"
    flags = ("-std=c11", "-O1", ARITHMETIC, f"-DWORKSPACE={WORKSPACE}", "-shared", "-fPIC")
    run(COMPILER, *flags, HERE / "fake_cublas.c", "-o", blas, "-lm")
    return [str(program), str(blas), "0"]


@pytest.fixture
def program(command: list[str], exported: Exported):
    folder = str(exported.fake.parent)
    with Program(command, {"LD_LIBRARY_PATH": folder, "FAKE_CUDA_COMPUTES": "1"}) as running:
        yield running


def op(x: np.ndarray, trans: Trans) -> np.ndarray:
    x = x.T if trans.transposed else x
    return x.conj() if trans.conjugated else x


@pytest.mark.parametrize("letter", "sdz")
@pytest.mark.parametrize("order", "FC")
def test_times_bits_and_differences_are_those_of_the_product(monkeypatch, program, letter, order):
    monkeypatch.setitem(sys.modules, "cupy", np)
    arrays = arrays_of(letter)
    eps = PRECISIONS[letter].unit_roundoff
    for ops in ((N, N), (N, T), (T, N), (T, T), (C, T)):
        m, n, k = 7, 5, 9
        case: Case = ((m, n, k), ops, order)
        first, us, own, large, bits, difference = program.ask(letter, case)
        assert first == "ok"
        assert min(float(us), float(own), float(large)) > 0
        assert float(difference) < 40 * eps
        a = numbers(arrays, (k, m) if ops[0].transposed else (m, k), order, 0)
        b = numbers(arrays, (n, k) if ops[1].transposed else (k, n), order, 1000003)
        # As the fake driver computes: in double precision, rounded once.
        wide = np.complex128 if letter == "z" else np.float64
        x, y = (op(v, t).astype(wide) for v, t in zip((a, b), ops, strict=True))
        sums = np.zeros((m, n), wide)
        for i in range(k):
            sums += x[:, i, None] * y[None, i]
        if letter != "z":  # whose product a compiler may contract
            c = np.asarray(sums, arrays.dtype, order=order)
            assert sum_of(arrays, c, order) == int(bits)


def test_numbers_repeat_and_fill_their_range(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", np)
    for letter, most in (("s", 2.0**-23), ("d", 2.0**-52)):
        x = numbers(arrays_of(letter), (1500, 1500), "F", 0).ravel("F")
        assert -1 <= x.min() < -0.999 < 0.999 < x.max() < 1
        assert abs(x.mean()) < 0.01
        assert np.array_equal(x[:1000], x[2097143 : 2097143 + 1000])
        assert not np.any(x % most)
        assert np.any(x % (2 * most))
    y = numbers(arrays_of("s"), (8, 8), "C", 2097140).ravel()
    assert np.array_equal(y[3:], numbers(arrays_of("s"), (61, 1), "F", 0).ravel())


def test_every_bit_and_place_counts(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", np)
    arrays = arrays_of("d")
    x = numbers(arrays, (6, 5), "F", 3)
    whole = sum_of(arrays, x, "F")
    assert sum_of(arrays, np.ascontiguousarray(x.T), "C") == whole  # the same memory
    y = x.copy(order="F")
    y[2, 3] = np.nextafter(y[2, 3], 2)
    assert sum_of(arrays, y, "F") != whole
    y[2, 3], y[3, 3] = x[3, 3], x[2, 3]
    assert sum_of(arrays, y, "F") != whole


def test_what_fails_is_said(program: Program, command: list[str], exported: Exported):
    case: Case = ((3, 3, 3), (N, N), "F")
    assert program.ask("c", case) == ["error", "our", "call", "failed"]  # of c nothing is exported
    assert program.ask("s", case)[0] == "ok"
    here = {"LD_LIBRARY_PATH": str(exported.fake.parent)}
    with (
        Program([command[0], "nowhere.so", "0"], here) as ended,
        pytest.raises(UnavailableError, match=r"the C program ended: .*nowhere\.so"),
    ):
        ended.ask("s", case)


def test_a_compiler_that_fails_is_said(tmp_path: Path):
    with pytest.raises(UnavailableError, match="failed: "):
        compiled(tmp_path, tmp_path)
