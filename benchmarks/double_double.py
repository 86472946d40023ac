"""Double-double GEMM on one device: right, accurate enough, and how fast.

    python benchmarks/double_double.py [--device cuda:0] [--seconds 60] [--json FILE]
        [--precision e,f] [--trans NN,NT,TN,TT] [--sizes 1024,2048,4096,8192]
        [--scan 40] [--families portable,simt_async] [--samples N] [--against flint,object]

For each precision and transpose the stencil's likely configs (and --samples drawn ones, and
what was tuned before) are compiled on all cores, checked bit for bit on small problems, and
timed on the smallest sizes; the best go on to the larger ones.  Then the winner of each is
certified, and its eta measured at k = 4096 for phi 0 and 2.  --scan times the candidates on so
many sizes from the smallest to the largest, those of which the least and the most is expected
among them, and says how flat they are (double_double_scan.py); what won most of these sizes is
certified too.  When --seconds are up it stops; the file is written after each part.  Rates count
2 m n k; the bound is the one for the kernels' own sequence of instructions.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tw
from clock import Clock
from double_double_candidates import FEW, MANY, likely
from double_double_predict import square, timed_of
from double_double_scan import scan, scan_table, sizes_to_scan
from tilewright.backend import GemmCall, Operand
from tilewright.bench.record import device_record, environment_record
from tilewright.bench.sweep import Method
from tilewright.bounds.double_double import SEQUENCE_OF
from tilewright.double_double import error_of_product, random
from tilewright.precision import precision
from tilewright.problem import Problem, Trans
from tilewright.stencil import Stencil, Variant, stencil, stencils
from tilewright.tuning.matrices import Matrix, apply, normal
from tilewright.tuning.verify import Bench, Check, certify, screen

# Elements drawn; longer matrices repeat them: drawing a gigabyte takes longer than the rest.
POOL = 2**21

# Configs that go on to sizes above 2048, and to those above 4096, where a run takes a second.
KEPT, LAST = 2, 1

# Times the best's time on one size, up to which a candidate may be the best on another.
NEAR = 1.12

# What the scan leaves for each variant's accuracy.
SECONDS_TO_CERTIFY = 3.0

# Seconds of repetitions, beyond which one run is enough.
ENOUGH = 0.4


class Memory:
    """A, B and C of the largest size, drawn once: a smaller problem uses their beginning."""

    def __init__(self, live: Any, row: Any, size: int) -> None:
        pool = normal(np.random.default_rng(0), (POOL,), row)
        whole = np.resize(pool, size * size)
        self.live = live
        self.parts = [
            live.upload(whole),
            live.upload(np.roll(whole, 7)),
            live.allocate(whole.nbytes),
        ]

    def arguments(self, problem: Problem) -> tuple[Any, ...]:
        """Return a launch's arguments for a problem."""
        p = problem
        leading = p.lda, p.ldb, p.ldc
        a, b, c = (Operand(m, 0, ld) for m, ld in zip(self.parts, leading, strict=True))
        return GemmCall(p.precision, p.m, p.n, p.k, 1, a, b, 0, c).arguments()

    def close(self) -> None:
        """Give the memory back."""
        for part in self.parts:
            self.live.free(part)


def compiled(
    live: Any, variants: list[Variant], families: list[Stencil], samples: int, clock: Clock
) -> dict[Any, list]:
    """Compile all candidates of all variants on all cores; a refusal is left out, and said."""
    jobs = []
    for variant in variants:
        most = MANY if str(variant)[1:] == str(variants[0])[1:] else FEW
        for family in families:
            if family.suits(live.spec) and family.computes(variant.precision):
                made = likely(live, family, variant, most, samples)
                jobs += [(variant, family, config) for config in dict.fromkeys(made)]

    def build(job: tuple[Any, ...]) -> Any:
        variant, family, config = job
        try:
            return live.compile(family.source(config, variant, live.dialect))
        except Exception as error:
            clock.say(variant, dict(config), "does not compile:", error)
            return None

    found: dict[Any, list] = {variant: [] for variant in variants}
    right = 0
    if live.backend == "cuda":
        with ThreadPoolExecutor() as pool:
            kernels = list(pool.map(build, jobs))
    else:
        kernels = [build(job) for job in jobs]
    for (variant, family, config), kernel in zip(jobs, kernels, strict=True):
        if kernel is None or clock.left < 2:
            continue
        try:
            screen(live, kernel, family, config, variant)
        except Exception as error:
            clock.say(variant, dict(config), "is wrong:", error)
            continue
        found[variant].append((kernel, family, config))
        right += 1
    clock.say(f"{len(jobs)} configs compiled, {right} of them right")
    return found


