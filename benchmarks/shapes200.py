r"""Products of random shapes, and of sizes beside multiples, by gemm's choice against cuBLAS.

    python benchmarks/shapes200.py --seconds 200 --json FILE           needs a CUDA device
    python benchmarks/shapes200.py --precision d --json FILE           of doubles, or c, or z
    python benchmarks/shapes200.py --list                              the shapes; no GPU
    python benchmarks/shapes200.py --below 0.95 --of FILE --json NEW   those that were slow in FILE

``--seed`` draws others: what a choice was fitted to is no witness for it.

200 shapes are drawn from a fixed seed: each dimension log-uniform in 64..8192, every case of
the transposes as often.  Then multiples of 512 and sizes one beside them (the cliff scan).
Each problem is multiplied in turns, ours, cuBLAS, ours, cuBLAS, on the config that `gemm`
chooses on this device; kernels are compiled before by a pool.  Beside the ratio stand the
errors of both on the same inputs: eta = max |C' - AB| / (|A| |B|) and the Frobenius norm of
C' - AB over that of |A| |B|, of some rows of C, against the sum in double precision (of doubles:
in the host's long doubles, of 64 bits on x86).  FILE is written after each shape; the table comes
last.  Where a choice was fitted to leading dimensions (`tilewright.library.choose.served`), what
was chosen by size alone is timed in the same turns, too ("unfitted"), and the fitted choice without
each parameter of `WITHOUT` that it has ("unstaged", "unguarded"); where operands are copied first,
what is chosen without copies, too ("uncopied").

``--configs FILE`` (as `likely.py` writes it) times also, of each shape, the ``--each`` configs of
FILE of which the shortest time is expected, once they have passed a tuner's check; those that
were faster than the choice at some shape are timed at squares in the end, for `ship.py`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hopper.beside import Beside
from hopper.cases import cases_of
from hopper.here import first_gpu
from hopper.named import json_file, named_in
from hopper.pool import compiled
from tilewright.paths import write_atomically
from tilewright.precision import precision
from tilewright.problem import Problem
from tilewright.stencil import Variant

COUNT, LEAST, MOST, SEED = 200, 64, 8192, 20261121
MULTIPLES = (512, 1024, 2048, 4096)
BESIDE = (-1, 0, 1)
# What is asked: the geometric mean, the worst shape, and what a size one above a multiple loses.
MEAN, WORST, CLIFF = 1.1, 0.9, 0.05
ROUNDS = 7
# Rows and columns of C whose errors are computed: a sum in double precision of every element
# costs seconds.
ROWS, COLUMNS = 16, 64
# Bytes drawn; longer matrices repeat them.
DRAWN = 2**26
# What bars are for, and what a choice is fitted to.
LETTER = "s"
# What is exact enough beside each precision.
WIDER = {"s": np.float64, "d": np.longdouble, "c": np.complex128, "z": np.clongdouble}
# Seconds that squares of what won beside a choice may take in the end.
SQUARES = 20
# What a choice may be fitted with, by the name of its twin without.
WITHOUT = {"unstaged": "staged", "unguarded": "guarded"}


def shapes(seed: int = SEED, letter: str = LETTER) -> list[Problem]:
    """Return the random shapes, the same in every run with a seed."""
    rng = np.random.default_rng(seed)
    sides = np.exp(rng.uniform(math.log(LEAST), math.log(MOST), (COUNT, 3))).round().astype(int)
    cases = itertools.cycle(cases_of(letter))
    return [
        Problem(*map(int, side), letter, *trans) for side, trans in zip(sides, cases, strict=False)
    ]


def long_sums(seed: int = SEED) -> list[Problem]:
    """Return as many random shapes of long sums over few tiles.

    One side is in 64..512, the other in 64..4096, k in 2048..8192.
    """
    rng = np.random.default_rng(seed)
    least, most = np.log([LEAST, LEAST, 2048]), np.log([512, 4096, MOST])
    found = np.exp(rng.uniform(least, most, (COUNT, 3))).round().astype(int)
    swapped = rng.random(COUNT) < 0.5
    found[swapped] = found[swapped][:, [1, 0, 2]]
    cases = itertools.cycle(cases_of(LETTER))
    return [
        Problem(*map(int, side), LETTER, *trans) for side, trans in zip(found, cases, strict=False)
    ]


def cliffs(letter: str = LETTER) -> list[Problem]:
    """Return squares whose sides are multiples, and one beside them."""
    return [
        Problem(n + beside, n + beside, n + beside, letter, *trans)
        for n, trans, beside in itertools.product(MULTIPLES, cases_of(letter), BESIDE)
    ]


def chosen(live: Any, problem: Problem, alone: bool = False) -> dict[str, Any]:
    """Return what `gemm` launches for a problem and, unless alone, its twins: each once."""
    from tilewright.library.choose import choose, served

    found = served(live, problem)
    if alone:
        return {"tilewright": found}
    twins = {
        name: replace(found, config=without(found.config, parameter))
        for name, parameter in WITHOUT.items()
    }
    first = {}
    for name, one in {"tilewright": found, **twins, "unfitted": choose(live, problem)}.items():
        first.setdefault(one.config, (name, one))
    return dict(first.values())


def without(config: Any, parameter: str) -> Any:
    """Return the config that does not name a parameter."""
    return type(config)(config.stencil, {k: v for k, v in config.items() if k != parameter})


def slow(path: Path, below: float) -> list[tuple[str, Problem]]:
    """Return kind and problem of an earlier run's rows below a ratio, and of those that failed."""
    made = json.loads(path.read_text())
    letter = made.get("precision", LETTER)
    return [
        (row["kind"], Problem(*(row[side] for side in "mnk"), letter, *row["trans"]))
        for row in made["rows"]
        if row.get("ratio", 0) < below
    ]


