r"""How well sizes are served that the shipped table has never seen; needs no GPU.

    python benchmarks/choice.py [--json]

For each case and size of benchmarks/results/h100/hopper_s.json, the table is made anew as if
that size had never been timed, `tilewright.library.waves` chooses a config for it, and the
time that this config took in the search is compared with the best of all candidates there.
16384 was timed in the races only and is left aside.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace

import ship
from hopper.cases import variant_of
from hopper.portfolio_space import CASES
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.library.waves import Timed, expected_ns
from tilewright.problem import Problem

SIZES = (512, 1024, 2048, 4096, 8192)
MULTIPROCESSORS = 132
# What is asked of a size between others.
ENOUGH = 0.95


def chosen(found, trans, size):
    """Return the id that is chosen for a size by what others took."""
    device = replace(architecture_spec(ship.ARCH), multiprocessors=MULTIPROCESSORS)
    variant = variant_of("s", trans)

    def problem(n):
        return Problem(n, n, n, variant.precision, variant.trans_a, variant.trans_b)

    # Runs of short squares alone, and of large ones, have different candidates.
    unseen = {
        key: (config, {n: time for n, time in ns.items() if n != size})
        for key, (config, ns) in found.items()
        if size in ns and len(ns) > 1
    }
    timed = {
        key: Timed(config, {problem(n): time for n, time in ns.items()})
        for key, (config, ns) in (ship.best_of_shapes(unseen) | ship.best_divided(unseen)).items()
    }
    asked = problem(size)
    return min(timed, key=lambda key: expected_ns(timed[key], asked, device, MULTIPROCESSORS))


def rows():
    """Return, for each case and size, what is chosen and its share of the best rate."""
    log, made = ship.load("hopper_s.json")["log"], []
    for trans in CASES:
        found = ship.searched(log, trans)
        for size in SIZES:
            key = chosen(found, trans, size)
            best = min(ns[size] for _, ns in found.values() if size in ns)
            took = found[key][1][size]
            made.append({"trans": trans, "size": size, "id": key, "share": best / took})
    return made


def main():
    parse = argparse.ArgumentParser(description=__doc__)
    parse.add_argument("--json", action="store_true", help="for machines")
    made = rows()
    if parse.parse_args().json:
        print(json.dumps(made, indent=1))
        return
    shares = {(one["trans"], one["size"]): one["share"] for one in made}
    print("share of the best rate measured, the size left out of the table")
    print("  size " + "".join(f"{trans:>8}" for trans in CASES))
    for size in SIZES:
        cells = (shares[trans, size] for trans in CASES)
        print(f"{size:6} " + "".join(f"{cell:8.3f}" for cell in cells))
    good = sum(1 for share in shares.values() if share >= ENOUGH)
    print(f"{good} of {len(shares)} reach {ENOUGH}")


if __name__ == "__main__":
    main()
