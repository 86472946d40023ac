"""Nothing a candidate does costs more than itself; each fault here happens for real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tests.tuning.faulty  # registers the stencil here too
from tilewright.backend import device
from tilewright.problem import Problem
from tilewright.space import Constraint
from tilewright.stencil import stencil
from tilewright.tuning import host_blas
from tilewright.tuning.measurement import Stage, Status
from tilewright.tuning.runner import Limits
from tilewright.tuning.store import Store
from tilewright.tuning.strategies import strategy as make_strategy
from tilewright.tuning.t4 import read_t4, write_t4
from tilewright.tuning.tuner import TuningError, tune

ROOT = Path(__file__).parents[2]
MODULES = ("tests.tuning.faulty",)
PROBLEM = Problem(48, 40, 32, "s")
LIMITS = Limits(prepare=8.0, time=20.0, final=30.0)

EXPECTED = {
    0: Status.OK,
    1: Status.COMPILE_ERROR,
    2: Status.WRONG_RESULT,
    3: Status.CRASH,
    4: Status.TIMEOUT,
    5: Status.OUT_OF_MEMORY,
    6: Status.OK,  # passes screening: only the certificate finds it
}


@pytest.fixture(autouse=True)
def importable(monkeypatch, hasty):
    """Let workers import this directory's modules."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)


def run(store, observer=None, **options):
    return tune(
        PROBLEM,
        budget=200,
        strategy="exhaustive",
        stencil="faulty",
        limits=LIMITS,
        modules=MODULES,
        store=store,
        observer=observer,
        **options,
    )


def test_what_is_right_on_small_problems_alone_is_found_on_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(tests.tuning.faulty.Faulty, "faults", (0, 8))
    fast = Constraint("fast", lambda rounds: rounds == 1, "the others take longer", "heuristic")
    with Store(tmp_path / "store.sqlite") as store:
        result = run(store, constraints=[fast])
        tried = {m.config["fault"]: m for m in store.query(stage=Stage.SCREEN)}
    assert result.tried == 2
    assert result.winner.config["fault"] == 0
    assert tried[8].status == Status.WRONG_RESULT
    assert tried[8].reason.startswith("C(47, ")
    assert tried[8].reason.endswith("(m=48 n=40 k=32 alpha=1 beta=0)")


def test_what_cannot_read_the_operands_is_not_tried(tmp_path, monkeypatch):
    """As boxes of odd leading dimensions: `takes` says of which problems a config is one."""
    family = stencil("packed")

    def takes(self, config, problem):
        return config.integer("unroll") == 2

    monkeypatch.setattr(type(family), "takes", takes)
    with Store(tmp_path / "store.sqlite") as store:
        seed = np.int64(3)  # as loops over them have it
        tune(PROBLEM, budget=2, strategy="climb", seed=seed, stencil="packed", store=store)
        tried = list(store.query(stage=Stage.SCREEN))
    assert tried
    assert {m.config["unroll"] for m in tried} == {2}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"problem": "s"}, "problem='s' is none; give a tilewright.Problem"),
        ({"store": "x.db"}, r"store='x.db' is none; give tilewright.tuning.store.Store\(path\)"),
        ({"seed": "1"}, "seed='1' is none; give a whole number"),
        ({"seed": -1}, "seed=-1 is none; give a whole number of 0 or more"),
        ({"limits": 3}, "limits=3 is none; give tilewright.tuning.runner.Limits"),
        ({"observer": 3}, "observer=3 is none; give a function"),
        ({"lessons": "abc"}, "lessons='abc' is none; give a list of paths"),
        ({"pruning": "some"}, "pruning='some' is none; give one of none, thresholds, learned"),
        ({"constraints": ["x"]}, "constraints=.* is none; give a list of tilewright.space.Con"),
        ({"strategy": ["climb"]}, "strategy=.* is none; give a name"),
        ({"modules": "os"}, "modules='os' is none; give a tuple of names"),
    ],
    ids=str,
)
def test_what_is_of_another_kind_is_named(wrong, said):
    with pytest.raises(ValueError, match=said):
        tune(**{"problem": PROBLEM, **wrong})


def test_every_fault_costs_only_its_candidate_and_is_recorded(tmp_path):
    with Store(tmp_path / "store.sqlite") as store:
        result = run(store)
        screened = {
            (m.config["fault"], m.config["rounds"]): m for m in store.query(stage=Stage.SCREEN)
        }
        assert len(screened) == 14  # 7 faults, 2 speeds
        for (fault, _), measurement in screened.items():
            assert measurement.status == EXPECTED[fault], measurement
            assert measurement.ok or measurement.reason
        assert result.tried == 14
        reasons = {fault: screened[fault, 1].reason for fault in EXPECTED}
        assert "SIGSEGV" in reasons[3]
        assert "killed" in reasons[4]
        assert "should be" in reasons[2]
        assert "undeclared identifier 'this'" in reasons[1]
        assert "build" in screened[1, 1].detail  # the whole log is kept
        # The fastest right one wins.  Fault 6 is as fast, but is found by the certificate.
        assert result.winner.config["fault"] == 0
        assert result.winner.config["rounds"] == 1
        assert result.winner.stage == Stage.WINNER
        assert {m.config["fault"] for m in store.query(status=Status.WRONG_RESULT)} <= {2, 6}

        # A second run tries nothing of it again, failures included, and says what it started from.
        again = run(store)
        assert again.tried == 0
        assert again.resumed == 14
        assert again.winner.config == result.winner.config


