"""The bound of an H100 against everything that was ever measured there."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import pytest

from tests.bound.committed import RESULTS, WITHOUT_TIMES, committed
from tilewright.bounds import bound
from tilewright.hardware import catalogue_device
from tilewright.problem import Problem

H100 = catalogue_device("h100")
RUNS = committed()


@cache
def _limit(shape, precision, sustained, mixes):
    device = H100 if mixes else replace(H100, mixes=())
    problem = Problem(*shape, precision)
    return bound(problem, device, warm_cache=True, sustained=sustained).limit


def limit(problem, *, sustained=False, mixes=True):
    """Return the bound in FLOP/s, operands perhaps in the cache; transposes do not matter."""
    shape = (problem.m, problem.n, problem.k)
    return _limit(shape, problem.precision.letter, sustained, mixes)


def best(precision):
    """Return the run of a precision that comes nearest to its bound."""
    mine = (run for run in RUNS if run.problem.precision.letter == precision)
    return max(mine, key=lambda run: run.rate / limit(run.problem))


def test_every_committed_file_is_read():
    """A new file of results has times, or is named among those that have none."""
    files = {path.name for path in RESULTS.glob("*.json")}
    assert {run.file for run in RUNS} == files - WITHOUT_TIMES
    assert files >= WITHOUT_TIMES
    assert {run.problem.precision.letter for run in RUNS} >= set("sdczef")
    assert len(RUNS) > 3000


def test_no_committed_measurement_exceeds_the_bound():
    """Not even of kernels that a search only tried, nor of a library."""
    for run in RUNS:
        assert run.rate < limit(run.problem), run
        assert run.rate < limit(run.problem, sustained=True), run


def test_the_measurements_do_bind():
    # Ten percent fewer multiprocessors would be refuted by no file; three quarters of them are.
    fewer = replace(H100.quantities["multiprocessors"], value=99)
    slow = replace(H100, quantities={**H100.quantities, "multiprocessors": fewer})
    run = best("s")
    assert run.rate > bound(run.problem, slow, warm_cache=True).limit


@pytest.mark.parametrize("sustained", [False, True])
@pytest.mark.parametrize("mixes", [False, True])
def test_the_best_sgemm_is_within_15_percent_of_the_bound(mixes, sustained):
    run = best("s")
    assert 0.85 < run.rate / limit(run.problem, mixes=mixes, sustained=sustained) < 1


def test_measured_mixes_are_what_binds_sgemm():
    problem = Problem(16384, 16384, 16384, "s", "N", "T")
    found = bound(problem, H100)
    assert found.limiting.name == "tabulated mix (eq. 11)"
    assert found.limit < found.term("instruction mix and tail wave").value
    assert not found.missing


def pairs_limit(row):
    """Return the bound of the instructions that a row's kernel was made of."""
    problem = Problem(*[row["n"]] * 3, row["precision"], *row["trans"])
    # Rows that do not name them are older than "chained".
    sequence = row.get("sequence", {"e": "accurate", "f": "dot2"}[row["precision"]])
    return bound(problem, H100, sequence=sequence).limit


def test_double_double_is_within_15_percent_of_its_bound():
    rows = json.loads((RESULTS / "double_double.json").read_text())["rows"]
    for letter in "ef":
        shares = [
            row["flops_per_second"] / pairs_limit(row) for row in rows if row["precision"] == letter
        ]
        assert 0.85 < max(shares) < 1


def test_the_bounds_that_double_double_was_measured_beside_still_hold():
    for row in json.loads((RESULTS / "double_double.json").read_text())["rows"]:
        assert pairs_limit(row) == pytest.approx(row["bound"], rel=1e-9)


def test_matrix_units_bind_libraries_doubles():
    """cuBLAS computes D and Z on them: faster than the lanes could, slower than the bound."""
    for letter in "dz":
        run = best(letter)
        lanes = 2 * H100.needs("fma_lanes.d") * 132 * H100.needs("clock_hz")
        assert lanes < run.rate < limit(run.problem), run


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
