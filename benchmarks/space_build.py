"""Build one GEMM space with Kernel Tuner and with tilewright: time, memory, same points.

Run ``python benchmarks/space_build.py [--json FILE] [--repeat N]``.

Both sides get the same parameters and the same constraint texts, and each build
runs in a process of its own.  Time is wall time from declared parameters to all
valid points listed in memory; imports are not in it.  Memory is the process's
peak resident set (getrusage), once as it is and once less the peak after imports.
The check that both hold the same set runs after both were read.

Kernel Tuner is given the constraints in the two ways that its solver can take
apart, as strings and as lambdas, with its default framework and solver; its best
time and its best memory count.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import math
import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]

TILES = (16, 32, 48, 64, 80, 96, 128, 160, 192, 256)
SIDES = (4, 8, 16, 32, 64)
PARAMETERS: dict[str, tuple[int, ...]] = {
    "block_m": TILES,
    "block_n": TILES,
    "block_k": (4, 8, 16, 32, 64),
    "dim_m": SIDES,  # the thread block computing C is dim_m x dim_n
    "dim_n": SIDES,
    "dim_m_a": SIDES,  # reshaped to dim_m_a threads along m to read A
    "dim_n_b": SIDES,  # and to dim_n_b threads along n to read B
    "vector_a": (1, 2, 4),
    "vector_b": (1, 2, 4),
    "buffers": (1, 2),
    "pad": (0, 1, 2, 4),
    "unroll": (1, 2, 4, 8),
}

THREADS = "dim_m * dim_n"
SHARED = "4 * buffers * block_k * (block_m + block_n + 2 * pad)"
TILE_M, TILE_N = "block_m // dim_m", "block_n // dim_n"
REGISTERS = (
    f"({TILE_M}) * ({TILE_N}) + {TILE_M} + {TILE_N}"
    f" + (block_m + block_n) * block_k // ({THREADS}) + 24"
)
# ASTRA's pruning (Kurzak et al. 2012, section 5) for a device with 1024 threads and 48 KiB
# a block, 255 registers a thread, 65536 registers and 96 KiB a multiprocessor; at least 512
# threads resident and a register reuse of 1.0.
CONSTRAINTS: list[tuple[str, str, str]] = [
    ("threads", "hardware", f"{THREADS} <= 1024"),
    ("shared memory", "hardware", f"{SHARED} <= 49152"),
    ("registers", "hardware", f"{REGISTERS} <= 255"),
    ("C rows", "divisibility", "block_m % dim_m == 0"),
    ("C columns", "divisibility", "block_n % dim_n == 0"),
    ("warps", "divisibility", f"{THREADS} % 32 == 0"),
    ("A shape", "divisibility", f"{THREADS} % dim_m_a == 0"),
    ("B shape", "divisibility", f"{THREADS} % dim_n_b == 0"),
    ("A rows", "divisibility", "block_m % (dim_m_a * vector_a) == 0"),
    ("B columns", "divisibility", "block_n % (dim_n_b * vector_b) == 0"),
    ("A depth", "divisibility", f"block_k * dim_m_a % ({THREADS}) == 0"),
    ("B depth", "divisibility", f"block_k * dim_n_b % ({THREADS}) == 0"),
    ("unroll", "divisibility", "block_k % unroll == 0"),
    ("registers held", "heuristic", f"{THREADS} * (65536 // ({THREADS} * ({REGISTERS}))) >= 512"),
    ("shared held", "heuristic", f"{THREADS} * (98304 // ({SHARED})) >= 512"),
    ("reuse", "heuristic", f"({TILE_M}) * ({TILE_N}) >= {TILE_M} + {TILE_N}"),
]


def peak_mib() -> float:
    """Return this process's peak resident set in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def names_in(text: str) -> list[str]:
    return [name for name in PARAMETERS if re.search(rf"\b{name}\b", text)]


