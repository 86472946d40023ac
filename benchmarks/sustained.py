r"""Large products beside cuBLAS, each for a second on end: at its own clock.

    python benchmarks/sustained.py --precision z --seconds 200 --json FILE     needs a CUDA device
    python benchmarks/sustained.py --precision z --list                        what is raced; no GPU
    python benchmarks/sustained.py --table --json FILE                         only prints FILE

At its power limit a device shares one clock among all that take turns launch by launch
(`tilewright.bench.turns`).  Here turns are of `TURN` seconds: ours, cuBLAS, ours, cuBLAS.  First
each candidate has a turn: the winner of the race by launches (``hopper_z.json`` and its like), what
was fastest in its search, one of each shape, and rows of ``--also``; the fastest then meets cuBLAS.
Every candidate is checked before.  FILE is written after each race; with ``--keep`` it has another
file's races as well, but those that were run anew.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import ship
from hopper.cases import ASKED, asked_cases, variant_of
from hopper.named import json_file, named_in, sides
from hopper.pool import compiled
from tilewright.bench.turns import SETTLED
from tilewright.paths import write_atomically
from tilewright.space import Config
from tilewright.stencil import stencil

# Sizes whose races name the power cap, or may.
SIZES = {"s": (8192, 16384), "d": (4096, 8192), "c": (8192,), "z": (2048, 4096, 8192)}
# Seconds: an H100's clock settles within half a second (its sensor of power needs another).
TURN, TRIAL, TURNS = 1.0, 0.8, 2
# What tells shapes of candidates apart, and how many have a turn.
SHAPE = ("block_m", "block_n", "warp_m", "tile_m", "resident", "planar", "tma", "mma_k")
CANDIDATES = 3
# The largest size that a search times candidates on.
SEARCHED = 8192
Row = dict[str, Any]


def shape_of(config: Config) -> tuple[Any, ...]:
    """Return what tells a candidate's shape."""
    return tuple(config.get(name) for name in SHAPE)


def candidates(letter: str, trans: str, size: int, also: list[Config]) -> list[Config]:
    """Return the winner of a race by launches, then what was fast in its search, then others."""
    log = [row for row in ship.load(f"hopper_{letter}.json")["log"] if row.get("trans") == trans]
    won = [r for r in log if r["kind"] == "final" and r["size"] == size and "config" in r]
    found = [Config(row["stencil"], row["config"]) for row in won]
    at = str(min(size, SEARCHED))
    tried = [row for row in log if row["kind"] == "tried" and at in row["ns"]]
    seen = {shape_of(one) for one in found}
    for row in sorted(tried, key=lambda row: float(row["ns"][at])):
        config = Config(row["stencil"], row["config"])
        if len(found) < CANDIDATES and shape_of(config) not in seen:
            seen.add(shape_of(config))
            found.append(config)
    return list(dict.fromkeys([*found, *also]))


def plan(given: argparse.Namespace) -> Iterator[tuple[str, int, list[Config]]]:
    """Yield case, size and candidates of each race, all cases of a size together."""
    named = named_in(given.also, given.precision, given.cases) if given.also else {}
    for size in given.sizes:
        for trans in given.cases:
            also = named.get(trans, [])
            yield trans, size, candidates(given.precision, trans, size, also)


def ready(
    given: argparse.Namespace, arch: str, until: float
) -> Iterator[tuple[str, int, list[Config]]]:
    """Compile in all processes at once, then yield what `plan` does but what was refused."""
    races = list(plan(given))
    jobs = dict.fromkeys((given.precision, trans, c) for trans, _, tried in races for c in tried)
    made = {
        (trans, config)
        for _, trans, config, reason in compiled(arch, list(jobs), given.workers, until)
        if not reason
    }
    for trans, size, tried in races:
        if found := [one for one in tried if (trans, one) in made]:
            yield trans, size, found


def turn(live: Any, call: Callable[[], int], seconds: float = TURN) -> Row:
    """Launch for a turn: counted times in ns, and the clock and power meanwhile."""
    from tilewright.bench.turns import turn_of

    return asdict(turn_of(live, call, seconds))


def checked(bench: Any, load: Any, config: Config) -> Callable[[], int]:
    """Return a function that runs a candidate, which was checked before."""
    from tilewright.tuning.verify import screen

    trans = load.problem.trans
    kernel, family = bench.kernel(trans, config), stencil(config.stencil)
    screen(bench.live, kernel, family, config, variant_of(bench.letter, trans))
    return lambda: int(load.run(kernel, family, config))


