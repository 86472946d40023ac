r"""Products whose operands are copied first, turned and aligned, beside those that are not.

    python benchmarks/realigned.py --seconds 120 --json FILE        needs an H100
    python benchmarks/realigned.py --list                           the problems; no GPU
    python benchmarks/realigned.py --table --json FILE              only prints FILE

Of each problem all ways (`tilewright.library.realigned`) and cuBLAS run in turns, A B C A B C, and
each way's result is compared with the first one's.  Then the copies alone, by size: what
`ship.py` takes for their costs.  A way is of the kernel that `gemm` chooses for what it reads.
FILE is written after each row.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hopper.cases import cases_of
from hopper.here import first_gpu
from hopper.named import json_file
from tilewright.paths import write_atomically
from tilewright.problem import Problem
from tilewright.stencil.asynchronous.realign import Realigned

# Sides, the largest first: the ones that races are of, and such as have no aligned columns.
SIDES = {
    "s": (16384, 8192, 4096, 8191, 4800, 6001, 4097, 4095, 3001, 2047),
    "c": (8192, 4096, 4095, 2047),
    "d": (8192, 4096, 4095, 2047),
}
# Elements' bytes and sides that copies are timed of, alone.
COPIES = tuple(itertools.product((4, 8, 16), (1024, 2048, 4096, 8192)))
ROUNDS, LEAST_ROUNDS, ENOUGH_NS = 9, 5, 3e9
DRAWN = 2**24
# Rows and columns of C that ways are compared in; their sums differ in order.
COMPARED, TOLERANCE = 512, {"s": 1e-5, "c": 1e-5, "d": 1e-14}
Row = dict[str, Any]


def problems(letters: str = "sdc") -> list[Problem]:
    """Return what is raced: whatever has another way."""
    from tilewright.library.realigned import ways

    every = (
        Problem(n, n, n, letter, *trans)
        for letter in letters
        for n in SIDES[letter]
        for trans in cases_of(letter)
    )
    return [one for one in every if len(ways(one, (True, True))) > 1]


def shared(live: Any) -> dict[str, int]:
    """Return memory for the largest problem, A and B random."""
    whole = max(8 * SIDES["d"][0] ** 2, 4 * SIDES["s"][0] ** 2)
    drawn = np.random.default_rng(1).standard_normal(DRAWN, dtype=np.float32)
    memory = {name: live.allocate(whole) for name in "abc"}
    for name, at in itertools.product("ab", range(0, whole, drawn.nbytes)):
        live.write(memory[name], np.roll(drawn, at // 4096)[: (whole - at) // 4], at)
    return memory


def in_double(live: Any, memory: dict[str, int]) -> None:
    """Fill A and B with random doubles: pairs of floats are none."""
    drawn = np.random.default_rng(2).standard_normal(DRAWN // 2)
    whole = 8 * SIDES["d"][0] ** 2
    for name, at in itertools.product("ab", range(0, whole, drawn.nbytes)):
        live.write(memory[name], np.roll(drawn, at // 4096)[: (whole - at) // 8], at)


def corner(live: Any, load: Any) -> Any:
    """Return some columns of C."""
    p = load.problem
    found = np.empty((min(p.n, COMPARED), p.ldc), p.precision.dtype)
    live.download(load.memory["c"], found)
    return found[:, :: max(1, p.m // COMPARED)]


def race(live: Any, cublas: Any, memory: dict[str, int], problem: Problem) -> Row:
    """Return a problem's row."""
    from tilewright.bench.sweep import way_call
    from tilewright.library.choose import served
    from tilewright.library.realigned import ways
    from tilewright.microbench.power import sample_power
    from tilewright.tuning.measure import Workload

    load, found = Workload(live, problem, memory), ways(problem, (True, True))
    names = ["+".join(way.copies) or "none" for way in found]
    calls = {name: way_call(load, way) for name, way in zip(names, found, strict=True)}
    configs = {
        name: dict(served(live, way.problem, way.aligned).config)
        for name, way in zip(names, found, strict=True)
    }
    results = {}
    for name, call in calls.items():
        live.write(memory["c"], np.full(1, np.nan, problem.precision.dtype))
        call()
        results[name] = corner(live, load)
    first = results["none"]
    off = {name: float(abs(x - first).max() / abs(first).max()) for name, x in results.items()}
    calls["cublas"] = cublas.prepare(load)
    times: dict[str, list[int]] = {name: [] for name in calls}
    with sample_power(live) as power:
        for turn in range(ROUNDS + 1):
            for name, call in calls.items():
                taken = call()
                if turn:
                    times[name].append(taken)
            if turn >= LEAST_ROUNDS and sum(map(sum, times.values())) > ENOUGH_NS:
                break
    load.close()
    return {
        "precision": problem.precision.letter, "trans": problem.trans, "m": problem.m,
        "n": problem.n, "k": problem.k, "ns": times, "configs": configs, "off": off,
        "clock_hz": power.clock_hz, "power_w": power.power_w, "throttle_reasons": power.reasons,
    }  # fmt: skip