def compile_all(live: Any, problems: list[Problem], until: float, beside: Beside) -> None:
    """Compile what will be chosen, in processes of their own."""
    from tilewright.library.choose import served
    from tilewright.library.realigned import best_way

    found = {
        (one.precision.letter, one.trans, choice.config): None
        for one in problems
        for choice in (
            *chosen(live, one, beside.alone).values(),
            *beside.wanted(live.spec, one).values(),
        )
    } | dict.fromkeys((LETTER, *one) for one in beside.all())
    for way in (best_way(live, one, (True, True)) for one in problems):
        letter, trans = way.problem.precision.letter, way.problem.trans
        found[letter, trans, served(live, way.problem, way.aligned).config] = None
    jobs = list(found)
    print(f"{len(jobs)} kernels to compile", flush=True)
    for _ in compiled(live.arch, jobs, max(1, (os.cpu_count() or 2) - 1), until):
        pass


def reference(live: Any, load: Any) -> tuple[Any, Any, Any]:
    """Return which part of C is looked at, it in a wider precision, and |A| |B| there."""
    p = load.problem
    a, b = (np.empty(load.elements[name], p.precision.dtype) for name in "ab")
    live.download(load.memory["a"], a)
    live.download(load.memory["b"], b)
    rows, columns = (
        np.unique(np.linspace(0, side - 1, most).round().astype(int))
        for side, most in ((p.m, ROWS), (p.n, COLUMNS))
    )
    x = a.reshape(-1, p.lda)[rows] if p.trans_a.transposed else a.reshape(-1, p.lda)[:, rows].T
    y = b.reshape(-1, p.ldb)
    y = y[:, columns] if p.trans_b.transposed else y[columns].T
    x, y = (
        (one.conj() if trans.conjugated else one).astype(WIDER[p.precision.letter])
        for one, trans in ((x, p.trans_a), (y, p.trans_b))
    )
    return np.ix_(rows, columns), x @ y, np.abs(x) @ np.abs(y)


def errors(live: Any, load: Any, right: tuple[Any, Any, Any]) -> dict[str, float]:
    """Return eta and the relative Frobenius error of what is in C."""
    part, product, size = right
    c = np.empty((load.problem.n, load.problem.ldc), load.problem.precision.dtype)
    live.download(load.memory["c"], c)
    error = np.abs(c.T[part] - product)
    norms = float(np.linalg.norm(error)), float(np.linalg.norm(size))
    return {"eta": float((error / size).max()), "frobenius": norms[0] / norms[1]}


