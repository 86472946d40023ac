"""The climb: every number of a rung comes from that rung, and a wrong one has none."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from tilewright.backend import device
from tilewright.backend.cuda.compiler import nvrtc
from tilewright.bench.bounded import bound_of
from tilewright.bench.ladder.climb import (
    TUNED,
    climb,
    rung_contenders,
    tuned_contender,
)
from tilewright.bench.ladder.machine_code import summary
from tilewright.bench.ladder.oracle import Oracle
from tilewright.bench.ladder.race import Contender, Result
from tilewright.bench.ladder.record import climb_record
from tilewright.bench.ladder.rungs import RUNGS, Naive, register_rungs
from tilewright.bench.peers import peer
from tilewright.cli.app import run
from tilewright.portfolio import Choice
from tilewright.problem import Problem
from tilewright.stencil.geometry import PLAIN
from tilewright.tuning.inspection import inspect_config

# Row-major 33 x 70 x 19: a mistake in exchanging operands shows in every error.
PROBLEM = Problem(70, 33, 19)


class Careless(Naive):
    """A rung that leaves out the last step of k."""

    def source(self, config, variant, dialect, mode=PLAIN):
        made = super().source(config, variant, dialect)
        wrong = made.text.replace("for (isize l = 0; l < k; ++l)", "for (isize l = 1; l < k; ++l)")
        assert wrong != made.text
        return replace(made, text=wrong)


def test_oracle():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((300, 7), "f4"), rng.standard_normal((7, 5), "f4")
    oracle = Oracle(a, b)
    right = (a.astype("f8") @ b.astype("f8")).astype("f4")
    largest, eta = oracle.errors(right)
    assert largest <= 2.0**-24 * np.abs(right).max() * 2
    assert eta <= 2.0**-23
    wrong = right.copy()
    wrong[299, 4] += 0.5
    assert oracle.errors(wrong)[0] == pytest.approx(0.5, rel=1e-5)
    wrong[1, 1] = np.nan
    assert all(math.isnan(error) for error in oracle.errors(wrong))


def test_every_rung_is_measured_beside_the_library():
    live = device()
    ours = [*rung_contenders(live), tuned_contender(live, PROBLEM)]
    seen: list[str] = []
    results = climb(live, PROBLEM, ours, [peer("numpy", live)], 2, seen.append)
    assert seen == [*(one.name for one in RUNGS), TUNED, "numpy"]
    assert [one.name for one in results] == seen
    told = climb_record(PROBLEM, bound_of(live, PROBLEM), results, ["numpy"])
    assert told["size"] == [33, 70, 19]
    assert told["library"] == "numpy"
    for result, one in zip(results, told["rungs"], strict=True):
        if one["name"] == "v7_async":
            assert "CUDA only" in one["reason"]
            assert one["flops_per_second"] is one["max_error"] is None
            continue
        assert not one["reason"]
        assert len(result.seconds) == 2
        assert one["flops_per_second"] == PROBLEM.flops / np.median(result.seconds)
        if one["name"] != "numpy":
            assert 0 < one["max_error"] < 1e-4
            assert one["total_seconds"] > 0
            assert one["percent_of_bound"] > 0
            assert not one["limits"]  # of what OpenCL drivers hide
    assert told["rungs"][-1]["percent_of_library"] == pytest.approx(100)


def test_a_wrong_kernel_has_a_reason_and_no_rate():
    """Screening catches it; so does the comparison on the problem itself."""
    live = device()
    wrong = Careless()
    source = wrong.source(wrong.config, tuned_variant(), "opencl")
    rung = Choice(wrong, wrong.config)
    unscreened = Contender(Result("v1", "wrong", ""), rung, live.compile(source))
    (result,) = climb(live, PROBLEM, [unscreened], [], 1)
    assert "eta is" in result.reason
    assert not result.seconds


def tuned_variant():
    from tilewright.stencil import Variant

    return Variant.of(PROBLEM)


@pytest.mark.skipif(nvrtc() is None, reason="needs NVRTC: pip install 'tilewright[tune]'")
def test_machine_code_tells_what_limits_a_rung(capsys):
    register_rungs()
    found = summary(inspect_config(stencil="v6_warp_tile").kernel)
    assert found["local_accesses"] == 0
    assert found["occupancy"] == found["warps"] / 64 == found["blocks"] * 4 / 64
    assert 0.8 < found["useful_share"] < 1
    assert found["bound_by"]
    assert run(["inspect", "default", "--stencil", "v2_shared", "--no-listing"]) == 0
    assert "bound by" in capsys.readouterr().out


@pytest.mark.thorough
def test_the_command(tmp_path, capsys):
    out = tmp_path / "ladder.json"
    command = ["ladder", "--size", "20,33x70x19", "--rounds", "1", "-o", str(out)]
    assert run([*command, "--json"]) == 0
    document = json.loads(out.read_text())
    assert json.loads(capsys.readouterr().out) == document
    rows = document["devices"][0]["results"]
    assert [row["size"] for row in rows] == [[20, 20, 20], [33, 70, 19]]
    assert [one["name"] for one in rows[0]["rungs"]][-3:] == ["v7_async", TUNED, "numpy"]
    # A budget that is spent leaves the sizes that follow out, and says so.
    assert run([*command, "--budget", "0.001s"]) == 0
    assert "stopped before 33x70x19" in capsys.readouterr().out
    assert len(json.loads(out.read_text())["devices"][0]["results"]) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--size", "big"], "size='big'"),
        (["--peer", "mkl"], "peer='mkl'"),
        (["--device", "abacus"], "device='abacus'"),
        (["--budget", "soon"], "budget='soon'"),
        (["--peer", "numpy, mkl"], "peer='mkl'"),
    ],
)
def test_wrong_usage_is_named(arguments, message, capsys):
    assert run(["ladder", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_library_without_sgemm_is_named_before_anything_is_compiled(capsys):
    pytest.importorskip("flint")
    assert run(["ladder", "--size", "8", "--peer", "flint"]) == 1
    assert "flint is compared in real double-double only" in capsys.readouterr().err


@pytest.mark.gpu
def test_a_climb_on_a_gpu(cuda):
    problem = Problem(300, 200, 100)
    ours = [*rung_contenders(cuda), tuned_contender(cuda, problem)]
    for result in climb(cuda, problem, ours, [], 2):
        assert not result.reason
        assert result.max_error < 1e-4
        assert result.code is not None
        assert result.code["local_accesses"] == 0