def copies(live: Any, memory: dict[str, int]) -> Iterator[Row]:
    """Yield the times of copies alone."""
    for (size, n), turned in itertools.product(COPIES, (True, False)):
        if size * n * n > 8 * SIDES["d"][0] ** 2:
            continue
        copy = Realigned(size, n, n, turned)
        kernel = live.compile(copy.source(live.dialect))
        steps = (n, 1) if turned else (1, n)
        arguments = copy.arguments(memory["a"], 0, *steps, memory["b"])
        runs = [
            live.launch_timed(kernel, copy.launch, arguments).nanoseconds() for _ in range(ROUNDS)
        ]
        yield {"element_bytes": size, "side": n, "turned": turned, "traffic": copy.traffic,
               "ns": runs}  # fmt: skip


def measure(path: Path, seconds: float, letters: str, least: int) -> None:
    """Race all there is time for, and write."""
    from tilewright.bench.peers.cublas import CuBLAS
    from tilewright.bench.record import device_record, environment_record
    from tilewright.bench.sweep import Method

    until, live = time.time() + seconds, first_gpu()
    cublas = CuBLAS(live)
    made: dict[str, Any] = {
        "environment": environment_record(Method(ROUNDS)),
        "device": device_record(live, [cublas]),
        "rows": [],
    }
    memory, doubles = shared(live), False
    for problem in problems(letters):
        if problem.n < least or time.time() > until:
            continue
        if problem.precision.letter == "d" and not doubles:
            in_double(live, memory)
            doubles = True
        try:
            made["rows"].append(race(live, cublas, memory, problem))
        except Exception as error:
            if getattr(live, "lost", None):
                raise
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            made["rows"].append({"trans": problem.trans, "n": problem.n, "reason": reason})
        print(line(made["rows"][-1]), flush=True)
        write_atomically(path, json.dumps(made, indent=1).encode())
    made["copies"] = list(copies(live, memory))
    write_atomically(path, json.dumps(made, indent=1).encode())


def line(row: Row) -> str:
    """Return a row in words."""
    if "reason" in row:
        return f"{row['trans']} {row['n']}: {row['reason']}"
    flops = Problem(row["m"], row["n"], row["k"], row["precision"], *row["trans"]).flops
    rates = {name: flops / float(np.median(ns)) / 1e3 for name, ns in row["ns"].items()}
    told = ", ".join(
        f"{name} {rate:.1f} ({rate / rates['cublas']:.3f})" for name, rate in rates.items()
    )
    wrong = [name for name, off in row["off"].items() if off > TOLERANCE[row["precision"]]]
    return f"{row['precision']} {row['trans']} {row['n']:5}: {told}" + (
        f"; WRONG: {wrong}" if wrong else ""
    )


def main() -> None:
    parse = argparse.ArgumentParser(description=__doc__)
    parse.add_argument("--seconds", type=float, default=120)
    parse.add_argument("--precisions", default="sdc", help="some of s, d and c")
    parse.add_argument("--least", type=int, default=0, help="the least side")
    parse.add_argument("--json", type=Path, default=Path("realigned.json"))
    parse.add_argument("--list", action="store_true", help="print the problems and end")
    parse.add_argument("--table", action="store_true", help="print what FILE has and end")
    given = parse.parse_args()
    if wrong := set(given.precisions) - set(SIDES):
        parse.error(f"--precisions={given.precisions} has {min(wrong)}; give some of s, d and c")
    if given.list:
        print("\n".join(map(str, problems(given.precisions))))
    elif given.table:
        print("\n".join(map(line, json.loads(json_file(str(given.json)).read_bytes())["rows"])))
    else:
        measure(given.json, given.seconds, given.precisions, given.least)


if __name__ == "__main__":
    main()
