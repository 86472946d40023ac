"""Workspaces: one a stream, zeros at the start, and never one for two launches at once."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from tilewright.backend.cuda import workspace
from tilewright.backend.cuda.driver import check
from tilewright.backend.cuda.launch import PreparedLaunch
from tilewright.backend.cuda.workspace import Workspaces
from tilewright.stencil import Launch, Workspace

SMALL, LARGE = Workspace(4, 1024), Workspace(8, 4096)


class Driver:
    """What the driver's calls return; `captures` names what a stream is captured into."""

    def __init__(self) -> None:
        self.captures: dict[int, int] = {}
        self.events: list[tuple[object, ...]] = []
        self._next = 0x1000

    def cuStreamGetCaptureInfo(self, stream, graph, dependencies, count):
        capture = self.captures.get(stream, 0)
        return 0, int(capture > 0), capture

    def cuThreadExchangeStreamCaptureMode(self, mode):
        self.events.append(("mode", mode._obj.value))
        mode._obj.value = 0
        return (0,)

    def cuMemsetD8Async(self, address, value, size, stream):
        self.events.append(("clear", address, value, size))
        return (0,)

    def cuStreamSynchronize(self, stream):
        return (0,)

    def cuCtxSynchronize(self):
        self.events.append(("wait",))
        return (0,)


class Device:
    """As much of a CUDA device as workspaces and launches need."""

    def __init__(self) -> None:
        self.api, self.stream, self.context = Driver(), 0, 0
        self.spec = SimpleNamespace(multiprocessors=4)
        self.workspaces = Workspaces(self)
        self.live: dict[int, int] = {}
        self.made = 0

    def check(self, result, doing):
        return check(result, doing)

    def stream_state(self, stream):
        return None if stream in self.api.captures else 100 + stream

    def current(self):
        return nullcontext()

    def allocate(self, size):
        self.made += 1
        self.live[self.made << 20] = size
        return self.made << 20

    def free(self, address):
        assert self.api.events[-1] == ("wait",), "nothing may use it any more"
        del self.live[address]


@pytest.fixture
def device() -> Device:
    return Device()


def test_a_stream_keeps_its_workspace_and_has_it_alone(device: Device) -> None:
    first = device.workspaces.address(1, SMALL)
    assert device.workspaces.address(1, SMALL) == first
    assert device.workspaces.address(2, SMALL) != first
    assert device.made == 2


def test_words_are_cleared_once(device: Device) -> None:
    address = device.workspaces.address(1, SMALL)
    device.workspaces.address(1, SMALL)
    cleared = [event for event in device.api.events if event[0] == "clear"]
    assert cleared == [("clear", address, 0, SMALL.cleared_bytes)]


def test_a_larger_launch_gets_a_larger_one_when_the_old_is_idle(device: Device) -> None:
    device.workspaces.address(1, SMALL)
    address = device.workspaces.address(1, LARGE)
    assert device.live == {address: LARGE.size}
    assert device.workspaces.address(1, SMALL) == address


def test_a_capture_has_its_own_that_is_never_given_back(device: Device, monkeypatch) -> None:
    monkeypatch.setattr(workspace, "_MOST_STREAMS", 3)
    plain = device.workspaces.address(1, SMALL)
    device.api.captures[1] = 7
    captured = device.workspaces.address(1, SMALL)
    assert captured != plain
    assert device.workspaces.address(1, SMALL) == captured
    device.api.captures[1] = 8
    assert device.workspaces.address(1, SMALL) not in (plain, captured)
    device.api.captures.clear()
    for stream in range(2, 12):
        device.workspaces.address(stream, SMALL)
    assert captured in device.live
    assert plain not in device.live


def test_what_earlier_launches_of_a_graph_have_is_kept_when_a_later_one_needs_more(
    device: Device,
) -> None:
    device.api.captures[1] = 7
    small = device.workspaces.address(1, SMALL)
    large = device.workspaces.address(1, LARGE)
    assert device.live == {small: SMALL.size, large: LARGE.size}
    assert device.workspaces.address(1, SMALL) == large


def test_streams_that_come_and_go_do_not_collect_memory(device: Device) -> None:
    for stream in range(100):
        device.workspaces.address(stream, SMALL)
    assert len(device.live) <= 32
    assert device.api.events[0] == ("mode", 2)


def test_a_launch_is_cut_and_gets_the_workspace_of_its_stream(device: Device, monkeypatch) -> None:
    """The address is the last argument, written when it is known: at each launch."""
    seen = []

    def started(config, function, arguments, extra):
        seen.append(int(prepared.arguments.slot(1).value))
        return 0

    calls = (started, lambda at: 0)
    monkeypatch.setattr("tilewright.backend.cuda.launch._calls", lambda: calls)
    launch = Launch((1000, 1), (32, 1), resident=2)
    prepared = PreparedLaunch(device, 1, launch, (np.int64(5),), 0, 1024)
    prepared._start(1)
    prepared._start(2)
    prepared._start(1)
    assert prepared._starts[0].config.grid_x == 8
    assert seen[0] == seen[2] != seen[1]
    assert device.live[seen[0]] == Workspace(8, 1024).size
