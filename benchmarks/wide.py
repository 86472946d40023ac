r"""Would any config of the space multiply random shapes faster than what `gemm` chooses?  SGEMM.

    python benchmarks/wide.py --seed 3 --count 150 --seconds 420 --json FILE    needs an H100
    python benchmarks/wide.py --below 0.97 --of RUN --seconds 230 --json FILE  what was slow in RUN
    python benchmarks/wide.py --long --seed 5 --count 72 --json FILE            long sums, few tiles
    python benchmarks/wide.py --having sliced --seed 3 --json FILE         these beside the choice
    python benchmarks/wide.py --squares 512,1024 --each 200 --json FILE    squares, all cases
    python benchmarks/wide.py --orders --json FILE        all orders of large blocks (hopper.orders)
    python benchmarks/wide.py --list --seed 3 --count 20                        no GPU
    python benchmarks/wide.py --table --json FILE                               only prints FILE

Shapes are those of `shapes200.py`, or of a RUN of it.  Each has at most ``--each`` candidates
(`hopper.wide_space`): the choice, what costs the least by `tilewright.library.cycles`, what of the
shipped table comes near, and the best of each class of blocks.  They are fitted to the shape as
`gemm` fits its choice; ``--list`` counts them, and the kernels to compile, which takes seconds a
shape.  Each is checked against the product in double precision, with C full of NaNs before, and
timed between two timings of cuBLAS while other processes compile what comes next.  `portfolio.py`
picks from what is found.

FILE has a shape a row: {"trans", "m", "n", "k", "cublas": [ns], "chosen": id, "candidates"}.  Of
a candidate: {"config", "fitted" where that differs, "ns", "eta"}, or "reason".  "chosen" is the
id of what `gemm` launches, fitted; it is the first candidate.  In FILE configs are numbers, whose
places in "configs" they are (`hopper.wide_file`).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import shapes200
import ship
from hopper.cases import cases_of
from hopper.here import first_gpu
from hopper.named import json_file, sides
from hopper.orders import shapes_of
from hopper.pool import compiled
from hopper.wide_file import packed, unpacked
from hopper.wide_space import FAMILY, LETTER, Candidate, Shape, listed
from tilewright.hardware import DeviceSpec
from tilewright.library.choose import Choice
from tilewright.paths import write_atomically
from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.stencil import stencil
from tilewright.stencil.simt_async.parameters import parameters

SEED, COUNT, EACH = 3, 150, 36
# Compiled at about 1.5 s each: four minutes of 16 cores.
KERNELS = 2500
# Launches: before those that are timed, and these; fewer of what takes as long as LONG_NS, whose
# clocks are steady.
FEW, FEWER, LONG_NS = (2, 5), (1, 3), 1e6
# |C - AB| / (|A| |B|): rounding leaves some 1e-7, a lost product 1e-4 at k 8192.
RIGHT = 1e-5
BARS = (0.9, 0.97, 1.0)
SECONDS_BETWEEN_WRITES = 10
METHOD = (
    "random data, warm cache, one candidate after another between two timings of cuBLAS, while "
    "other processes compile; medians, device events"
)
Row = dict[str, Any]


# ---- Shapes --------------------------------------------------------------------------------


def squares(of: Iterable[int]) -> list[Problem]:
    """Return square products of all cases."""
    return [Problem(n, n, n, LETTER, *trans) for n in of for trans in cases_of(LETTER)]


def problems_of(
    seed: int, count: int, of: Path | None, below: float | None, long: bool = False
) -> list[Problem]:
    """Return random shapes, those of them with long sums, or slow ones of an earlier run."""
    if of is None or below is None:
        return (shapes200.long_sums if long else shapes200.shapes)(seed)[:count]
    return [one for kind, one in shapes200.slow(of, below) if kind == "shape"][:count]


def repeated(call: Any, launches: tuple[int, int]) -> list[int]:
    """Return the nanoseconds of launches after some that are not timed."""
    warm, times = launches
    for _ in range(warm):
        call()
    return [int(call()) for _ in range(times)]


def checked(live: Any, load: Any, right: tuple[Any, Any, Any], call: Any) -> float:
    """Return the error of what a call leaves in C, which is full of NaNs before."""
    p = load.problem
    c = np.full((p.n, p.ldc), np.nan, p.precision.dtype)
    live.write(load.memory["c"], c)
    call()
    live.download(load.memory["c"], c)
    if np.isnan(c).any():
        raise ArithmeticError("parts of C were not written")
    part, product, size = right
    eta = float((np.abs(c.T[part] - product) / size).max())
    if not eta <= RIGHT:
        raise ArithmeticError(f"eta is {eta:.2e}")
    return eta


def candidate_row(
    live: Any, load: Any, right: Any, one: Candidate, launches: tuple[int, int], reason: str
) -> Row:
    """Return a candidate's time and error, or why there are none."""
    row: Row = {"config": dict(one.config)}
    if one.config.stencil != FAMILY:
        row["stencil"] = one.config.stencil
    if one.fitted != one.config:
        row["fitted"] = dict(one.fitted)
    if reason:
        return {**row, "reason": reason}
    try:
        call = shapes200.run_of(live, load, Choice(stencil(one.fitted.stencil), one.fitted))
        eta = checked(live, load, right, call)
        ns = statistics.median(repeated(call, launches))
    except Exception as error:
        if getattr(live, "lost", None):
            raise
        return {**row, "reason": told(error)}
    return {**row, "ns": ns, "eta": float(f"{eta:.3g}")}


