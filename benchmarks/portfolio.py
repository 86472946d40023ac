r"""A few configs for all shapes: picked from races of many, then timed on many shapes each.

    python benchmarks/portfolio.py --pick --json PICKED             from wide_*.json; no GPU
    python benchmarks/portfolio.py --pick --of FILE --json PICKED   those of FILE that count; no GPU
    python benchmarks/portfolio.py --only PICKED --seconds 200 --json FILE      needs an H100
    python benchmarks/portfolio.py --precision d ...                of doubles, or c, or z

What is fast at one random shape is not known at the next: a cost model that ranks thousands of
configs picks those that it is most wrong about.  So a portfolio is picked, greedily: the config
that takes most off the time of all shapes that `wide.py` raced, then the next; a time that was not
taken counts as the costs of `library/cycles.py` carry it over from the config's others.  Winners at
squares are in it from the start, the largest of their blocks cut into slices, and the best orders
of large blocks that copy single elements.  A later portfolio is what counts of
an earlier one, and the shapes with layers of warps that short squares like (`--of`).
Each is then timed on every shape of its case (random
ones of `SEEDS`, which no test is made of, and squares), fitted to it as `gemm` would (narrow,
guarded, staged), after a tuner's check, and `ship.py` puts the times into the table, from which
`gemm` chooses for a shape by what its neighbours took.  ``--beside FILE`` times configs that FILE
has not, ``--more FILE`` the configs of FILE on shapes that it has not.

In other precisions nothing was raced at random shapes: candidates are those of
`hopper/portfolio_space.py` and what won at squares.  All are timed on all shapes, and the table
gets what counts of them.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import ship
from hopper.named import json_file, named_in
from hopper.pool import compiled
from hopper.portfolio_single import layered, picked, raced, winners
from hopper.portfolio_space import CASES, FAMILIES, candidates, what_counts
from hopper.timer import ROUNDS, Timer, fit
from shapes200 import LETTER, long_sums, shapes
from tilewright.backend import DeviceLostError
from tilewright.library.waves import Timed, expected_ns
from tilewright.paths import write_atomically
from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.stencil import stencil

# Every third random shape is rounded up to whole vectors, as most that people have are.
ALIGNED = 3
# Long sums over few tiles come besides, half as many: there times of configs differ most.
LONG_SEED = 6
# Those sums are long, of random shapes too, and have few tiles: k, and the shorter side at most.
LONG_K, LONG_SIDE = 2048, 512
SEEDS, SQUARES = (3, 4), (512, 1024, 2048, 3072, 4096, 6144, 8192)
# In other precisions also squares one above a multiple, which people try first.
ONE_ABOVE = (513, 1025, 2049)
# In these, whose kernels are many: real multiply-adds of a problem at most, 2 ms.
MOST_MULTIPLIED = 2**36
MULTIPROCESSORS = 132
Row = dict[str, Any]


# ---- Which -----------------------------------------------------------------------------------


def pick(path: Path, letter: str) -> None:
    """Write the portfolio as a list of candidates."""
    from choice_fit import device

    spec = device()
    if letter == LETTER:
        found = {trans: picked(trans, times, spec) for trans, times in raced().items()}
    else:
        found = {
            trans: [*dict.fromkeys((*winners(trans, letter), *candidates(letter, trans, spec)))]
            for trans in CASES
        }
    write_list(path, letter, found)


def write_list(path: Path, letter: str, found: dict[str, list[Config]]) -> None:
    """Write configs by case as `named_in` reads them."""
    rows = [
        {"precision": letter, "trans": trans, "stencil": one.stencil, "config": dict(one)}
        for trans, configs in found.items()
        for one in configs
    ]
    write_atomically(path, f"[\n{ship.lines(rows)}\n]\n".encode())


def thinned(made: Row, trans: str) -> list[Config]:
    """Return, greedily, the configs of earlier results that are the best at their shapes."""
    configs = configs_of(made)[trans]
    kept = what_counts(configs, [row["ns"] for row in made["rows"] if row["trans"] == trans])
    return [configs[at] for at in kept]


def pick_of(path: Path, made: Row) -> None:
    """Write what counts of earlier results, in single precision with what has layers."""
    letter, found = letter_of(made), {}
    for trans in CASES:
        more = layered(trans) if letter == LETTER else ()
        found[trans] = list(dict.fromkeys([*thinned(made, trans), *more]))
    write_list(path, letter, found)


# ---- How fast --------------------------------------------------------------------------------


def problems(trans: str, each: int, letter: str = LETTER) -> list[Problem]:
    """Return random shapes of a case, and squares."""
    random = [p for seed in SEEDS for p in shapes(seed) if p.trans == trans][:each]
    long = [p for p in long_sums(LONG_SEED) if p.trans == trans][: each // 2]
    for some in (random, long):  # apart: the same ones, however many there are
        some[::ALIGNED] = map(aligned, some[::ALIGNED])
    sizes = SQUARES if letter == LETTER else (*SQUARES, *ONE_ABOVE)
    found = random + long + [Problem(n, n, n, LETTER, *trans) for n in sizes]
    if letter == LETTER:
        return found
    made = [Problem(p.m, p.n, p.k, letter, *trans) for p in found]
    products = 4 if made[0].precision.is_complex else 1
    return [p for p in made if products * p.m * p.n * p.k <= MOST_MULTIPLIED]


def aligned(problem: Problem) -> Problem:
    """Return the shape of whole vectors that has it."""
    sides = (-(-side // 8) * 8 for side in (problem.m, problem.n, problem.k))
    return Problem(*sides, LETTER, *problem.trans)


def joined(known: Row, made: Row) -> Row:
    """Return results with the configs of another run, on the same shapes, behind those there are.

    Two runs' clocks differ by a per cent or two: the environment says when which were timed.
    """
    shape = ("trans", "m", "n", "k")
    of = {tuple(row[x] for x in shape): row for row in made["rows"]}
    rows = [
        {**row, "ns": [*row["ns"], *of[tuple(row[x] for x in shape)]["ns"]]}
        for row in known["rows"]
        if tuple(row[x] for x in shape) in of
    ]
    configs = {trans: [*ones, *made["configs"][trans]] for trans, ones in known["configs"].items()}
    refused = known["refused"] | made["refused"]
    run = {name: made["environment"][name] for name in ("date", "commit")}
    run["configs"] = {trans: len(ones) for trans, ones in made["configs"].items()}
    environment = known["environment"]
    environment = {**environment, "beside": [*environment.get("beside", []), run]}
    return {
        **known, "environment": environment, "rows": rows, "configs": configs, "refused": refused
    }  # fmt: skip


def letter_of(known: Row) -> str:
    """Return the precision of results."""
    return str(known.get("precision", LETTER))


def shapes_of(known: Row) -> dict[str, list[Problem]]:
    """Return the shapes of results, by case."""
    letter = letter_of(known)
    return {
        trans: [
            Problem(row["m"], row["n"], row["k"], letter, *trans)
            for row in known["rows"]
            if row["trans"] == trans
        ]
        for trans in CASES
    }


def configs_of(known: Row) -> dict[str, list[Config]]:
    """Return the configs of results, by case."""
    family = FAMILIES[letter_of(known)]
    return {
        trans: [Config(family, one) for one in ones] for trans, ones in known["configs"].items()
    }


def without(these: dict[str, list[Any]], known: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Return what is not known, by case."""
    return {trans: [x for x in these.get(trans, ()) if x not in known[trans]] for trans in known}


