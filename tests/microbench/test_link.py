"""The link: copies that arrive, and the model of their times."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.microbench import experiments
from tilewright.microbench.link import HOST_MEMORY, TO_DEVICE, TO_HOST, fitted_link, link_sizes

SIZES = [4096 << 2 * i for i in range(9)]


@given(st.floats(1e-7, 1e-3), st.floats(1e8, 1e12))
def test_the_model_is_found_again(latency, bandwidth):
    points = [(size, latency + size / bandwidth) for size in SIZES]
    found = fitted_link(points)
    assert found == pytest.approx((latency, bandwidth), rel=1e-3)


def test_a_latency_is_never_negative():
    # Times that grow faster than sizes: a straight line would begin below zero.
    latency, bandwidth = fitted_link([(100, 1e-6), (1000, 2e-5)])
    assert latency == 0
    assert 5e7 < bandwidth < 1e8
    with pytest.raises(ValueError, match="points=2 is too few"):
        fitted_link([(8, 1.0), (8, 2.0)])


def test_pinned_memory_is_plain_memory_for_a_while(everywhere):
    with everywhere.pinned(1000) as host:
        assert host.dtype == np.uint8
        assert host.shape == (1000,)
        host[:] = np.arange(1000) % 251
        memory = everywhere.upload(host)
        back = np.empty(1000, np.uint8)
        everywhere.download(memory, back)
        everywhere.free(memory)
        assert np.array_equal(back, host)


def test_link_on_every_device(everywhere):
    rows = []
    experiments()["link"].run(everywhere, rows.append, 120.0)
    assert not [row for row in rows if "error" in row]
    copies = {(r["direction"], r["host_memory"], r["bytes"]) for r in rows if "bytes" in r}
    assert copies == {
        (direction, memory, size)
        for direction in (TO_DEVICE, TO_HOST)
        for memory in HOST_MEMORY
        for size in link_sizes(everywhere)
    }
    fits = [row for row in rows if "fit" in row]
    assert len(fits) == 4
    for fit in fits:
        assert fit["half_rate_bytes"] == pytest.approx(
            fit["latency_seconds"] * fit["bytes_per_second"]
        )


def test_little_time_measures_the_largest_copy_alone(live):
    rows = []
    experiments()["link"].run(live, rows.append, 0.0)
    first, fit = rows
    assert first["bytes"] == max(link_sizes(live))
    assert "too few for a fit" in fit["error"]
