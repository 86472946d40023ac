"""`tilewright inspect`: what it prints for people and for machines, and how it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.sass.compiled import KEPT
from tilewright.cli.app import run


def _sm90() -> str:
    return str(next(path for path in KEPT if "sm_90a" in path.name))


def test_it_prints_tables_the_loop_and_a_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", _sm90()]) == 0
    out = capsys.readouterr().out
    assert "sgemm, sm_90" in out
    assert out.count("FFMA R") == 128
    assert out.splitlines()[-1].startswith("sgemm: bound by ")


def test_the_listing_can_be_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", _sm90(), "--no-listing"]) == 0
    assert "FFMA R" not in capsys.readouterr().out


def test_json_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", _sm90(), "--json", "--threads", "128", "--kernel", "sgemm"]) == 0
    found = json.loads(capsys.readouterr().out)
    (kernel,) = found["kernels"]
    assert found["arch"] == 90
    assert kernel["threads"] == 128
    assert kernel["loop"]["multiply_adds"] == 128
    assert kernel["unknown_instructions"] == 0
    assert kernel["cycles"]["bound_by"] in {*kernel["cycles"]["terms"], "latency"}
    assert 0 < kernel["cycles"]["pipe_share"] < 1


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--kernel", "hgemm"], 2, "kernel='hgemm' is not in"),
        (["--threads", "4096"], 2, "threads=4096 is no block size"),
        (["--shared", "-1"], 2, "dynamic_shared_bytes=-1 is negative"),
    ],
)
def test_wrong_usage_is_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], status: int, said: str
) -> None:
    assert run(["inspect", _sm90(), *arguments]) == status
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_what_is_no_cubin_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    assert run(["inspect", str(path)]) == 2
    assert "notes.txt is no readable cubin" in capsys.readouterr().err
    assert run(["inspect", str(tmp_path / "missing.cubin")]) == 1