def timed(live: Any, candidate: Any, arguments: Any, n: int, most: float) -> list[float]:
    """Return seconds of a few runs, warm where one run takes less than a second."""
    kernel, family, config = candidate
    launch = family.launch(config, n, n)
    runs: list[float] = []
    first = live.launch_timed(kernel, launch, arguments).nanoseconds() * 1e-9
    while len(runs) < 5 and sum(runs) + first < most:
        runs.append(live.launch_timed(kernel, launch, arguments).nanoseconds() * 1e-9)
    return runs or [first]


def sizes_of(
    live: Any, variant: Variant, candidates: list, memory: Memory, sizes: list[int], clock: Clock
) -> tuple[list[dict[str, Any]], list]:
    """Time candidates from the smallest size up; return rows and the best candidates."""
    rows = []
    for n in sorted(sizes):
        problem = square(n, variant)
        row: dict[str, Any] = {
            "precision": variant.precision.letter,
            "trans": problem.trans,
            "n": n,
        }
        rows.append(row)
        if clock.left < 2:
            row["reason"] = "the time was up"
            continue
        # Small sizes want smaller blocks than large ones, so that all go on from there.
        going = candidates[: len(candidates) if n <= 2048 else KEPT if n <= 4096 else LAST]
        results = []
        for candidate in going:
            try:
                runs = timed(live, candidate, memory.arguments(problem), n, ENOUGH)
                results.append((statistics.median(runs), runs, candidate))
            except Exception as error:
                row.setdefault("failed", []).append(f"{candidate[2].id}: {error}")
        if not results:
            row["reason"] = "no candidate ran"
            continue
        results.sort(key=lambda r: r[0])
        candidates = [r[2] for r in results]
        median, runs, best = results[0]
        row |= {
            "sequence": SEQUENCE_OF[variant.precision.letter],
            "ns": {r[2][2].id: round(r[0] * 1e9) for r in results},
            "seconds": runs,
            "flops_per_second": problem.flops / median,
            "config": dict(best[2]),
            "stencil": best[1].name,
        }
        try:
            row["bound"] = tw.bound(problem, live).limit
        except ValueError as error:
            row["no_bound"] = str(error)
        clock.say(variant, n, f"{problem.flops / median / 1e9:.1f} GFLOP/s")
    return rows, candidates


def often_best(candidates: list, variant: Variant, rows: list[dict[str, Any]]) -> list:
    """Return the candidate that won most of a scan's sizes, if there is one."""
    of = [
        row
        for row in rows
        if "ns" in row and f"{row['precision']}{row['trans']}".lower() == str(variant)
    ]
    won = [min(row["ns"], key=row["ns"].__getitem__) for row in of]
    return [one for one in candidates if won and one[2].id == statistics.mode(won)]


def promising(candidates: list, variant: Variant, rows: list[dict[str, Any]]) -> list:
    """Return the candidates that came near the best of a size of `rows`."""
    near: set[str] = set()
    for row in rows:
        ns = row.get("ns", {})
        if variant == Variant(precision(row["precision"]), *map(Trans, row["trans"])):
            near |= {name for name, time in ns.items() if time <= NEAR * min(ns.values())}
    return [one for one in candidates if one[2].id in near] or candidates


def accuracy_of(live: Any, variant: Variant, candidate: Any, clock: Clock) -> dict[str, Any]:
    """Certify a candidate and measure eta at k = 4096."""
    kernel, family, config = candidate
    found: dict[str, Any] = {"variant": str(variant), "config": dict(config)}
    try:
        found["certified_eta"] = certify(live, kernel, family, config, variant)
        for phi in (0.0, 2.0):
            if clock.left < 1:
                found["reason"] = "the time was up"
                break
            found[f"eta_phi_{phi:g}"] = eta_at(live, candidate, variant, phi)
    except Exception as error:
        found["wrong"] = str(error)
    clock.say(
        found.get("wrong") or f"{variant} certified", {k: v for k, v in found.items() if "eta" in k}
    )
    return found


def eta_at(live: Any, candidate: Any, variant: Variant, phi: float) -> float:
    """Return eta of a 48 x 40 product with k = 4096 of one spread of exponents."""
    check, row = Check(48, 40, 4096), variant.precision
    rng = np.random.default_rng(int(10 * phi))
    bench = Bench(live, *candidate, variant)
    a, b = bench.inputs(check, lambda r, s, _: random(rng, (r, s), row, phi))
    c = Matrix.result(np.zeros((48, 40), row.dtype))
    after = c.view(bench.run(check, a, b, c))
    x, y = apply(variant.trans_a, a.view()), apply(variant.trans_b, b.view())
    error, size = error_of_product(after, x, y)
    return float(np.max(np.abs(error) / size))


