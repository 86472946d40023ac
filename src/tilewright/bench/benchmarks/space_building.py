"""Building one GEMM space with Kernel Tuner and with Tilewright: time, memory, the same points.

Both sides get the same parameters and the same constraint texts, and each build runs in a process
of its own.  Time is wall time from declared parameters to all valid points in memory, without
imports; memory is the process's peak resident set.  Kernel Tuner is given the constraints in the
two ways that its solver can take apart, as strings and as lambdas, with its default solver.
"""

from __future__ import annotations

import json
import math
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.bench.peers import UnavailableError
from tilewright.bench.registry import Asked, Cell, Measured, Row
from tilewright.space import Constraint, Parameter, Space

__all__ = ["BENCHMARK", "BUILDERS"]

# Processes a builder, of which the median counts.
_REPEAT = 3

_TILES = (16, 32, 48, 64, 80, 96, 128, 160, 192, 256)
_SIDES = (4, 8, 16, 32, 64)
PARAMETERS: dict[str, tuple[int, ...]] = {
    "block_m": _TILES,
    "block_n": _TILES,
    "block_k": (4, 8, 16, 32, 64),
    "dim_m": _SIDES,  # the thread block computing C is dim_m x dim_n
    "dim_n": _SIDES,
    "dim_m_a": _SIDES,  # reshaped to dim_m_a threads along m to read A
    "dim_n_b": _SIDES,  # and to dim_n_b threads along n to read B
    "vector_a": (1, 2, 4),
    "vector_b": (1, 2, 4),
    "buffers": (1, 2),
    "pad": (0, 1, 2, 4),
    "unroll": (1, 2, 4, 8),
}

_THREADS = "dim_m * dim_n"
_SHARED = "4 * buffers * block_k * (block_m + block_n + 2 * pad)"
_TILE_M, _TILE_N = "block_m // dim_m", "block_n // dim_n"
_REGISTERS = (
    f"({_TILE_M}) * ({_TILE_N}) + {_TILE_M} + {_TILE_N}"
    f" + (block_m + block_n) * block_k // ({_THREADS}) + 24"
)
# ASTRA's pruning (Kurzak et al. 2012, section 5) for a device with 1024 threads and 48 KiB
# a block, 255 registers a thread, 65536 registers and 96 KiB a multiprocessor; at least 512
# threads resident and a register reuse of 1.0.
CONSTRAINTS: tuple[tuple[str, str, str], ...] = (
    ("threads", "hardware", f"{_THREADS} <= 1024"),
    ("shared memory", "hardware", f"{_SHARED} <= 49152"),
    ("registers", "hardware", f"{_REGISTERS} <= 255"),
    ("C rows", "divisibility", "block_m % dim_m == 0"),
    ("C columns", "divisibility", "block_n % dim_n == 0"),
    ("warps", "divisibility", f"{_THREADS} % 32 == 0"),
    ("A shape", "divisibility", f"{_THREADS} % dim_m_a == 0"),
    ("B shape", "divisibility", f"{_THREADS} % dim_n_b == 0"),
    ("A rows", "divisibility", "block_m % (dim_m_a * vector_a) == 0"),
    ("B columns", "divisibility", "block_n % (dim_n_b * vector_b) == 0"),
    ("A depth", "divisibility", f"block_k * dim_m_a % ({_THREADS}) == 0"),
    ("B depth", "divisibility", f"block_k * dim_n_b % ({_THREADS}) == 0"),
    ("unroll", "divisibility", "block_k % unroll == 0"),
    (
        "registers held",
        "heuristic",
        f"{_THREADS} * (65536 // ({_THREADS} * ({_REGISTERS}))) >= 512",
    ),
    ("shared held", "heuristic", f"{_THREADS} * (98304 // ({_SHARED})) >= 512"),
    ("reuse", "heuristic", f"({_TILE_M}) * ({_TILE_N}) >= {_TILE_M} + {_TILE_N}"),
)


class SpaceBuilding(Measured):
    """See the module."""

    measures = "seconds and memory to list the 1,062,868 valid points of 9.0e+07"
    against = "Kernel Tuner's Searchspace, constraints as strings and as lambdas"
    takes = "half a minute"
    options = {}  # noqa: RUF012

    def rows(self, asked: Asked) -> Iterator[Row]:
        """Yield a row for each builder; one that builds another set of points is an error."""
        try:
            theirs = version("kernel_tuner")
        except PackageNotFoundError:
            raise UnavailableError(
                "kernel_tuner is not installed; pip install kernel-tuner"
            ) from None
        ours: Row = {}
        for name in BUILDERS:
            row = {"builder": name, "kernel_tuner": theirs} | _measured(name)
            ours = ours or row
            if (row["points"], row["digest"]) != (ours["points"], ours["digest"]):
                row["error"] = f"{name} built another set of {row['points']} points"
            yield row

    def line(self, row: Row) -> str:
        """Return a builder's time."""
        return f"{row['builder']}: {row['seconds']:.3f} s"

    def table(self, rows: Sequence[Row]) -> tuple[Sequence[str], list[list[Cell]]]:
        """Return a line for each builder."""
        lines: list[list[Cell]] = [
            [row["builder"], f"{row['points']:,}", f"{row['seconds']:.3f}",
             f"{row['peak_mib']:.0f}", f"{row['peak_less_imports_mib']:.0f}"]
            for row in rows
        ]  # fmt: skip
        return ("builder", "points", "seconds", "peak MiB", "less imports"), lines


