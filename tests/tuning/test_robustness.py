"""A search among every kind of fault, while workers and the tuner itself are killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tilewright.tuning.measurement import Stage, Status
from tilewright.tuning.store import Store

ROOT = Path(__file__).parents[2]

# By the candidate's number: twelve of twenty are right, and the first of all is the fastest.
FAULTS = (0, 1, 2, 3, 0, 0, 7, 0, 0, 4, 0, 0, 1, 0, 0, 2, 0, 0, 3, 0)
EXPECTED = {
    0: Status.OK,
    1: Status.COMPILE_ERROR,
    2: Status.WRONG_RESULT,
    3: Status.CRASH,
    4: Status.TIMEOUT,
    7: Status.OUT_OF_MEMORY,
}

# Workers may have 2 GiB, all of which one candidate takes.
TUNER = """
import sys
import numpy as np
from tests.tuning import faulty
from tests.tuning.test_faults import MODULES, PROBLEM
from tests.tuning.test_robustness import FAULTS
from tilewright.space import Constraint, Space
from tilewright.tuning import tuner
from tilewright.tuning.runner import Limits
from tilewright.tuning.store import Store

count = int(sys.argv[2])
planned = {1 + 16 * (at > 0) + at: FAULTS[at % len(FAULTS)] for at in range(count)}
faulty.Faulty.faults, faulty.Faulty.speeds = tuple(set(FAULTS)), tuple(planned)
whole = faulty.Faulty.space

def space(self, variant, device):
    made = whole(self, variant, device)
    of = np.vectorize(planned.get)
    one = Constraint("plan", lambda fault, rounds: fault == of(rounds), "a plan", "heuristic")
    return Space(self.name, made.parameters, [one])

faulty.Faulty.space = space
tuner.memory_gib = lambda: 2.0
tuner._RACE_SECONDS = 0.3
with Store(sys.argv[1]) as store:
    found = tuner.tune(
        PROBLEM, "opencl", budget=200, strategy="exhaustive", stencil="faulty", store=store,
        limits=Limits(prepare=6.0, time=15.0, final=30.0), modules=MODULES,
    )
print(found.winner.config["rounds"], found.winner.config["fault"])
"""


def begin(path: Path, count: int) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}
    return subprocess.Popen(
        [sys.executable, "-c", TUNER, str(path), str(count)],
        env=environment, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def children(parent: int) -> list[int]:
    listed = Path(f"/proc/{parent}/task/{parent}/children").read_text()
    return [int(one) for one in listed.split()]


def rows(path: Path) -> dict[int, tuple[int, str]]:
    """Return candidates' row numbers and when they were measured, by their own number."""
    if not path.exists():
        return {}
    with Store(path) as store:
        found = list(store.query(stage=Stage.SCREEN))
    known = {m.config.integer("rounds"): (m.id or 0, m.created) for m in found}
    assert len(known) == len(found)  # nothing twice
    return known


@pytest.mark.parametrize(
    ("count", "shares"),
    [(20, (0.5,)), pytest.param(200, (0.25, 0.5), marks=pytest.mark.thorough)],
)
def test_nothing_is_lost_whatever_fails_or_is_killed(
    tmp_path: Path, count: int, shares: tuple[float, ...]
) -> None:
    path, seen = tmp_path / "store.sqlite", {}
    draw, killed = random.Random(0), 0
    for share in shares:  # of all candidates, at which the tuner is killed
        process = begin(path, count)
        deadline = time.monotonic() + 120
        while len(seen) < share * count and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.5)
            workers = children(process.pid)
            if workers and len(seen) > killed + 2:
                os.kill(draw.choice(workers), signal.SIGKILL)
                killed = len(seen)
            before, seen = seen, rows(path)
            assert before.items() <= seen.items()
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        assert len(seen) >= share * count
    process = begin(path, count)
    said, _ = process.communicate(timeout=200)
    assert process.returncode == 0
    assert said.split() == ["1", "0"]  # the fastest, whatever became of the others
    assert seen.items() <= rows(path).items()
    with Store(path) as store:
        found = {m.config.integer("rounds"): m for m in store.query(stage=Stage.SCREEN)}
    planned = {1 + 16 * (at > 0) + at: FAULTS[at % len(FAULTS)] for at in range(count)}
    expected = {of: EXPECTED[fault] for of, fault in planned.items()}
    assert {of: found[of].status for of in found}.items() <= expected.items()
    # Too much memory is held against those alone that took it twice while others had enough.
    assert {planned[of] for of in expected.keys() - found.keys()} <= {7}
