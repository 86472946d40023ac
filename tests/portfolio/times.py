"""A small file of times, as ``benchmarks/portfolio`` has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.portfolio.examples import H100
from tilewright.problem import Problem
from tilewright.stencil import Variant, stencil

SHAPES = [[1024, 1024, 1024], [64, 64, 8000], [4096, 4096, 64], [999, 513, 777]]
FAMILY = stencil("simt_async")
STARTS = FAMILY.starts(Variant.of(Problem(1, 1, 1, "c")), H100)[:3]


def document(letter: str = "c") -> dict[str, Any]:
    """Return times of three configs; the third never is the best, the others are by turns."""
    configs = [dict(one) for one in STARTS]
    ns = [[100e3, 200e3, 300e3], [90e3, 60e3, None], [200e3, 100e3, 400e3], [50e3, 80e3, 81e3]]
    case = {"shapes": SHAPES, "configs": configs, "ns": ns, "won": []}
    raced = {"size": [2048, 2048, 2048], "config": configs[2], "ns": 1e6}
    return {
        "precision": letter, "stencil": "simt_async", "device": H100.name,
        "compute_capability": 90, "multiprocessors": 132, "copying": [1202, 3096.7],
        "commit": "0123abc", "date": "2026-11-23",
        "cases": {"NN": case | {"won": [raced]}, "TN": case, "NT": case},
        "rescheduled": [{"trans": "NN", "config": configs[0] | {"schedule": 5}, "ratio": 0.5,
                         "unstaged_from": 150}],
    }  # fmt: skip


def write_times(folder: Path, **changes: Any) -> Path:
    """Write the file; return its path."""
    path = folder / "c.json"
    path.write_text(json.dumps(document() | changes))
    return path
