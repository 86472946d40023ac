"""What copies pinned memory and keeps pinned buffers, without a device."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from tilewright.backend import OutOfMemoryError
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


def test_buffers_of_other_sizes_make_room(monkeypatch):
    freed = []
    monkeypatch.setattr(overlapped, "_kept", [])
    monkeypatch.setattr(overlapped, "_MOST_KEPT_BYTES", 2 * sum(range(2, 10)))
    rings = [
        SimpleNamespace(of=("cuda", 1, size), free=lambda size=size: freed.append(size))
        for size in range(10)
    ]
    for ring in rings:
        overlapped._keep(ring)
    assert freed == [0, 1]
    assert overlapped._ring("cuda", 1, 9) is rings[9]
    overlapped.release_buffers()
    assert freed == list(range(9))


@pytest.mark.parametrize("limit", [1, 4 * (64 << 10) - 1])
def test_too_few_bytes_for_buffers_are_refused(limit):
    with pytest.raises(ValueError, match="give at least 262144"):
        overlapped.Overlapped(None, limit)


def test_device_memory_is_kept_for_calls_that_take_as_much(monkeypatch):
    monkeypatch.setattr(overlapped, "_left", [])
    taken, freed = [], []

    def allocate(size):
        taken.append(size)
        if len(taken) == 4:
            raise OutOfMemoryError("no room")
        return len(taken)

    live = SimpleNamespace(
        allocate=allocate, free=freed.append, spec=SimpleNamespace(memory_bytes=8000)
    )
    first = overlapped._take(live, 600)
    overlapped._leave(live, *first)
    assert overlapped._take(live, 500) == first
    assert overlapped._take(live, 500)[0] != first[0]
    overlapped._leave(live, *first)
    assert overlapped._take(live, 200)[1] == 200  # 600 are too many
    overlapped._leave(live, 7, 900)  # more than an eighth of the device, together
    assert freed == [first[0]]
    assert overlapped.kept_bytes(live) == [900]
    assert overlapped._take(live, 3000)[1] == 3000  # once what is kept was given back
    assert freed == [first[0], 7]
    overlapped._leave(live, 9, None)
    assert freed[-1] == 9
