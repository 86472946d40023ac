"""A kernel that takes the device away from its process costs its worker only."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.backend.cuda.naive_cuda import NAIVE
from tilewright.problem import Problem
from tilewright.tuning.measurement import Stage, Status
from tilewright.tuning.record import problem_to_json
from tilewright.tuning.store import Store
from tilewright.tuning.tuner import tune
from tilewright.tuning.worker import Worker

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).parents[3]
PROBLEM = Problem(70, 60, 50, "s")

EXPECTED = {
    0: Status.OK,
    1: Status.LAUNCH_ERROR,
    2: Status.WRONG_RESULT,
    3: Status.COMPILE_ERROR,
    4: Status.COMPILE_ERROR,
}


def test_tuning_goes_on_after_an_illegal_address(cuda, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    with Store(tmp_path / "store.sqlite") as store:
        result = tune(
            PROBLEM,
            cuda,
            budget=60,
            strategy="exhaustive",
            stencil=NAIVE.name,
            modules=("tests.backend.cuda.naive_cuda",),
            store=store,
        )
        screened = {m.config["fault"]: m for m in store.query(stage=Stage.SCREEN)}
    assert {fault: m.status for fault, m in screened.items()} == EXPECTED
    assert "illegal" in screened[1].reason
    assert result.winner.config["fault"] == 0
    assert cuda.lost is None  # this process never touched the kernel


LOST = """
import numpy as np
from tests.backend.cuda.naive_cuda import NAIVE
from tests.backend.cuda.test_faults import request
from tilewright.backend import DeviceLostError, device
from tilewright.tuning.worker import Worker
worker = Worker(device("cuda:0"))
assert worker.answer(request(0))["status"] == "ok"
assert not worker.lost
answer = worker.answer(request(1))
assert answer["status"] == "launch-error", answer
assert answer["last"] is True
assert worker.lost
assert worker.device.lost is not None
worker.device.free(1)  # a lost device has nothing to give, and says nothing
try:
    worker.device.upload(np.ones(3))
except DeviceLostError as error:
    assert "start a new process" in str(error), error
    print("lost")
"""


def request(fault):
    """Return what a coordinator asks about a config."""
    return {
        "do": "prepare",
        "problem": problem_to_json(PROBLEM),
        "stencil": NAIVE.name,
        "config": dict(NAIVE.config(fault)),
        "mode": "plain",
        "ahead": False,
    }


def test_the_worker_says_that_it_is_lost(cuda):
    done = subprocess.run(
        [sys.executable, "-c", LOST], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "lost"


def test_other_failures_leave_the_worker_alive(cuda):
    worker = Worker(cuda)
    for fault in (2, 3, 4, 0):
        answer = worker.answer(request(fault))
        assert answer["status"] == EXPECTED[fault], answer
        assert "last" not in answer
    assert not worker.lost
