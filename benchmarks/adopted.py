"""What a portfolio adopted from nothing takes beside the one that ships, on random shapes.

    python benchmarks/adopted.py s 270 FOLDER

Precision (of all of tensor cores: short, compared in bfloat16), seconds, and where results and the
portfolio go.  No config that ships is timed.  Of each shape the two kernels that would serve it by
either portfolio alone are timed in turns, launched one by one and back to back.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tilewright.backend import LiveDevice, device
from tilewright.bench.benchmarks.regret import Machines, drawn
from tilewright.cli.app import run
from tilewright.portfolio import choose
from tilewright.portfolio.choose import Choice
from tilewright.portfolio.measure import matrices
from tilewright.portfolio.timers import Burst, interleaved_medians
from tilewright.precision import precision
from tilewright.problem import Problem
from tilewright.tuning.measure import Workload

# Which shapes the comparison has: not those that `tilewright bench regret` draws by default.
SEED, COUNT = 3, 200


def chosen(live: LiveDevice, problems: list[Problem], without: str) -> list[Choice]:
    """Return what would serve, `without` the user's own portfolio or without the shipped one."""
    held = sys.modules["tilewright.portfolio.held"]
    choices = sys.modules["tilewright.portfolio.choose"]
    with patch.object(held, without, lambda *_: None):
        for kept in (held.held_by, choices._chosen):
            kept.cache_clear()
        return [choose(live, problem) for problem in problems]


def compared(live: LiveDevice, letter: str) -> list[dict[str, Any]]:
    """Return the times of both kernels, a row a shape; None where one has no machine code."""
    of, code, rows = precision(letter), Machines(live), []
    problems = drawn(of, SEED, COUNT)
    pairs = zip(chosen(live, problems, "shipped"), chosen(live, problems, "own"), strict=True)
    memory = matrices(live, of, 0)
    for problem, pair in zip(problems, pairs, strict=True):
        row: dict[str, Any] = {
            "precision": letter, "trans": f"{problem.trans_a}{problem.trans_b}",
            "size": [problem.m, problem.n, problem.k],
        }  # fmt: skip
        if all(one.digest() for one in pair):
            ran = Workload(live, problem, memory)
            kernels = [(code.of(one), one.stencil, one.config) for one in pair]
            single = interleaved_medians([partial(ran.run, *one) for one in kernels])
            bursts = interleaved_medians([
                Burst(live, ran, one.config, code.of(one), one.stencil, one.geometry)
                for one in pair
            ])  # fmt: skip
            for name, times in (("us", single), ("burst_us", bursts)):
                for whose, ns in zip(("chosen", "shipped"), times, strict=True):
                    row[f"{whose}_{name}"] = None if ns is None else ns / 1e3
        rows.append(row)
    return rows


def main() -> None:
    letter, seconds, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3]).resolve()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.environ["TILEWRIGHT_DATA_DIR"] = str(folder)
    with patch("tilewright.portfolio.shortlist.of_other_devices", lambda *_: []):
        run(["adopt", "--device", "cuda:0", "--precision", letter, "--budget", f"{seconds}s"])
    live = device("cuda:0")
    told = {"device": live.spec.name, "driver": live.driver, "seconds": float(seconds),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "results": compared(live, "bf16" if letter == "short" else letter)}  # fmt: skip
    (folder / "adopted.json").write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
