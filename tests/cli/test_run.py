"""``tilewright run``: the program's environment, its status, and what is said of its calls."""

from __future__ import annotations

import json
import struct
import sys
import time
from pathlib import Path

import pytest

from tilewright.cli.app import run
from tilewright.export import preload, target

LIBRARY = "/nowhere/libtilewright_blas.so"  # the loader only warns of it
SAYS = """\
import os, pathlib
line = ('{"library": "cublas", "precision": "s", "trans": "NT", "size": [64, 32, 16],'
        ' "batch": 1, "served": true, "kernel": "tw_x", "calls": 3, "timed": 2,'
        ' "ours_ms": 0.02, "theirs_ms": 0.04}')
pathlib.Path(os.environ["TILEWRIGHT_CALLS_LOG"], "1.jsonl").write_text(line + "\\n")
"""


@pytest.fixture(autouse=True)
def _library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preload, "preloaded_library", lambda *_: Path(LIBRARY))


def test_without_a_program_the_library_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run"]) == 0
    assert capsys.readouterr().out == f"{LIBRARY}\n"


def test_the_program_finds_the_library_preloaded_and_keeps_its_status() -> None:
    looks = f"import os, sys; sys.exit(5 if os.environ['LD_PRELOAD'] == {LIBRARY!r} else 1)"
    assert run(["run", "--", sys.executable, "-c", looks]) == 5
    dies = "import os; os.kill(os.getpid(), 9)"
    assert run(["run", "--", sys.executable, "-c", dies]) == 128 + 9


@pytest.mark.parametrize(("number", "asks"), [("SIGINT", ""), ("SIGTERM", "SIGTERM")])
def test_a_program_ends_in_its_own_time_on_a_signal(number: str, asks: str) -> None:
    """SIGINT reaches both from a terminal, SIGTERM only who waits."""
    ends = f"signal.signal(signal.{asks}, lambda *_: sys.exit(4)); " if asks else ""
    code = (
        f"import os, signal, sys, time; {ends}os.kill(os.getppid(), signal.{number});"
        f" time.sleep({100 if asks else 1}); sys.exit(3)"
    )
    assert run(["run", "--", sys.executable, "-c", code]) == (4 if asks else 3)


def test_calls_are_listed_with_their_times(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "--compare", "--", sys.executable, "-c", SAYS]) == 0
    said = capsys.readouterr().out
    assert "64 x 32 x 16" in said
    assert "cuBLAS: 3 calls served, 0 passed on; served in 0.0 ms where cuBLAS took 0.1 ms" in said


def test_a_trace_has_the_calls_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of a type that is not served are there, too; a row that was cut is not."""
    row = struct.Struct("<32s4q9q2d")
    now = time.perf_counter_ns()
    rows = [
        row.pack(
            b"cublasSgemm_v2", now, now + 9, now + 8, 77, 0, 0, 0, 1, 64, 32, 16, 1, 1, 2e-6, 4e-6
        ),
        row.pack(b"cublasGemmEx", now + 10, now + 20, 0, 77, 0, -1, 9, 0, 2, 3, 4, 1, 0, 0, 0),
        row.pack(b"", 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0),
    ]  # fmt: skip
    (tmp_path / "rows").write_bytes(b"".join(rows) + rows[0][:99])
    copies = (
        "; import shutil; shutil.copy(sys.argv[1],"
        " pathlib.Path(os.environ['TILEWRIGHT_CALLS_LOG'], '12.trace'))"
    )
    out = tmp_path / "out.json"
    program = [sys.executable, "-c", f"{SAYS}import sys{copies}", str(tmp_path / "rows")]
    assert run(["run", "--trace", str(out), "--", *program]) == 0
    told = json.loads(out.read_text())
    spans = {e["name"]: e for e in told["traceEvents"] if e["ph"] == "X" and e["pid"] == 12}
    served, passed = spans["cublasSgemm_v2"], spans["cublasGemmEx"]
    shape = {"precision": "s", "trans": "NT", "size": "64 x 32 x 16"}
    assert served["args"] == {**shape, "served by": "tilewright", "kernel": "tw_x"}
    assert served["dur"] == 0.009
    assert passed["args"] == {"size": "2 x 3 x 4", "served by": "cuBLAS"}
    assert (spans["tw_x"]["cat"], spans["tw_x"]["dur"]) == ("device", 0.002)
    assert spans["cuBLAS"]["dur"] == 0.004
    assert told["otherData"]["dropped"] == {"calls": 5}
    names = [e["args"]["name"] for e in told["traceEvents"] if e["name"] == "process_name"]
    assert Path(sys.executable).name in names
    assert "calls" not in capsys.readouterr().out  # no table was asked for


def test_other_accuracies_are_laid_out_for_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "_live", lambda device, defaults: target.find_target("sm_90a"))
    asks = (
        "import os, socket, sys; client = socket.socket(socket.AF_UNIX);"
        " client.connect(os.environ['TILEWRIGHT_CUBLAS_PLANS']); client.sendall(bytes(136));"
        " sys.exit(len(client.recv(9)) * (os.environ['TILEWRIGHT_CUBLAS_ACCURACY'] == 'fp64'))"
    )
    assert run(["run", "--accuracy", "fp64", "--", sys.executable, "-c", asks]) == 9
    assert run(["run", "--accuracy", "fp16", "--", sys.executable, "-c", asks]) == 2


def test_without_a_device_the_program_runs_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none(device: str | None, observer: object) -> Path:
        raise ValueError(f"{device or 'opencl:0'} is no CUDA device")

    monkeypatch.setattr(preload, "preloaded_library", none)
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    monkeypatch.delenv("TILEWRIGHT_DEVICE", raising=False)
    looks = "import os, sys; sys.exit(7 if not os.environ['LD_PRELOAD'] else 1)"
    assert run(["run", "--calls", "--", sys.executable, "-c", looks]) == 7
    shown = capsys.readouterr()
    assert "calls are not watched: there is no CUDA device here" in shown.err
    assert not shown.out
    assert run(["run"]) == 2
    assert run(["run", "--device", "cuda:1", "--", sys.executable, "-c", looks]) == 2
    monkeypatch.setenv("TILEWRIGHT_BLAS_LEAST", "2e9")
    assert run(["run", "--", sys.executable, "-c", looks]) == 2
    assert "TILEWRIGHT_BLAS_LEAST='2e9'" in capsys.readouterr().err


def test_a_file_that_is_no_program_by_its_name_is_told_how_to_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "prog.py").write_text("")
    monkeypatch.chdir(tmp_path)
    assert run(["run", "--", "prog.py"]) == 2
    assert "write ./prog.py if it may be executed, or python prog.py" in capsys.readouterr().err
    assert run(["run", "--", "./prog.py"]) == 2
    assert "may not be executed; write python ./prog.py" in capsys.readouterr().err
