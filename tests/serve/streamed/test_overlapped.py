"""What copies pinned memory, without a device."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from tilewright.serve.streamed import overlapped


def test_the_device_copies_what_its_copy_engine_counts_to():
    lines = np.zeros((3, 4))
    copies = SimpleNamespace(_live=SimpleNamespace(is_pinned=lambda address: True))

    def is_plane(lines, pitch):
        return overlapped.Overlapped._is_plane(copies, lines, pitch)

    assert is_plane(lines, 128)
    assert not is_plane(lines, 1 << 31)
    assert not is_plane(as_strided(lines, strides=(1 << 31, 8)), 128)
    assert not is_plane(lines[::-1], 128)
    assert not is_plane(lines[:, ::2], 128)


@pytest.mark.parametrize("limit", [1, 4 * (64 << 10) - 1])
def test_too_few_bytes_for_buffers_are_refused(limit):
    with pytest.raises(ValueError, match="give at least 262144"):
        overlapped.Overlapped(None, limit)


def test_streams_wait_once_for_the_last_event_of_each_other():
    streams = SimpleNamespace(_awaited={})
    a1, a2, b3, c4, a5 = (
        SimpleNamespace(stream=ord(stream), number=number)
        for number, stream in enumerate("aabca", start=1)
    )

    def last(stream, *events):
        return overlapped.Overlapped._last(streams, ord(stream), events)

    assert last("c", a1, b3, a2, c4) == [a2, b3]
    assert last("c", a2, a1, b3) == []
    assert last("c", a5, a2) == [a5]
    assert last("a", a1, b3) == [b3]
