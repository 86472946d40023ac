r"""How flat double-double is to be expected between the sizes that were timed; needs no GPU.

    python benchmarks/double_double_predict.py [--times FILE] [--precision e,f] [--trans NN,...]
        [--json FILE] [--carry]

Takes the times of FILE (benchmarks/results/h100/double_double.json by default), and carries them
over to other sizes by `tilewright.library.waves`: blocks come in whole numbers, those at an edge
are multiplied in full, and so is the last tile along k.  For each case it says what `gemm` chooses
today would reach at its slowest size, what the best of all configs timed would, and what is lost
there to edges and to the remainder of k.
All sizes up to 2048, then those where a row of blocks begins or ends: between two such sizes
the work done is the same and the work asked for grows.  Rates count 2 m n k.  ``--carry`` says
how well times of one size carry over to the next that was timed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hopper.absent import Absent
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.hardware import DeviceSpec
from tilewright.library.choose import choose
from tilewright.library.waves import Timed, expected_ns, timed_nearby
from tilewright.paths import write_atomically
from tilewright.precision import precision
from tilewright.problem import Problem, Trans
from tilewright.space import Config
from tilewright.stencil import Variant

__all__ = ["Expected", "expected", "spread", "square", "timed_of", "variant_of"]

TIMES = Path(__file__).parent / "results/h100/double_double.json"
ARCH, MULTIPROCESSORS = "sm_90a", 132

# Sizes of the goal; up to DENSE all are looked at.
LEAST, DENSE, MOST = 1024, 2048, 8192

# A block's sides are multiples of this, so that a row of blocks begins at one more than one.
SIDE = 8


@dataclass(frozen=True)
class Expected:
    """What is expected of a config at a size.

    Parameters
    ----------
    n : int
        The side of the square problem.
    rate : float
        FLOP/s.
    config : Config
        Which.
    """

    n: int
    rate: float
    config: Config

    @property
    def edges(self) -> float:
        """Multiply-adds of whole blocks, for each that is asked for."""
        sides = (self.config.integer("block_m"), self.config.integer("block_n"))
        return whole(self.n, sides[0]) * whole(self.n, sides[1]) / self.n**2

    @property
    def done(self) -> float:
        """The rate of the multiply-adds that are done, of which some are not asked for."""
        return self.rate * self.edges * self.remainder

    @property
    def remainder(self) -> float:
        """Steps along k that are multiplied, for each that is asked for."""
        return whole(self.n, self.config.integer("block_k")) / self.n


def whole(n: int, part: int) -> int:
    """Return the least multiple of a part that is at least n."""
    return -(-n // part) * part


def square(n: int, variant: Variant) -> Problem:
    """Return the square problem of a variant."""
    return Problem(n, n, n, variant.precision, variant.trans_a, variant.trans_b)


def variant_of(letter: str, trans: str) -> Variant:
    """Return what kernels of a case are compiled for."""
    return Variant(precision(letter), Trans(trans[0]), Trans(trans[1]))


def timed_of(document: Mapping[str, Any], variant: Variant) -> list[Timed]:
    """Return the configs of a file of double_double.py with what they took of one case."""
    times: dict[str, dict[Problem, float]] = {}
    for row in document["rows"] + document.get("scan", []):
        if variant_of(row["precision"], row["trans"]) == variant:
            for key, ns in row.get("ns", {}).items():
                times.setdefault(key, {})[square(row["n"], variant)] = ns
    configs = {key: dict(document["configs"][key]) for key in times}
    return [Timed(Config(configs[key].pop("stencil"), configs[key]), times[key]) for key in times]


def spread(rates: Sequence[float]) -> float:
    """Return how far the slowest is below the fastest, as a share of the fastest."""
    return 1 - min(rates) / max(rates)


def expected(timed: Sequence[Timed], problem: Problem, device: DeviceSpec, many: int) -> Expected:
    """Return the config of which the shortest time is expected, with its rate."""
    ns, config = min(
        (
            (expected_ns(one, problem, device, many), one.config)
            for one in timed_nearby(timed, problem)
        ),
        key=lambda pair: pair[0],
    )
    return Expected(problem.n, problem.flops / ns * 1e9, config)


def sizes_that_matter(least: int, dense: int, most: int) -> list[int]:
    """Return all sizes up to `dense`, then those where a row of blocks begins or ends."""
    sparse = {n + more for n in range(dense, most + 1, SIDE) for more in (0, 1)}
    return sorted({*range(least, min(dense, most) + 1), *(n for n in sparse if n <= most), most})


def served(problem: Problem, timed: Sequence[Timed], device: Absent) -> Expected | None:
    """Return what is expected of what `gemm` chooses; None where that was not timed."""
    chosen = choose(device, problem).config
    found = [one for one in timed if one.config == chosen]
    return expected(found, problem, device.spec, MULTIPROCESSORS) if found else None


def row_of(document: dict[str, Any], letter: str, trans: str, device: Absent) -> dict[str, Any]:
    """Return the slowest size of a case, of the best config and of what serves.

    The fastest is sought among the sizes that were timed: beyond these the model may be generous.
    """
    variant = variant_of(letter, trans)
    timed = timed_of(document, variant)
    row: dict[str, Any] = {"precision": letter, "trans": trans}
    problems = [square(n, variant) for n in sizes_that_matter(LEAST, DENSE, MOST)]
    best = [expected(timed, one, device.spec, MULTIPROCESSORS) for one in problems]
    chosen = [one for one in (served(p, timed, device) for p in problems) if one]
    known = {size.n for one in timed for size in one.ns}
    fast = max((one for one in best if one.n in known), key=lambda one: one.rate)
    row["fastest"] = told(fast)
    for name, found in (("served", chosen), ("best", best)):
        if found:
            slow = min(found, key=lambda one: one.rate)
            row[name] = {
                "sizes": len(found),
                "spread": 1 - slow.rate / fast.rate,
                "spread_without_edges": 1 - min(one.done for one in found) / fast.done,
                "flat_from": flat_from(found, 0.95 * fast.rate),
                "slowest": told(slow),
            }
    return row


def flat_from(found: Sequence[Expected], least: float) -> int | None:
    """Return the size from which on all rates are at least so large; None if there is none."""
    last = max((one.n for one in found if one.rate < least), default=0)
    return min((one.n for one in found if one.n > last), default=None)


def told(one: Expected) -> dict[str, Any]:
    """Return an expectation as a row of JSON has it."""
    return {
        "n": one.n,
        "flops_per_second": one.rate,
        "config": {"stencil": one.config.stencil, **one.config},
        "edges": one.edges,
        "remainder": one.remainder,
    }


def carried(document: dict[str, Any], variant: Variant, device: DeviceSpec) -> dict[str, list]:
    """Return how far off times are that are carried from one size to the next, by who shares."""
    found: dict[str, list] = {}
    for one in timed_of(document, variant):
        kind = "blocks that share" if one.config.get("stream_k") else "blocks of their own"
        for small, large in itertools.pairwise(sorted(one.ns, key=lambda size: size.n)):
            there = Timed(one.config, {small: one.ns[small]})
            ns = expected_ns(there, large, device, MULTIPROCESSORS)
            found.setdefault(f"{kind}, from {small.n}", []).append(ns / one.ns[large] - 1)
    return found


def carry_table(document: dict[str, Any], variants: Sequence[Variant], device: DeviceSpec) -> None:
    """Print the mean and the root mean square of these."""
    found: dict[str, list] = {}
    for variant in variants:
        for kind, off in carried(document, variant, device).items():
            found.setdefault(kind, []).extend(off)
    for kind, off in sorted(found.items()):
        mean, size = statistics.fmean(off), math.sqrt(statistics.fmean(x * x for x in off))
        print(f"{kind:34} {len(off):3} times carried: {mean:+6.1%} mean, {size:5.1%} rms")


def line(row: dict[str, Any], name: str) -> str:
    """Return one choice's part of a row for a person."""
    one, slow, fast = row[name], row[name]["slowest"], row["fastest"]
    c = slow["config"]
    block = f"{c['block_m']}x{c['block_n']}x{c['block_k']}"
    shares = f"stream_k {c['stream_k']}" if c.get("stream_k") else f"split_k {c.get('split_k', 1)}"
    return (
        f"{row['precision']} {row['trans']} {name:6} {slow['flops_per_second'] / 1e9:7.1f} at"
        f" {slow['n']:4} to {fast['flops_per_second'] / 1e9:7.1f} at {fast['n']:4}: flat within"
        f" {one['spread']:5.1%}, within 5 % from {one['flat_from']}; slowest {c['stencil']}"
        f" {block} {shares}, edges {slow['edges'] - 1:5.1%}, k {slow['remainder'] - 1:5.1%}"
    )


def main() -> None:
    parse = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parse.add_argument("--times", type=Path, default=TIMES)
    parse.add_argument("--precision", default="e,f")
    parse.add_argument("--trans", default="NN,NT,TN,TT")
    parse.add_argument("--json", type=Path)
    parse.add_argument("--carry", action="store_true")
    given = parse.parse_args()
    document = json.loads(given.times.read_text())
    spec = replace(
        architecture_spec(ARCH), name=document["device"]["name"], multiprocessors=MULTIPROCESSORS
    )
    cases = list(itertools.product(given.precision.split(","), given.trans.split(",")))
    if given.carry:
        carry_table(document, [variant_of(*case) for case in cases], spec)
        return
    rows = []
    for case in cases:
        rows.append(row_of(document, *case, Absent(spec)))
        for name in ("served", "best"):
            if name in rows[-1]:
                print(line(rows[-1], name), flush=True)
        if given.json:
            text = json.dumps({"commit": document["environment"]["commit"], "rows": rows})
            write_atomically(given.json, (text + "\n").encode())


if __name__ == "__main__":
    main()
