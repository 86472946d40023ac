"""100,000 calls of two processes, of many threads, streams and contexts: right, nothing leaks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tilewright.backend import LiveDevice

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.alone,
    pytest.mark.thorough,
    pytest.mark.timeout(120),
]

ROOT = Path(__file__).parents[2]
PROCESSES, CALLS, CAPTURES = 2, 100_000, 1000

# Of a process: what allocators and the driver keep and give back from moment to moment, below 200
# bytes a call.
RESIDENT, OBJECTS = 8 * 2**20, 5000

# What a stream may keep for its calls.
ARENA = 64 * 2**20


class Process:
    """A process that is told what to do, line by line."""

    def __init__(self, seed: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.serve.stress", str(seed)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "MALLOC_ARENA_MAX": "1"},  # threads' own heaps grow by chance
        )

    def tell(self, command: str) -> None:
        """Begin to do something."""
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """Wait until it is done."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process died"
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> int:
        """Let it end."""
        self._process.communicate(timeout=30)
        return self._process.returncode

    def kill(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait(30)


@pytest.fixture
def processes(cuda: LiveDevice):
    if find_spec("cupy") is None:
        pytest.skip("needs CuPy")
    found = [Process(100 * at) for at in range(PROCESSES)]
    yield found
    for one in found:
        one.kill()


def test_calls_at_once_are_right_and_leak_nothing(processes: list[Process]):
    def all_do(command: str) -> list[dict[str, Any]]:
        for one in processes:
            one.tell(command)
        return [one.answer() for one in processes]

    before = all_do("memory")
    done = all_do(f"calls {CALLS // 4 // PROCESSES}")
    warm = all_do("memory")
    done += all_do(f"calls {CALLS * 3 // 4 // PROCESSES}")
    after = all_do("memory")
    all_do(f"captures {CAPTURES // 10}")
    captured = all_do("memory")
    all_do(f"captures {CAPTURES}")
    last = all_do("memory")

    assert sum(one["calls"] for one in done) > 0.99 * CALLS
    assert all(one["wrong"] == 0 for one in (*warm, *after, *captured, *last))
    for old, new in (*zip(warm, after, strict=True), *zip(captured, last, strict=True)):
        assert new["resident"] - old["resident"] < RESIDENT
        assert new["objects"] - old["objects"] < OBJECTS
        assert new["pools"] - old["pools"] <= ARENA
        assert new["device"] - old["device"] <= ARENA  # of both, and neither does anything
    for old, new in zip(before, last, strict=True):
        streams = 8 + 1  # and the default one
        assert new["pools"] - old["pools"] <= streams * ARENA
    assert [one.close() for one in processes] == [0] * PROCESSES
