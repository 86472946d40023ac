"""Bounds against everything that was ever measured, and against what is measured here."""

from __future__ import annotations

import json
import timeit
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import tilewright as tw
from tests.bounds.committed import RESULTS, committed, runs_of
from tilewright.hardware.catalogue import catalogue_device
from tilewright.hardware.host import highest_clock_hz
from tilewright.microbench import numbers
from tilewright.microbench.numbers import live_numbers, measured_clock
from tilewright.microbench.peak import measured_peak
from tilewright.problem import Problem
from tilewright.serve.bound import bound

H100 = catalogue_device("h100")
RUNS = committed("h100")


@cache
def _limit(shape, precision, sustained, how):
    # beta was 0 in all of them.
    return bound(
        Problem(*shape, precision), H100, warm_cache=True, sustained=sustained, reads_c=False,
        **dict(how),
    ).limit  # fmt: skip


def limit(problem, *, sustained=False, how=()):
    """Return the bound in FLOP/s, operands perhaps in the cache; transposes do not matter."""
    shape = (problem.m, problem.n, problem.k)
    return _limit(shape, problem.precision.letter, sustained, how)


def test_every_precision_has_runs():
    assert {run.problem.precision.letter for run in RUNS} >= set("sdczef")
    assert any(run.how for run in RUNS)


def test_products_on_tensor_cores_have_bounds_of_their_own():
    rates = {"tilewright": 150e12, "product": 160e12, "cublas": 50e12, "guarded": 140e12}
    row = {"arithmetic": "fp16x3", "trans": "NT", "size": [4096] * 3, "flops_per_second": rates}
    found = {run.who: run for run in runs_of({"devices": [{"results": [row]}]})}
    limits = {who: limit(run.problem, how=run.how) for who, run in found.items()}
    assert limits["cublas"] < 7e13 < limits["guarded"] <= limits["tilewright"] < limits["product"]


def test_no_committed_measurement_exceeds_the_bound():
    """Neither ours nor a library's; one in fifty random shapes, whose bounds take long."""
    random = ("calls.json", "c_calls.json", "regret.json")
    for at, run in enumerate(RUNS):
        if run.file in random and at % 50:
            continue
        assert run.rate < limit(run.problem, how=run.how), run
        assert run.rate < limit(run.problem, sustained=True, how=run.how), run


def test_the_measurements_do_bind():
    """Three quarters of the multiprocessors could not have done what was measured."""
    fewer = replace(H100.quantities["multiprocessors"], value=99)
    slow = replace(H100, quantities={**H100.quantities, "multiprocessors": fewer})
    run = max(
        (one for one in RUNS if one.file == "calls.json" and one.problem.m == 8192 and not one.how),
        key=lambda one: one.rate / limit(one.problem),
    )
    assert run.rate > bound(run.problem, slow, warm_cache=True).limit


def test_measured_mixes_are_what_binds_sgemm():
    problem = Problem(16384, 16384, 16384, "s", "N", "T")
    found = bound(problem, H100)
    assert found.limiting.name == "tabulated mix (eq. 11)"
    assert found.limit < found.term("instruction mix and tail wave").value
    assert not found.missing


def test_the_catalogue_has_what_was_measured():
    """Values that a device like this can have, each with its file as the source."""
    measured = {
        name: quantity
        for name, quantity in H100.quantities.items()
        if "microbench.json" in quantity.source
    }
    assert {"l2_bytes_per_s", "sustained_clock_hz.s", "sustained_clock_hz.d"} <= measured.keys()
    clock, count = H100.needs("clock_hz"), H100.needs("multiprocessors")
    # A multiprocessor's port to the L2 is 64 bytes wide; memory is slower than the cache.
    l2 = H100.needs("l2_bytes_per_s")
    assert H100.needs("memory_bytes_per_s") < l2 <= 64 * count * clock * 1.01
    assert all(H100.needs(f"sustained_clock_hz.{p}") <= clock for p in "sd")
    for mix in H100.mixes:
        assert 0 < mix.throughput <= H100.needs("issue_lanes")
        assert "microbench.json" in mix.source


@pytest.mark.parametrize("letter", ["d", "z"])
def test_tensor_cores_bind_doubles(letter):
    """cuBLAS computes D and Z on them: faster than the lanes could, slower than the bound."""
    calls = [run for run in RUNS if run.file == "calls.json" and run.problem.m == run.problem.k]
    mine = [run for run in calls if run.problem.precision.letter == letter]
    best = max(mine, key=lambda run: run.rate / limit(run.problem))
    lanes = 2 * H100.needs("fma_lanes.d") * 132 * H100.needs("clock_hz")
    assert lanes < best.rate < limit(best.problem)


@pytest.mark.parametrize("path", sorted(RESULTS.rglob("*.json")), ids=lambda path: path.stem)
def test_no_committed_measurement_exceeds_the_bound_beside_it(path):
    """And every file has runs for the other tests, but for those that measure other things."""
    runs = list(runs_of(json.loads(path.read_text())))
    assert bool(runs) != (path.stem in WITHOUT_PRODUCTS)
    for run in runs:
        assert run.recorded is None or run.rate < CLOCK * run.recorded, run


# Errors, times of other things, and machine code.
WITHOUT_PRODUCTS = {
    *("fp32_accuracy", "cycle_model", "first_call", "host_cost", "microbench", "portfolio_loss"),
    *("rescheduling_random_shapes", "rescheduling_squares", "register_blocking"),
    *("fp32_promise", "linear_systems", "opencl_calls"),
}


def test_no_committed_measurement_of_a_cpu_exceeds_what_any_cpu_could_do():
    """Two 512-bit multiply-add units in each core, at a clock that none has had by 2026."""
    for path in sorted((RESULTS / "cpu").glob("*.json")):
        document = json.loads(path.read_text())
        units, clock = 2 * document["environment"].get("cores", 1), 6.5e9
        for run in runs_of(document, path.name):
            real = run.problem.precision.real_bytes
            assert run.rate < 2 * units * (64 // real) * clock, run


# A CPU's clock may rise after it was measured: by so much on servers whose neighbours change.
CLOCK = 1.1


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
