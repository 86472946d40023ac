"""Copies of operands whose columns are aligned: the same elements, whatever lay between them."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.backend.cuda.compiler import compile_cubin, nvrtc
from tilewright.sass import decode, read_cubin, resources
from tilewright.stencil.asynchronous.realign import Realigned

TYPES = {1: "u1", 2: "u2", 4: "f4", 8: "c8", 16: "c16"}


def random(rng, size, count):
    """Return elements of so many bytes: any at all of the small ones, numbers of the others."""
    if size < 4:
        return rng.integers(0, 256**size, count).astype(TYPES[size])
    found = rng.standard_normal(2 * count).astype(f"f{max(4, size // 2)}")
    return found.view(TYPES[size])[:count]


@settings(max_examples=40)
@given(
    shape=st.tuples(st.integers(1, 150), st.integers(1, 150)),
    size=st.sampled_from([1, 2, 4, 8, 16]),
    transposed=st.booleans(),
    conjugated=st.booleans(),
    padding=st.integers(0, 5),
    factor=st.sampled_from([1, 2, -1, 0]),
    offset=st.integers(0, 9),
)
def test_a_copy_has_the_same_elements_at_whole_16_bytes(
    live, shape, size, transposed, conjugated, padding, factor, offset
):
    """Whatever the steps are: transposed, padded, reversed, or one element for all."""
    inner, outer = shape
    conjugated = conjugated and size >= 8
    steps = (outer * 2 + padding, factor) if transposed else (factor, inner * 2 + padding)
    reach = sum(abs(step) * (n - 1) for step, n in zip(steps, shape, strict=True))
    first = offset + (reach if factor < 0 else 0)
    memory = random(np.random.default_rng(1), size, first + reach + 1)
    right = memory[first + np.add.outer(np.arange(inner) * steps[0], np.arange(outer) * steps[1])]
    copy = Realigned(size, inner, outer, transposed, conjugated)
    x, made = live.upload(memory), live.allocate(copy.size)
    kernel = live.compile(copy.source(live.dialect))
    live.launch(kernel, copy.launch, copy.arguments(x, first, *steps, made)).wait()
    found = np.zeros((outer, copy.ld), memory.dtype)
    live.download(made, found)
    np.testing.assert_array_equal(found.T[:inner], right.conj() if conjugated else right)
    assert copy.ld * size % 16 == 0
    assert inner <= copy.ld < inner + 16


@settings(max_examples=40)
@given(
    sides=st.tuples(st.integers(1, 90), st.integers(1, 90)),
    many=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    size=st.sampled_from([1, 2, 4, 8, 16]),
    transposed=st.booleans(),
    order=st.permutations(range(3)),
    same=st.booleans(),
)
def test_matrices_of_a_batch_are_copied_behind_each_other(
    live, sides, many, size, transposed, order, same
):
    """From two dimensions of it, between whose matrices others may lie, or which have the same."""
    inner, outer = sides
    rows, columns = (inner, outer) if transposed else (outer, inner)
    # Rows of a matrix, and the two dimensions of the batch, in any order in memory.
    shape = np.array([*many, rows])[list(order)]
    memory = random(np.random.default_rng(2), size, 3 + int(np.prod(shape)) * columns)
    all_ = memory[3:].reshape(*shape, columns).transpose(*np.argsort(order), 3)
    steps = [step // memory.itemsize for step in all_.strides]
    if same:
        steps[1], all_ = 0, np.broadcast_to(all_[:, :1], all_.shape)
    right = all_ if transposed else all_.transpose(0, 1, 3, 2)
    batch = many[0] * many[1]
    copy = Realigned(size, inner, outer, transposed, batch=batch)
    along = (steps[2], 1) if transposed else (1, steps[2])
    x, made = live.upload(memory), live.allocate(copy.size)
    kernel = live.compile(copy.source(live.dialect))
    arguments = copy.arguments(x, 3, *along, made, many[1], steps[1], steps[0])
    live.launch(kernel, copy.launch, arguments).wait()
    found = np.zeros((*many, outer, copy.ld), memory.dtype)
    live.download(made, found)
    np.testing.assert_array_equal(found.transpose(0, 1, 3, 2)[:, :, :inner], right)


@pytest.mark.skipif(nvrtc() is None, reason="needs NVRTC: tilewright[tune]")
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("size", TYPES)
def test_what_a_thread_stores_is_as_wide_as_four_short_elements_or_one(size, transposed, batch):
    source = Realigned(size, 1000, 1000, transposed, batch=batch).source("cuda")
    cubin = compile_cubin(source, "sm_90a")
    kernel = read_cubin(cubin.code).kernel(cubin.lowered[source.entry])
    used = resources(kernel)
    assert used.local_loads == used.local_stores == 0
    text = [str(one) for one in decode(kernel.code, kernel.arch)]
    stores = [line for line in text if re.search(r"\bSTG\.E", line)]
    width = {1: r"\s", 2: r"\.64", 4: r"\s", 8: r"\.64", 16: r"\.128"}[size]
    assert stores
    assert all(re.search(rf"\bSTG\.E{width}", line) for line in stores)
