r"""Which configs beyond the shipped table might serve shapes that were slow; needs no GPU.

    python benchmarks/likely.py [--of RUN] [--below 0.95] [--json FILE]

Of a run of shapes200.py, takes the shapes whose ratio to cuBLAS was below a bar.  Looks at the
candidates of hopper_s.json and at what differs from one of them in the block's sides, in who
shares a tile and in the division of k; each carries its candidate's time for a cycle
(`tilewright.library.waves`) over to the shape.  FILE gets the configs that together promise most
beside what `gemm` chooses today, as rows that ``shapes200.py --configs`` and ``hopper.py
--only`` read: a promise is to be raced, and says nothing itself.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
from dataclasses import dataclass, field
from pathlib import Path

import ship
from choice_fit import MULTIPROCESSORS, device, problem_of
from hopper.cases import variant_of
from hopper.named import json_file
from hopper.portfolio_space import CASES
from tilewright.hardware import DeviceSpec
from tilewright.library.choose import of_table
from tilewright.library.shipped import shipped
from tilewright.library.waves import Timed, effort, expected_ns
from tilewright.paths import write_atomically
from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.stencil import stencil, unscheduled

# What effort in cycles depends on: of candidates that agree in it one is enough.
TOLD_APART = (
    "block_m", "block_n", "tile_m", "tile_n", "block_k", "stages", "resident", "split_k",
    "persistent", "stream_k", "tree", "lanes_m", "k_vectors",
)  # fmt: skip
WRITTEN = ship.ROOT / "benchmarks" / "results" / "sm_90a" / "likely_s.json"
SIDES = (32, 64, 128, 256)
# A block for each tile or for a share in a cluster, or blocks that stay and share.
SHARED = [{"split_k": split, "persistent": 0, "stream_k": 0, "tree": 0} for split in (1, 2, 4, 8)]
SHARED += [
    {"split_k": 1, "persistent": 1, "stream_k": how, "tree": tree}
    for how, tree in itertools.product((1, 2), (0, 1))
]
# What promises more than this share of a time is worth a race, though half of all forecasts are
# off by more; so each shape gets some, of those that come this near to its best.
WORTH, EACH, NEAR = 0.02, 3, 0.04


@dataclass
class Slow:
    """A shape that was slow, what is expected of today's choice, and of others."""

    problem: Problem
    ratio: float
    cublas: float
    today: float
    others: dict[Config, float] = field(default_factory=dict)


def bases(trans: str) -> list[Timed]:
    """Return the candidates of a case that differ in effort, the fastest of those that do not."""
    best: dict[tuple[object, ...], tuple[float, Timed]] = {}
    variant = variant_of("s", trans)
    for config, ns in ship.searched(ship.load("hopper_s.json")["log"], trans).values():
        if config.stencil == "simt_async" and unscheduled(config) == config:
            squares = (variant.precision, variant.trans_a, variant.trans_b)
            timed = Timed(config, {Problem(n, n, n, *squares): at for n, at in ns.items()})
            key = tuple(config.get(name, 0) for name in TOLD_APART)
            took = (ns.get(2048, math.inf), timed)
            best[key] = min(best.get(key, took), took, key=lambda one: one[0])
    return [timed for _, timed in best.values()]


def changed(timed: list[Timed], trans: str, spec: DeviceSpec) -> dict[Config, Timed]:
    """Return points of the space, each with the candidate that it differs least from."""
    space = stencil("simt_async").space(variant_of("s", trans), spec)
    found = {one.config: one for one in timed}
    for one, m, n, how in itertools.product(timed, SIDES, SIDES, SHARED):
        config = one.config.replace(block_m=m, block_n=n, **how)
        if config not in found and config in space:
            found[space.config(config)] = one
    apart: dict[tuple[object, ...], tuple[Config, Timed]] = {}
    for config, one in found.items():
        apart.setdefault(tuple(config.get(name, 0) for name in TOLD_APART), (config, one))
    return dict(apart.values())