def peers(names: list[str], live: Any, n: int, clock: Clock) -> dict[str, Any]:
    """Time what people use today, on the host: FLINT's arb_mat, and an object-dtype loop."""
    import flint

    from tilewright.bench.peers import peer
    from tilewright.tuning.measure import Workload

    problem, found = Problem(n, n, n, "e"), {}
    if "flint" in names:
        workload = Workload(live, problem)
        run = peer("flint", live).prepare(workload)
        found["flint"] = problem.flops / min(run() for _ in range(3)) * 1e9
        workload.close()
    if "object" in names:
        flint.ctx.prec = 128
        few = 16  # rows: the loop's speed does not depend on their number
        draw = np.frompyfunc(flint.arb, 1, 1)
        rng = np.random.default_rng(0)
        a, b = draw(rng.standard_normal((few, n))), draw(rng.standard_normal((n, n)))
        started = time.perf_counter()
        a @ b
        found["object"] = 2 * few * n * n / (time.perf_counter() - started)
        flint.ctx.prec = 53
    for name, rate in found.items():
        clock.say(name, f"{rate / 1e9:.4f} GFLOP/s")
    return found


def table(document: dict[str, Any]) -> None:
    print(f"\n{'':10} {'n':>6} {'GFLOP/s':>9} {'of bound':>9}")
    for row in document["rows"]:
        name = f"{row['precision']} {row['trans']}"
        if "flops_per_second" not in row:
            print(f"{name:10} {row['n']:6} {row['reason']}")
            continue
        share = f"{row['flops_per_second'] / row['bound']:9.3f}" if row.get("bound") else ""
        print(f"{name:10} {row['n']:6} {row['flops_per_second'] / 1e9:9.1f} {share}")
    for one in document["accuracy"]:
        etas = "  ".join(f"{k} 2^{np.log2(v):.1f}" for k, v in one.items() if "eta" in k)
        print(one["variant"], one.get("wrong", etas))
    for name, rate in document["peers"].items():
        print(f"{name}: {rate / 1e9:.4f} GFLOP/s")
    scan_table(document["rows"], document["scan"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--precision", default="e,f")
    parser.add_argument("--trans", default="NN,NT,TN,TT")
    parser.add_argument("--sizes", default="1024,2048,4096,8192")
    parser.add_argument("--samples", type=int, default=0)
    parser.add_argument("--scan", type=int, default=0, help="sizes of the scan")
    parser.add_argument("--families", default=",".join(s.name for s in stencils()))
    parser.add_argument("--against", default="")
    options = parser.parse_args()
    clock = Clock(options.seconds)
    live = tw.device(options.device)
    sizes = [int(n) for n in options.sizes.split(",")]
    variants = [
        Variant(precision(p), Trans(t[0]), Trans(t[1]))
        for p in options.precision.split(",")
        for t in options.trans.split(",")
    ]
    document: dict[str, Any] = {
        "environment": environment_record(Method(5)) | {"load": os.getloadavg()[0]},
        "device": device_record(live, []),
        "stencils": {s.name: s.version for s in stencils()},
        "configs": {},
        "rows": [],
        "scan": [],
        "accuracy": [],
        "peers": {},
    }

    def keep() -> None:
        if options.json:
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.write_text(json.dumps(document, indent=1) + "\n")

    clock.say(live)
    families = [stencil(name) for name in options.families.split(",")]
    candidates = compiled(live, variants, families, options.samples, clock)
    document["configs"] = {
        config.id: {"stencil": family.name, **config}
        for found in candidates.values()
        for _, family, config in found
    }
    memory = Memory(live, variants[0].precision, max(sizes))
    clock.say("matrices are on the device")
    best: dict[Variant, list] = {}
    try:
        # All but the largest first, so that a budget that is short costs the dearest runs.
        for part in (sorted(sizes)[:-1], sorted(sizes)[-1:]):
            for variant in variants:
                tried = best.get(variant, candidates[variant])
                rows, best[variant] = sizes_of(live, variant, tried, memory, part, clock)
                document["rows"] += rows
                keep()
        if options.scan:
            spared = SECONDS_TO_CERTIFY * len(variants)
            chosen = {v: promising(candidates[v], v, document["rows"]) for v in variants}
            timed_on = {v: timed_of(document, v) for v in variants}
            wanted = sizes_to_scan(timed_on, live.spec, min(sizes), max(sizes), options.scan)
            clock.say("scan of", *wanted)
            for row in scan(live, chosen, timed_on, wanted, memory, timed, clock, spared):
                document["scan"].append(row)
                keep()
    finally:
        memory.close()
    for variant in variants:
        often = often_best(candidates[variant], variant, document["scan"])
        for candidate in {one[2].id: one for one in best[variant][:1] + often}.values():
            if clock.left > 3:
                document["accuracy"].append(accuracy_of(live, variant, candidate, clock))
                keep()
    if options.against:
        document["peers"] = peers(options.against.split(","), live, min(sizes), clock)
    keep()
    table(document)


if __name__ == "__main__":
    main()