def longer(known: Row, made: Row) -> Row:
    """Return results with those of the same configs on more shapes; the environment says when."""
    refused = known["refused"] | made["refused"]
    run = {name: made["environment"][name] for name in ("date", "commit")}
    run["shapes"] = dict(Counter(row["trans"] for row in made["rows"]))
    environment = known["environment"]
    environment = {**environment, "more": [*environment.get("more", []), run]}
    rows = [*known["rows"], *made["rows"]]
    return {**known, "environment": environment, "rows": rows, "refused": refused}


def measure(
    path: Path,
    named: dict[str, list[Config]],
    wanted: dict[str, list[Problem]],
    seconds: float,
    as_written: Callable[[Row], Row],
) -> None:
    """Compile all, time them on what shapes there is time for, and write what came of it."""
    from tilewright.bench.record import device_record, environment_record
    from tilewright.bench.sweep import Method

    if not any(wanted.values()) or not any(named.values()):
        print("nothing to time that was not timed")
        return
    until = time.time() + seconds
    letter = next(one for ones in wanted.values() for one in ones).precision.letter
    timer = Timer(letter)
    spec = timer.live.spec
    made = {"precision": letter, "environment": environment_record(Method(ROUNDS))}
    made |= {"device": device_record(timer.live, []), "rows": []}
    jobs = dict.fromkeys(
        (letter, trans, fit(config, problem, spec))
        for trans, configs in named.items()
        for config, problem in itertools.product(configs, wanted[trans])
        if stencil(config.stencil).takes(config, problem)
    )
    print(f"{len(jobs)} kernels to compile", flush=True)
    for _ in compiled(timer.live.arch, list(jobs), max(1, (os.cpu_count() or 2) - 1), until):
        pass
    print(f"compiled, {until - time.time():.0f} s left", flush=True)
    made["configs"] = {trans: [dict(one) for one in configs] for trans, configs in named.items()}

    def save(**lost: str) -> None:
        reasons = {str(key[1]): why for key, why in timer.kernels.items() if isinstance(why, str)}
        made["refused"] = reasons | lost
        write(path, as_written(made))

    # A row of shapes at a time, so that what is cut off is cut off everywhere.
    for at in range(max(map(len, wanted.values()))):
        for trans, configs in named.items():
            if at >= len(wanted[trans]) or time.time() > until:
                continue
            problem = wanted[trans][at]
            try:
                ns = timer.times(problem, configs)
            except DeviceLostError as error:
                save(**{str(timer.doing): str(error)})
                sys.exit(f"{path.name}: {trans}, {timer.doing}: {error}; leave it out of --only")
            made["rows"].append(
                {"trans": trans, "m": problem.m, "n": problem.n, "k": problem.k, "ns": ns}
            )
        save()
    print(f"{len(made['rows'])} shapes, {len(made['refused'])} kernels refused")


