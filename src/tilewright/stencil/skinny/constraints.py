"""Constraints of the skinny stencil: a short side, and what follows from the threads along k.

Of all that divides, a config for each side, width and number of threads along k is left: sides that
a problem fixes, and three points to try there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tilewright.hardware import DeviceSpec
from tilewright.space import Constraint, composed
from tilewright.stencil.base import Variant
from tilewright.stencil.skinny.resources import (
    CHUNK_BYTES,
    SUM_REGISTERS,
    THREADS,
    block_k,
    lanes,
    long_side,
    min_blocks,
    on_tensor_cores,
    registers,
    rows,
    shared_bytes,
    short_side,
    sum_registers,
    widths,
)

__all__ = ["constraints"]

# PTX ISA, mma of e4m3 and e5m2: sm_89 and later.
_FP8_SINCE = 89


def constraints(variant: Variant, device: DeviceSpec) -> tuple[Constraint, ...]:
    """Return the named constraints, what divides first."""
    return (*_shapes(variant), *_hardware(variant, device), *_heuristics(variant))


def _composed(variant: Variant) -> Callable[..., Any]:
    """Return `composed` with a block's short and long side, and whether the latter's k is fast."""
    of_a, of_b = variant.k_fast
    return partial(
        composed,
        short=short_side,
        long=long_side,
        k_fast=lambda short_m: np.where(short_m == 1, of_b, of_a),
    )


def _shapes(variant: Variant) -> tuple[Constraint, ...]:
    """Return what has to divide what."""
    chunk, of = CHUNK_BYTES // variant.precision.element_bytes, _composed(variant)
    return (
        Constraint(
            "rows divide",
            of(
                lambda long, k_fast, lanes_k: (
                    long % (THREADS // lanes_k * np.where(k_fast, 1, chunk)) == 0
                )
            ),
            f"each of {THREADS} threads reads whole chunks of {CHUNK_BYTES} bytes along the rows",
            "divisibility",
        ),
        Constraint(
            "steps divide",
            of(
                lambda block_k, k_fast, lanes_k: (
                    block_k % (lanes_k * np.where(k_fast, chunk, 1)) == 0
                )
            ),
            f"each of {THREADS} threads reads whole chunks of {CHUNK_BYTES} bytes along k",
            "divisibility",
        ),
    )


def _hardware(variant: Variant, device: DeviceSpec) -> tuple[Constraint, ...]:
    """Return what the device cannot go beyond."""
    room, named = device.shared_bytes_per_block, device.max_registers_per_thread or 255
    precision, of = variant.precision, _composed(variant)
    is_fp8 = on_tensor_cores(precision) and precision.element_bytes == 1 and not precision.is_whole
    multiplies = not is_fp8 or (device.compute_capability or 0) >= _FP8_SINCE
    return (
        Constraint(
            "shared memory of a block",
            of(
                lambda short, long, lanes_k, block_k: (
                    shared_bytes(short, long, lanes_k, block_k, precision) <= room
                )
            ),
            f"a block has at most {room} bytes of shared memory",
            "hardware",
        ),
        Constraint(
            "registers of a thread",
            of(lambda short, long, lanes_k: registers(short, long, lanes_k, precision) <= named),
            "a thread that needs more registers than it has spills",
            "hardware",
        ),
        Constraint(
            "instructions",
            lambda lanes_k: (lanes_k > 0) & multiplies,
            f"devices multiply FP8 from compute capability {_FP8_SINCE / 10} on",
            "hardware",
        ),
    )


def _heuristics(variant: Variant) -> tuple[Constraint, ...]:
    """Return what leaves three points a side and width."""
    precision, of = variant.precision, _composed(variant)
    least, most = widths(precision)

    def few(short: Any, long: Any, lanes_k: Any) -> Any:
        held = sum_registers(short, long, lanes_k, precision)
        return (short >= least) & (short <= most) & (held <= SUM_REGISTERS)

    def worth(short: Any, k_fast: Any, lanes_k: Any) -> Any:
        tried = lanes(short, k_fast, precision)
        return (lanes_k == tried[0]) | (lanes_k == tried[1]) | (lanes_k == tried[2])

    depth, fitting = block_k, min_blocks
    return (
        Constraint(
            "a short side",
            of(few),
            f"sums of more than {most} columns, or in more than {SUM_REGISTERS} registers, leave a"
            f" thread none for loads; fewer than {least} fill no instruction",
            "heuristic",
        ),
        Constraint(
            "threads along k",
            of(worth),
            "threads share k so that a warp reads whole lines, or else so that few rows fill it",
            "heuristic",
        ),
        Constraint(
            "rows of a thread",
            of(
                lambda short, long, k_fast, lanes_k: long == rows(short, lanes_k, k_fast, precision)
            ),
            "a thread has as many rows as use an element of the short operand often enough",
            "heuristic",
        ),
        Constraint(
            "loads on their way",
            of(
                lambda short, k_fast, lanes_k, block_k: (
                    block_k == depth(short, lanes_k, k_fast, precision)
                )
            ),
            "eight loads a thread hide the latency of memory; more take registers",
            "heuristic",
        ),
        Constraint(
            "blocks together",
            of(
                lambda short, long, lanes_k, min_blocks: (
                    min_blocks == fitting(short, long, lanes_k, precision)
                )
            ),
            "more than two blocks fit where sums leave them registers",
            "heuristic",
        ),
    )