def slow_shapes(path: Path, below: float, spec: DeviceSpec) -> list[Slow]:
    """Return the shapes of a run below a bar, with what is expected of today's choice."""
    found = []
    for row in json.loads(path.read_bytes())["rows"]:
        if row["kind"] == "shape" and row.get("ratio", below) < below:
            problem = problem_of(row)
            table = shipped(spec, variant_of("s", row["trans"]))
            today = of_table(spec, problem, table)[1]
            found.append(Slow(problem, row["ratio"], statistics.median(row["ns"]["cublas"]), today))
    return found


def expect(shapes: list[Slow], spec: DeviceSpec) -> None:
    """Fill in what is expected of configs that promise something."""
    for trans in CASES:
        mine = [one for one in shapes if one.problem.trans == trans]
        known = changed(bases(trans), trans, spec) if mine else {}
        for shape, (config, timed) in itertools.product(mine, known.items()):
            p = shape.problem
            rate = expected_ns(timed, p, spec, MULTIPROCESSORS) / effort(
                timed.config, p, spec, MULTIPROCESSORS
            )
            ns = rate * effort(config, p, spec, MULTIPROCESSORS)
            if ns < shape.today * (1 - WORTH):
                shape.others[config] = ns


def picked(shapes: list[Slow], most: int) -> list[tuple[str, Config]]:
    """Return cases and configs: again and again what promises most to shapes that want more."""
    near = [
        {
            config: ns
            for config, ns in one.others.items()
            if ns <= (1 + NEAR) * min(one.others.values())
        }
        for one in shapes
    ]
    chosen: dict[tuple[str, Config], None] = {}
    while len(chosen) < most:
        gains: dict[tuple[str, Config], float] = {}
        for shape, configs in zip(shapes, near, strict=True):
            trans = shape.problem.trans
            if sum((trans, config) in chosen for config in configs) < EACH:
                for config, ns in sorted(configs.items(), key=lambda one: one[0].id):
                    if (trans, config) not in chosen:
                        gain = gains.get((trans, config), 0.0) + 1 - ns / shape.today
                        gains[trans, config] = gain
        if not gains:
            break
        chosen[max(gains, key=gains.__getitem__)] = None
    return list(chosen)


def table(shapes: list[Slow], chosen: list[tuple[str, Config]]) -> None:
    """Print what is expected, for a person."""
    print("shape, ratio when timed, expected of today's choice, and of the best of FILE:")
    for shape in sorted(shapes, key=lambda one: one.ratio):
        p = shape.problem
        mine = [c for trans, c in chosen if trans == p.trans and c in shape.others]
        best = min(mine, key=shape.others.__getitem__, default=None)
        line = f"  {p.trans} {p.m:5} {p.n:5} {p.k:5}  {shape.ratio:.2f}"
        line += f" {shape.cublas / shape.today:.2f}"
        if best:
            how = " ".join(f"{name} {best.get(name, 0)}" for name in TOLD_APART[4:11])
            line += f" {shape.cublas / shape.others[best]:.2f}  "
            line += f"{best['block_m']}x{best['block_n']} {how}"
        print(line)


def main() -> None:
    parse = argparse.ArgumentParser(description=__doc__)
    parse.add_argument("--of", type=json_file, default=ship.RESULTS / "shapes200.json")
    parse.add_argument("--below", type=float, default=0.95)
    parse.add_argument("--most", type=int, default=40, help="configs")
    parse.add_argument("--json", type=Path, default=WRITTEN)
    given = parse.parse_args()
    spec = device()
    shapes = slow_shapes(given.of, given.below, spec)
    expect(shapes, spec)
    chosen = picked(shapes, given.most)
    rows = [
        {"precision": "s", "trans": trans, "stencil": config.stencil, "config": dict(config)}
        for trans, config in chosen
    ]
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    write_atomically(given.json, f"[\n{lines}\n]\n".encode())
    table(shapes, chosen)
    print(f"{given.json}: {len(rows)} configs for {len(shapes)} shapes")


if __name__ == "__main__":
    main()