def shape_row(
    live: Any, cublas: Any, memory: Mapping[str, Any], shape: Shape, reasons: Mapping[Any, str]
) -> Row:
    """Return a shape's row; `reasons` has why kernels could not be compiled."""
    from tilewright.tuning.measure import Workload

    p, load = shape.problem, Workload(live, shape.problem, memory)
    row: Row = {"trans": p.trans, "m": p.m, "n": p.n, "k": p.k, "chosen": shape.chosen.id}
    try:
        right, theirs = shapes200.reference(live, load), cublas.prepare(load)
        before = repeated(theirs, FEW)
        launches = FEWER if statistics.median(before) >= LONG_NS else FEW
        found = [
            candidate_row(
                live, load, right, one, launches, reasons.get(kernel, "not compiled in time")
            )
            for kernel, one in zip(shape.kernels, shape.candidates, strict=True)
        ]
        return {**row, "cublas": before + repeated(theirs, FEW), "candidates": found}
    except Exception as error:
        if getattr(live, "lost", None):
            raise
        return {**row, "cublas": [], "candidates": [], "reason": told(error)}
    finally:
        load.close()


def told(error: Exception) -> str:
    """Return the first line of what went wrong."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


def timed(row: Row) -> list[tuple[float, Row]]:
    """Return a shape's candidates of the family that have times, the fastest first."""
    mine = [one for one in row["candidates"] if one.get("stencil", FAMILY) == FAMILY]
    return sorted(((one["ns"], one) for one in mine if "ns" in one), key=lambda one: one[0])


# ---- A run ---------------------------------------------------------------------------------


def workers() -> int:
    """Return how many compilers there are: one core is for what measures."""
    return max(1, (os.cpu_count() or 2) - 1)


def jobs_of(kernels: Iterable[tuple[str, Config]]) -> list[tuple[str, str, Config]]:
    """Return kernels, each once, for the compilers."""
    return [(LETTER, trans, config) for trans, config in dict.fromkeys(kernels)]


def rows_of(
    live: Any, cublas: Any, memory: Any, shapes: list[Shape], until: float
) -> Iterator[Row]:
    """Yield shapes' rows, each when its kernels are there; what is late at the end goes without."""
    reasons: dict[tuple[str, Config], str] = {}
    waiting = deque(shapes)
    jobs = jobs_of(kernel for shape in shapes for kernel in shape.kernels)
    for _, trans, config, reason in compiled(live.arch, jobs, workers(), until):
        reasons[trans, config] = reason
        while waiting and all(kernel in reasons for kernel in waiting[0].kernels):
            yield shape_row(live, cublas, memory, waiting.popleft(), reasons)
    for shape in waiting:
        # Without its choice there is nothing to compare with.
        if shape.kernels[0] in reasons and time.time() < until:
            yield shape_row(live, cublas, memory, shape, reasons)


