"""Triangles moved by triangle.cl, in every size of elements."""

from functools import lru_cache

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tilewright.stencil.asynchronous.triangle import MovedTriangle

KINDS = {
    (2, False): "u2", (4, False): "u4", (8, False): "f8", (8, True): "c8", (16, False): "c16",
    (16, True): "c16", (32, False): [("re", "f8", 2), ("im", "f8", 2)],
    (32, True): [("re", "f8", 2), ("im", "f8", 2)],
}  # fmt: skip


def drawn(rng, count, kind):
    found = np.zeros(count, kind)
    flat = found.view("u1")
    flat[...] = rng.integers(0, 127, flat.shape)
    return found


def conjugate(x):
    if x.dtype.names:
        made = x.copy()
        made["im"] = -made["im"]
        return made
    return x.conj()


def real(x):
    made = x.copy()
    if x.dtype.names:
        made["im"] = 0
    else:
        made.imag = 0
    return made


@lru_cache(maxsize=32)
def compiled(live, one):
    return live.compile(one.source(live.dialect))


def launched(live, one, n, block, arguments, most=None):
    live.launch(compiled(live, one), one.launch(n, block, most), arguments).wait()


def numbers(*values):
    return [np.int64(value) for value in values]


@pytest.mark.parametrize(("size", "hermitian"), KINDS)
@settings(max_examples=10)
@given(
    n=st.integers(1, 180), block=st.integers(1, 140), lower=st.booleans(), more=st.integers(0, 3),
    most=st.none() | st.integers(1, 5),
)  # fmt: skip
def test_triangles_of_diagonal_blocks_are_copied(
    everywhere, size, hermitian, n, block, lower, more, most
):
    live, one = everywhere, MovedTriangle(size, False, hermitian)
    rng, ld = np.random.default_rng(n), n + more
    x, y = (drawn(rng, 5 + n * ld, KINDS[size, hermitian]) for _ in range(2))
    count, ld_y = -(-n // block), block + 1
    y = drawn(rng, count * block * ld_y, x.dtype)
    memory = live.upload(x), live.upload(y)
    step = block * (ld + 1)
    arguments = [*numbers(n, block), memory[0], *numbers(5, ld, step), memory[1],
                 *numbers(0, ld_y, block * ld_y), np.int32(lower)]  # fmt: skip
    launched(live, one, n, block, arguments, most)
    right = y.copy()
    for number in range(count):
        for j in range(min(block, n - number * block)):
            for i in range(min(block, n - number * block)):
                if i >= j if lower else i <= j:
                    value = x[5 + number * step + i + j * ld]
                    value = real(np.array(value)) if hermitian and i == j else value
                    right[number * block * ld_y + i + j * ld_y] = value
    live.download(memory[1], y)
    assert y.tobytes() == right.tobytes()
    for piece in memory:
        live.free(piece)


@pytest.mark.parametrize(("size", "hermitian"), KINDS)
@settings(max_examples=12)
@given(
    n=st.integers(1, 260) | st.sampled_from([128, 200, 256]), lower=st.booleans(),
    more=st.integers(0, 3), offset=st.sampled_from([3, 8]),
)  # fmt: skip
@example(n=200, lower=True, more=0, offset=8)
@example(n=256, lower=False, more=0, offset=8)
def test_a_triangle_is_mirrored(everywhere, size, hermitian, n, lower, more, offset):
    live, one = everywhere, MovedTriangle(size, True, hermitian)
    x = drawn(np.random.default_rng(n), offset + n * (n + more), KINDS[size, hermitian])
    memory = live.upload(x)
    launched(live, one, n, n, [*numbers(n), memory, *numbers(offset, n + more), np.int32(lower)])
    right = x.copy()
    matrix = right[offset:].reshape(n, n + more)[:, :n].T  # a view: (i, j)
    kept = matrix.copy()
    mask = np.tri(n, k=-1, dtype=bool)
    mask = mask if lower else mask.T
    turned = conjugate(kept.T) if hermitian else kept.T
    matrix[mask.T] = turned[mask.T]
    if hermitian:
        diagonal = np.arange(n)
        matrix[diagonal, diagonal] = real(kept[diagonal, diagonal])
    live.download(memory, x)
    assert x.tobytes() == right.tobytes()
    live.free(memory)


@pytest.mark.parametrize("element_bytes", [2, 4, 8, 16, 32])
def test_a_tile_fits_the_local_memory_that_every_opencl_device_has(cpu, element_bytes):
    import pyopencl as cl

    kernel = cpu.compile(MovedTriangle(element_bytes, mirrored=True).source("opencl")).handle
    used = cl.kernel_work_group_info.LOCAL_MEM_SIZE
    assert kernel.get_work_group_info(used, cpu.raw) <= 32768  # of PoCL 5: 0