def write(path: Path, made: dict[str, Any]) -> None:
    """Write a row of times a line."""
    head = {"precision": letter_of(made)}  # files of single precision are older than others
    head |= {name: made[name] for name in ("environment", "device", "refused")}
    configs = ",\n".join(
        f' "{trans}": [\n{ship.lines(rows)}\n ]' for trans, rows in made["configs"].items()
    )
    text = json.dumps(head, indent=1)[:-2] + f',\n "configs": {{\n{configs}\n}}'
    write_atomically(path, f'{text},\n "rows": [\n{ship.lines(made["rows"])}\n]}}\n'.encode())


# ---- What it says ----------------------------------------------------------------------------


def portfolio_file(parse: argparse.ArgumentParser, path: Path, letter: str | None) -> Row:
    """Return what this program wrote, of a precision if one is named, or end with what is wrong."""
    try:
        made = json.loads(json_file(str(path)).read_bytes())
    except argparse.ArgumentTypeError as error:
        parse.error(str(error))
    if not isinstance(made, dict) or not isinstance(made.get("configs"), dict):
        parse.error(f"{path} has no results of portfolio.py; give a file that it wrote")
    if letter and letter != letter_of(made):
        parse.error(f"{path} is of --precision {letter_of(made)}; name that, or none")
    return cast(Row, made)


def table(made: Row) -> None:
    """Print how near to the best a choice by neighbours comes, each shape left out in turn."""
    from choice_fit import device

    spec, every = device(), shapes_of(made)
    for trans, configs in configs_of(made).items():
        rows, shapes_ = [row for row in made["rows"] if row["trans"] == trans], every[trans]
        lost = [
            left_out(at, shapes_, [row["ns"] for row in rows], configs, spec)
            for at in range(len(rows))
        ]
        print(f"{trans}: {len(rows)} shapes, {statistics.geometric_mean(lost):.3f} of the best"
              f" time, at worst {max(lost):.2f}")  # fmt: skip
    won = [x for one in made["configs"] for x in of_slices(made, one)]
    print(f"long sums, of slices: the fastest at {sum(x > 1 for x in won)} of {len(won)}, by up to"
          f" {max(won):.2f} times")  # fmt: skip


