"""The registry: every benchmark is found, named, and makes rows that its table shows."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest

from tilewright.backend.cuda.compiler import nvrtc
from tilewright.bench.benchmarks import (
    double_double,
    linear_systems,
    opencl_calls,
    register_blocking,
)
from tilewright.bench.call_cases import drawn_sides
from tilewright.bench.errors import Sample
from tilewright.bench.fp32_data import DRAWN
from tilewright.bench.registry import benchmark, names
from tilewright.bench.summary import summary_of
from tilewright.cli.app import run
from tilewright.problem import Problem
from tilewright.tuning.measure import Workload

NEEDS_A_GPU = {
    "calls", "host-cost", "first-call", "cycle-model", "c-calls", "syrk", "training", "preloaded",
    "contractions", "matmul", "sustained",
}  # fmt: skip


def test_every_benchmark_is_listed_with_what_it_measures(capsys):
    assert run(["bench", "--list", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert list(told) == names()
    assert {"fp32-accuracy", "register-blocking"} | NEEDS_A_GPU <= set(told)
    assert all(one["measures"] and one["against"] and one["takes"] for one in told.values())


@pytest.mark.parametrize("name", names())
def test_every_benchmark_is_a_command_with_its_options(name, capsys):
    assert run(["bench", name, "--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"--{option}" in shown for option in benchmark(name).options)


def test_what_is_no_benchmark_is_refused_by_name(capsys):
    with pytest.raises(ValueError, match="benchmark='luck' is unknown; use one of"):
        benchmark("luck")
    assert run(["bench", "luck"]) == 2
    assert run(["bench", "--size", "64", "calls"]) == 2
    assert "options of a benchmark follow its name" in capsys.readouterr().err


@pytest.mark.parametrize("name", sorted(NEEDS_A_GPU))
def test_what_needs_cuda_says_so_elsewhere(name, capsys):
    assert run(["bench", name, "--device", "opencl:0"]) == 1
    assert re.search(r"not .*on opencl:0; ", capsys.readouterr().err)


def test_calls_on_numpy_arrays_are_compared_with_numpy(tmp_path, capsys):
    path = tmp_path / "host_calls.json"
    command = ["bench", "host-calls", "--precision", "s,z", "--count", "3", "--trans", "NC,TN"]
    assert run([*command, "--device", "opencl:0", "-o", str(path)]) == 0
    assert "geometric mean" in capsys.readouterr().out
    (found,) = json.loads(path.read_text())["devices"]
    assert [row["precision"] for row in found["results"]] == ["s"] * 3 + ["z"] * 3
    assert all(row["us"] > 0 and row["difference"] < 1e-4 for row in found["results"])


def test_warm_calls_are_compared_with_bare_enqueues(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(opencl_calls, "TURNS", 2)
    path = tmp_path / "opencl_calls.json"
    command = ["bench", "opencl-calls", "--precision", "s", "--size", "8,24x9x17"]
    assert run([*command, "--device", "opencl:0", "-o", str(path)]) == 0
    assert "the least" in capsys.readouterr().out
    (found,) = json.loads(path.read_text())["devices"]
    assert [row["size"] for row in found["results"] if "row_us" in row] == [[8] * 3, [24, 9, 17]]
    for row in found["results"]:
        # Which of the two is longer is for the benchmark to say: on a busy machine either may be.
        assert min(row["us"], row["least_us"]) > 0


def test_linear_systems_are_compared_with_lapack(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(linear_systems, "TURNS_SECONDS", 0)
    path = tmp_path / "linear_systems.json"
    command = ["bench", "linear-systems", "--precision", "s,z", "--size", "40"]
    assert run([*command, "--device", "opencl:0", "-o", str(path)]) == 0
    assert "LAPACK" in capsys.readouterr().out
    (found,) = json.loads(path.read_text())["devices"]
    assert [row["sides"] for row in found["results"]] == [0, 1, 16, 256] * 2
    assert all(row["ratio"] > 0 for row in found["results"])


def test_errors_are_swept_and_summed_up(tmp_path, capsys):
    path = tmp_path / "sweep.json"
    command = ["bench", "--size", "33,48x20x70", "--precision", "s,d", "--errors", "--rounds", "2"]
    command += ["--peer", "numpy", "--device", "opencl:0"]
    assert run([*command, "-o", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "4 products beside numpy" in shown
    assert "eta, in this order" in shown
    (found,) = json.loads(path.read_text())["devices"]
    assert len(found["results"]) == 4
    for row in found["results"]:
        assert 0 <= row["errors"]["tilewright"]["eta"] < 1e-5


def test_shapes_are_the_same_for_a_seed_and_within_the_limits():
    most = (4096, 2**30)
    drawn = drawn_sides(7, 90, most)
    assert drawn == drawn_sides(7, 90, most) != drawn_sides(8, 90, most)
    assert all(1 <= side <= most[0] for shape in drawn for side in shape)
    assert all(2 * math.prod(shape) <= most[1] for shape in drawn)
    assert all(side % 2 for shape in drawn[2::3] for side in shape)


@pytest.mark.parametrize("letter", "sdczew")
@pytest.mark.parametrize("trans", ["NT", "CN"])
def test_errors_are_those_of_what_lies_in_c(letter, trans, live):
    """Right results have errors of rounding; one element changed, or none written, shows."""
    if letter in "sde" and "C" in trans:
        trans = "TN"
    workload = Workload(live, Problem(19, 23, 17, letter, *trans))
    try:
        from tilewright.bench.sweep import our_call
        from tilewright.serve.kernels import ready

        call = our_call(workload, *ready(live, workload.problem))
        sample, unit = Sample(workload), workload.problem.precision.unit_roundoff
        assert sample.errors_of(call)["eta"] < 40 * unit
        assert math.isnan(sample.errors_of(lambda: None)["eta"])

        def spoilt():
            call()
            live.write(workload.memory["c"], np.ones(1, workload.problem.precision.real_dtype))

        assert sample.errors_of(spoilt)["eta"] > 1e-3
    finally:
        workload.close()


def test_a_summary_is_of_rows_that_have_the_peer():
    def row(ours, theirs, eta):
        rates = {"tilewright": ours} | ({"x": theirs} if theirs else {})
        return {
            "flops_per_second": rates,
            "errors": {"tilewright": {"eta": eta}, "x": {"eta": 1.0}},
        }

    found = summary_of([row(2.0, 1.0, 4.0), row(1.0, 2.0, 1.0), row(5.0, None, 1.0)], "x")
    assert (found["products"], found["slow"], found["least"]) == (2, 1, 0.5)
    assert found["geometric_mean"] == pytest.approx(1)
    assert found["eta_geometric_mean"] == pytest.approx(2)
    assert (found["eta_larger"], found["eta_twice"], found["eta_most"]) == (1, 1, 4)
    assert summary_of([row(1.0, None, 1.0)], "x") is None


@pytest.mark.skipif(nvrtc() is None, reason="NVRTC is not here")
@pytest.mark.parametrize(("blocking", "bits"), [(5, 32), (7, 64), (6, 128)])
def test_register_blocking_counts_what_the_papers_formula_says(blocking, bits):
    from importlib.resources import files

    text = files("tilewright.bench.benchmarks").joinpath("register_blocking.cu").read_text()
    found = register_blocking._row(text, blocking, bits)
    loads = -(-2 * blocking * 32 // bits)
    assert found["ffma"] == register_blocking.STEPS * blocking**2
    assert found["shared_loads"] == register_blocking.STEPS * loads
    assert found["share_of_ffma_and_loads"] == pytest.approx(found["formula"])
    assert found["share_of_all"] < found["formula"]


def test_fp32_accuracy_has_errors_of_every_scheme(capsys):
    assert run(["bench", "fp32-accuracy", "--size", "5", "--budget", "1e-9s", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["devices"][0]["results"]
    assert {"numpy", "ieee", "fp32", "fp16x3"} <= row["errors"].keys()
    assert row["guard"]["variant"] in ("ieee", "fp16x3", "bf16x6")


def test_fp64_accuracy_has_errors_beside_the_bound(capsys):
    options = ["--size", "40", "--precision", "d", "--device", "opencl:0", "--json"]
    assert run(["bench", "fp64-accuracy", *options]) == 0
    rows = json.loads(capsys.readouterr().out)["devices"][0]["results"]
    for row in rows:
        if row["guard"]["moduli"]:
            assert row["errors"]["fp64"]["eta"] <= row["guard"]["error_bound"] < 2.0**-49
    assert sum(row["guard"]["moduli"] > 0 for row in rows) > 4


def test_fp32_promise_judges_every_kind_of_data(capsys):
    assert run(["bench", "fp32-promise", "--count", "1", "--device", "opencl:0", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["devices"][0]["results"]
    assert [row["data"] for row in rows] == list(DRAWN)
    assert all(row["cases"] == 1 and row["violations"] == 0 for row in rows)
    judged = [row for row in rows if row["worst"]]
    assert all(0 <= row["worst"]["eta"] < 2**-19 for row in judged)
    assert len(judged) == sum("ieee" not in row["routes"] for row in rows) > 5


def test_double_double_calls_err_less_by_residues_than_by_kernels(capsys, monkeypatch):
    options = ["--size", "24", "--precision", "e", "--device", "opencl:0", "--json"]
    assert run(["bench", "double-double", *options]) != 0
    assert "use a CUDA device" in "".join(capsys.readouterr())
    monkeypatch.setattr(double_double, "has_wgmma", lambda live: True)  # emulated, for few
    assert run(["bench", "double-double", *options]) == 0
    rows = json.loads(capsys.readouterr().out)["devices"][0]["results"]
    assert all(row["guard"]["moduli"] for row in rows)
    for row in rows:
        assert row["eta"]["residues"] <= row["guard"]["error_bound"] <= 2.0**-104
        assert row["eta"]["residues"] < row["eta"]["fast"]
    assert set(rows[0]["seconds"]) == {"residues", "kernel", "fast"}
