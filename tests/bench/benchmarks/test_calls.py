"""How calls are timed in turns."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tilewright.bench.benchmarks import calls
from tilewright.bench.benchmarks.calls import BATCH_NS, MOST_CALLS, interleaved

_WAIT_NS = 20_000


class Clock:
    """A clock that goes on by what calls take, and waits for their device."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, wait_ns: int = _WAIT_NS) -> None:
        self.now, self.made = 0, dict[int, int]()
        device = SimpleNamespace(synchronize=lambda: self._go_on(wait_ns))
        self.cupy: Any = SimpleNamespace(cuda=SimpleNamespace(Device=lambda: device))
        monkeypatch.setattr(calls.time, "perf_counter_ns", lambda: self.now)

    def _go_on(self, ns: int) -> None:
        self.now += ns

    def call(self, ns: int) -> Callable[[], None]:
        def made() -> None:
            self._go_on(ns)
            self.made[ns] = self.made.get(ns, 0) + 1

        return made


@pytest.mark.parametrize("slow_ns", [500_000, 5_000_000])
def test_the_last_wait_counts_as_little_however_slow_the_other_is(
    monkeypatch: pytest.MonkeyPatch, slow_ns: int
) -> None:
    clock = Clock(monkeypatch)
    fast_ns = BATCH_NS // 5
    found = interleaved(clock.cupy, [clock.call(fast_ns), clock.call(slow_ns)])
    assert found == [fast_ns + _WAIT_NS / 5, slow_ns + _WAIT_NS / 5]
    assert clock.made[fast_ns] == clock.made[slow_ns]


def test_no_more_calls_are_enqueued_than_a_stream_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, MOST_CALLS)
    (found,) = interleaved(clock.cupy, [clock.call(1000)])
    assert found == 1000 + 1


def test_a_call_of_longer_than_a_batch_is_timed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    (found,) = interleaved(clock.cupy, [clock.call(10 * BATCH_NS)])
    assert found == 10 * BATCH_NS + _WAIT_NS
    assert clock.made[10 * BATCH_NS] == 1 + 2 + 3
