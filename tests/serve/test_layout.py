"""Which arrays BLAS can take, and what the kernel then has to do to them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.problem import Trans
from tilewright.serve.layout import layout_of, operation


@pytest.mark.parametrize(
    ("shape", "strides", "expected"),
    [
        ((3, 4), (1, 3), (False, 3)),
        ((3, 4), (1, 9), (False, 9)),
        ((3, 4), (4, 1), (True, 4)),
        ((3, 4), (1, 2), None),  # columns overlap
        ((3, 4), (2, 8), None),  # neither axis has unit stride
        ((3, 4), (-1, 3), None),
        ((3, 4), (0, 1), None),  # a broadcast row
        ((1, 4), (77, 5), (False, 5)),  # one row: its stride never counts
        ((4, 1), (1, 77), (False, 4)),
        ((4, 1), (6, 1), (True, 6)),  # a column of a row-major matrix
        ((0, 5), (0, 0), (False, 1)),  # NumPy gives empty arrays any strides
    ],
)
def test_layouts(shape, strides, expected):
    assert layout_of(shape, strides) == expected


@given(
    trans=st.sampled_from([Trans.N, Trans.T, Trans.C]),
    row_major=st.booleans(),
    result_row_major=st.booleans(),
)
def test_operation_on_memory_equals_operation_on_the_array(trans, row_major, result_row_major):
    x = np.array([[1, 2j], [3, 4 + 1j], [5, 6]])
    memory = x.T if row_major else x  # what a column-major reader sees

    def applied(which, y):
        y = y.T if which.transposed else y
        return y.conj() if which.conjugated else y

    wanted = applied(trans, x).T if result_row_major else applied(trans, x)
    assert np.array_equal(applied(operation(trans, row_major, result_row_major), memory), wanted)
