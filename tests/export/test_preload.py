"""Programs that call cuBLAS, with the library preloaded: what is served, what is passed on."""

from __future__ import annotations

import json
import os
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests.export.building import HERE, needs_c, run
from tests.export.conftest import LIBRARIES
from tilewright.backend import LiveDevice
from tilewright.bench.registry import Asked, benchmark
from tilewright.cli.app import run as tilewright
from tilewright.cli.run import read_log, summary
from tilewright.cli.run_trace import take_traces
from tilewright.export import compiling
from tilewright.export.compiling import CompilerError, link
from tilewright.timeline.chrome import recording

pytestmark = needs_c


def called(folder: Path, **more: str) -> dict[str, list[bool]]:
    """Run the program; return of each call whether the result is ours, and whether cuBLAS's."""
    environment = {
        **os.environ, "LD_LIBRARY_PATH": str(folder), "LD_PRELOAD": str(folder / "ours.so"),
        "FAKE_CUDA_COMPUTES": "1", **more,
    }  # fmt: skip
    program = HERE / "preloaded.py"
    said: dict[str, list[bool]] = json.loads(
        run(sys.executable, program, *(folder / name for name in LIBRARIES), env=environment)
    )
    return said


@pytest.mark.parametrize("accuracy", ["", "fp32,fp64"])
def test_ieee_products_are_served_and_all_else_reaches_cublas(
    preloaded: Path, accuracy: str
) -> None:
    """Where nobody lays plans of the accuracy out, IEEE arithmetic serves the same products."""
    said = called(preloaded, TILEWRIGHT_CUBLAS_ACCURACY=accuracy, TILEWRIGHT_CUBLAS_PLANS="nobody")
    served = {name for name, (ours, _) in said.items() if ours}
    passed = {name for name, (_, cublas) in said.items() if cublas}
    assert served == {
        "single", "complex", "long", "typed", "batch", "long batch", "typed batch", "folded batch",
        "lt", "lt's bias",
    }  # fmt: skip
    assert passed == {*said} - served


@pytest.mark.parametrize(("fails_at", "status", "results"), [
    ("0", 0, [5, 5, 5]),  # none fails
    ("1", 0, [5, 5, 5]),  # cuBLAS computes it
    ("6", 13, [5, 5, 1]),  # and would have added beta C to two results
])  # fmt: skip
def test_what_fails_behind_other_launches_is_an_error(
    preloaded: Path, fails_at: str, status: int, results: list[int]
) -> None:
    """Three products of ones, of sums of four, are added to ones; each is a copy and a kernel."""
    program = """
import ctypes, sys
import numpy as np
cublas = ctypes.CDLL(sys.argv[1])
handle = ctypes.c_void_p()
assert cublas.cublasCreate_v2(ctypes.byref(handle)) == 0
a, b, c = (np.ones(100, "f4") for _ in range(3))
at = [ctypes.c_void_p(x.ctypes.data) for x in (a[:1], a, b, c)]
step = ctypes.c_longlong
status = ctypes.CDLL(None).cublasSgemmStridedBatched(
    handle, 0, 0, 5, 5, 4, at[0], at[1], 5, step(20), at[2], 4, step(20), at[0], at[3], 5, step(25),
    3)
print(status, *c[[0, 25, 50]].astype(int))
"""
    environment = {
        **os.environ, "LD_LIBRARY_PATH": str(preloaded), "LD_PRELOAD": str(preloaded / "ours.so"),
        "FAKE_CUDA_COMPUTES": "1", "FAKE_CUDA_FAILS_AT": fails_at,
    }  # fmt: skip
    said = run(sys.executable, "-c", program, preloaded / LIBRARIES[0], env=environment)
    assert list(map(int, said.split())) == [status, *results]


