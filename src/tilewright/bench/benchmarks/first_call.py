"""The first call of a fresh process with empty caches, and the second one, of a new shape."""

from __future__ import annotations

import compileall
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import tilewright
from tilewright.bench.registry import Asked, Benchmark, Cell, Row
from tilewright.precision import precision

__all__ = ["BENCHMARK"]

PROCESSES = 3  # each with caches of its own; the median counts

# Aligned, odd, and the first shape again with other sizes of the same kernels.
SIZES = ((1000, 1000, 1000), (1001, 999, 1003), (1008, 1000, 1000))

# What is served besides BLAS's precisions, by NumPy's type and accuracy.
OTHERS: dict[str, tuple[str, str]] = {
    "fp32": ("float32", "fp32"), "tf32": ("float32", "tf32"), "fp16": ("float16", "ieee"),
    "int8": ("int8", "ieee"),
}  # fmt: skip


class FirstCall(Benchmark):
    measures = "milliseconds of the first call of a process, caches empty, context there"
    against = "CuPy's matmul"
    takes = "half a minute a precision"
    options = {"precision": "s,d,c,z,fp32,tf32,fp16,int8", "trans": "NN,TT"}  # noqa: RUF012
    needs = "cuda"

    def rows(self, asked: Asked) -> Iterator[Row]:
        for letter in asked.precision.split(","):
            dtype, accuracy = OTHERS.get(letter, (letter, "ieee"))
            if letter not in OTHERS:
                dtype = precision(letter).dtype.name
            for trans in asked.trans.split(","):
                for library in ("tilewright", "cupy"):
                    if library == "cupy" and (trans != "NN" or letter in OTHERS):
                        continue
                    case = {"dtype": dtype, "accuracy": accuracy, "trans": trans,
                            "sizes": SIZES, "library": library}  # fmt: skip
                    about = {"precision": letter, "trans": trans, "library": library}
                    yield {**about, **_row(case)}

    def line(self, row: Row) -> str:
        if "error" in row:
            return str(row["error"])
        first, *later = row["milliseconds"]
        rest = ", ".join(f"{one:.2f}" for one in later)
        return (
            f"{row['precision']} {row['trans']} {row['library']}: {first:.1f} ms, then {rest} ms"
            f"{', NVRTC imported' if row['nvrtc'] else ''}"
        )

    def table(self, rows: Sequence[Row]) -> tuple[Sequence[str], list[list[Cell]]]:
        lines: list[list[Cell]] = [
            [row["precision"], row["trans"], row["library"],
             *(f"{one:.2f}" for one in row["milliseconds"]), "yes" if row["nvrtc"] else "no"]
            for row in rows
        ]  # fmt: skip
        heads = ("precision", "trans", "library", "first, ms", "odd shape", "another", "NVRTC")
        return heads, lines


def _row(case: dict[str, Any]) -> Row:
    """Return medians over processes.

    The package is byte-compiled before, as an installation leaves it.
    """
    compileall.compile_dir(str(Path(tilewright.__file__).parent), quiet=2)
    found = []
    for _ in range(PROCESSES):
        with tempfile.TemporaryDirectory() as folder:
            places = {f"TILEWRIGHT_{name}_DIR": f"{folder}/{name}" for name in ("CACHE", "DATA")}
            done = subprocess.run(  # noqa: S603  # our own interpreter, no shell
                [sys.executable, "-m", "tilewright.bench.first_call", json.dumps(case)],
                env=os.environ | places, capture_output=True, text=True, timeout=300,
            )  # fmt: skip
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            return {"error": f"first call failed: {last}"}
        found.append(json.loads(done.stdout.splitlines()[-1]))
    calls = zip(*(one["milliseconds"] for one in found), strict=True)
    medians = [statistics.median(times) for times in calls]
    return {"milliseconds": medians, "nvrtc": any(one["nvrtc"] for one in found)}


BENCHMARK = FirstCall()