def run_of(live: Any, load: Any, choice: Any) -> Any:
    """Return what runs a choice once."""
    source = choice.stencil.source(choice.config, Variant.of(load.problem), live.dialect)
    kernel = live.compile(source)
    return lambda: load.run(kernel, choice.stencil, choice.config)


def shared(live: Any, letter: str = LETTER) -> dict[str, Any]:
    """Return memory for the largest problem, A and B random: drawing each would take long."""
    of = precision(letter)
    whole = of.element_bytes * (MOST + 1) ** 2
    real = of.dtype.type(0).real.dtype
    drawn = np.random.default_rng(SEED).standard_normal(DRAWN // real.itemsize, dtype=real)
    memory = {name: live.allocate(whole) for name in "abc"}
    for name, at in itertools.product("ab", range(0, whole, drawn.nbytes)):
        part = np.roll(drawn, at // 4096)[: (whole - at) // real.itemsize]
        live.write(memory[name], part, at)
    return memory


def race(
    live: Any, cublas: Any, memory: dict[str, Any], problem: Problem, beside: Beside
) -> dict[str, Any]:
    """Return a row: times of all in turns, their ratio and their errors."""
    from tilewright.bench.sweep import way_call
    from tilewright.library.choose import served
    from tilewright.library.realigned import way_of
    from tilewright.tuning.measure import Workload

    choices = chosen(live, problem, beside.alone)
    others, refused = beside.sound(live, problem, list(choices.values()))
    choice, load = choices["tilewright"], Workload(live, problem, memory)
    choices |= others
    try:
        calls = {name: run_of(live, load, one) for name, one in choices.items()}
        way = way_of(live, problem, load.call)
        if way.copies:  # what was chosen for operands as they lie is a twin then
            if not beside.alone:
                calls["uncopied"] = calls["tilewright"]
            choice = served(live, way.problem, way.aligned)
            calls["tilewright"] = way_call(load, way)
        calls["cublas"] = cublas.prepare(load)
        times: dict[str, list[int]] = {name: [] for name in calls}
        for turn, (name, call) in itertools.product(range(ROUNDS + 2), calls.items()):
            taken = call()
            if turn > 1:  # the first two warm up
                times[name].append(taken)
        medians = {name: float(np.median(ns)) for name, ns in times.items()}
        right, found = reference(live, load), {}
        for name, call in calls.items():
            call()
            found[name] = errors(live, load, right)
    finally:
        load.close()
    return {
        "stencil": choice.config.stencil, "id": choice.config.id, "config": dict(choice.config),
        "tuned_on": choice.tuned_on, "copies": list(way.copies), "ns": times, "errors": found,
        "ratio": medians["cublas"] / medians["tilewright"],
        "tflops": {name: problem.flops / ns / 1e3 for name, ns in medians.items()},
        "others": {name: dict(one.config) for name, one in others.items()}, "refused": refused,
    }  # fmt: skip


def row_of(
    live: Any, cublas: Any, memory: dict[str, Any], kind: str, problem: Problem, beside: Beside
) -> dict[str, Any]:
    """Return what came of a problem, or why nothing did."""
    about = {
        "kind": kind, "precision": problem.precision.letter, "trans": problem.trans,
        "m": problem.m, "n": problem.n, "k": problem.k,
    }  # fmt: skip
    try:
        return {**about, **race(live, cublas, memory, problem, beside)}
    except Exception as error:
        if getattr(live, "lost", None):
            raise
        return {**about, "reason": f"{type(error).__name__}: {error}".splitlines()[0]}


# ---- The table -----------------------------------------------------------------------------


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the geometric mean, the worst shapes, the losses and the errors."""
    made = [row for row in rows if "ratio" in row]
    random = sorted((row for row in made if row["kind"] == "shape"), key=lambda row: row["ratio"])
    ratios = [row["ratio"] for row in random]
    worse = {
        name: sum(row["errors"]["tilewright"][name] > row["errors"]["cublas"][name] for row in made)
        for name in ("eta", "frobenius")
    }
    return {
        "shapes": len(ratios),
        "failed": len(rows) - len(made),
        "mean": mean(ratios),
        # How much faster the choice is than its twins.
        "faster_than": {name: twins(made, name) for name in ("unfitted", "uncopied", *WITHOUT)},
        "below_worst": sum(ratio < WORST for ratio in ratios),
        "slowest": [{key: row[key] for key in (*"mnk", "trans", "ratio")} for row in random[:8]],
        "cliffs": losses(made),
        "larger_error_than_cublas": worse,
        "errors_compared": len(made),
    }


def twins(rows: list[dict[str, Any]], name: str) -> dict[str, Any] | None:
    """Return how many choices have such a twin, by how much they are faster, and the worst."""
    rates = [row["tflops"] for row in rows if name in row["tflops"]]
    ratios = [rate["tilewright"] / rate[name] for rate in rates]
    return {"rows": len(ratios), "mean": mean(ratios), "least": min(ratios)} if ratios else None


def mean(ratios: list[float]) -> float | None:
    """Return the geometric mean, if there is one."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None


def losses(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return how much rate each size beside a multiple loses against the multiple."""
    rates = {(row["trans"], row["n"]): row["tflops"] for row in rows if row["kind"] == "cliff"}
    found = []
    cases = dict.fromkeys(trans for trans, _ in rates)
    for n, trans, beside in itertools.product(MULTIPLES, cases, BESIDE):
        if beside and (trans, n) in rates and (trans, n + beside) in rates:
            loss = {
                name: 1 - rates[trans, n + beside][name] / rates[trans, n][name]
                for name in ("tilewright", "cublas")
            }
            found.append({"trans": trans, "n": n + beside, "loss": loss})
    return found


def lines(rows: list[dict[str, Any]]) -> None:
    """Print each row that has a twin: its rate and its twins' as ratios to cuBLAS's."""
    print("ratios to cuBLAS of rows with twins:")
    for row in rows:
        names = [name for name in row.get("tflops", ()) if name not in ("tilewright", "cublas")]
        if not names:
            continue
        theirs = row["tflops"]["cublas"]
        others = ", ".join(f"{name} {row['tflops'][name] / theirs:.3f}" for name in names)
        shape = f"{row['trans']} {row['m']:5} {row['n']:5} {row['k']:5}"
        print(f"  {shape}  {row['ratio']:.3f}  {others}")


def table(rows: list[dict[str, Any]]) -> None:
    """Print what a person wants to know."""
    told = summary(rows)
    print(f"{told['shapes']} random shapes, {told['failed']} problems failed")
    if told["mean"]:
        print(f"geometric mean {told['mean']:.3f} of cuBLAS (wanted {MEAN});", end=" ")
        print(f"{told['below_worst']} below {WORST}; the slowest:")
    for row in told["slowest"]:
        print(f"  {row['trans']} {row['m']:5} {row['n']:5} {row['k']:5}  {row['ratio']:.3f}")
    for name, than in told["faster_than"].items():
        if than:
            print(f"times the rate of {name}, {than['rows']} rows:", end=" ")
            print(f"{than['mean']:.3f}, at worst {than['least']:.3f}")
    print(f"rate lost beside a multiple (wanted: at most {CLIFF:.0%}), ours and cuBLAS's:")
    for row in told["cliffs"]:
        ours, theirs = row["loss"]["tilewright"], row["loss"]["cublas"]
        print(f"  {row['trans']} {row['n']:5}  {ours:7.1%} {theirs:7.1%}")
    overtaken(rows)
    worse = told["larger_error_than_cublas"]
    print(
        f"error above cuBLAS's: eta {worse['eta']}, Frobenius {worse['frobenius']} times", end=" "
    )
    print(f"of {told['errors_compared']}")


def overtaken(rows: list[dict[str, Any]]) -> None:
    """Print which of other configs were faster than what `gemm` chose, and what was refused."""
    for row in rows:
        rates = {name: row["tflops"][name] for name in row.get("others", {})}
        best = max(rates, key=rates.__getitem__, default=None)
        if best and rates[best] > row["tflops"]["tilewright"]:
            shape = f"{row['trans']} {row['m']:5} {row['n']:5} {row['k']:5}"
            ratio = rates[best] / row["tflops"]["cublas"]
            print(f"  {shape}  {row['ratio']:.3f}, by {best} {ratio:.3f}: {row['others'][best]}")
    for name, why in {key: v for row in rows for key, v in row.get("refused", {}).items()}.items():
        print(f"  {name} was refused: {why}")


def write(path: Path, made: dict[str, Any]) -> None:
    """Write what is known so far."""
    whole = {**made, "summary": summary(made["rows"])}
    write_atomically(path, json.dumps(whole, indent=1).encode())


def everything(seed: int, letter: str = LETTER) -> list[tuple[str, Problem]]:
    """Return shapes and cliffs in turns, each with its kind."""
    drawn, beside = shapes(seed, letter), cliffs(letter)
    lists = [("shape", one) for one in drawn], [("cliff", one) for one in beside]
    return [job for turn in itertools.zip_longest(*lists) for job in turn if job]


def measure(
    path: Path, seconds: float, jobs: list[tuple[str, Problem]], seed: int, beside: Beside
) -> list[dict[str, Any]]:
    """Race problems, each with its kind, until the time is up."""
    from tilewright.bench.peers.cublas import CuBLAS
    from tilewright.bench.record import device_record, environment_record
    from tilewright.bench.sweep import Method

    started = time.time()
    live = first_gpu()
    cublas = CuBLAS(live)
    letter = jobs[0][1].precision.letter if jobs else LETTER
    made: dict[str, Any] = {
        "precision": letter,
        "environment": environment_record(Method(ROUNDS)),
        "device": device_record(live, [cublas]),
        "seed": seed,
        "rows": [],
    }
    compile_all(live, [one for _, one in jobs], started + seconds / 3, beside)
    memory, said = shared(live, letter), time.time()
    for kind, one in jobs:
        if time.time() - started > seconds:
            break
        made["rows"].append(row_of(live, cublas, memory, kind, one, beside))
        if time.time() - said > 5:
            said = time.time()
            print(f"{said - started:5.0f} s: {len(made['rows'])} of {len(jobs)}", flush=True)
            write(path, made)
    write(path, made)
    made["squares"] = beside.squares(live, memory, made["rows"], started + seconds + SQUARES)
    write(path, made)
    return made["rows"]


def main() -> None:
    parse = argparse.ArgumentParser(description=__doc__)
    parse.add_argument("--seconds", type=float, default=200)
    parse.add_argument("--json", type=Path, default=Path("shapes200.json"))
    parse.add_argument("--seed", type=int, default=SEED, help="that shapes are drawn from")
    parse.add_argument("--precision", choices=sorted(WIDER), default=LETTER)
    parse.add_argument("--list", action="store_true", help="print the shapes and end")
    parse.add_argument("--below", type=float, help="only what had a lower ratio, in the file of")
    parse.add_argument("--of", type=Path, help="an earlier run's results")
    parse.add_argument("--configs", type=json_file, help="others to time beside gemm's choice")
    parse.add_argument("--each", type=int, default=4, help="so many of them of a shape")
    parse.add_argument("--alone", action="store_true", help="gemm's choice without its twins")
    given = parse.parse_args()
    if (given.below is None) != (given.of is None):
        parse.error("--below and --of belong together: a ratio, and a file of an earlier run")
    try:
        jobs = slow(given.of, given.below) if given.of else everything(given.seed, given.precision)
    except (OSError, ValueError, KeyError) as error:
        parse.error(f"--of={given.of} has no rows of an earlier run: {error!r}")
    if given.of and any(one.precision.letter != given.precision for _, one in jobs):
        parse.error(f"--of={given.of} is of precision {jobs[0][1].precision.letter}; name it")
    if given.list:
        for _, one in jobs:
            print(one.trans, one.m, one.n, one.k)
        return
    if given.configs and any(one.precision.letter != LETTER for _, one in jobs):
        parse.error(f"--configs is for shapes in precision {LETTER}; leave it out for others")
    try:
        named = named_in(given.configs, LETTER, cases_of(LETTER)) if given.configs else {}
    except ValueError as error:
        parse.error(str(error))
    beside = Beside(named, given.each, given.alone)
    rows = measure(given.json, given.seconds, jobs, given.seed, beside)
    lines(rows)
    table(rows)


if __name__ == "__main__":
    main()
