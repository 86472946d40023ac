"""How products are cut: every element once, within the memory that is given."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.serve.streamed.tiling import Tiling

SIDES = st.integers(1, 60_000)


@given(
    SIDES, SIDES, st.integers(0, 60_000), st.sampled_from([4, 8, 16, 32]), st.integers(20, 38)
)  # fmt: skip
def test_pieces_cover_each_side_and_slots_fit(m, n, k, itemsize, bits):
    limit = 2**bits
    found = Tiling.of(m, n, k, itemsize, limit)
    for side, pieces in ((m, found.m), (n, found.n), (k, found.k)):
        assert pieces[0][0] == 0
        assert pieces[-1][1] == side
        assert all(a[1] == b[0] for a, b in pairwise(pieces))
    assert found.device_bytes(itemsize) <= limit


@given(st.integers(1, 9000), st.integers(1, 9000), st.integers(1, 3000), st.integers(22, 34))
def test_each_tile_is_computed_once_in_the_order_of_k(m, n, k, bits):
    found = Tiling.of(m, n, k, 4, 2**bits)
    if len(found.m) * len(found.n) * len(found.k) > 20_000:
        return
    sums = np.zeros((len(found.m), len(found.n)), int)
    for one in (task for place in found.places() for task in found.tasks(place)):
        assert sums[one.i, one.j] == one.p
        assert one.is_first == (one.p == 0)
        sums[one.i, one.j] += 1
        assert one.is_last == (sums[one.i, one.j] == len(found.k))
    assert (sums == len(found.k)).all()


@pytest.mark.parametrize("size", [8192, 10_000, 32_768])
def test_what_fits_stays_and_begins_with_much_to_multiply(size):
    found = Tiling.of(size, size, size, 4, 2**36)
    assert found.panels == found.tiles == 0
    seen_a, seen_b, copied = set(), set(), []
    for i, j in found.places():
        copied.append(len({i} - seen_a) + len({j} - seen_b))
        seen_a.add(i)
        seen_b.add(j)
    lengths = [stop - start for start, stop in found.m]
    # No tile but the first and those on the diagonal wait for two panels, and the last are short.
    assert copied[0] == 2
    assert sum(copied) == 2 * len(lengths)
    assert lengths[0] == max(lengths)
    assert lengths[-1] <= 3 * size // 8


def test_too_little_memory_is_refused_with_what_it_takes():
    with pytest.raises(ValueError, match=r"max_device_memory=1000 holds no tiles; give at least"):
        Tiling.of(100, 100, 100, 8, 1000)
    with pytest.raises(ValueError, match=r"max_host_memory=1000 holds no tiles; give at least"):
        Tiling.of(100, 100, 100, 8, 1000, name="max_host_memory")


@pytest.mark.parametrize(("m", "n"), [(10**7, 8), (8, 10**7), (10**7 + 1, 4096)])
def test_a_long_side_has_few_pieces(m, n):
    found = Tiling.of(m, n, 8, 8, 1 << 40)
    assert max(len(found.m), len(found.n)) <= 65
    assert (found.m[-1][1], found.n[-1][1]) == (m, n)
