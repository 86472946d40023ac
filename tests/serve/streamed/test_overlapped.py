"""What copies pinned memory, without a device."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from tilewright.backend import BackendError
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


@pytest.fixture
def streams():
    """Streams of letters whose events are numbered; `refused` is what the driver says."""

    def enqueue(stream, *events):
        return overlapped.Overlapped._enqueue(made, None, ord(stream), events, None, "")

    def between_events(begin, stream, after, keep, name, *, ours):
        if made.refused:
            raise made.refused
        return SimpleNamespace(stream=stream, waits=list(after))

    made = SimpleNamespace(
        enqueue=enqueue, refused=None, _awaited={}, _numbers=count(1),
        _order={ord(stream): nullcontext() for stream in "abc"},
        _live=SimpleNamespace(between_events=between_events),
    )  # fmt: skip
    made._last = partial(overlapped.Overlapped._last, made)
    return made


def test_streams_wait_once_for_the_last_event_of_each_other(streams):
    a1, a2, b3, c4, a5 = map(streams.enqueue, "aabca")
    assert streams.enqueue("c", a1, b3, a2, c4).waits == [a2, b3]
    assert streams.enqueue("c", a2, a1, b3).waits == []
    assert streams.enqueue("c", a5, a2).waits == [a5]
    assert streams.enqueue("a", a1, b3).waits == [b3]


def test_what_was_refused_is_not_waited_for_yet(streams):
    a1 = streams.enqueue("a")
    streams.refused = BackendError("no such stream")
    with pytest.raises(BackendError):
        streams.enqueue("b", a1)
    streams.refused = None
    assert streams.enqueue("b", a1).waits == [a1]


def test_passes_hold_what_is_copied_for_them():
    passes = SimpleNamespace(_live=None, _passes=1, _enqueue=lambda *given: given)
    to = SimpleNamespace(split=lambda *_: (SimpleNamespace(name=""), None))
    copies = [object()]
    _, _, after, keep, _ = overlapped.Overlapped.split(passes, to, (), 0, (), None, copies)
    assert after is copies
    assert copies in keep
