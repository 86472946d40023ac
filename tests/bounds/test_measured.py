"""Bounds against what is measured here."""

from __future__ import annotations

import timeit

import numpy as np

import tilewright as tw
from tilewright.hardware.host import highest_clock_hz
from tilewright.microbench import numbers
from tilewright.microbench.numbers import live_numbers, measured_clock
from tilewright.microbench.peak import measured_peak
from tilewright.problem import Problem
from tilewright.serve.bound import bound

# A CPU's clock may rise after it was measured: on a server whose neighbours changed it was 1.104
# times what it had been minutes before, and from base to turbo it is more.
CLOCK = 1.25


def test_nothing_that_is_measured_here_exceeds_the_bound(cpu):
    """Our product, NumPy's and bare multiply-adds; a law of physics, however busy the machine."""
    side, runs = 384, 6
    for letter in "sd":
        problem = Problem(side, side, side, letter)
        found = bound(problem, cpu, reads_c=False, warm_cache=True)
        peak = found.term("arithmetic peak").value
        assert measured_peak(cpu, problem.precision) < CLOCK * peak
        a, b, c = (np.ones((side, side), problem.precision.dtype) for _ in range(3))
        for product in (lambda: tw.gemm(a, b, c, device=cpu), lambda: np.matmul(a, b, out=c)):  # noqa: B023
            product()
            least = min(timeit.repeat(product, number=1, repeat=runs))
            assert problem.flops / least < CLOCK * found.limit


def test_a_cpus_clock_is_the_highest_that_anything_tells(cpu):
    clock = live_numbers(cpu).quantities["clock_hz"]
    assert clock.value >= max(cpu.spec.clock_hz or 0, highest_clock_hz() or 0)
    assert 0.3e9 < measured_clock(cpu) < CLOCK * clock.value
    assert tw.bound(Problem(64, 64, 64, "s"), cpu).term("arithmetic peak").inputs[2] == clock


def test_threads_of_a_core_share_its_multiply_add_units(cpu, monkeypatch):
    monkeypatch.setattr(numbers, "threads_per_core", lambda: 2)
    one = live_numbers.__wrapped__(cpu).needs("multiprocessors")
    assert one == max(1, cpu.spec.multiprocessors // 2)