def race(bench: Any, trans: str, size: int, tried: list[Config]) -> Row:
    """Return the row of a race: a turn of each candidate, then the fastest and cuBLAS in turns."""
    load, letter, live = bench.workload(trans, size), bench.letter, bench.live
    calls = {config: checked(bench, load, config) for config in tried}
    turn(live, calls[tried[0]], TRIAL)  # the first would find a cool device
    trials = {config: turn(live, call, TRIAL) for config, call in calls.items()}
    flops = load.problem.flops

    def rate(turns: list[Row]) -> float:
        return float(flops / np.median([ns for one in turns for ns in one["ns"]]) / 1e3)

    best = max(trials, key=lambda config: rate([trials[config]]))
    in_turn = {"tilewright": calls[best], "cublas": bench.cublas.prepare(load)}
    turns: dict[str, list[Row]] = {name: [] for name in in_turn}
    for _ in range(TURNS):
        for name, call in in_turn.items():
            turns[name].append(turn(live, call))
    rates = {name: rate(of) for name, of in turns.items()}
    return {
        "precision": letter, "trans": trans, "size": size, "wanted": ASKED[letter].bar(trans, size),
        "stencil": best.stencil, "id": best.id, "config": dict(best), "tflops": rates,
        "ratio": rates["tilewright"] / rates["cublas"], "turns": turns,
        "trials": [
            {"stencil": c.stencil, "config": dict(c), "tflops": rate([t]),
             "clock_hz": t["clock_hz"], "power_w": t["power_w"]}
            for c, t in trials.items()
        ],
    }  # fmt: skip


def told(row: Row) -> str:
    """Return a race in a line: rates, ratio, and each one's clock and energy."""
    parts = [f"{row['precision']} {row['trans']} {row['size']:5}"]
    for name, turns in row["turns"].items():
        clock = np.median([one["clock_hz"] or np.nan for one in turns]) / 1e9
        power = np.median([one["power_w"] or np.nan for one in turns])
        rate = row["tflops"][name]
        parts.append(f"{rate:5.1f} at {clock:.3f} GHz, {2 * power / rate:.1f} pJ")
    wanted = row["wanted"]
    bar = "" if wanted is None else f" of {wanted}{'*' if row['ratio'] >= wanted else ''}"
    return f"{parts[0]}: {parts[1]} | {parts[2]} | {row['ratio']:.3f}{bar}"


def kept_rows(path: Path) -> list[Row]:
    """Return an earlier file's rows, which say of which run they are (``of``)."""
    earlier = json.loads(path.read_bytes())
    run = {name: earlier["environment"][name] for name in ("date", "commit")}
    return [{"of": run} | row for row in earlier["rows"]]


def measure(given: argparse.Namespace) -> None:
    """Race until the time is over, and write the file after each race."""
    from hopper.bench import Bench
    from hopper.log import Log
    from tilewright.bench.record import device_record, environment_record

    stop = time.time() + given.seconds
    bench = Bench(Log(given.json.with_suffix(".log")), given.precision, max(given.sizes))
    file: Row = {
        "about": f"Large products beside cuBLAS, turns of {TURN} s, of which the first"
        f" {SETTLED:.0%} do not count: each at its own clock (python benchmarks/sustained.py).",
        "environment": environment_record(),
        "device": device_record(bench.live, [bench.cublas]),
        "rows": [],
    }
    kept = kept_rows(given.keep) if given.keep else []
    rows: list[Row] = []
    for trans, size, tried in ready(given, bench.live.arch, stop):
        if time.time() > stop:
            break
        rows.append(race(bench, trans, size, tried))
        print(told(rows[-1]), flush=True)
        again = {(row["precision"], row["trans"], row["size"]) for row in rows}
        file["rows"] = [
            *(row for row in kept if (row["precision"], row["trans"], row["size"]) not in again),
            *rows,
        ]
        write_atomically(given.json, (json.dumps(file, indent=1) + "\n").encode())


def arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return what the command line asks for."""
    parse = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parse.add_argument("--precision", default="z", choices=tuple(SIZES))
    parse.add_argument("--trans", help="cases, with commas between; all by default")
    parse.add_argument("--sizes", type=sides, help="with commas between")
    parse.add_argument("--also", type=json_file, help="a list of more candidates")
    parse.add_argument("--keep", type=json_file, help="an earlier FILE, whose other races are kept")
    parse.add_argument("--seconds", type=float, default=200)
    parse.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parse.add_argument("--json", type=Path, default=Path("sustained.json"))
    parse.add_argument("--list", action="store_true", help="count the candidates and end")
    parse.add_argument("--table", action="store_true", help="print a file and end")
    given = parse.parse_args(arguments)
    try:
        given.cases = asked_cases(given.precision, given.trans)
    except ValueError as error:
        parse.error(str(error))
    given.sizes = given.sizes or SIZES[given.precision]
    if given.table:
        try:
            json_file(str(given.json))
        except argparse.ArgumentTypeError as error:
            parse.error(f"argument --json: {error}")
    return given


def main() -> None:
    given = arguments()
    if given.table:
        for row in json.loads(given.json.read_bytes())["rows"]:
            print(told(row))
    elif given.list:
        for trans, size, tried in plan(given):
            print(trans, size, len(tried))
    else:
        measure(given)


if __name__ == "__main__":
    main()
