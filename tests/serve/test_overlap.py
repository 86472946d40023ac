"""Overlap on a device is decided on addresses, shapes and strides alone."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tilewright.serve.overlap import overlap, overlaps_itself


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