def of_slices(made: Row, trans: str) -> list[float]:
    """Return, of each long sum, the least time without slices over the least with them."""
    cut = [bool(one.get("sliced")) for one in made["configs"][trans]]
    found = []
    for row in (row for row in made["rows"] if row["trans"] == trans):
        long = row["k"] >= LONG_K > LONG_SIDE >= min(row["m"], row["n"])
        times = list(zip(row["ns"], cut, strict=True))
        ours, others = ([ns for ns, of in times if ns and of is kind] for kind in (True, False))
        if long and ours and others:
            found.append(min(others) / min(ours))
    return found


def left_out(
    at: int, shapes_: list[Problem], ns: list[list[Any]], configs: list[Config], spec: Any
) -> float:
    """Return the time of what is chosen for a shape by all others' times, over the least."""
    expected = {}
    for i, config in enumerate(configs):
        times = {p: row[i] for p, row in zip(shapes_, ns, strict=True) if row[i] is not None}
        mine = times.pop(shapes_[at], None)
        if times and mine is not None:
            ahead = expected_ns(Timed(config, times), shapes_[at], spec, MULTIPROCESSORS)
            expected[ahead] = mine
    return float(expected[min(expected)] / min(expected.values()))


def main() -> None:
    parse = argparse.ArgumentParser(description=__doc__)
    parse.add_argument("--pick", action="store_true", help="write the portfolio and end; no GPU")
    parse.add_argument("--of", type=json_file, help="earlier results that --pick thins out")
    parse.add_argument("--table", action="store_true", help="say what FILE tells; no GPU")
    parse.add_argument("--only", type=json_file, help="the portfolio")
    parse.add_argument("--beside", type=json_file, help="earlier results, which get what is new")
    parse.add_argument("--more", type=json_file, help="earlier results, which get more shapes")
    parse.add_argument(
        "--precision", choices=sorted(FAMILIES), help="s by default, or that of FILE"
    )
    parse.add_argument("--each", type=int, default=90, help="random shapes of a case")
    parse.add_argument("--seconds", type=float, default=200)
    parse.add_argument("--json", type=Path, required=True)
    given = parse.parse_args()
    if given.more and (given.only or given.beside):
        parse.error("--more times the configs of its FILE; leave --only and --beside out")
    if given.beside and not given.only:
        parse.error("--beside FILE is for what --only names; give both")
    if given.of and not given.pick:
        parse.error("--of thins out what --pick writes; give both")
    if given.pick and given.of:
        pick_of(given.json, portfolio_file(parse, given.of, given.precision))
    elif given.pick:
        pick(given.json, given.precision or LETTER)
    elif given.table:
        table(portfolio_file(parse, given.json, given.precision))
    elif given.more:
        known = portfolio_file(parse, given.more, given.precision)
        letter = letter_of(known)
        shapes_ = without({t: problems(t, given.each, letter) for t in CASES}, shapes_of(known))
        measure(
            given.json, configs_of(known), shapes_, given.seconds, functools.partial(longer, known)
        )
    elif given.beside and given.only:
        known = portfolio_file(parse, given.beside, given.precision)
        named = without(named_in(given.only, letter_of(known), CASES), configs_of(known))
        whole = functools.partial(joined, known)
        measure(given.json, named, shapes_of(known), given.seconds, whole)
    elif given.only:
        letter = given.precision or LETTER
        named = named_in(given.only, letter, CASES)
        if not any(named.values()):
            parse.error(f"--only={given.only} names no configs of --precision {letter}")
        shapes_ = {trans: problems(trans, given.each, letter) for trans in CASES}
        measure(given.json, named, shapes_, given.seconds, lambda made: made)
    else:
        parse.error("give --only PICKED, --more FILE or --pick")


if __name__ == "__main__":
    main()
