"""Matrices in the host's memory through a GPU's: tiles, pinned and pageable memory, failures."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np
import pytest

import tilewright as tw
from tilewright.backend import LiveDevice, OutOfMemoryError

pytestmark = pytest.mark.gpu


def drawn(rng, shape, dtype, stack=None, live=None):
    """Return a random matrix of either order, in pinned memory where a stack is given."""
    x = rng.standard_normal(shape).astype(dtype)
    if x.dtype.kind == "c":
        x.imag = rng.standard_normal(shape)
    x = np.asfortranarray(x) if rng.random() < 0.5 else x
    if stack is None:
        return x
    lines = x if x.flags.c_contiguous else x.T
    rows, columns = lines.shape
    held = stack.enter_context(live.pinned(rows * (columns + 3) * x.itemsize))
    there = held.view(x.dtype).reshape(rows, columns + 3)[:, :columns]
    there[...] = lines
    return there if x.flags.c_contiguous else there.T


@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
def test_small_tiles_change_no_result(cuda: LiveDevice, dtype: str, pinned: bool) -> None:
    rng = np.random.default_rng([ord(x) for x in dtype])
    for _ in range(25):
        m, n, k = (int(2**x) for x in rng.uniform(0, 10, 3))
        trans, beta = rng.choice(list("NTC"), 2), float(rng.choice([0, 0.5]))
        with ExitStack() as stack:
            held = (stack, cuda) if pinned else ()
            a = drawn(rng, (m, k) if trans[0] == "N" else (k, m), dtype, *held)
            b = drawn(rng, (k, n) if trans[1] == "N" else (n, k), dtype, *held)
            c = drawn(rng, (m, n), dtype, *held)
            x, y = (
                v if t == "N" else v.T if t == "T" else v.conj().T
                for v, t in zip((a, b), trans, strict=True)
            )
            wide = np.clongdouble if c.dtype.kind == "c" else np.longdouble
            exact = 2 * (x.astype(wide) @ y.astype(wide)) + beta * c
            size = 2 * (abs(x) @ abs(y)) + abs(c)
            if not beta:
                c.fill(np.nan)
            tw.gemm(
                a, b, c, alpha=2, beta=beta, trans_a=str(trans[0]), trans_b=str(trans[1]),
                device=cuda, max_device_memory=int(rng.integers(1 << 18, 1 << 22)),
            )  # fmt: skip
            assert (abs(c - exact) <= 8 * (k + 2) * np.finfo(dtype).eps * size).all()


@pytest.mark.parametrize("accuracy", ["ieee", "fp32"])
def test_large_ones_are_copied_tile_by_tile(cuda: LiveDevice, accuracy: str) -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal((2900, 2900)).astype("f4") for _ in "ab")
    made = tw.gemm(a, b, accuracy=accuracy, device=cuda)
    assert np.array_equal(made, tw.gemm(a, b, accuracy=accuracy, device=cuda))
    places = rng.integers(0, 2900, (200, 2))
    for i, j in places:
        x, y = a[i].astype(float), b[:, j].astype(float)
        assert abs(made[i, j] - x @ y) <= 2**-19 * (abs(x) @ abs(y))


@pytest.mark.parametrize("beta", [0, 0.5])
@pytest.mark.parametrize("what", ["random", "faint", "infinite"])
def test_parts_are_multiplied_where_they_are_right(
    cuda: LiveDevice, what: str, beta: float
) -> None:
    rng = np.random.default_rng(4)
    a, b = (rng.standard_normal(shape).astype("f4") for shape in ((6000, 5000), (5000, 5500)))
    if what == "faint":
        b[:, 4000:4100] *= (2.0 ** rng.integers(-40, 1, (5000, 100))).astype("f4")
    elif what == "infinite":
        a[77, 5] = np.inf
    c = rng.standard_normal((6000, 5500)).astype("f4")
    before = c.copy()
    if not beta:
        c.fill(np.nan)
    tw.gemm(a, b, c, beta=beta, accuracy="fp32", device=cuda)
    rows = np.r_[77, rng.integers(0, 6000, 40)]
    x, y = a[rows].astype(float), b.astype(float)
    exact, size = x @ y + beta * before[rows], abs(x) @ abs(y) + abs(beta * before[rows])
    finite = np.isfinite(exact)
    assert (abs(c[rows][finite] - exact[finite]) <= 2**-19 * size[finite]).all()
    assert np.array_equal(np.isfinite(c[rows]), finite)


def test_refused_memory_leaves_c_as_it_was(cuda: LiveDevice, monkeypatch) -> None:
    def refuse(size):
        raise OutOfMemoryError(f"no {size} bytes")

    a, c = np.ones((3000, 3000)), np.full((3000, 3000), 7.0)
    tw.release()  # what is kept is not asked for
    monkeypatch.setattr(cuda, "allocate", refuse)
    with pytest.raises(OutOfMemoryError, match=r"0 of \d+ tiles of c are computed"):
        tw.gemm(a, a, c, device=cuda)
    assert (c == 7).all()


def test_limits_bound_what_is_taken(cuda: LiveDevice, monkeypatch) -> None:
    taken: list[int] = []
    allocate = cuda.allocate

    def counted(size):
        taken.append(size)
        return allocate(size)

    monkeypatch.setattr(cuda, "allocate", counted)
    a = np.ones((2000, 3000), "f4")
    made = tw.gemm(a, a, trans_b="T", device=cuda, max_device_memory=8 << 20)
    assert (made == 3000).all()
    assert sum(taken) <= 8 << 20
    with pytest.raises(ValueError, match="max_host_memory=1000 is too little"):
        tw.gemm(a, a, trans_b="T", device=cuda, max_host_memory=1000)


def test_interrupts_end_between_tiles(cuda: LiveDevice, monkeypatch) -> None:
    from tilewright.serve.streamed.overlapped import Overlapped

    multiply, calls = Overlapped.multiply, []

    def interrupted(self, request, *about):
        calls.append(request)
        if len(calls) == 4:  # two slabs of a strip, and all of another one
            raise KeyboardInterrupt
        return multiply(self, request, *about)

    monkeypatch.setattr(Overlapped, "multiply", interrupted)
    a, c = np.ones((3000, 3000)), np.full((3000, 3000), -1.0)
    with pytest.raises(KeyboardInterrupt) as caught:
        tw.gemm(a, a, c, device=cuda)
    assert "2 of 6 tiles" in caught.value.__notes__[0]
    assert set(np.unique(c)) == {-1.0, 3000.0}
