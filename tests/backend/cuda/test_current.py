"""What a thread asks the driver for again and again, without a device."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from tilewright.backend import DeviceLostError
from tilewright.backend.cuda import driver, functions
from tilewright.backend.cuda.device import CUDADevice
from tilewright.backend.cuda.events import CUDAEvent


@pytest.fixture
def asked(monkeypatch):
    """What a device's driver is asked for; it answers with `status`."""
    monkeypatch.setattr(driver, "driver", lambda: None)
    made = SimpleNamespace(calls=[], status=0)

    def function(name):
        def call(*given):
            made.calls.append(name)
            return (made.status if name in ("cuCtxPushCurrent", "cuEventQuery") else 0,)

        return call

    names = "cuCtxPushCurrent", "cuCtxPopCurrent", "cuEventQuery", "cuEventSynchronize"
    live = made.live = object.__new__(CUDADevice)
    live.api = SimpleNamespace(**{name: function(name) for name in names})
    live.id, live.lost, live._here, live.context = "cuda:0", None, threading.local(), 1
    live.events = SimpleNamespace(give_back=lambda pair: None)
    return made


def test_a_context_that_stays_current_is_pushed_once(asked):
    with asked.live.staying_current():
        for _ in range(3):
            with asked.live.current():
                pass
        thread = threading.Thread(target=lambda: asked.live.current().__enter__())
        thread.start()
        thread.join()
    with asked.live.current():
        pass
    assert asked.calls.count("cuCtxPushCurrent") == 3
    assert asked.calls.count("cuCtxPopCurrent") == 3


def test_what_refuses_to_stay_current_refuses_what_is_done(asked):
    asked.status = 719
    with (
        asked.live.staying_current(),
        pytest.raises(DeviceLostError, match="using cuda:0"),
        asked.live.current(),
    ):
        pass
    assert "cuCtxPopCurrent" not in asked.calls


def test_an_event_that_has_happened_is_asked_for_once(asked):
    for status, expected in ((0, ["cuEventQuery"]), (600, ["cuEventQuery", "cuEventSynchronize"])):
        event = CUDAEvent(asked.live, (1, 2), None)
        asked.live.current = nullcontext
        asked.calls.clear()
        asked.status = status
        event.wait()
        event.wait()
        assert asked.calls == expected


def test_other_threads_run_while_a_callers_stream_has_no_room():
    assert not {"cuEventRecord", "cuStreamWaitEvent", "cuEventSynchronize"} & functions._QUICK
    asked = []

    def function(name):
        return lambda *_: asked.append(name) or (0,)

    names = "cuEventRecord", "cuStreamWaitEvent"
    every = (*names, *(f"{name}OnOurs" for name in names))
    live = object.__new__(CUDADevice)
    live.api = SimpleNamespace(**{name: function(name) for name in every})
    live.current = nullcontext
    live.events = SimpleNamespace(take=lambda: (1, 2), give_back=lambda pair: None)
    event = live.between_events(lambda: None, 7)
    live.between_events(lambda: None, 8, [event])
    assert set(asked) == set(names)
    asked.clear()
    live.between_events(lambda: None, 9, [event], ours=True)
    assert asked == ["cuStreamWaitEventOnOurs", "cuEventRecordOnOurs"]