def measure(
    path: Path, seconds: float, about: Row, shapes_on: Callable[[DeviceSpec], list[Shape]]
) -> Row:
    """Time candidates of shapes, as they are listed for the device, until the time is up."""
    from tilewright.bench.peers.cublas import CuBLAS
    from tilewright.bench.record import device_record, environment_record

    started, live = time.time(), first_gpu()
    cublas = CuBLAS(live)
    made: Row = {
        "environment": {**environment_record(), "rounds": FEW[1], "method": METHOD},
        "device": device_record(live, [cublas]),
        **about, "rows": [],
    }  # fmt: skip
    shapes = shapes_on(live.spec)
    print(f"{time.time() - started:5.0f} s: {counted(shapes)}", flush=True)
    memory, said = shapes200.shared(live), time.time()
    for row in rows_of(live, cublas, memory, shapes, started + seconds):
        made["rows"].append(row)
        if time.time() - said > SECONDS_BETWEEN_WRITES:
            said = time.time()
            print(f"{said - started:5.0f} s: {len(made['rows'])} of {len(shapes)}", flush=True)
            write(path, made)
    write(path, made)
    return made


def write(path: Path, made: Row) -> None:
    """Write what is known so far, a row a line."""
    made = packed(made)
    head = {name: value for name, value in made.items() if name not in ("rows", "configs")}
    text = json.dumps(head, indent=1)[:-2]
    for name in ("configs", "rows"):
        text += f',\n "{name}": [\n{ship.lines(made[name])}\n]'
    write_atomically(path, f"{text}}}\n".encode())


# ---- What is said --------------------------------------------------------------------------


def counted(shapes: Sequence[Shape]) -> str:
    """Return how many candidates and kernels there are."""
    many = [len(shape.candidates) for shape in shapes]
    kernels = {kernel for shape in shapes for kernel in shape.kernels}
    return f"{len(shapes)} shapes, {sum(many)} candidates, {len(kernels)} kernels"


def listing(shapes: Sequence[Shape]) -> None:
    """Print shapes with the number of their candidates."""
    for shape in shapes:
        p = shape.problem
        print(f"{p.trans} {p.m:5} {p.n:5} {p.k:5}  {len(shape.candidates):3}")
    print(counted(shapes))


def launched(one: Row) -> Config:
    """Return what a candidate was launched as."""
    values = one["fitted"] if "fitted" in one else one["config"]
    return Config(one.get("stencil", FAMILY), values)


def ratios(row: Row) -> tuple[float, float] | None:
    """Return the rate of the choice and of the best over cuBLAS's, if all were timed.

    Of the two times of cuBLAS the shorter one: while compilers begin, launches may come late.
    """
    found = [(one["ns"], one) for one in row["candidates"] if "ns" in one]
    chosen = [ns for ns, one in found if launched(one).id == row["chosen"]]
    if not chosen or not row["cublas"]:
        return None
    half = len(row["cublas"]) // 2
    theirs = min(map(statistics.median, (row["cublas"][:half], row["cublas"][half:])))
    return theirs / chosen[0], theirs / min(ns for ns, _ in found)


def best_of(row: Row) -> str:
    """Return what the best config has that the choice has not."""
    found = timed(row)
    if not found:
        return ""
    every = [launched(one) for _, one in found]
    other: Mapping[str, Any] = next((one for one in every if one.id == row["chosen"]), {})
    one = every[0]
    blocks = f"{one['block_m']}x{one['block_n']}/{one['tile_m']}x{one['tile_n']}"
    names = sorted({*one, *other} - {"block_m", "block_n", "tile_m", "tile_n"})
    more = [f"{x} {one.get(x, 0)}" for x in names if one.get(x, 0) != other.get(x, 0)]
    return " ".join([blocks, *more])


