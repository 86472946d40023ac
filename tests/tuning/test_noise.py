"""Times that a busy machine disturbed are told from others."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.tuning.noise import OutsideLoad, noise, spread

times = st.lists(st.floats(1, 1e9), min_size=4, max_size=50)


@given(times, st.floats(1e-3, 1e3))
def test_a_spread_has_no_unit_and_no_order(taken, unit):
    found = spread(taken)
    assert found >= 0
    assert spread([unit * one for one in reversed(taken)]) == pytest.approx(
        found, rel=1e-6, abs=1e-9
    )


def test_equal_turns_are_quiet_and_few_tell_nothing():
    assert spread([5.0] * 9) == 0
    assert spread([1.0, 100.0, 1.0]) == 0
    assert noise({"ours": [1.0, 1.01, 0.99, 1.0], "theirs": [5.0] * 4}, None) == []


def test_whose_turns_differ_is_named():
    (line,) = noise({"ours": [1.0] * 9, "theirs": [1.0, 2.0] * 5}, 0.0)
    assert "theirs" in line


def test_one_slow_turn_of_many_is_no_noise():
    assert noise({"ours": [1.0] * 14 + [17.9]}, 0.0) == []


def test_load_from_outside_is_told():
    assert "50%" in noise({"ours": [1.0] * 9}, 0.5)[0]


def test_what_other_processes_take_is_seen():
    load = OutsideLoad()
    if load.share() is None:
        pytest.skip("this system does not tell how busy its cores are")
    code = "import time\nend = time.perf_counter() + 1.5\nwhile time.perf_counter() < end: pass"
    others = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    load = OutsideLoad()
    time.sleep(1)
    found = load.share()
    for one in others:
        one.wait()
    assert 0 < found <= 1
