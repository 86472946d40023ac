"""Simulated devices that share a product."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.bench.shared import Rates, seconds_of
from tilewright.serve.streamed.tiling import PlacedCuts, Tiling

IDEAL = Rates(1.0, 1e18, 0.0, 0.0, 0.0, 1e18, 1e18, 1)


def cut(n, split=False):
    return Tiling.of(n, n, n, 4, 2**40, PlacedCuts(), split=split)


@pytest.mark.parametrize("split", [False, True])
def test_without_copies_devices_take_their_part_of_the_time(split):
    for devices in (1, 2, 4):
        speedup = 1 / seconds_of(cut(16384, split), 4, devices, IDEAL)
        assert 0.9 * devices < speedup < devices + 1e-9


@settings(max_examples=20)
@given(
    n=st.integers(3000, 30_000), devices=st.integers(2, 5), split=st.booleans(),
    link=st.floats(5e9, 5e11),
)  # fmt: skip
def test_a_slower_link_never_helps_and_its_copies_are_waited_for(n, devices, split, link):
    tiling = cut(n, split)
    rates = Rates(n**3 / 27e12, link)
    found = seconds_of(tiling, 4, devices, rates)
    assert found <= seconds_of(tiling, 4, devices, rates._replace(link=link / 2)) * 1.1
    # Whoever computes copies one operand whole, unless the first computes everything.
    assert found >= min(n * n * 4 / (link / (devices - 1)), rates.kernel * 0.5)
