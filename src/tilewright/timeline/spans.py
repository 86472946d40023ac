"""Spans: a name, when it began and when it ended, on a host's thread or on a device.

    with span("compile"):                     the calling thread does this now
    device_span("cuda:0", "gemm", b, e)       the device did that, by its own clock

Nothing is kept until `start`.  Any thread may record.  A process that works for another
sends what it has (`drain`), and the other takes it in (`merge`): on every platform that we
know `time.perf_counter_ns` is one clock for all processes of a machine.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

__all__ = [
    "DeviceSpan",
    "HostSpan",
    "Recorder",
    "device_span",
    "drain",
    "is_recording",
    "merge",
    "on_change",
    "span",
    "start",
    "stop",
    "traced",
]

# Half a gigabyte of spans; a viewer gives up long before.
MOST_SPANS = 1_000_000

About = Mapping[str, Any] | int | None
P = ParamSpec("P")
R = TypeVar("R")


class HostSpan(NamedTuple):
    """What a thread did; nanoseconds of `time.perf_counter_ns`."""

    name: str
    begun: int
    ended: int
    pid: int
    thread: int
    about: dict[str, Any]


class DeviceSpan(NamedTuple):
    """What a device did; nanoseconds of the device's own clock, whose zero is anywhere.

    `seen` is the host's clock at a moment when the host knew that it had ended: the earliest
    such knowledge ties the two clocks together.
    """

    track: str
    name: str
    begun: int
    ended: int
    seen: int
    pid: int
    about: dict[str, Any]


class Recorder:
    """Everything recorded so far; appending to a list is atomic, so no lock is taken.

    Attributes
    ----------
    started : int
        Zero of the timeline, nanoseconds of `time.perf_counter_ns`.
    host, device : list
        Spans in the order in which they ended.
    threads, processes : dict
        Names of this process's threads, and of other processes that are no workers.
    dropped : Counter
        How many spans of a name came after `MOST_SPANS`.
    """

    def __init__(self) -> None:
        self.started = time.perf_counter_ns()
        self.pid = os.getpid()
        self.host: list[HostSpan] = []
        self.device: list[DeviceSpan] = []
        self.threads: dict[int, str] = {}
        self.processes: dict[int, str] = {}
        self.dropped: Counter[str] = Counter()

    def add(self, one: HostSpan | DeviceSpan) -> None:
        """Keep a span, or count it where there are too many."""
        if len(self.host) + len(self.device) >= MOST_SPANS:
            self.dropped[one.name] += 1
        elif isinstance(one, HostSpan):
            self.host.append(one)
        else:
            self.device.append(one)


class _Off:
    """What `span` returns while nobody records: enters and leaves as cheaply as Python can.

    Built-in functions are called in half the time of others.  ``"".format`` takes whatever a
    context is left with and returns something false, so that exceptions go on.
    """

    __slots__ = ()
    __enter__: Callable[..., object] = "".strip
    __exit__: Callable[..., Any] = "".format


class _Span:
    """A span being recorded."""

    __slots__ = ("_about", "_begun", "_name", "_recorder")

    def __init__(self, recorder: Recorder, name: str, about: About) -> None:
        self._recorder, self._name, self._about = recorder, name, about

    def __enter__(self) -> None:
        self._begun = time.perf_counter_ns()

    def __exit__(self, *_: object) -> None:
        ended = time.perf_counter_ns()
        thread = threading.get_native_id()
        recorder = self._recorder
        if thread not in recorder.threads:
            recorder.threads[thread] = threading.current_thread().name
        recorder.add(
            HostSpan(self._name, self._begun, ended, recorder.pid, thread, _plain(self._about))
        )


def _plain(about: About) -> dict[str, Any]:
    """Return details as plain data: numbers stay, the rest becomes text."""
    if about is None:
        return {}
    if isinstance(about, int):
        return {"bytes": about}
    return {str(name): value if _is_json(value) else str(value) for name, value in about.items()}


def _is_json(value: Any) -> bool:
    return type(value) in (int, bool) or (type(value) is float and math.isfinite(value))


_OFF = _Off()
_recorder: Recorder | None = None
_listeners: list[Callable[[], object]] = []


def span(name: str, about: About = None) -> Any:
    """Return a context whose time is recorded, if anybody records.

    Parameters
    ----------
    name : str
        What is being done: ``compile``, ``copy``, ``launch``, ``wait`` and so on.
    about : mapping or int, optional
        Details; an integer is a number of bytes.
    """
    if _recorder is None:
        return _OFF
    return _Span(_recorder, name, about)


def traced(name: str, function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that records its calls, or itself while nobody records.

    For what is called so often that even `span` would cost too much.  Who keeps the result
    makes it anew when `on_change` says so.
    """
    if _recorder is None:
        return function

    @wraps(function)
    def recorded(*arguments: P.args, **options: P.kwargs) -> R:
        with span(name):
            return function(*arguments, **options)

    return recorded


def device_span(track: str, name: str, begun: int, ended: int, about: About = None) -> None:
    """Record what a device did; call it right after having waited for it.

    Parameters
    ----------
    track : str
        The device's id; spans of one track share a clock.
    name : str
        Such as the kernel's.
    begun, ended : int
        Nanoseconds of the device's clock.
    about : mapping or int, optional
        Details.
    """
    recorder = _recorder
    if recorder is not None:
        seen = time.perf_counter_ns()
        recorder.add(DeviceSpan(track, name, begun, ended, seen, recorder.pid, _plain(about)))


def is_recording() -> bool:
    """Whether somebody records."""
    return _recorder is not None


def on_change(listener: Callable[[], object]) -> None:
    """Have a function called whenever recording starts or stops."""
    _listeners.append(listener)


def start() -> Recorder:
    """Start to record in this process.

    Raises
    ------
    RuntimeError
        If somebody records already.
    """
    global _recorder
    if _recorder is not None:
        raise RuntimeError("spans are being recorded already; stop that first")
    _recorder = made = Recorder()
    _tell()
    return made


def stop() -> None:
    """Stop to record; what was recorded stays with its `Recorder`."""
    global _recorder
    _recorder = None
    _tell()


def _tell() -> None:
    for listener in _listeners:
        listener()


def drain() -> dict[str, Any]:
    """Return what this process recorded since it was last asked, as plain data for JSON."""
    recorder = _recorder
    if recorder is None:
        return {}
    host, device = recorder.host[:], recorder.device[:]
    del recorder.host[: len(host)], recorder.device[: len(device)]
    return {"host": host, "device": device}


def merge(drained: Mapping[str, Any]) -> None:
    """Take in what another process has drained."""
    recorder = _recorder
    if recorder is None:
        return
    for row in drained.get("host", ()):
        recorder.add(HostSpan(*row))
    for row in drained.get("device", ()):
        recorder.add(DeviceSpan(*row))
    recorder.processes.update(drained.get("processes", {}))
    recorder.dropped.update(+Counter(drained.get("dropped", {})))
