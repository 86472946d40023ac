"""A device's clock beside the host's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from tilewright.timeline.spans import DeviceSpan, HostSpan

__all__ = ["on_host_clock", "tracks"]

# Two clocks drift apart by some 10 parts in a million: within a second that is 10 us, as much
# as a thread takes to wake up.
_WINDOW_NS = 1_000_000_000


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
