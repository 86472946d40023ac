"""Devices tell the timeline what they did when, by their own clocks."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import numpy as np
import pytest

from tilewright import timeline
from tilewright.backend.cuda import events
from tilewright.backend.cuda.events import CUDAEvent, DeviceClock
from tilewright.stencil import Launch, Source

DOUBLE_IT = {
    "opencl": "kernel void twice(global float *x) { x[get_global_id(0)] *= 2; }",
    "cuda": 'extern "C" __global__ void twice(float *x)'
    " { x[blockIdx.x * blockDim.x + threadIdx.x] *= 2; }",
}


@pytest.fixture
def recorder():
    yield timeline.start()
    timeline.stop()


def test_a_launch_is_on_both_tracks(everywhere, recorder):
    live = everywhere
    memory = live.upload(np.arange(16, dtype="f4"))
    kernel = live.compile(Source(DOUBLE_IT[live.backend], {}, "twice"))
    taken = []
    for _ in range(3):
        event = live.launch(kernel, Launch((4, 1), (4, 1)), (memory,))
        event.wait()
        taken.append(event.nanoseconds())  # waits again: told once
    live.finish()
    live.free(memory)
    assert [one.name for one in recorder.device] == ["twice"] * 3
    assert {one.track for one in recorder.device} == {live.id}
    for one, nanoseconds in zip(recorder.device, taken, strict=True):
        assert abs(one.ended - one.begun - nanoseconds) < 1000
        assert one.seen < recorder.host[-1].ended
    ends = [one.ended for one in recorder.device]
    assert ends == sorted(ends)
    names = [one.name for one in recorder.host]
    assert names.count("launch") == 3
    assert {"compile", "copy to device", "wait"} <= set(names)


def test_an_event_from_before_is_not_told_later(everywhere):
    live = everywhere
    memory = live.upload(np.arange(16, dtype="f4"))
    kernel = live.compile(Source(DOUBLE_IT[live.backend], {}, "twice"))
    event = live.launch(kernel, Launch((4, 1), (4, 1)), (memory,))
    event.wait()
    assert event.nanoseconds() > 0
    live.free(memory)


class FakeCUDA:
    """Events as CUDA has them: a distance between two is all there is to learn."""

    def __init__(self):
        self.now = 5_000_000  # nanoseconds since nobody knows when
        self.times = {}
        self.id, self.stream = "cuda:0", 0
        self.events = SimpleNamespace(give_back=lambda pair: None)
        self.api = self

    def check(self, result, doing):
        return result[1] if len(result) > 1 else None

    def current(self):
        return contextlib.nullcontext()

    def cuEventCreate(self, flags):
        return 0, object()

    def cuEventRecord(self, event, stream):
        self.times[event] = self.now
        return (0,)

    def cuEventQuery(self, event):
        return (0,)

    cuEventSynchronize = cuEventQuery

    def cuEventElapsedTime(self, first, second):
        return 0, (self.times[second] - self.times[first]) / 1e6

    def work(self, clock, length):
        """Return an event around `length` nanoseconds of work."""
        pair = object(), object()
        zero = clock.zero()
        self.cuEventRecord(pair[0], 0)
        self.now += length
        self.cuEventRecord(pair[1], 0)
        return CUDAEvent(self, pair, None, "gemm", zero)


def test_cuda_has_a_clock_although_events_know_only_distances(recorder, monkeypatch):
    cuda = FakeCUDA()
    clock = DeviceClock(cuda)
    moment = 0.0
    monkeypatch.setattr(events.time, "monotonic", lambda: moment)
    first = cuda.work(clock, 2000)
    cuda.now += 500
    second = cuda.work(clock, 3000)
    moment = 100.0  # a new zero, on the same clock
    cuda.now += 1_000_000
    third = cuda.work(clock, 4000)
    # In any order, each once; the older zero still holds for those that had it.
    assert third.nanoseconds() == 4000
    for event in (first, first, second, third):
        event.wait()
    told = sorted((one.begun, one.ended) for one in recorder.device)
    assert told == [(0, 2000), (2500, 5500), (1_005_500, 1_009_500)]


def test_events_made_while_nobody_recorded_are_not_told(recorder):
    cuda = FakeCUDA()
    pair = object(), object()
    for event in pair:
        cuda.cuEventRecord(event, 0)
    CUDAEvent(cuda, pair, None).wait()
    assert recorder.device == []
