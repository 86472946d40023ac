"""Constraints of the skinny stencil: a short side, and what follows from the threads along k.

Of all that divides, a config for each side, width and number of threads along k is left: sides that
a problem fixes, and three points to try there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.hardware import DeviceSpec
from tilewright.space import Constraint
from tilewright.stencil.base import Variant
from tilewright.stencil.skinny.resources import (
    CHUNK_BYTES,
    MOST_SHORT,
    SUM_REGISTERS,
    THREADS,
    Values,
    block_k,
    lanes,
    long_side,
    min_blocks,
    registers,
    rows,
    shared_bytes,
    short_side,
    sum_registers,
)

__all__ = ["constraints"]


def constraints(variant: Variant, device: DeviceSpec) -> tuple[Constraint, ...]:
    """Return the named constraints, what divides first."""
    return (*_shapes(variant), *_hardware(variant, device), *_heuristics(variant))


def _k_fast(variant: Variant, short_m: Values) -> Values:
    """Return whether the long operand's memory runs along k."""
    of_a, of_b = variant.k_fast
    return np.where(short_m == 1, of_b, of_a)


def _shapes(variant: Variant) -> tuple[Constraint, ...]:
    """Return what has to divide what."""
    chunk = CHUNK_BYTES // variant.precision.element_bytes

    def whole_rows(short_m: Any, block_m: Any, block_n: Any, lanes_k: Any) -> Any:
        along = THREADS // lanes_k * np.where(_k_fast(variant, short_m), 1, chunk)
        return long_side(short_m, block_m, block_n) % along == 0

    def whole_steps(short_m: Any, block_k: Any, lanes_k: Any) -> Any:
        return block_k % (lanes_k * np.where(_k_fast(variant, short_m), chunk, 1)) == 0

    return (
        Constraint(
            "rows divide",
            whole_rows,
            f"each of {THREADS} threads reads whole chunks of {CHUNK_BYTES} bytes along the rows",
            "divisibility",
        ),
        Constraint(
            "steps divide",
            whole_steps,
            f"each of {THREADS} threads reads whole chunks of {CHUNK_BYTES} bytes along k",
            "divisibility",
        ),
    )


def _hardware(variant: Variant, device: DeviceSpec) -> tuple[Constraint, ...]:
    """Return what the device cannot go beyond."""
    room, named = device.shared_bytes_per_block, device.max_registers_per_thread

    def fits(short_m: Any, block_m: Any, block_n: Any, block_k: Any, lanes_k: Any) -> Any:
        sides = short_side(short_m, block_m, block_n), long_side(short_m, block_m, block_n)
        return shared_bytes(*sides, lanes_k, block_k, variant.precision) <= room

    def held(short_m: Any, block_m: Any, block_n: Any, lanes_k: Any) -> Any:
        sides = short_side(short_m, block_m, block_n), long_side(short_m, block_m, block_n)
        return registers(*sides, lanes_k, variant.precision) <= (named or 255)

    return (
        Constraint(
            "shared memory of a block",
            fits,
            f"a block has at most {room} bytes of shared memory",
            "hardware",
        ),
        Constraint(
            "registers of a thread",
            held,
            "a thread that needs more registers than it has spills",
            "hardware",
        ),
    )


def _heuristics(variant: Variant) -> tuple[Constraint, ...]:
    """Return what leaves three points a side and width."""
    precision = variant.precision

    def short(short_m: Any, block_m: Any, block_n: Any, lanes_k: Any) -> Any:
        sides = short_side(short_m, block_m, block_n), long_side(short_m, block_m, block_n)
        few = sum_registers(*sides, lanes_k, precision) <= SUM_REGISTERS
        return (sides[0] <= MOST_SHORT) & few

    def worth(short_m: Any, block_m: Any, block_n: Any, lanes_k: Any) -> Any:
        tried = lanes(short_side(short_m, block_m, block_n), _k_fast(variant, short_m))
        return (lanes_k == tried[0]) | (lanes_k == tried[1]) | (lanes_k == tried[2])

    def held(short_m: Any, block_m: Any, block_n: Any, lanes_k: Any) -> Any:
        side = short_side(short_m, block_m, block_n)
        found = rows(side, lanes_k, _k_fast(variant, short_m), precision)
        return long_side(short_m, block_m, block_n) == found

    def loads(short_m: Any, block_m: Any, block_n: Any, block_k: Any, lanes_k: Any) -> Any:
        side = short_side(short_m, block_m, block_n)
        return block_k == depth(side, lanes_k, _k_fast(variant, short_m), precision)

    def together(short_m: Any, block_m: Any, block_n: Any, lanes_k: Any, min_blocks: Any) -> Any:
        sides = short_side(short_m, block_m, block_n), long_side(short_m, block_m, block_n)
        return min_blocks == fitting(*sides, lanes_k, precision)

    depth, fitting = block_k, min_blocks
    return (
        Constraint(
            "a short side",
            short,
            f"sums of more than {MOST_SHORT} columns, or in more than {SUM_REGISTERS} registers,"
            " leave a thread none for loads",
            "heuristic",
        ),
        Constraint(
            "threads along k",
            worth,
            "threads share k so that a warp reads whole lines, or else so that few rows fill it",
            "heuristic",
        ),
        Constraint(
            "rows of a thread",
            held,
            "a thread has as many rows as use an element of the short operand often enough",
            "heuristic",
        ),
        Constraint(
            "loads on their way",
            loads,
            "eight loads a thread hide the latency of memory; more take registers",
            "heuristic",
        ),
        Constraint(
            "blocks together",
            together,
            "more than two blocks fit where sums leave them registers",
            "heuristic",
        ),
    )
