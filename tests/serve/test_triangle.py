"""Triangles cut into blocks."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.serve.triangle import Triangle, blocks_of


@settings(max_examples=40)
@given(n=st.integers(1, 300), side=st.integers(1, 130), lower=st.booleans(), most=st.integers(0, 3))
def test_blocks_cover_a_triangle_once(n, side, lower, most):
    seen = np.zeros((n, n), int)
    blocks = blocks_of(n, side, lower, most * side)
    assert not most or all(max(x.rows, x.columns) <= most * side for x in blocks)
    for x in blocks:
        seen[x.row : x.row + x.rows, x.column : x.column + x.columns] += 1
        assert x.rows > 0
        assert x.columns > 0
        if x.is_diagonal:
            assert x.rows == x.columns == min(side, n - x.row)
    within = np.tri(n, dtype=bool) if lower else np.tri(n, dtype=bool).T
    assert (seen[within] == 1).all()
    assert seen.max() == 1
    outside = np.argwhere((seen == 1) & ~within)
    assert all(i // side == j // side for i, j in outside)  # of diagonal blocks alone
    areas = [x.rows * x.columns for x in blocks]
    assert areas == sorted(areas, reverse=True)


def test_a_transpose_has_the_other_triangle():
    found = Triangle(True, hermitian=True, filled=True).exchanged()
    assert found == Triangle(False, hermitian=True, filled=True)
