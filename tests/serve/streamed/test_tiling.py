"""How products are cut: every element once, within the memory that is given."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.serve.streamed.schedule import shares_of
from tilewright.serve.streamed.tiling import HostCuts, PlacedCuts, Tiling

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


CUTS = st.tuples(st.booleans(), st.sampled_from([150, 600, 2400])).map(lambda x: HostCuts(*x))


@given(
    st.integers(1, 9000), st.integers(1, 9000), st.integers(1, 9000), st.integers(22, 34),
    CUTS | st.booleans().map(PlacedCuts), st.booleans(), st.integers(1, 3),
)  # fmt: skip
def test_each_tile_is_computed_once_along_k(m, n, k, bits, cuts, split, devices):
    found = Tiling.of(m, n, k, 4, 2**bits, cuts, split=split)
    if len(found.m) * len(found.n) * len(found.k) > 20_000:
        return
    together = [one for places in shares_of(found, devices) for one in found.tasks(places)]
    for tasks in (list(found.tasks(found.places())), together):
        added = dict.fromkeys(product(range(len(found.m)), range(len(found.n))), 0)
        for one in tasks:
            begin, end = one.steps
            assert begin < end
            assert added[one.place] == begin
            assert one.is_first == (begin == 0)
            added[one.place] = end
            assert one.is_last == (end == len(found.k))
        assert set(added.values()) == {len(found.k)}
    # Bits depend on no number of devices.
    assert len(set(together)) == len(together)
    assert set(together) == set(found.tasks(found.places()))


@pytest.mark.parametrize("balance", [600, 2400])
@pytest.mark.parametrize("size", [8192, 10_000, 32_768])
def test_what_fits_begins_and_ends_with_little(size, balance):
    found = Tiling.of(size, size, size, 4, 2**36, HostCuts(True, balance))
    assert found.panels == found.tiles == 0
    first = next(found.tasks(found.places()))
    assert found.k[first.steps[1] - 1][1] <= size // (6 if size > balance * 4.8 else 3)
    last = found.m[-1]
    assert last[1] - last[0] <= size // 16
    # Strips come in one piece or two, and one piece of k after another is multiplied meanwhile.
    for number in range(len(found.m)):
        units = {found.unit(number, p) for p in range(len(found.k))}
        assert 1 <= len(units) <= (2 if number < found.early else 1)


@pytest.mark.parametrize(
    ("m", "n", "by_rows"),
    [(9000, 8000, True), (9000, 8000, False), (9000, 3000, False), (3000, 9000, True)],
)
def test_strips_run_along_lines_of_c_or_across_the_longer_side(m, n, by_rows):
    found = Tiling.of(m, n, 20_000, 4, 2**36, HostCuts(by_rows))
    across = by_rows if m < 2 * n and n < 2 * m else m > n
    assert (len(found.m) > 1, len(found.n) > 1) == (across, not across)


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