def test_each_kind_of_call_is_counted(preloaded: Path, tmp_path: Path) -> None:
    called(preloaded, TILEWRIGHT_CALLS_LOG=str(tmp_path))
    called(preloaded, TILEWRIGHT_CALLS_LOG=str(tmp_path))
    mine = [row for row in read_log(tmp_path) if row["library"] == "cublas"]  # NumPy's are others
    rows = {(row["precision"], row["trans"], row["served"]): row for row in mine}
    assert rows["z", "CT", True]["calls"] == 2
    assert rows["s", "TN", True]["kernel"].startswith("tw_sgemm_")
    batches = {(row["precision"], row["batch"], row["served"]): row["calls"]
               for row in mine if row["batch"] > 1}  # fmt: skip
    assert batches == {
        ("s", 3, True): 6, ("d", 3, True): 2, ("d", 3, False): 2, ("c", 3, False): 2,
        ("s", 64 * 65535 + 1, False): 2,
    }  # fmt: skip
    assert all(min(row["size"]) > 0 for row in mine)
    # What is passed on for its type is not a call of these kinds.
    assert summary(mine) == "cuBLAS: 20 calls served, 20 passed on"


def test_a_trace_has_every_call_in_its_order(preloaded: Path, tmp_path: Path) -> None:
    called(preloaded, TILEWRIGHT_CALLS_LOG=str(tmp_path), TILEWRIGHT_CALLS_TRACE="1")
    with recording(tmp_path / "out.json") as recorder:
        take_traces(tmp_path, "program", read_log(tmp_path))
    assert recorder is not None
    calls = [one for one in recorder.host if one.name.startswith("cublas")]
    names = [one.name for one in calls]
    assert names[:2] == ["cublasSgemm_v2", "cublasZgemm_v2"]
    assert len(names) == 22
    assert all(x.begun <= x.ended <= y.begun for x, y in pairwise(calls))
    by = [(one.name, one.about["served by"]) for one in calls]
    assert by[0][1] == "tilewright"
    assert calls[0].about["kernel"].startswith("tw_sgemm_")
    assert ("cublasDgemmBatched_64", "cuBLAS") in by
    assert calls[0].about["size"] == "5 x 4 x 3"
    assert not recorder.dropped


def test_a_line_that_was_cut_is_left_out(tmp_path: Path) -> None:
    line = '{"library": "blas", "precision": "s", "trans": "NN", "size": [1, 2, 3], "batch": 1,' \
           ' "served": true, "kernel": "", "calls": 4}'  # fmt: skip
    (tmp_path / "1.jsonl").write_text(line + "\n" + line[:50])
    assert [row["calls"] for row in read_log(tmp_path)] == [4]


def test_measured_times_are_weighed_by_calls() -> None:
    row = {
        "library": "cublas",
        "served": True,
        "calls": 11,
        "timed": 10,
        "ours_ms": 20.0,
        "theirs_ms": 30.0,
    }
    said = summary([row])
    assert (
        said == "cuBLAS: 11 calls served, 0 passed on; served in 22.0 ms where cuBLAS took 33.0 ms"
    )


def test_a_compiler_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = tmp_path / "wrong.c"
    wrong.write_text("int main(void) { return nothing; }\n")
    with pytest.raises(CompilerError, match=r"failed: .*nothing"):
        link([wrong], tmp_path / "program")
    assert not (tmp_path / "program").exists()
    monkeypatch.setattr(compiling, "compilers", list)
    with pytest.raises(CompilerError, match="no C compiler"):
        link([wrong], tmp_path / "program")


@pytest.mark.gpu
@pytest.mark.timeout(600)
def test_programs_of_cupy_get_the_bits_of_gemm(
    cuda: LiveDevice, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("cupy")
    program = [sys.executable, str(HERE / "cupy_program.py")]
    accuracies = ["--accuracy", "fp32", "--accuracy", "fp64"]
    assert tilewright(["run", "--device", cuda.id, "--calls", *accuracies, "--", *program]) == 0
    said = capfd.readouterr().out
    assert "fp32" in said
    assert "fp64" in said


@pytest.mark.gpu
@pytest.mark.timeout(600)
def test_what_is_preloaded_costs_little_and_holds_in_threads(cuda: LiveDevice) -> None:
    *kinds, threads = benchmark("preloaded").rows(Asked(cuda, count=5))
    passed = [row["ours_ns"] - row["cublas_ns"] for row in kinds if "nothing" in row["calls"]]
    assert passed
    assert max(passed) <= 300
    assert threads["failures"] == 0
    assert threads["called"] > 1000
    assert max(threads["host_kb"], threads["device_kb"]) < 8192
