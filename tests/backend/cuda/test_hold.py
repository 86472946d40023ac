"""What is timed on a CUDA device is enqueued while its stream is held; no device is needed."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest

from tilewright.backend import Kernel
from tilewright.backend.cuda.device import CUDADevice
from tilewright.backend.cuda.events import Hold
from tilewright.stencil import Launch


class Recorder:
    """A device that tells what it was given."""

    def __init__(self):
        self.compiled, self.prepared, self.enqueued = [], [], []

    def compile(self, source):
        self.compiled.append(source)
        return source.entry

    def prepare(self, kernel, launch, arguments):
        cycles = int(arguments[0])
        self.prepared.append((kernel, launch, cycles))
        return SimpleNamespace(enqueue=lambda stream: self.enqueued.append((stream, cycles)))


def test_a_stream_is_held_longer_for_more_launches():
    """One kernel for all, laid out once for each number of launches."""
    device = Recorder()
    hold = Hold(device)
    assert not device.compiled  # who times nothing compiles nothing
    for launches in (1, 10, 1):
        hold.enqueue(7, launches)
    (source,) = device.compiled
    assert "void hold(long long cycles)" in source.text
    once = [(kernel, launch.grid) for kernel, launch, _ in device.prepared]
    assert once == [("hold", (1, 1))] * 2
    one, ten, again = device.enqueued
    assert one == again
    assert one[0] == 7
    assert ten[1] > one[1] > 0


class Timed(CUDADevice):
    """A device without a driver: what its stream and its context are given, in order."""

    stream = 7

    def __init__(self):
        self.order = []
        self.api = SimpleNamespace(cuEventRecord=self.record)
        hold = SimpleNamespace(enqueue=lambda *of: self.order.append(("hold", *of)))
        self.events = SimpleNamespace(
            take=lambda: ("begin", "end"), give_back=lambda pair: None, hold=hold
        )

    def record(self, event, stream):
        self.order.append((event, stream))
        return (0,)

    def current(self):
        return contextlib.nullcontext()

    def check(self, result, doing):
        assert result == (0,)

    def prepare(self, kernel, launch, arguments):
        self.order.append("prepare")
        return SimpleNamespace(enqueue=lambda stream: self.order.append(("launch", stream)))


def test_only_events_and_the_launch_stand_behind_what_holds_the_stream():
    """What takes the host long, laying out arguments for one, comes before."""
    live, kernel = Timed(), Kernel(object(), "gemm", 0.0)
    live.launch_timed(kernel, Launch((1, 1), (32, 1)), ())
    assert live.order == ["prepare", ("hold", 7, 1), ("begin", 7), ("launch", 7), ("end", 7)]


@pytest.mark.parametrize("held", [0, 3])
def test_a_stream_is_held_where_times_are_asked_for_only(held):
    live = Timed()
    live.between_events(lambda: live.order.append("three"), 5, held=held)
    holds = [("hold", 5, 3)] if held else []
    assert live.order == [*holds, ("begin", 5), "three", ("end", 5)]
