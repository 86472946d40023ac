"""Which configs double_double.py tries of a stencil, before anything is timed."""

from __future__ import annotations

import itertools
from typing import Any

from double_double_predict import square
from tilewright.library.choose import choose
from tilewright.space import Config
from tilewright.stencil import Stencil, Variant

__all__ = ["FEW", "MANY", "likely"]

# Configs of a stencil that are tried for the first transpose, and for each of the others.
MANY, FEW = 24, 16

# Three blocks of four warps leave a thread 168 registers; blocks that stay spill 25 of them then.
CROWDED = 3

# What may help the smallest blocks, so many of them: other registers by the compiler, a longer
# text, a stage more.
TURNED = 2
TURNS = ({"lanes_m": 4}, {"unroll_k": 8}, {"walk": 1}, {"stages": 4})


def likely(live: Any, family: Stencil, variant: Variant, most: int, samples: int) -> list[Any]:
    """Return a family's likely configs on the device, drawn ones, and what was tuned before.

    Where blocks can stay and share, a start that does and one that does not take turns: those
    are best where blocks do not come out even, these on large matrices.  Small blocks come first:
    they repeat the least at edges, and lose little where a multiply-add is 12 instructions.
    """
    space = family.space(variant, live.spec)
    found = [c for c in family.starts(variant, live.spec) if c in space]
    if "stream_k" in {parameter.name for parameter in space.parameters}:
        small = sorted((c for c in found if c.get("split_k", 1) == 1), key=size_of)
        turned = [c.replace(**turn) for turn in TURNS for c in small[:TURNED]]
        plain = [c for c in dict.fromkeys([*small, *found, *turned]) if c in space]
        roomy = [c for c in plain if c.integer("resident") != CROWDED]
        stay = [c.replace(persistent=1, stream_k=k) for c in roomy for k in (1, 2)]
        turns = itertools.zip_longest((c for c in stay if c in space), plain)
        found = [c for both in turns for c in both if c is not None]
    found = found[:most]
    tuned = choose(live, square(2048, variant))
    if tuned.stencil is family:
        found.append(tuned.config)
    return found + (space.sample(samples, seed=1) if samples else [])


def size_of(config: Config) -> tuple[int, int]:
    """Return a block's elements of C, then its steps along k."""
    return config.integer("block_m") * config.integer("block_n"), config.integer("block_k")
