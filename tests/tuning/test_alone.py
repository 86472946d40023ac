"""Two that measure on one device take turns, and the one that waits says for whom."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from tilewright.backend import device
from tilewright.problem import Problem
from tilewright.tuning import tuner
from tilewright.tuning.alone import alone_on
from tilewright.tuning.runner import Runner
from tilewright.tuning.store import Store

HOLDER = """
import sys
from tilewright.backend import device
from tilewright.tuning.alone import alone_on
with alone_on(device("opencl:0"), "a long benchmark"):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def holder():
    """Another process that measures until it is told to end."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


@pytest.mark.parametrize("end", ["in peace", "killed"])
def test_who_waits_says_for_whom(holder, end):
    said, order = [], []

    def measure():
        with alone_on(device("opencl:0"), "mine", said.append):
            order.append(holder.poll() is not None or "ended")

    thread = threading.Thread(target=measure)
    thread.start()
    while not said and thread.is_alive():
        thread.join(0.01)
    assert order == []
    if end == "killed":
        os.kill(holder.pid, signal.SIGKILL)
    else:
        holder.stdin.write("end\n")
        holder.stdin.flush()
    thread.join(60)
    assert len(order) == 1
    assert len(said) == 1
    assert f"opencl:0 is in use by process {holder.pid} (a long benchmark, since 20" in said[0]


def test_what_a_holder_starts_does_not_wait_for_it():
    said = []
    with (
        alone_on(device("opencl:0"), "a benchmark", said.append),
        alone_on(device("opencl:0"), "its tuner", said.append),
    ):
        pass
    with alone_on(device("opencl:0"), "the next", said.append):
        pass
    assert said == []


def test_threads_take_turns():
    inside, most = [], []

    def measure():
        with alone_on(device("opencl:0"), "a thread"):
            inside.append(1)
            most.append(len(inside))
            threading.Event().wait(0.02)
            inside.pop()

    threads = [threading.Thread(target=measure) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert most == [1, 1, 1, 1]


@pytest.mark.parametrize("named", [False, True])
def test_devices_alike_time_candidates_of_one_search_unless_one_is_named(
    tmp_path, monkeypatch, named
):
    begin, used = Runner._start_timing, set()

    def begun(self, worker):
        begin(self, worker)
        if worker.busy:
            used.add(worker)

    monkeypatch.setattr(Runner, "_start_timing", begun)
    monkeypatch.setattr(tuner, "alike", lambda live: [live])
    monkeypatch.setenv("TILEWRIGHT_DEVICE", "opencl" if named else "")
    with Store(tmp_path / "store.sqlite") as store:
        problem = Problem(48, 40, 32, "s")
        found = tuner.tune(
            problem, budget="8 candidates", strategy="random", stencil="packed", store=store
        )
    assert len(used) == found.spent.devices == (1 if named else 2)
