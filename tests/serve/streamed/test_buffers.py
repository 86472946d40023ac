"""What is kept for the next call, without a device."""

from __future__ import annotations

from types import SimpleNamespace

from tilewright.backend import OutOfMemoryError
from tilewright.serve.streamed import buffers


def test_buffers_of_other_sizes_make_room(monkeypatch):
    freed = []
    monkeypatch.setattr(buffers, "_kept", [])
    monkeypatch.setattr(buffers, "_MOST_KEPT_BYTES", 2 * sum(range(2, 10)))
    rings = [
        SimpleNamespace(of=("cuda", 1, size), free=lambda size=size: freed.append(size))
        for size in range(10)
    ]
    for ring in rings:
        buffers.keep(ring)
    assert freed == [0, 1]
    assert buffers.ring("cuda", 1, 9) is rings[9]
    buffers.release_buffers()
    assert freed == list(range(9))


def test_device_memory_is_kept_for_calls_that_take_as_much(monkeypatch):
    monkeypatch.setattr(buffers, "_left", [])
    taken, freed = [], []

    def allocate(size):
        taken.append(size)
        if len(taken) == 4:
            raise OutOfMemoryError("no room")
        return len(taken)

    live = SimpleNamespace(
        allocate=allocate, free=freed.append, spec=SimpleNamespace(memory_bytes=8000)
    )
    first = buffers.take(live, 600)
    buffers.leave(live, *first)
    assert buffers.take(live, 500) == first
    assert buffers.take(live, 500)[0] != first[0]
    buffers.leave(live, *first)
    assert buffers.take(live, 200)[1] == 200  # 600 are too many
    buffers.leave(live, 7, 900)  # more than an eighth of the device, together
    assert freed == [first[0]]
    assert buffers.kept_bytes(live) == [900]
    assert buffers.take(live, 3000)[1] == 3000  # once what is kept was given back
    assert freed == [first[0], 7]
    buffers.leave(live, 9, None)
    assert freed[-1] == 9
