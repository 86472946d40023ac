"""Gaps: when a device had nothing to do, and what the host did meanwhile."""

from __future__ import annotations

import itertools
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from tilewright.timeline.clocks import on_host_clock, tracks
from tilewright.timeline.spans import HostSpan, Recorder

__all__ = ["TrackSummary", "summaries"]

Interval = tuple[int, int]
Piece = tuple[int, int, str]


@dataclass(frozen=True)
class TrackSummary:
    """One device as one process used it; times in nanoseconds.

    Parameters
    ----------
    track : str
        The device's id.
    pid : int
        The process.
    kernels : int
        What ran on it.
    busy_ns, idle_ns : int
        Time with something running, and time between without.
    gaps : int
        How often it became idle.
    median_gap_ns, longest_gap_ns : int
        How long it stayed so; 0 without gaps.
    during_gaps : dict
        What the process's threads were doing in the gaps, the innermost span of each, the
        largest share first.  Several threads may add up to more than `idle_ns`.
    """

    track: str
    pid: int
    kernels: int
    busy_ns: int
    idle_ns: int
    gaps: int
    median_gap_ns: int
    longest_gap_ns: int
    during_gaps: dict[str, int]

    def __str__(self) -> str:
        text = f"{self.track}: {self.kernels} kernels, {_readable(self.busy_ns)} busy"
        if not self.gaps:
            return text + ", no gaps"
        text += (
            f", {_readable(self.idle_ns)} idle in {self.gaps} gaps"
            f" (median {_readable(self.median_gap_ns)},"
            f" longest {_readable(self.longest_gap_ns)})"
        )
        most = list(self.during_gaps.items())[:4]
        shares = ", ".join(f"{name} {_readable(spent)}" for name, spent in most)
        return text + (f"; meanwhile: {shares}" if shares else "")


def _readable(nanoseconds: int) -> str:
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.3g} {unit}"
    return f"{nanoseconds} ns"


def summaries(recorder: Recorder) -> list[TrackSummary]:
    """Return a summary of every device in every process."""
    told = []
    doing = _innermost_by_process(recorder.host)
    for (pid, track), spans in tracks(recorder.device).items():
        # Kernels of several queues overlap; the device is busy in the union.
        busy = _union((one.begun, one.ended) for one in on_host_clock(spans))
        gaps = [(a[1], b[0]) for a, b in itertools.pairwise(busy)]
        lengths = [end - begin for begin, end in gaps]
        told.append(
            TrackSummary(
                track,
                pid,
                len(spans),
                sum(end - begin for begin, end in busy),
                sum(lengths),
                len(gaps),
                round(statistics.median(lengths)) if gaps else 0,
                max(lengths, default=0),
                _meanwhile(gaps, doing.get(pid, [])),
            )
        )
    return told


def _union(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the least list of disjoint intervals that cover the same times."""
    joined: list[Interval] = []
    for begin, end in sorted(intervals):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined


def _innermost_by_process(spans: Iterable[HostSpan]) -> dict[int, list[list[Piece]]]:
    """Return, for each process, what each of its threads did when."""
    threads: dict[tuple[int, int], list[HostSpan]] = defaultdict(list)
    for one in spans:
        threads[one.pid, one.thread].append(one)
    found: dict[int, list[list[Piece]]] = defaultdict(list)
    for (pid, _), rows in threads.items():
        found[pid].append(_innermost(rows))
    return found


def _innermost(spans: list[HostSpan]) -> list[Piece]:
    """Return a thread's time cut into pieces, each with the innermost span's name."""
    pieces: list[Piece] = []
    open_spans: list[HostSpan] = []
    at = 0

    def until(time: int) -> None:
        nonlocal at
        while open_spans and at < time:
            top = open_spans[-1]
            end = min(time, top.ended)
            if end > at:
                pieces.append((at, end, top.name))
                at = end
            if top.ended <= time:
                open_spans.pop()
        at = max(at, time)

    for one in sorted(spans, key=lambda one: (one.begun, -one.ended)):
        until(one.begun)
        open_spans.append(one)
    if open_spans:
        until(max(one.ended for one in open_spans))
    return pieces


def _meanwhile(gaps: list[Interval], threads: list[list[Piece]]) -> dict[str, int]:
    """Return how much of the gaps each name has, the most first."""
    shares: Counter[str] = Counter()
    for pieces in threads:
        at = 0
        for begin, end in gaps:  # both in the order of time: one way through
            while at < len(pieces) and pieces[at][1] <= begin:
                at += 1
            while at < len(pieces) and pieces[at][0] < end:
                start, stop, name = pieces[at]
                shares[name] += min(stop, end) - max(start, begin)
                if stop > end:  # it reaches into the next gap, perhaps
                    break
                at += 1
    return dict(shares.most_common())
