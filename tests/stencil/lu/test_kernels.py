"""Kernels of LU factorisations, compiled for the host, beside SciPy's LAPACK."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.serve.lu.by_numpy import order_of
from tilewright.precision import precision
from tilewright.stencil.lu import TOP_OF_PIVOTS, LUKernels, Way

lapack = pytest.importorskip("scipy.linalg.lapack")
HERE = Path(__file__).parent

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")

# The launch's shared memory, by the names that kernels have for it.
_SHARED = {"lu_rows": "elem held[1 << 15]", "lu_order": "int unused"}
_END = """
thread_local %s;
extern "C" void launch(int blocks, int threads, void **arguments)
{
    host::launch(ENTRY, blocks, threads, arguments);
}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return what runs a source's kernel on NumPy's arrays and numbers."""
    folder, known = tmp_path_factory.mktemp("lu"), {}

    def built(source):
        file = folder / f"{source.digest}.cc"
        file.write_text(source.text + _END % _SHARED.get(source.entry, "chunk shared[1 << 14]"))
        macros = [f"-D{name}={value}" for name, value in source.defines.items()]
        options = ["-std=c++17", "-O1", "-fPIC", "-shared", "-pthread", "-w", "-I", str(HERE)]
        made = str(file.with_suffix(".so"))
        subprocess.run(
            ["g++", *options, *macros, f"-DENTRY={source.entry}", "-include", "host.h",
             "-o", made, str(file)], check=True,
        )  # fmt: skip
        return ctypes.CDLL(made)

    def launch(source, blocks, *arguments):
        if source.digest not in known:
            known[source.digest] = built(source)
        words = [np.uint64(x.ctypes.data) if isinstance(x, np.ndarray) else x for x in arguments]
        each = [np.atleast_1d(x) for x in words]
        at = (ctypes.c_void_p * len(each))(*(x.ctypes.data for x in each))
        known[source.digest].launch(blocks, source.defines["THREADS"], at)

    return launch


def drawn(rng, shape, dtype):
    x = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.standard_normal(shape)
    return aligned(x.astype(dtype))


def aligned(x):
    """Return a copy that begins at a multiple of 16 bytes."""
    raw = np.zeros(x.nbytes + 16, np.uint8)
    made = raw[-raw.ctypes.data % 16 :][: x.nbytes].view(x.dtype).reshape(x.shape)
    made[...] = x
    return made


def says(order, expected, top):
    """Whether what rows.cuh reads of an order is as expected."""
    moved = [k for k in order[:top] if k >= top]
    return np.array_equal(order[:top], expected[:top]) and all(
        order[k] == expected[k] for k in moved
    )


@pytest.mark.every(6)
@pytest.mark.parametrize(
    ("letter", "rows", "width", "each", "cluster"),
    [
        ("d", 300, 128, 1, 0), ("s", 600, 128, 2, 0), ("c", 37, 37, 1, 0), ("z", 150, 64, 1, 0),
        ("s", 1, 1, 1, 0), ("d", 600, 128, 2, 2), ("z", 350, 60, 1, 4), ("s", 3, 3, 1, 2),
    ],
)  # fmt: skip
def test_a_panel_is_factored_as_lapack_does(run, letter, rows, width, each, cluster):
    of = LUKernels(precision(letter))
    rng = np.random.default_rng(rows)
    ld = -(-width // of.unit) * of.unit + 16  # rows begin at multiples of 16 bytes
    a = drawn(rng, (rows, ld), of.precision.dtype)
    a[:, width:] = np.nan
    before = a.copy()
    blocks = cluster or -(-rows // (each * 256))
    top, inverse = (aligned(np.zeros((of.width, of.width), a.dtype)) for _ in range(2))
    own, every, pivots = (
        np.full(rows, -1, "i4"),
        np.full((2, rows), -1, "i4"),
        np.zeros(width, "i4"),
    )
    every[1] = np.arange(rows)[::-1]
    messages, counter, zero = (
        aligned(np.zeros(size, "u4")) for size in (of.message_bytes // 4, 1, 1)
    )
    run(
        of.panel(each, cluster), blocks, np.int64(rows), np.int32(width), a, np.int64(ld),
        top, inverse, own, every, np.int64(rows), np.int32(2), np.int32(2), pivots, np.int32(7),
        messages, counter, np.uint32(1), zero,
    )  # fmt: skip
    expected, found, _ = lapack.get_lapack_funcs("getrf", dtype=a.dtype)(before[:, :width])
    assert np.array_equal(pivots - 7, found)
    eps = np.finfo(a.dtype).eps
    assert np.abs(a[:, :width] - expected).max() < 100 * eps * np.abs(expected).max()
    assert np.isnan(a[:, width:]).all()
    lower = np.tril(expected[:width], -1) + np.eye(width)
    assert np.abs(inverse[:width, :width] - np.linalg.inv(lower)).max() < 1000 * eps
    order = order_of(found, rows)
    assert says(own, order, width)
    assert np.array_equal(every[0], order)
    assert np.array_equal(every[1], np.arange(rows)[::-1][order])
    assert zero[0] == 0


@pytest.mark.parametrize("scale", [2.0**-1010, 2.0**1015])
def test_rows_are_divided_by_pivots_whose_inverses_are_no_numbers(run, scale):
    of = LUKernels(precision("d"))
    a = aligned(drawn(np.random.default_rng(2), (50, 16), float) * scale)
    expected, found, _ = lapack.dgetrf(a)
    square, ints, words = np.zeros((128, 128)), np.zeros((3, 50), "i4"), np.zeros(2, "u4")
    messages, zero = aligned(np.zeros(of.message_bytes // 4, "u4")), np.zeros(1, "i4")
    run(
        of.panel(1), 1, np.int64(50), np.int32(16), a, np.int64(16), aligned(square),
        aligned(square), ints[0], ints[1], np.int64(0), np.int32(1), np.int32(0), ints[2],
        np.int32(0), messages, words, np.uint32(9), zero,
    )  # fmt: skip
    assert np.array_equal(ints[2][:16], found)
    upper = np.triu(expected[:16])
    assert np.abs(np.triu(a[:16]) - upper).max() <= 1e-6 * np.abs(upper).max()
    assert np.abs(np.tril(a, -1) - np.tril(expected, -1)).max() < 1e-6


def test_a_zero_pivot_is_told_and_a_nan_ends_nothing(run):
    of = LUKernels(precision("d"))
    a = aligned(np.zeros((40, 16)))
    a[:, 3:] = drawn(np.random.default_rng(1), (40, 13), float)
    a[7, 9] = np.nan
    square, ints, words = np.zeros((128, 128)), np.zeros((3, 40), "i4"), np.zeros(2, "u4")
    messages, zero = aligned(np.zeros(of.message_bytes // 4, "u4")), np.zeros(1, "i4")
    run(
        of.panel(1), 1, np.int64(40), np.int32(16), a, np.int64(16), aligned(square),
        aligned(square), ints[0], ints[1], np.int64(0), np.int32(1), np.int32(0), ints[2],
        np.int32(0), messages, words, np.uint32(9), zero,
    )  # fmt: skip
    assert zero[0] == 1
    assert np.isnan(a[:16, 9:]).any()
    assert sorted(ints[1]) == list(range(40))


@pytest.mark.every(2)
@pytest.mark.parametrize("letter", "zs")
def test_rows_go_where_pivots_say_and_back(run, letter):
    of, rng = LUKernels(precision(letter)), np.random.default_rng(5)
    n, columns, top = 700, 41, 300
    pivots = np.array([rng.integers(k, n) for k in range(n)], "i4")
    pivots[:50] = np.minimum(pivots[:50], top + pivots[:50] % 9)  # often the same rows
    orders = np.zeros((2, n), "i4")
    run(of.order(), 2, np.int32(n), pivots, orders)
    assert says(orders[0], order_of(pivots[:TOP_OF_PIVOTS], n), TOP_OF_PIVOTS)
    rest = n - TOP_OF_PIVOTS
    assert says(orders[1], order_of(pivots[TOP_OF_PIVOTS:] - TOP_OF_PIVOTS, rest), rest)

    order = order_of(pivots[:top], n).astype("i4")
    a, to = drawn(rng, (n, columns), of.precision.dtype), np.zeros((top, columns + 2), "f8")
    to = to.astype(a.dtype)
    moved = a[order]

    def rows(way, matrix, to=None):
        other = (np.zeros(1), 0) if to is None else (to, to.shape[1])
        blocks = of.rows_launch(way, columns).grid[0]
        run(of.rows(way), blocks, *of.rows_arguments(matrix, columns, columns, top, order, *other))

    out = aligned(a)
    rows(Way.OUT, out, to)
    assert np.array_equal(to[:, :columns], moved[:top])
    assert np.array_equal(out[top:], moved[top:])
    assert np.array_equal(out[:top], a[:top])
    here = aligned(a)
    rows(Way.IN_PLACE, here)
    assert np.array_equal(here, moved)
    rows(Way.BACK, here)
    assert np.array_equal(here, a)


@pytest.mark.every(2)
@pytest.mark.parametrize(("letter", "upper"), [("d", False), ("s", True), ("z", True)])
def test_diagonal_blocks_are_inverted(run, letter, upper):
    of, rng = LUKernels(precision(letter)), np.random.default_rng(6)
    n, width = of.width + 20, of.width
    a = drawn(rng, (n, n), of.precision.dtype) / width
    np.fill_diagonal(a, 1 + rng.random(n))
    made = aligned(np.zeros((2, width, width), a.dtype))
    run(of.invert(upper), of.invert_launch(n).grid[0], np.int64(n), a, np.int64(n), made)
    for number, size in enumerate((width, 20)):
        part = slice(number * width, number * width + size)
        block = np.triu(a[part, part]) if upper else np.tril(a[part, part], -1) + np.eye(size)
        whole = np.eye(width, dtype=a.dtype)
        whole[:size, :size] = np.linalg.inv(block)
        error = np.abs(made[number] - whole).max() / np.abs(whole).max()
        assert error < 100 * np.finfo(a.dtype).eps
