"""Recorded spaces of known optima, as files."""

from __future__ import annotations

import json
from itertools import product


def took(x: int, y: int, z: int) -> float | str:
    """Milliseconds at a point: least at (5, 2, 1); a column fails."""
    return "RuntimeFailedConfig" if x == 3 else 1.0 + (x - 5) ** 2 + (y - 2) ** 2 + 3 * (z != 1)


def cache(path, *, cut=False):
    """Write a cache file as Kernel Tuner does, without its last brackets if `cut`."""
    points = list(product(range(8), range(6), range(3)))
    entries = {
        f"{x},{y},{z},7": {
            "x": x, "y": y, "z": z, "fixed": 7, "time": took(x, y, z), "compile_time": 400.0,
            "verification_time": 0, "benchmark_time": 100.0, "strategy_time": 9.0,
        }
        for x, y, z in points
    }  # fmt: skip
    names = {"x": list(range(8)), "y": list(range(6)), "z": list(range(3)), "fixed": [7]}
    text = json.dumps({
        "device_name": "a device", "kernel_name": "a kernel", "problem_size": 1,
        "tune_params_keys": list(names), "tune_params": names, "cache": entries,
    })  # fmt: skip
    path.write_text(text[:-2] if cut else text)
    return path
