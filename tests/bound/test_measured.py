"""The bound of an H100 against everything that was ever measured there."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import pytest

from tests.bound.committed import RESULTS, TOO_MANY, WITHOUT_TIMES, Run, _of, committed
from tilewright.bounds import bound
from tilewright.hardware import catalogue_device
from tilewright.problem import Problem

H100 = catalogue_device("h100")
RUNS = committed()


@cache
def _limit(shape, precision, sustained, mixes, how):
    device = H100 if mixes else replace(H100, mixes=())
    problem = Problem(*shape, precision)
    told = dict(how)
    # beta was 0 in all of them.
    return bound(problem, device, warm_cache=True, sustained=sustained, reads_c=False, **told).limit


def limit(problem, *, sustained=False, mixes=True, how=()):
    """Return the bound in FLOP/s, operands perhaps in the cache; transposes do not matter."""
    shape = (problem.m, problem.n, problem.k)
    return _limit(shape, problem.precision.letter, sustained, mixes, how)


def best(precision):
    """Return the run of a precision that comes nearest to its bound."""
    mine = (run for run in RUNS if run.problem.precision.letter == precision and not run.how)
    return max(mine, key=lambda run: run.rate / limit(run.problem))


def test_every_committed_file_is_read():
    """A new file of results has times, or is named among those that have none."""
    files = {path.name for path in RESULTS.glob("*.json")}
    assert {run.file for run in RUNS} == files - WITHOUT_TIMES - TOO_MANY
    assert files >= WITHOUT_TIMES | TOO_MANY
    assert {run.problem.precision.letter for run in RUNS} >= set("sdczef")
    assert len(RUNS) > 3000


def test_products_on_matrix_units_have_bounds_of_their_own():
    """Rows as benchmarks.tensor and the tensor ladder write them."""
    race = {"kind": "race", "case": "fp16x3 NT", "size": 4096}
    race["tflops"] = {"tilewright": 150.0, "product": 160.0, "cublas": 50.0, "guarded": 140.0}
    tried = {"kind": "tried", "case": "bf16 NN", "id": "x", "ns": {"4096": 2.0e5}}
    rung = {"name": "t1_wgmma", "flops_per_second": 3e14}
    ladder = {"problem": "BF16 GEMM, C = A B^T", "size": [2048, 4096, 512], "rungs": [rung]}
    found = [Run("", *one) for row in (race, tried, ladder) for one in _of(row)]
    assert [run.who for run in found] == [*race["tflops"], "x", "t1_wgmma"]
    limits = {run.who: limit(run.problem, how=run.how) for run in found}
    assert limits["cublas"] < 7e13 < limits["guarded"] <= limits["tilewright"] < limits["product"]
    assert limits["x"] > 1e15 > found[4].rate == pytest.approx(2 * 4096**3 / 2e-4)
    assert found[5].problem.trans == "TN"
    assert limits["t1_wgmma"] > 5e14


def test_no_committed_measurement_exceeds_the_bound():
    """Not even of kernels that a search only tried, nor of a library."""
    for run in RUNS:
        assert run.rate < limit(run.problem, how=run.how), run
        assert run.rate < limit(run.problem, sustained=True, how=run.how), run


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
