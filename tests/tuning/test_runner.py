"""What a search says of itself."""

from __future__ import annotations

import os
import threading
from types import SimpleNamespace

import pytest

from tests.tuning.measurement_examples import example
from tilewright.space import Config
from tilewright.stencil.geometry import PLAIN
from tilewright.tuning import runner
from tilewright.tuning.measurement import Status
from tilewright.tuning.process import Answer, WorkerSettings
from tilewright.tuning.runner import Limits, Runner, Spent


class Endless:
    """Proposes one config after the other."""

    tried = 0

    def propose(self):
        self.tried += 1
        return Config("family", {"x": self.tried})

    def observe(self, config, seconds):
        pass


@pytest.fixture
def clock(monkeypatch):
    """Processes that take no time to prepare a candidate, and a second of this clock to time it."""
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now, settings=[])

    class Process:
        def __init__(self, settings):
            clock.settings.append(settings)
            self.job, self.deadline = None, 99.0
            self.readable, self.writable = os.pipe()

        busy = property(lambda self: self.job is not None)

        def fileno(self):
            return self.readable

        def start(self):
            pass

        def ask(self, job, request, seconds):
            self.job, self.do = job, request["do"]
            if self.do == "time":  # what is prepared waits
                threading.Timer(0.05, os.write, (self.writable, b".")).start()
            else:
                os.write(self.writable, b".")

        def poll(self, readable):
            if not readable or not os.read(self.readable, 1):
                return None
            clock.now += self.do == "time"
            return Answer(Status.OK, data={"compile_seconds": 0.0, "times_ns": [7]})

        def kill_all(workers):
            for one in workers:
                os.close(one.readable)
                os.close(one.writable)

    monkeypatch.setattr(runner, "WorkerProcess", Process)
    monkeypatch.setattr(runner, "time", clock)
    return clock


def test_nothing_is_timed_after_the_deadline_and_one_alone_opens_the_device(clock) -> None:
    rows = []
    about = WorkerSettings("", 4.0), {}, example(), rows.append, lambda config: PLAIN
    with Runner(*about, exclusive=False, limits=Limits(), arch="sm_90a") as runner:
        runner.search(Endless(), 2.5, set())
    assert len(rows) == clock.now == 3
    *compiling, timing = (one.arch for one in clock.settings)
    assert set(compiling) == {"sm_90a"}
    assert timing == ""


@pytest.mark.parametrize(
    ("exclusive", "checked"), [(False, "checked 90 %"), (True, "checked 45 %")]
)
def test_checks_are_shares_of_the_processes_that_check(exclusive: bool, checked: str) -> None:
    """Compilers', on a CPU's device."""
    spent = Spent(2, 1, exclusive, wall=10, compiling=4, checking=9, timing=1)
    assert checked in str(spent)
    assert "compiled 20 %" in str(spent)


def test_what_takes_compilers_time_besides_is_told_where_there_is_any() -> None:
    spent = Spent(4, wall=10, compiling=20, rescheduling=10, forecasting=4)
    assert "compiled 50 % of the time, rescheduled 25 %, forecast 10 %;" in str(spent)
    assert "compiled 50 % of the time;" in str(Spent(4, wall=10, compiling=20))