def clocked(build: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """Run a build; return what it built, its time and its memory."""
    before = peak_mib()
    start = time.perf_counter()
    built = build()
    seconds = time.perf_counter() - start
    peak = peak_mib()
    return built, {"seconds": seconds, "peak_mib": peak, "peak_less_imports_mib": peak - before}


def fingerprint(columns: list[Any]) -> str:
    """Return an order-independent hash of a set of points.

    Each point becomes its rank in the raw product, mixed by splitmix64; the sum
    and the exclusive or of these do not depend on the order.
    """
    import numpy as np

    rank = np.zeros(len(columns[0]), dtype=np.uint64)
    for column, values in zip(columns, PARAMETERS.values(), strict=True):
        ascending = np.array(sorted(values))
        rank = rank * np.uint64(len(values)) + np.searchsorted(ascending, column).astype(np.uint64)
    mixed = rank + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return f"{int(mixed.sum()):016x}-{int(np.bitwise_xor.reduce(mixed)):016x}"


def run_tilewright() -> dict[str, Any]:
    from tilewright.space import Constraint, Parameter, Space

    predicates = [eval(f"lambda {', '.join(names_in(text))}: {text}") for _, _, text in CONSTRAINTS]

    def declare() -> Space:
        return Space(
            "benchmark",
            [Parameter(name, values, "", "") for name, values in PARAMETERS.items()],
            [
                Constraint(name, predicate, "", kind)  # type: ignore[arg-type]  # a literal above
                for (name, kind, _), predicate in zip(CONSTRAINTS, predicates, strict=True)
            ],
        )

    columns, row = clocked(lambda: declare().columns())
    result: dict[str, Any] = dict(row)
    result["points"] = len(columns["block_m"])
    result["fingerprint"] = fingerprint(list(columns.values()))
    start = time.perf_counter()
    declare().count()
    result["count_seconds"] = time.perf_counter() - start
    start = time.perf_counter()
    result["funnel"] = [[s.name, s.kind, s.survivors] for s in declare().funnel()]
    result["funnel_seconds"] = time.perf_counter() - start
    return result


def run_kernel_tuner(style: str) -> dict[str, Any]:
    texts = [text for _, _, text in CONSTRAINTS]
    if style == "strings":
        return finish_kernel_tuner(texts)
    # Kernel Tuner reads a lambda's source, so it must lie in a file.
    keyed = [re.sub(r"\b([a-z]\w*)\b", r'p["\1"]', text) for text in texts]
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write("found = [\n" + "".join(f"    lambda p: {text},\n" for text in keyed) + "]\n")
        file.flush()
        scope: dict[str, Any] = {}
        exec(compile(Path(file.name).read_text(), file.name, "exec"), scope)
        return finish_kernel_tuner(scope["found"])


def finish_kernel_tuner(restrictions: Any) -> dict[str, Any]:
    import numpy as np
    from kernel_tuner.searchspace import Searchspace

    parameters = {name: list(values) for name, values in PARAMETERS.items()}
    built, row = clocked(lambda: Searchspace(parameters, restrictions, max_threads=1024))
    order = [built.param_names.index(name) for name in PARAMETERS]
    table = np.array(built.list)
    return {
        **row,
        "points": built.size,
        "fingerprint": fingerprint([table[:, i] for i in order]),
    }


BUILDERS: dict[str, Callable[[], dict[str, Any]]] = {
    "tilewright": run_tilewright,
    "kernel_tuner strings": lambda: run_kernel_tuner("strings"),
    "kernel_tuner lambdas": lambda: run_kernel_tuner("lambdas"),
}


def measure(builder: str, repeat: int) -> dict[str, Any]:
    """Run a builder in fresh processes; return its medians and all times."""
    rows = []
    for _ in range(repeat):
        # This process has imported the standard library only: a child starts with the
        # peak of the process that it was forked from.
        done = subprocess.run(
            [sys.executable, __file__, "--only", builder],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        rows.append(json.loads(done.stdout.splitlines()[-1]))
    result: dict[str, Any] = dict(rows[0])
    for key, value in rows[0].items():
        if isinstance(value, float):
            result[key] = statistics.median(row[key] for row in rows)
    result["all_seconds"] = [row["seconds"] for row in rows]
    return result


def surroundings() -> dict[str, Any]:
    """Return what a reader needs to repeat the measurement."""
    cpu = platform.processor()
    if Path("/proc/cpuinfo").exists():
        found = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
        cpu = found.group(1) if found else cpu
    git = ["git", "-C", str(REPOSITORY)]
    commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True)
    changed = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True)
    packages = ("tilewright", "kernel_tuner", "python-constraint2", "numpy")
    return {
        "device": cpu,
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in packages},
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit.stdout.strip(),
        "commit_has_changes": bool(changed.stdout.strip()),
    }


def compare(repeat: int) -> dict[str, Any]:
    """Measure every builder and work out the ratios."""
    rows = {builder: measure(builder, repeat) for builder in BUILDERS}
    ours = rows["tilewright"]
    theirs = [row for builder, row in rows.items() if builder != "tilewright"]
    same = all(
        (row["points"], row["fingerprint"]) == (ours["points"], ours["fingerprint"])
        for row in theirs
    )
    keys = ("seconds", "peak_mib", "peak_less_imports_mib")
    return {
        "benchmark": "space_build",
        **surroundings(),
        "raw_size": math.prod(len(values) for values in PARAMETERS.values()),
        "points": ours["points"],
        "same_set": same,
        "memory_is": "peak resident set by getrusage; less_imports: minus the peak after imports",
        "repeat": repeat,
        "builders": rows,
        "best_kernel_tuner_over_tilewright": {
            key: min(row[key] for row in theirs) / ours[key] for key in keys
        },
    }


def main() -> int:
    """Print a table; write JSON where asked; return 1 if the sets differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the result to this file")
    parser.add_argument("--repeat", type=int, default=3, help="processes a builder (median)")
    parser.add_argument("--only", choices=list(BUILDERS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        print(json.dumps(BUILDERS[options.only]()))
        return 0
    result = compare(options.repeat)
    print(f"{result['raw_size']:,} raw points, {result['points']:,} valid")
    print(f"{'builder':24}{'seconds':>10}{'peak MiB':>10}{'less imports':>14}")
    for builder, row in result["builders"].items():
        print(
            f"{builder:24}{row['seconds']:10.3f}{row['peak_mib']:10.1f}"
            f"{row['peak_less_imports_mib']:14.1f}"
        )
    ratios = result["best_kernel_tuner_over_tilewright"]
    print("best Kernel Tuner / tilewright: " + ", ".join(f"{k} {v:.1f}" for k, v in ratios.items()))
    ours = result["builders"]["tilewright"]
    print(f"count alone {ours['count_seconds']:.3f} s, funnel {ours['funnel_seconds']:.3f} s")
    print("same set of points" if result["same_set"] else "the sets DIFFER")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0 if result["same_set"] else 1


if __name__ == "__main__":
    sys.exit(main())
