"""Chrome's trace event format, which Perfetto opens.

"Trace Event Format" (Google, 2016): complete events (``"ph": "X"``) with ``ts`` and ``dur``
in microseconds, and metadata events (``"ph": "M"``) that name processes and threads.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tilewright.paths import write_atomically
from tilewright.timeline import spans
from tilewright.timeline.spans import DeviceSpan, HostSpan, Recorder
from tilewright.version import VERSION

__all__ = ["on_host_clock", "recording", "trace_document"]

# Thread numbers of device tracks: above any thread's (Linux: 2**22 at most).
_DEVICE_THREADS = 1 << 23

# Two clocks drift apart by some 10 parts in a million: within a second that is 10 us, as much
# as a thread takes to wake up.
_WINDOW_NS = 1_000_000_000


@contextmanager
def recording(path: str | os.PathLike[str] | None) -> Iterator[Recorder | None]:
    """Record while the block runs, then write the timeline, whatever ended the block.

    Parameters
    ----------
    path : path or None
        Where the JSON goes; None records nothing.

    Raises
    ------
    ValueError
        If nothing can be written there; nothing has been run then.
    """
    if path is None:
        yield None
        return
    target = Path(path)
    if target.is_dir() or not target.absolute().parent.is_dir():
        raise ValueError(f"trace={str(target)!r} is no file in a directory that is there")
    recorder = spans.start()
    try:
        yield recorder
    finally:
        spans.stop()
        text = json.dumps(trace_document(recorder), separators=(",", ":"), allow_nan=False)
        write_atomically(target, text.encode())


def trace_document(recorder: Recorder) -> dict[str, Any]:
    """Return everything recorded as one JSON object."""
    events = [*_names(recorder), *_events(recorder.host, recorder.started, "host")]
    thread = _DEVICE_THREADS
    for (pid, track), rows in tracks(recorder.device).items():
        moved = on_host_clock(rows)
        streams = list(dict.fromkeys(one.about.get("stream") for one in moved))
        for number, stream in enumerate(streams):
            name = f"{track} stream {number} (device)" if len(streams) > 1 else f"{track} (device)"
            events.append(_metadata("thread_name", pid, thread, name))
            of_it = [
                one._replace(thread=thread) for one in moved if one.about.get("stream") == stream
            ]
            events += _events(of_it, recorder.started, "device")
            thread += 1
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {
            "tilewright": VERSION,
            "dropped": dict(recorder.dropped),
        },
    }


def _events(rows: Iterable[HostSpan], zero: int, category: str) -> list[dict[str, Any]]:
    """Return complete events: a viewer wants those that hold others first."""
    ordered = sorted(rows, key=lambda one: (one.pid, one.thread, one.begun, -one.ended))
    return [
        {
            "name": one.name,
            "cat": category,
            "ph": "X",
            "ts": (one.begun - zero) / 1e3,
            "dur": (one.ended - one.begun) / 1e3,
            "pid": one.pid,
            "tid": one.thread,
            "args": one.about,
        }
        for one in ordered
    ]


def _names(recorder: Recorder) -> list[dict[str, Any]]:
    """Return the names of processes and of this process's threads."""
    every = {one.pid for one in recorder.host} | {one.pid for one in recorder.device}
    own = {recorder.pid: "tilewright", **recorder.processes}
    names = [
        _metadata("process_name", pid, 0, own.get(pid, "worker"))
        for pid in sorted(every | {recorder.pid})
    ]
    return names + [
        _metadata("thread_name", recorder.pid, thread, name)
        for thread, name in sorted(recorder.threads.items())
    ]


def _metadata(kind: str, pid: int, thread: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "ts": 0, "pid": pid, "tid": thread, "args": {"name": name}}


def tracks(spans: Iterable[DeviceSpan]) -> dict[tuple[int, str], list[DeviceSpan]]:
    """Return spans by process and track, each list in the order of time."""
    found: dict[tuple[int, str], list[DeviceSpan]] = defaultdict(list)
    for one in spans:
        found[one.pid, one.track].append(one)
    return {key: sorted(found[key], key=lambda one: one.begun) for key in sorted(found)}


def on_host_clock(track: list[DeviceSpan]) -> list[HostSpan]:
    """Return one track's spans in the host's time.

    The host learns late that a kernel has ended, never early: the least distance between an
    end and the host's knowledge of it, among spans about a second apart, is the best guess
    of the distance between the clocks.  Spans are shown late by no more than the quickest wake-up.
    """
    least: dict[int, int] = {}
    for one in track:
        window = one.ended // _WINDOW_NS
        late = one.seen - one.ended
        least[window] = min(late, least.get(window, late))
    moved = []
    for one in track:
        window = one.ended // _WINDOW_NS
        offset = min(least[w] for w in (window - 1, window, window + 1) if w in least)
        begun, ended = one.begun + offset, one.ended + offset
        moved.append(HostSpan(one.name, begun, ended, one.pid, 0, one.about))
    return moved
