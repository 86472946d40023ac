"""What the benchmark of groups draws, replays and tells; timing takes a GPU."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from tilewright.bench.benchmarks import grouped

CALLS = SimpleNamespace(on_stream=nullcontext)


class Stream:
    """A stream that notes what happens on it."""

    def __init__(self):
        self.happened = []

    def __getattr__(self, name):
        return lambda: self.happened.append(name) or SimpleNamespace(launch=self.happened.append)


def test_a_captured_call_is_replayed_on_its_stream():
    stream = Stream()
    replay = grouped._captured(CALLS, stream, lambda: stream.happened.append("call"))
    wanted = ["call", "synchronize", "begin_capture", "call", "end_capture"]
    assert stream.happened == wanted
    replay()
    assert stream.happened == [*wanted, stream]


@pytest.mark.parametrize("statuses", [[7], [0, 7]])
def test_a_call_that_fails_has_no_replay(statuses):
    """A graph of nothing would be a fast one."""
    assert grouped._captured(CALLS, Stream(), iter(statuses).__next__) is None


def test_a_peer_without_times_is_a_dash():
    row = {"precision": "s", "group": "x", "flops": 2e6, "us": 2.0, "graph_us": 1.0}
    _, [line] = grouped.BENCHMARK.table([row | {"cublas_us": 3.0}])
    assert line == ["s", "x", "1.0", "1.50", "-", "-", "2", "-", "1", "-"]


def test_groups_are_the_same_for_a_seed():
    assert grouped.groups(3) == grouped.groups(3) != grouped.groups(4)
    assert {name: len(sizes) for name, sizes in grouped.groups(0).items()} == {
        "64 experts, 2048 x 1536": 64, "256 of 16 to 128": 256, "64 of 64 to 512": 64,
        "16 of 512 to 2048": 16, "64 odd of 64 to 512": 64,
    }  # fmt: skip
    odd = grouped.groups(0)["64 odd of 64 to 512"]
    assert all(side % 2 for sides in odd for side in sides)