def test_what_was_imported_is_measured_before_it_counts(tmp_path, monkeypatch):
    """A file may say anything: that the slowest takes 1 ns, that the fastest fails."""
    monkeypatch.setattr(tests.tuning.faulty.Faulty, "faults", (0,))
    with Store(tmp_path / "there.sqlite") as store:
        found = run(store)
        rows = list(store.query(stage=Stage.SCREEN))
        # What comes back is what was measured here.
        write_t4(tmp_path / "own.json", store.query())
        assert store.add_imported(read_t4(tmp_path / "own.json")) == 0
        assert run(store).resumed == 2
    lies = [
        replace(one, times_ns=(1,), stage=stage)
        for one in rows
        for stage in (Stage.SCREEN, Stage.WINNER)
        if one.config["rounds"] == 16
    ]
    lies += [
        replace(one, status=Status.CRASH, times_ns=()) for one in rows if one.config["rounds"] == 1
    ]
    write_t4(tmp_path / "lies.json", lies)
    with Store(tmp_path / "here.sqlite") as store:
        assert store.add_imported(read_t4(tmp_path / "lies.json")) == len(lies)
        assert store.add_imported(read_t4(tmp_path / "lies.json")) == 0
        told = []

        def strategy(name, space, seed, start):
            told.extend(start)
            return make_strategy(name, space, seed, start)

        monkeypatch.setattr("tilewright.tuning.tuner.make_strategy", strategy)
        again = run(store)
        assert again.resumed == 0
        assert again.tried == 2
    assert told[0].integer("rounds") == 16  # what is said to be fast is tried first
    assert again.winner.config == found.winner.config
    assert again.winner.median_ns > 1


def test_tuning_says_so_when_nothing_works(tmp_path, monkeypatch):
    monkeypatch.setattr(tests.tuning.faulty.Faulty, "faults", (1, 2))
    with (
        Store(tmp_path / "store.sqlite") as store,
        pytest.raises(TuningError, match="no candidate for SGEMM NN 48x40x32 was right"),
    ):
        run(store)


def test_what_is_no_point_any_more_is_not_resumed(tmp_path, monkeypatch):
    """A value that a stencil lost leaves measurements of it in stores."""
    faulty = tests.tuning.faulty.Faulty
    with Store(tmp_path / "store.sqlite") as store:
        monkeypatch.setattr(faulty, "faults", (0, 1))
        assert run(store).tried == 4
        monkeypatch.setattr(faulty, "faults", (1,))
        with pytest.raises(TuningError, match="no candidate for SGEMM NN 48x40x32 was right"):
            run(store)


def test_a_budget_shorter_than_the_start_still_finds_a_winner(tmp_path, monkeypatch):
    monkeypatch.setattr(host_blas, "noise", lambda *_: [])  # whatever runs beside this test
    with Store(tmp_path / "store.sqlite") as store:
        result = tune(PROBLEM, budget=0.2, store=store)
        assert result.tried >= 1
        assert result.winner.ok
    live = device()
    if live.spec.kind == "cpu":  # whose BLAS has run in the race, too
        sizes = PROBLEM.m, PROBLEM.n, PROBLEM.k
        assert host_blas.times(live.portfolio_key)["s", "NN", *sizes] > 0


def test_a_problem_that_cannot_fit_is_refused_before_anything_runs(tmp_path):
    with (
        Store(tmp_path / "store.sqlite") as store,
        pytest.raises(ValueError, match="GiB in five matrices"),
    ):
        tune(Problem(10**6, 10**6, 10**6, "d"), store=store)


def test_workers_die_with_their_coordinator(tmp_path):
    """A worker waits on its standard input, so a killed coordinator leaves none behind."""
    code = (
        "import json, sys, time\n"
        "from tilewright.tuning.process import WorkerProcess, WorkerSettings\n"
        "worker = WorkerProcess(WorkerSettings('opencl:0', 4.0))\n"
        "worker.start()\n"
        "print(json.dumps(worker._process.pid), flush=True)\n"
        "time.sleep(250)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    worker = json.loads(process.stdout.readline())
    process.kill()
    process.wait()
    process.stdout.close()
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and Path(f"/proc/{worker}").exists():
        time.sleep(0.05)
    assert not Path(f"/proc/{worker}").exists()