def _measured(builder: str) -> dict[str, Any]:
    """Run a builder in fresh processes; return the medians."""
    command = [sys.executable, "-m", "tilewright.bench.benchmarks.space_building", builder]
    rows: list[dict[str, Any]] = []
    for _ in range(_REPEAT):
        done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
        rows.append(json.loads(done.stdout.splitlines()[-1]))
    numbers = (key for key, value in rows[0].items() if isinstance(value, float))
    return rows[0] | {key: statistics.median(row[key] for row in rows) for key in numbers}


# -- in the builder's process ------------------------------------------------------------------


def _peak_mib() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def _clocked(build: Callable[[], Any]) -> tuple[Any, dict[str, Any]]:
    """Run a build; return what it built, its time and its memory."""
    before, start = _peak_mib(), time.perf_counter()
    built = build()
    seconds, peak = time.perf_counter() - start, _peak_mib()
    return built, {"seconds": seconds, "peak_mib": peak, "peak_less_imports_mib": peak - before}


def _digest(columns: list[Any]) -> str:
    """Return a hash of a set of points that does not depend on their order.

    Each point becomes its rank in the raw product, mixed by splitmix64; their sum and their
    exclusive or are the hash.
    """
    rank = np.zeros(len(columns[0]), dtype=np.uint64)
    for column, values in zip(columns, PARAMETERS.values(), strict=True):
        place = np.searchsorted(np.array(sorted(values)), column).astype(np.uint64)
        rank = rank * np.uint64(len(values)) + place
    mixed = rank + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return f"{int(mixed.sum()):016x}-{int(np.bitwise_xor.reduce(mixed)):016x}"


def _ours() -> dict[str, Any]:
    names = {text: [n for n in PARAMETERS if re.search(rf"\b{n}\b", text)]
             for *_, text in CONSTRAINTS}  # fmt: skip
    # The texts are those above: nothing from elsewhere is evaluated.
    predicates = [eval(f"lambda {', '.join(names[text])}: {text}") for *_, text in CONSTRAINTS]  # noqa: S307

    def columns() -> dict[str, Any]:
        parameters = [Parameter(name, values, "", "") for name, values in PARAMETERS.items()]
        constraints = [
            Constraint(name, predicate, "", kind)  # type: ignore[arg-type]  # a literal above
            for (name, kind, _), predicate in zip(CONSTRAINTS, predicates, strict=True)
        ]
        return dict(Space("benchmark", parameters, constraints).columns())

    built, row = _clocked(columns)
    return row | {"points": len(built["block_m"]), "digest": _digest(list(built.values()))}


def _strings() -> dict[str, Any]:
    return _kernel_tuner([text for *_, text in CONSTRAINTS])


def _lambdas() -> dict[str, Any]:
    # Kernel Tuner reads a lambda's source, so it must lie in a file.
    keyed = (re.sub(r"\b([a-z]\w*)\b", r'p["\1"]', text) for *_, text in CONSTRAINTS)
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write("found = [\n" + "".join(f"    lambda p: {text},\n" for text in keyed) + "]\n")
        file.flush()
        scope: dict[str, Any] = {}
        exec(compile(Path(file.name).read_text(), file.name, "exec"), scope)  # noqa: S102
        return _kernel_tuner(scope["found"])


def _kernel_tuner(restrictions: Any) -> dict[str, Any]:
    from kernel_tuner.searchspace import Searchspace

    parameters = {name: list(values) for name, values in PARAMETERS.items()}
    built, row = _clocked(lambda: Searchspace(parameters, restrictions, max_threads=1024))
    order = [built.param_names.index(name) for name in PARAMETERS]
    table = np.array(built.list)
    return row | {"points": built.size, "digest": _digest([table[:, i] for i in order])}


BUILDERS: dict[str, Callable[[], dict[str, Any]]] = {
    "tilewright": _ours,
    "kernel_tuner strings": _strings,
    "kernel_tuner lambdas": _lambdas,
}
BENCHMARK = SpaceBuilding()

if __name__ == "__main__":
    print(json.dumps(BUILDERS[sys.argv[1]]() | {"raw": math.prod(map(len, PARAMETERS.values()))}))
