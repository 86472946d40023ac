"""A sweep's results as a JSON file: numbers, and everything needed to judge them."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.backend import LiveDevice
from tilewright.bench.peers import Peer
from tilewright.bench.sweep import Method, Row
from tilewright.hardware.host import processor
from tilewright.problem import Problem
from tilewright.version import VERSION

__all__ = ["device_record", "environment_record", "row_record"]

_WARM = (
    "random data, warm cache, peers interleaved (A B A B) in one process, medians;"
    " device events on GPUs, around what is enqueued while they are held, the host's clock around"
    " a waiting call on CPUs"
)
_COLD = _WARM.replace("warm cache", "cold cache (over twice the last one written before each)")
_TRANSFERS = (
    "; with transfers: A and B copied to the device and C back, by the host's clock,"
    " pageable memory"
)


def _printed(*command: str) -> str:
    """Return what a program prints, or nothing where it is not there."""
    path = shutil.which(command[0])
    if path is None:
        return ""
    done = subprocess.run(  # noqa: S603  # fixed programs, no shell
        [path, *command[1:]], capture_output=True, text=True, check=False, timeout=20
    )
    return done.stdout.strip() if done.returncode == 0 else ""


def environment_record(method: Method | None = None) -> dict[str, Any]:
    """Return host, versions and commit; for a sweep also how times were taken."""
    here = Path(__file__).parent
    found = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _printed("git", "-C", str(here), "rev-parse", "HEAD"),
        "tilewright": VERSION,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "cpu": processor().get("model name", platform.processor()),
        "cores": os.cpu_count(),
    }
    if method is None:
        return found
    return {
        **found,
        "rounds": method.rounds,
        "method": (_WARM if method.cache == "warm" else _COLD)
        + (_TRANSFERS if method.transfers else ""),
    }


def device_record(live: LiveDevice, peers: Sequence[Peer]) -> dict[str, Any]:
    """Return a device with its software, its peers, and a GPU's clocks and power now."""
    query = "clocks.sm,clocks.max.sm,power.draw,power.limit,temperature.gpu"
    return {
        "id": live.id,
        "name": live.spec.name,
        "backend": live.backend,
        "platform": live.platform,
        "driver": live.driver,
        "fingerprint": live.fingerprint,
        "peers": {one.name: one.version for one in peers},
        "nvidia_smi": _printed("nvidia-smi", f"--query-gpu={query}", "--format=csv")
        if live.spec.kind == "gpu"
        else "",
    }


def row_record(problem: Problem, row: Row | None, extra: dict[str, Any]) -> dict[str, Any]:
    """Return one problem's results as plain data; without a row, only what was asked."""
    record: dict[str, Any] = {
        "problem": str(problem),
        "precision": problem.precision.letter,
        "trans": problem.trans,
        "size": [problem.m, problem.n, problem.k],
    }
    if row is not None:
        record |= {
            "config": row.config,
            "tuned_on": row.tuned_on,
            **({"copies": list(row.copies)} if row.copies else {}),
            "flops_per_second": {name: row.rate(name) for name in row.seconds},
            "seconds": row.seconds,
            "missing": row.missing,
        }
        if row.noise:
            record["noise"] = list(row.noise)
        if row.errors:
            record["errors"] = row.errors
        if row.total_seconds:
            names = list(row.total_seconds)
            record["with_transfers"] = {
                "flops_per_second": {name: row.rate(name, transfers=True) for name in names},
                "seconds": row.total_seconds,
            }
    return record | extra
