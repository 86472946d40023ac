"""A store and a results folder with something for every section."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.tuning.measurement_examples import example
from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.tuning.store import Store

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"

# What a stranger's file may call a device; none of it may reach a page as markup.
HOSTILE = '"><script>alert(1)</script><img src=http://example.org/x onerror=alert(2)> $\\frac{1}{0'


def candidate(number: int, **changes):
    """Return one of a search's measurements; the seventh fails."""
    config = Config("portable", {
        "block_m": 32 + 32 * (number % 4), "block_n": 64, "block_k": 8, "threads_m": 8,
        "threads_n": 8, "read_a_m": 16, "read_b_n": 0, "swizzle_rows": number,
    })  # fmt: skip
    status = "crash" if number == 7 else "ok"
    made = example(status=status, size=256, times=(9000 - 400 * number,), config=config)
    return replace(
        made, created=f"2026-11-20T10:00:{number:02d}+00:00", device_name="NVIDIA H100 80GB HBM3",
        device="0123456789ab", error=2e-7, **changes,
    )  # fmt: skip


def fill(store: Store) -> None:
    """Add two searches with their winners, on a GPU of the catalogue and on an unknown one."""
    for number in range(12):
        store.add(candidate(number))
    store.add(candidate(11, stage="winner"))
    store.add(candidate(11, stage="winner", problem=Problem(512, 512, 512, "d", "T", "N")))
    store.add(example(device_name='Tiny "GPU" <b>&', stage="winner", error=1e-7))


def ladder(sweep: dict) -> dict:
    """Return a climb of the form that ``tilewright ladder -o`` writes, on the sweep's device."""
    rungs = [
        {"name": "v1_naive", "title": "naive", "idea": "one element", "flops_per_second": 4e9,
         "reason": "", "kernel_seconds": 0.01, "total_seconds": 0.02, "eta": 3e-7, "limits": ""},
        {"name": "v7_async", "title": "copies", "idea": "a ring", "flops_per_second": None,
         "reason": "it is CUDA only", "kernel_seconds": None, "total_seconds": None, "eta": None,
         "limits": ""},
        {"name": "numpy", "title": "2.4", "idea": "", "flops_per_second": 1.6e11, "reason": "",
         "kernel_seconds": 1e-4, "total_seconds": None, "eta": None, "limits": ""},
    ]  # fmt: skip
    bound = {"flops_per_second": 3.2e11, "limiting": "arithmetic peak", "resource": "FMA"}
    climb = {"problem": "SGEMM NN 256x512x128, row-major", "size": [256, 512, 128],
             "library": "numpy", "bound": bound, "rungs": rungs}  # fmt: skip
    return sweep | {"devices": [sweep["devices"][0] | {"results": [climb]}]}


def sweep(*sizes: int, precision: str = "s") -> dict[str, Any]:
    """Return squares of the form that ``tilewright bench -o`` writes, on an H100."""
    calls = json.loads((RESULTS / "h100" / "calls.json").read_text())
    config = {"stencil": "simt_async", "block_m": 64, "block_n": 32, "block_k": 64}
    rows = [
        {"problem": f"SGEMM NN {n}", "precision": precision, "trans": "NN", "size": [n] * 3,
         "config": config, "tuned_on": "512", "missing": {},
         "flops_per_second": {"tilewright": 24e12 + n, "cublas": 16e12},
         "errors": {"tilewright": {"eta": 2e-7}, "cublas": {"eta": 3e-7}}}
        for n in sizes
    ]  # fmt: skip
    return {**calls, "devices": [calls["devices"][0] | {"results": rows}]}


def results(folder: Path) -> Path:
    """Return a folder with committed results, a stranger's sweep, and files that are none."""
    for name in (
        "h100/calls.json", "h100/tensor_cores.json", "h100/fp32_accuracy.json",
        "h100/first_call.json", "cpu/register_blocking.json",
    ):  # fmt: skip
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(RESULTS / name, folder / name)
    (folder / "h100" / "sweep.json").write_text(json.dumps(sweep(512)))
    strange = json.loads((RESULTS / "cpu" / "gemm_1024.json").read_text())
    (folder / "ladder.json").write_text(json.dumps(ladder(strange)))
    device = strange["devices"][0]
    device |= {"name": HOSTILE, "platform": HOSTILE, "fingerprint": HOSTILE, "peers": {HOSTILE: ""}}
    device["results"][0]["config"] |= {"stencil": HOSTILE, "block_m": HOSTILE, HOSTILE: 1}
    device["results"][0]["flops_per_second"][HOSTILE] = 1e9
    (folder / "stranger.json").write_text(json.dumps(strange))
    (folder / "foreign.json").write_text('{"devices": [5]}')
    (folder / "endless.json").write_text('{"kernels": [1]}')
    (folder / "broken.json").write_text('{"devices": [')
    (folder / "wrong.json").write_text('{"devices": [{"name": "x", "fingerprint": "y"}]}')
    (folder / "list.json").write_text("[]")
    return folder
