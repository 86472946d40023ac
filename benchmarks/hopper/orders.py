"""Every order of multiply-adds, reads and copies of large blocks that copy single elements.

What a compiler makes of an order is its luck with registers: costs cannot tell, and the races at
squares are of kernels that copy 16 bytes.  Nothing here needs a GPU.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tilewright.hardware import DeviceSpec
from tilewright.library.choose import Choice, choose, fitted, served
from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.stencil import stencil

from .absent import Absent
from .wide_space import FAMILY, LETTER, NONE, Candidate, Shape, space_of

__all__ = ["PROBLEMS", "shapes_of"]

# One with a long sum and one with many tiles; no side is a multiple of 4, nor of a test.
PROBLEMS = ((1009, 1127, 5003), (3011, 2509, 1507))
# Only of these cases an operand runs along m or n.
CASES = ("NT", "NN", "TT")
# Blocks with a thread's tiles, and how many are resident.
BLOCKS = (
    (128, 128, ((8, 16), (16, 8)), 2),
    (128, 256, ((8, 16), (16, 8)), 1),
    (256, 128, ((8, 16), (16, 8)), 1),
    (192, 192, ((8, 12), (12, 8)), 1),
)
SHARED = ({**NONE, "persistent": 1, "stream_k": 2}, {**NONE, "sliced": 1})


def orders(problem: Problem, spec: DeviceSpec) -> Iterator[Config]:
    """Yield the configs, as they would be in a table: before they are fitted to a problem."""
    space = space_of(problem.trans, spec)
    for (m, n, tiles, resident), shared in itertools.product(BLOCKS, SHARED):
        rest = itertools.product(tiles, (4, 8), (8, 12), (0, 1, 2, 3), (0, 1), (2, 4))
        for (tile_m, tile_n), lanes, depth, walk, b_first, groups in rest:
            # Along the shorter side of a thread's tile: the longer one was never faster.
            if walk % 2 != (tile_m > tile_n):
                continue
            values = {
                "block_m": m, "block_n": n, "tile_m": tile_m, "tile_n": tile_n,
                "lanes_m": lanes, "block_k": depth, "unroll_k": depth, "walk": walk,
                "b_first": b_first, "copy_groups": groups, "k_vectors": 0, "raster_rows": 8,
                "resident": resident, "stages": 2 if (resident, depth) == (2, 12) else 3,
            }  # fmt: skip
            told = {name: x for name, x in shared.items() if x or name == "split_k"}
            config = Config(FAMILY, {**values, **told})
            if config in space:
                yield config


def shapes_of(spec: DeviceSpec) -> list[Shape]:
    """Return each problem of each case with the choice and all orders."""
    made = []
    for trans, sizes in itertools.product(CASES, PROBLEMS):
        problem, device = Problem(*sizes, LETTER, *trans), Absent(spec)
        mine, choice = served(device, problem).config, choose(device, problem).config
        found = {mine: Candidate(choice, mine, 0.0, "choice")}
        for config in orders(problem, spec):
            fit = fitted(Choice(stencil(FAMILY), config), problem, spec).config
            found.setdefault(fit, Candidate(config, fit, 0.0, "order"))
        made.append(Shape(problem, list(found.values())))
    return made
