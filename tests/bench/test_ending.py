"""Benchmarks leave no process behind, however they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from benchmarks.hopper.ending import end, started
from benchmarks.hopper.watching import watch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's prctl")

# A benchmark: a pool of two processes that say who they are and would work for ever.
MEASURING = """
import os, sys, time
from pathlib import Path
from benchmarks.hopper.pool import in_processes

def work(directory):
    (Path(directory) / f"{os.getpid()}.pid").touch()
    time.sleep(600)

if __name__ == "__main__":
    to = sys.argv[1]
    list(in_processes(work, [0, 1], [(to,), (to,)], 2, time.time() + 600))
"""


def waited_for(what, seconds: float = 20.0):
    """Return what is true in the end."""
    until = time.time() + seconds
    while not (found := what()) and time.time() < until:
        time.sleep(0.05)
    return found


def gone(process: int) -> bool:
    stat = Path(f"/proc/{process}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def workers(directory: Path) -> list[int]:
    found = [int(path.stem) for path in directory.glob("*.pid")]
    return found if len(found) == 2 else []


@pytest.mark.parametrize("way", ["the measuring process", "its group"])
def test_compilers_end_with_the_benchmark(tmp_path: Path, way: str):
    (tmp_path / "measuring.py").write_text(MEASURING)
    child = started([sys.executable, str(tmp_path / "measuring.py"), str(tmp_path)])
    try:
        found = waited_for(lambda: workers(tmp_path))
        assert found
        assert not any(map(gone, found))
        if way == "its group":
            end(child)
        else:
            os.kill(child.pid, signal.SIGKILL)  # as a crash does: nothing tidies up
            child.wait()
        assert waited_for(lambda: all(map(gone, found)))
    finally:
        end(child)


def test_a_child_ends_with_a_watcher_that_is_killed(tmp_path: Path):
    child = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    text = (
        "import sys, time; from benchmarks.hopper.ending import started;"
        f" started([sys.executable, '-c', {child!r}]); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE) as watcher:
        assert watcher.stdout is not None
        process = int(watcher.stdout.readline())
        assert not gone(process)
        watcher.kill()
        assert waited_for(lambda: gone(process))


def test_a_watch_says_how_its_command_ended(tmp_path: Path):
    log, until = tmp_path / "log", time.time() + 30
    for status in (0, 3):
        command = [sys.executable, "-c", f"raise SystemExit({status})"]
        assert watch(command, log, until) == (status == 0)
