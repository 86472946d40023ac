"""Overlap is decided on addresses, or places in a file, on shapes and strides alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

import tilewright as tw
from tilewright.serve.overlap import memory_of, overlap, overlaps_itself, share


def place(x):
    return x.__array_interface__["data"][0], x.shape, x.strides, x.dtype


@given(st.data())
def test_it_agrees_with_numpy(data):
    whole = np.zeros((12, 12), data.draw(st.sampled_from(["f4", "c16"])))
    steps = st.sampled_from([1, 2, 3, -1, -2])
    edges = st.integers(0, 12)

    def part():
        rows = slice(data.draw(edges), data.draw(edges), abs(data.draw(steps)))
        columns = slice(data.draw(edges), data.draw(edges), abs(data.draw(steps)))
        found = whole[rows, columns][:: np.sign(data.draw(steps)), :: np.sign(data.draw(steps))]
        return found.T if data.draw(st.booleans()) else found

    x, y = part(), part()
    assert overlap(place(x), place(y)) == np.shares_memory(x, y)


@given(
    shape=st.tuples(st.integers(0, 6), st.integers(0, 6)),
    steps=st.tuples(st.integers(-8, 8), st.integers(-8, 8)),
)
def test_a_matrix_overlaps_itself_where_two_places_are_one(shape, steps):
    places = np.arange(shape[0])[:, None] * steps[0] + np.arange(shape[1]) * steps[1]
    assert overlaps_itself(shape, steps) == (np.unique(places).size < places.size)


@given(st.data())
def test_an_array_that_may_overlap_itself_is_told(data):
    shape = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=4))
    steps = data.draw(st.lists(st.integers(-9, 9), min_size=len(shape), max_size=len(shape)))
    places = [sum(i * s for i, s in zip(at, steps, strict=True)) for at in np.ndindex(*shape)]
    if len(set(places)) < len(places):
        assert overlaps_itself(shape, steps)


@given(st.permutations(range(4)), st.lists(st.integers(0, 4), min_size=4, max_size=4))
def test_parts_of_arrays_do_not_overlap_themselves(order, shape):
    x = np.zeros([2 * size for size in shape])[::2, 1:].transpose(order)
    assert not overlaps_itself(x.shape, x.strides)


def mapped(path, first, count, mode="r+"):
    return np.memmap(path, "f8", mode, 8 * first, (count,))


def test_two_maps_of_one_file_share_what_they_both_have(tmp_path):
    path, other = tmp_path / "one", tmp_path / "other"
    for one in (path, other):
        np.zeros(4000).tofile(one)
    x = mapped(path, 0, 2000)
    assert share(x, mapped(path, 1999, 10))
    assert share(x[10:20], np.asarray(mapped(path, 0, 4000))[::19])
    assert not share(x[10:20], np.asarray(mapped(path, 0, 4000))[::25])
    assert not share(x, mapped(path, 2000, 10))
    assert not share(x, mapped(other, 0, 2000))
    assert not share(x, mapped(path, 0, 2000, "c"))
    assert share(mapped(path, 0, 2000, "c"), x)
    assert not share(x.copy(), x)


@pytest.mark.parametrize("seen", [np.asarray, as_strided, np.atleast_2d, memoryview])
def test_a_part_of_a_map_is_known_however_it_was_made(tmp_path, seen):
    np.zeros(100).tofile(tmp_path / "x")
    x, y = (mapped(tmp_path / "x", 0, 100) for _ in range(2))
    part = np.asarray(seen(x))
    assert share(part, y)
    assert memory_of(part) == memory_of(y)


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("dtype", ["f4", "i1"])
def test_a_c_in_the_file_of_an_operand_is_refused(tmp_path, dtype, plain):
    path, kind = tmp_path / "x", np.dtype("i4" if dtype == "i1" else dtype)
    np.zeros(64, kind).tofile(path)
    a = np.memmap(path, dtype, "r", 0, (4, 4))
    b, c = np.ones((4, 4), dtype), np.memmap(path, kind, "r+", 0, (4, 4))
    if plain:
        a, c = np.asarray(a), np.asarray(c)
    for _ in range(2):
        with pytest.raises(ValueError, match="c overlaps a"):
            tw.gemm(a, b, c)
        with pytest.raises(ValueError, match="c overlaps b"):
            tw.gemm(b, a, c)
    with pytest.raises(ValueError, match=r"c\[1\] overlaps a\[0\]"):
        tw.grouped_gemm([a, b], [b, b], [np.zeros((4, 4), kind), c])
    c = np.memmap(path, kind, "r+", 16 * kind.itemsize, (4, 4))
    tw.gemm(a, b, c)
    tw.grouped_gemm([a, b], [b, b], [np.zeros((4, 4), kind), c])
