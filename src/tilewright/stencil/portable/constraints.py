"""Constraints of the portable stencil, and the resource use they rest on.

ASTRA prunes in three steps (Kurzak et al., section 5): what the hardware cannot
run, what does not divide, and what is unlikely to be fast.  Every predicate works
on NumPy arrays of parameter values.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from tilewright.hardware import DeviceSpec
from tilewright.precision import Precision
from tilewright.space import Constraint, composed
from tilewright.stencil.base import Variant
from tilewright.stencil.portable.resources import (
    LEAST_OTHER_REGISTERS,
    Values,
    registers,
    resident_blocks,
    reuse,
    shared_bytes,
)

__all__ = ["block_limits", "constraints", "least_reuse", "least_threads", "registers_of_a_thread"]

# Four of the 32 banks: rows shifted by as much put 8 rows of a column, 4 elements of 4 bytes
# each, on all banks, and keep rows aligned for the widest reads of shared memory.
SHIFT_BYTES = 16

# The least that DRAM transfers at a time on NVIDIA's GPUs: a shorter run wastes the rest.
SECTOR_BYTES = 32


# Least resident thread blocks of a multiprocessor; ASTRA's.
LEAST_BLOCKS = 1


def least_threads(device: DeviceSpec, precision: Precision) -> int | None:
    """Return the least resident threads of a multiprocessor (ASTRA's minimum occupancy).

    As many as could each use all the registers that an instruction can name: 1024 on a GTX 680
    (65536 registers, 6-bit names), ASTRA's value, and 256 since register names have 8 bits; three
    quarters of it in double complex, ASTRA's 768.  None if the device's limits are unknown.
    """
    file, named = device.registers_per_multiprocessor, device.max_registers_per_thread
    if file is None or named is None:
        return None
    # One register name is kept back for zero: 63 and 255 are usable.
    threads = file // (named + 1)
    return threads * 3 // 4 if precision.letter == "z" else threads


def least_reuse(precision: Precision) -> float:
    """Return the least multiply-adds of reals for a real read in the inner loop.

    ASTRA's 2.0, and its 1.0 in double precision; in double-double too, where a multiply-add takes
    12 instructions or more.
    """
    return 1.0 if precision.letter == "d" or precision.parts == 2 else 2.0


def constraints(variant: Variant, device: DeviceSpec) -> tuple[Constraint, ...]:
    """Return the named constraints in ASTRA's order.

    A limit that the device does not know applies no constraint.
    """
    return (
        *_shapes(variant, device),
        *_same_kernels(variant),
        _column_pads(variant),
        *_hardware(variant.precision, device),
        *_heuristics(variant, device),
    )


def _shapes(variant: Variant, device: DeviceSpec) -> tuple[Constraint, ...]:
    """Return what has to divide what."""
    k_fast_a, k_fast_b = variant.k_fast
    warp = device.warp_size
    return (
        Constraint(
            "whole warps",
            lambda threads_m, threads_n: threads_m * threads_n % warp == 0,
            f"a block of a fraction of {warp} threads leaves lanes idle",
            "divisibility",
        ),
        Constraint(
            "C's tile divides along m",
            lambda block_m, threads_m, fragment_vector: (
                block_m % (threads_m * fragment_vector) == 0
            ),
            "each thread computes the same number of whole vectors of rows",
            "divisibility",
        ),
        Constraint(
            "C's tile divides along n",
            lambda block_n, threads_n, fragment_vector: (
                block_n % (threads_n * fragment_vector) == 0
            ),
            "each thread computes the same number of whole vectors of columns",
            "divisibility",
        ),
        Constraint(
            "unrolling divides the k block",
            lambda block_k, unroll_k: block_k % unroll_k == 0,
            "the inner loop does whole trips",
            "divisibility",
        ),
        Constraint(
            "A is read evenly",
            lambda block_m, block_k, threads_m, threads_n, read_a_m, read_vector: _even(
                block_m, block_k, threads_m * threads_n, read_a_m, read_vector, k_fast_a
            ),
            "a second shape of as many threads must divide A's tile into whole vectors",
            "divisibility",
        ),
        Constraint(
            "B is read evenly",
            lambda block_n, block_k, threads_m, threads_n, read_b_n, read_vector: _even(
                block_n, block_k, threads_m * threads_n, read_b_n, read_vector, k_fast_b
            ),
            "a third shape of as many threads must divide B's tile into whole vectors",
            "divisibility",
        ),
    )


def _even(
    side: Values,
    block_k: Values,
    threads: Values,
    threads_side: Values,
    vector: Values,
    k_fast: bool,
) -> Values:
    """Whether a read shape divides a tile; true where the operand is not shared."""
    along = np.maximum(threads_side, 1)
    threads_k = np.maximum(threads // along, 1)
    vector_side, vector_k = (1, vector) if k_fast else (vector, 1)
    divides = (
        (threads % along == 0)
        & (side % (along * vector_side) == 0)
        & (block_k % (threads_k * vector_k) == 0)
    )
    return (threads_side == 0) | divides


def _same_kernels(variant: Variant) -> tuple[Constraint, ...]:
    """Return what keeps one of several points that are the same kernel."""
    vectors_of_a, vectors_of_b = not variant.trans_a.transposed, variant.trans_b.transposed
    return (
        Constraint(
            "one layout where both agree",
            lambda block_m, threads_m, block_n, threads_n, fragment_vector, strided: (
                (strided == 0)
                | (block_m != threads_m * fragment_vector)
                | (block_n != threads_n * fragment_vector)
            ),
            "threads of one chunk a side lie the same either way",
            "divisibility",
        ),
        Constraint(
            "no buffers without tiles",
            lambda read_a_m, read_b_n, read_vector, pad, shared_buffers, prefetch: (
                (read_a_m > 0)
                | (read_b_n > 0)
                | ((read_vector == 1) & (pad == 0) & (shared_buffers == 1) & (prefetch == 0))
            ),
            "what shapes tiles in shared memory means nothing where there are none",
            "divisibility",
        ),
        Constraint(
            "no k block without tiles",
            lambda read_a_m, read_b_n, block_k, unroll_k: (
                (read_a_m > 0) | (read_b_n > 0) | (block_k == unroll_k)
            ),
            "without tiles in shared memory only the unrolling cuts k",
            "divisibility",
        ),
        Constraint(
            "no fragment vectors without wide reads",
            lambda read_a_m, read_b_n, strided, fragment_vector: (
                (read_a_m > 0)
                | (read_b_n > 0)
                | (strided == 1)
                | (fragment_vector == 1)
                | vectors_of_a
                | vectors_of_b
            ),
            "operands read straight from memory along k come element by element",
            "divisibility",
        ),
    )


def _column_pads(variant: Variant) -> Constraint:
    """Return what leaves pads of more than one vector only where they serve."""
    size = variant.precision.element_bytes
    k_fast_a, k_fast_b = variant.k_fast
    return Constraint(
        "wider pads for tiles written by columns",
        lambda read_a_m, read_b_n, fragment_vector, pad: (
            (pad <= 1)
            | (
                (pad * fragment_vector * size == SHIFT_BYTES)
                & ((k_fast_a & (read_a_m > 0)) | (k_fast_b & (read_b_n > 0)))
            )
        ),
        f"more than one vector is worth its memory only where it makes {SHIFT_BYTES} bytes, "
        "which spread a column over all banks",
        "divisibility",
    )


def block_limits(
    device: DeviceSpec, threads: Callable[..., Values], shared_bytes: Callable[..., Values]
) -> tuple[Constraint, Constraint]:
    """Return the constraints of a device's limits on a block."""
    room, most = device.shared_bytes_per_block, device.max_threads_per_block
    return (
        Constraint(
            "threads of a block",
            composed(lambda number: number <= most, number=threads),
            f"the device runs at most {most} threads in a block",
            "hardware",
        ),
        Constraint(
            "shared memory of a block",
            composed(lambda used: used <= room, used=shared_bytes),
            f"a block has at most {room} bytes of shared memory",
            "hardware",
        ),
    )


def registers_of_a_thread(
    device: DeviceSpec, registers: Callable[..., Values]
) -> tuple[Constraint, ...]:
    """Return the constraint that a thread has the registers it needs, where these are known."""
    named = device.max_registers_per_thread
    if named is None:
        return ()
    reason = f"a thread that needs more than {named} registers spills"
    fits = composed(lambda used: used <= named, used=registers)
    return (Constraint("registers of a thread", fits, reason, "hardware"),)


def _hardware(precision: Precision, device: DeviceSpec) -> tuple[Constraint, ...]:
    """Return what the device cannot go beyond."""
    size = precision.element_bytes
    widest = max(device.vector_bytes, size)
    shared = functools.partial(shared_bytes, precision=precision)
    used = functools.partial(registers, precision=precision, other=LEAST_OTHER_REGISTERS)
    threads, memory = block_limits(device, _threads, shared)
    found = [
        threads,
        Constraint(
            "vector width",
            lambda read_vector, fragment_vector: (
                np.maximum(read_vector, fragment_vector) * size <= widest
            ),
            f"the device's widest load takes {widest} bytes",
            "hardware",
        ),
        memory,
        *registers_of_a_thread(device, used),
    ]
    file = device.registers_per_multiprocessor
    if file is not None:
        found.append(
            Constraint(
                "registers of a block",
                composed(lambda threads, need: threads * need <= file, threads=_threads, need=used),
                f"a multiprocessor has {file} registers",
                "hardware",
            )
        )
    return tuple(found)


def _threads(threads_m: Values, threads_n: Values) -> Values:
    return threads_m * threads_n


def _heuristics(variant: Variant, device: DeviceSpec) -> tuple[Constraint, ...]:
    """Return ASTRA's three heuristics, and one on reads of device memory."""
    precision = variant.precision
    least = least_reuse(precision)
    k_fast_a, k_fast_b = variant.k_fast
    run = -(-SECTOR_BYTES // precision.element_bytes)
    found = [
        Constraint(
            "register reuse",
            composed(
                lambda ratio: ratio >= least,
                ratio=functools.partial(reuse, precision=precision),
            ),
            f"fewer than {least:g} multiply-adds for a read in the inner loop wait for reads",
            "heuristic",
        ),
        Constraint(
            "A is read in long runs",
            lambda threads_m, threads_n, read_a_m, read_vector: (
                _run(threads_m * threads_n, read_a_m, k_fast_a) * read_vector >= run
            ),
            f"runs of less than {SECTOR_BYTES} contiguous bytes waste device memory's rate",
            "heuristic",
        ),
        Constraint(
            "B is read in long runs",
            lambda threads_m, threads_n, read_b_n, read_vector: (
                _run(threads_m * threads_n, read_b_n, k_fast_b) * read_vector >= run
            ),
            f"runs of less than {SECTOR_BYTES} contiguous bytes waste device memory's rate",
            "heuristic",
        ),
    ]
    return (*found, *_occupancy(precision, device))


def _run(threads: Values, threads_side: Values, k_fast: bool) -> Values:
    """Return the threads along the contiguous index; plenty where nothing is shared."""
    along = np.maximum(threads_side, 1)
    return np.where(threads_side == 0, 2**20, threads // along if k_fast else along)


def _occupancy(precision: Precision, device: DeviceSpec) -> tuple[Constraint, ...]:
    """Return ASTRA's least threads and least blocks of a multiprocessor."""
    resident = composed(
        lambda threads_m, threads_n, used, shared: resident_blocks(
            device, threads_m * threads_n, used, shared
        ),
        used=functools.partial(registers, precision=precision, other=LEAST_OTHER_REGISTERS),
        shared=functools.partial(shared_bytes, precision=precision),
    )
    found = []
    threads = least_threads(device, precision)
    if threads is not None:
        found.append(
            Constraint(
                "occupancy",
                composed(
                    lambda threads_m, threads_n, blocks: threads_m * threads_n * blocks >= threads,
                    blocks=resident,
                ),
                f"fewer than {threads} threads on a multiprocessor do not hide latency",
                "heuristic",
            )
        )
    if device.max_threads_per_multiprocessor is not None:
        found.append(
            Constraint(
                "resident blocks",
                composed(lambda blocks: blocks >= LEAST_BLOCKS, blocks=resident),
                f"fewer than {LEAST_BLOCKS} thread blocks on a multiprocessor leave it idle "
                "at barriers",
                "heuristic",
            )
        )
    return tuple(found)
