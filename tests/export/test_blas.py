"""Programs that call BLAS, with the library preloaded: what is served, what is passed on."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.export.building import HERE, needs_c
from tilewright.cli.run import read_log

pytestmark = needs_c


def ran(part: str, preloaded: Path, log: Path, **more: str) -> tuple[list[str], str]:
    """Run a part of the program; return what was wrong, and what else it said."""
    environment = {
        **os.environ, "LD_PRELOAD": str(preloaded / "ours.so"), "LD_LIBRARY_PATH": str(preloaded),
        "FAKE_CUDA_FORGETS": "1", "OPENBLAS_NUM_THREADS": "1", "TILEWRIGHT_CALLS_LOG": str(log),
        **more,
    }  # fmt: skip
    if part != "large":  # too much for the driver of tests
        environment["FAKE_CUDA_COMPUTES"] = "1"
    done = subprocess.run(
        [sys.executable, HERE / "blas_program.py", part],
        env=environment, capture_output=True, text=True, timeout=250,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    *said, wrong = done.stdout.splitlines()
    return json.loads(wrong), "\n".join(said) + done.stderr


def counted(log: Path) -> dict[str, int]:
    """Return how many calls were served, passed on, and of a precision without kernels."""
    sums = {"served": 0, "passed": 0, "no kernel": 0}
    for row in read_log(log):
        kind = "no kernel" if row["precision"] == "c" else "served" if row["served"] else "passed"
        sums[kind] += row["calls"]
    return sums


@pytest.mark.parametrize("part", ["names", "numpy", "threads"])
def test_all_names_are_served(preloaded: Path, tmp_path: Path, part: str) -> None:
    wrong, _ = ran(part, preloaded, tmp_path, TILEWRIGHT_BLAS_LEAST="0")
    assert not wrong
    calls = counted(tmp_path)
    assert calls["served"] > 0
    assert calls["passed"] == 0


def test_what_does_not_fit_is_cut(preloaded: Path, tmp_path: Path) -> None:
    wrong, _ = ran("cut", preloaded, tmp_path, TILEWRIGHT_BLAS_LEAST="0",
                   TILEWRIGHT_BLAS_MEMORY="6300000")  # fmt: skip
    assert not wrong
    assert counted(tmp_path) == {"served": 15, "passed": 0, "no kernel": 0}


def test_a_process_that_was_forked_is_served_by_the_other_blas(
    preloaded: Path, tmp_path: Path
) -> None:
    wrong, _ = ran("fork", preloaded, tmp_path, TILEWRIGHT_BLAS_LEAST="0")
    assert not wrong
    logs = [path.read_text().splitlines() for path in tmp_path.glob("*.jsonl")]
    assert len(logs) == 2
    assert all(len(lines) == len(set(lines)) for lines in logs)


@pytest.mark.parametrize("least", ["", "1000"])
def test_small_products_are_passed_on(preloaded: Path, tmp_path: Path, least: str) -> None:
    wrong, _ = ran("numpy", preloaded, tmp_path, TILEWRIGHT_BLAS_LEAST=least)
    assert not wrong
    assert counted(tmp_path)["served"] == 0


def test_large_products_are_served(preloaded: Path, tmp_path: Path) -> None:
    ran("large", preloaded, tmp_path)
    assert counted(tmp_path) == {"served": 1, "passed": 0, "no kernel": 0}


def test_without_a_device_all_calls_reach_the_other_blas(preloaded: Path, tmp_path: Path) -> None:
    nowhere: dict[str, Any] = {"LD_LIBRARY_PATH": "", "CUDA_VISIBLE_DEVICES": ""}
    wrong, _ = ran("numpy", preloaded, tmp_path, TILEWRIGHT_BLAS_LEAST="0", **nowhere)
    assert not wrong
    assert counted(tmp_path)["served"] == 0


def test_wrong_arguments_reach_the_other_blas(preloaded: Path, tmp_path: Path) -> None:
    _, said = ran("wrong", preloaded, tmp_path, TILEWRIGHT_BLAS_LEAST="0")
    assert "DGEMM parameter number  8" in re.sub("DGEMM *", "DGEMM ", said)