def table(made: Row) -> None:
    """Print shapes, how far choices are from the best, and what was refused."""
    print("shape, rates of the choice and of the best over cuBLAS's, and the best:")
    compared = []
    for row in made["rows"]:
        found, shape = ratios(row), f"{row['trans']} {row['m']:5} {row['n']:5} {row['k']:5}"
        if found:
            compared.append(found)
            of = sum("ns" in one for one in row["candidates"])
            print(f"  {shape}  {found[0]:.3f} {found[1]:.3f} of {of:2}  {best_of(row)}")
        else:
            print(f"  {shape}  {row.get('reason', 'not compared')}")
    for name, mine in zip(("choice", "best"), zip(*compared, strict=True), strict=False):
        over = ", ".join(f"{sum(x >= bar for x in mine)} at {bar} and more" for bar in BARS)
        mean = math.exp(sum(map(math.log, mine)) / len(mine))
        print(f"{name}: geometric mean {mean:.3f} of {len(mine)} shapes, {over}")
    cut = [
        bool(found[0][1]["config"].get("sliced")) for row in made["rows"] if (found := timed(row))
    ]
    print(f"of slices: the fastest at {sum(cut)} of {len(cut)} shapes")
    every = [one for row in made["rows"] for one in row["candidates"]]
    refused = [one["reason"] for one in every if "reason" in one]
    for reason in dict.fromkeys(refused):
        print(f"  {refused.count(reason)} without times: {reason}")


def main() -> None:
    parse = argparse.ArgumentParser(description=__doc__)
    parse.add_argument("--seconds", type=float, default=420)
    parse.add_argument("--json", type=Path, default=Path("wide.json"))
    parse.add_argument("--seed", type=int, default=SEED, help="that shapes are drawn from")
    parse.add_argument("--count", type=int, default=COUNT, help="so many shapes")
    parse.add_argument("--long", action="store_true", help="shapes with long sums and few tiles")
    parse.add_argument("--squares", type=sides, help="squares of these sides, commas between")
    parse.add_argument("--orders", action="store_true", help="all orders of large blocks")
    parse.add_argument("--below", type=float, help="only what had a lower ratio, in the file of")
    parse.add_argument("--of", type=json_file, help="an earlier run's results, of shapes200.py")
    parse.add_argument(
        "--having", default="", metavar="PARAMETER", help="only candidates where this is not 0"
    )
    parse.add_argument("--each", type=int, default=EACH, help="so many candidates of a shape")
    parse.add_argument("--kernels", type=int, default=KERNELS, help="so many in all, about")
    parse.add_argument("--list", action="store_true", help="count candidates and end")
    parse.add_argument("--table", action="store_true", help="print what FILE has and end")
    given = parse.parse_args()
    if (given.below is None) != (given.of is None):
        parse.error("--below and --of belong together: a ratio, and a file of an earlier run")
    if given.having and given.having not in {one.name for one in parameters()}:
        parse.error(f"--having={given.having} is no parameter of {FAMILY}; see tilewright space")
    if given.table:
        try:
            table(unpacked(json.loads(json_file(str(given.json)).read_bytes())))
        except ValueError as error:
            parse.error(f"--json={given.json}: {error}")
        return
    try:
        problems = (
            squares(given.squares)
            if given.squares
            else problems_of(given.seed, given.count, given.of, given.below, given.long)
        )
    except (ValueError, KeyError, TypeError) as error:
        parse.error(f"--of={given.of} has no rows of an earlier run: {error!r}")

    def shapes_on(spec: DeviceSpec) -> list[Shape]:
        if given.orders:
            return shapes_of(spec)
        return listed(problems, spec, given.each, given.kernels, workers(), given.having)

    if given.list:
        from choice_fit import device

        listing(shapes_on(device()))
        return
    about = (
        {"of": given.of.name, "below": given.below}
        if given.of
        else {"seed": given.seed, "long": given.long}
    )
    about = {"squares": given.squares} if given.squares else about
    about |= {"having": given.having} if given.having else {}
    about = {"orders": True} if given.orders else about
    table(measure(given.json, given.seconds, about, shapes_on))


if __name__ == "__main__":
    main()
