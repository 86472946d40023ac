"""Constraints of the tensor-core stencil, each with its reason."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from tilewright.hardware import DeviceSpec
from tilewright.space import Constraint, composed
from tilewright.stencil.base import Variant
from tilewright.stencil.wgmma.arithmetic import Arithmetic
from tilewright.stencil.wgmma.call import square
from tilewright.stencil.wgmma.resources import (
    OTHER_REGISTERS,
    Values,
    consumer_registers,
    shared_bytes,
    sharers,
    starting_registers,
    sums,
)

__all__ = ["constraints"]

# Rows of an instruction's result, and of a group whose 16-byte pieces are exchanged.
_INSTRUCTION_ROWS = 64
_GROUP_ROWS = 8

# A block's sides by what they run along: quantities of `composed`.
_BLOCK_SIDES: dict[str, Callable[..., Values]] = {
    "m": lambda block_m: block_m,
    "n": lambda block_n: block_n,
}

# CUDA C++ Programming Guide, "Thread Block Clusters": so many on every device.
_MOST_CLUSTER = 8


def constraints(
    variant: Variant, arithmetic: Arithmetic, device: DeviceSpec
) -> tuple[Constraint, ...]:
    """Return the named constraints; a limit that the device does not know applies none."""
    sides = "nm" if arithmetic.rows_of_a(variant.k_fast) else "mn"
    return (
        *_shapes(sides),
        *_shares(variant.k_fast, sides, square(arithmetic.element_bytes)),
        *_slices(whole=arithmetic.triangle),
        *_by_threads(arithmetic.element_bytes),
        *_promotion(sides),
        *_hardware(arithmetic, variant.k_fast, device),
        *_heuristics(sides[0]),
    )


def _shapes(sides: str) -> tuple[Constraint, ...]:
    """Return what an instruction asks for, whose columns and whose rows run along such sides."""
    columns, rows = sides[0], sides[1]
    return (
        Constraint(
            f"whole instructions along {columns}",
            composed(
                lambda side, instruction_m: side % instruction_m == 0, side=_BLOCK_SIDES[columns]
            ),
            "a consumer's part is a whole number of instructions wide",
            "divisibility",
        ),
        Constraint(
            f"whole instructions along {rows}",
            composed(
                lambda side, among: side % (_INSTRUCTION_ROWS * among) == 0,
                side=_BLOCK_SIDES[rows],
                among=sharers,
            ),
            f"each consumer has whole instructions of {_INSTRUCTION_ROWS} rows",
            "divisibility",
        ),
        Constraint(
            "ping-pong consumers",
            lambda consumers, pingpong, multiprocessors: (
                (pingpong == 0) | ((consumers > 1) & (multiprocessors > 0))
            ),
            "ping-pong needs several consumers, and blocks with several tiles each",
            "heuristic",
        ),
    )


def _slices(*, whole: bool) -> tuple[Constraint, ...]:
    """Return whose tiles may be cut along k: none of `whole` ones."""
    never = Constraint(
        "slices of whole results",
        lambda parallel_split_k: parallel_split_k == 0,
        "the second kernel, which adds up slices, knows no triangle",
        "divisibility",
    )
    return (
        *(never for _ in range(whole)),
        Constraint(
            "slices of blocks with one tile",
            lambda parallel_split_k, multiprocessors: (
                (parallel_split_k == 0) | (multiprocessors == 0)
            ),
            "persistent blocks go through whole tiles",
            "divisibility",
        ),
        Constraint(
            "slices of single blocks",
            lambda parallel_split_k, cluster_m, cluster_n: (
                (parallel_split_k == 0) | (cluster_m * cluster_n == 1)
            ),
            "blocks of a cluster bring each other's operands, so they would need equal slices",
            "divisibility",
        ),
        Constraint(
            "slices within a cluster",
            lambda cluster_k, cluster_m, cluster_n, multiprocessors, parallel_split_k, pingpong: (
                (cluster_k == 1)
                | ((cluster_m * cluster_n == 1) & (multiprocessors + parallel_split_k == 0))
                & (pingpong == 0)
            ),
            "blocks that share a tile's steps have no other tile, bring no others' operands, and"
            " all consumers add up: multiprocessors=0, cluster_m=1, cluster_n=1, pingpong=0",
            "divisibility",
        ),
    )


# Bytes of a line, which threads bring.
_LINE = 128

# Registers of a producer's thread for what it has read of a row of a tile of 16-bit elements, and
# for places; elements of 32 bits pass through none.
_READ, _PLACES = 0.5, 40


def _by_threads(element_bytes: int) -> tuple[Constraint, ...]:
    """Return what producers need that copy by their threads."""
    read = _READ if element_bytes == 2 else 0
    return (
        Constraint(
            "clusters of TMA",
            lambda tma, cluster_m, cluster_n: (tma == 1) | (cluster_m * cluster_n == 1),
            "threads bring their own block's tiles alone",
            "divisibility",
        ),
        Constraint(
            "lines of threads",
            lambda tma, block_k: (tma == 1) | (block_k * element_bytes == _LINE),
            f"threads bring lines of {_LINE} bytes",
            "divisibility",
        ),
        Constraint(
            "registers of a producer",
            composed(
                lambda tma, block_m, block_n, started: (
                    (tma == 1) | ((block_m + block_n) * read + _PLACES <= started)
                ),
                started=starting_registers,
            ),
            "a producer whose threads shift 16-bit elements reads a stage's tiles into registers",
            "hardware",
        ),
    )


def _shares(along_k: tuple[bool, bool], sides: str, squares: int) -> tuple[Constraint, ...]:
    """Return what lets the blocks of a cluster bring as much of a tile each.

    Where it lies along m or n, shared memory has `squares` elements side by side.
    """
    least_a, least_b = (_GROUP_ROWS if along else squares for along in along_k)
    reason = "blocks of a cluster bring equal shares of a tile, in whole groups or squares"
    found = [
        Constraint(
            "shares of A",
            lambda block_m, cluster_n: block_m % (least_a * cluster_n) == 0,
            reason,
            "divisibility",
        ),
        Constraint(
            "shares of B",
            lambda block_n, cluster_m: block_n % (least_b * cluster_m) == 0,
            reason,
            "divisibility",
        ),
        Constraint(
            "blocks of a cluster",
            lambda cluster_m, cluster_n: cluster_m * cluster_n <= _MOST_CLUSTER,
            f"a cluster has at most {_MOST_CLUSTER} blocks",
            "hardware",
        ),
        Constraint(
            "whole clusters",
            lambda multiprocessors, cluster_m, cluster_n: (
                multiprocessors % (cluster_m * cluster_n) == 0
            ),
            "persistent blocks fill whole clusters",
            "divisibility",
        ),
    ]
    if sides[0] == "m" and not along_k[0]:  # A gives the instruction's columns
        found.append(
            Constraint(
                "instructions of whole squares",
                lambda instruction_m: instruction_m % squares == 0,
                f"where A lies along m, shared memory has squares of {squares} elements",
                "divisibility",
            )
        )
    return tuple(found)


def _promotion(sides: str) -> tuple[Constraint, ...]:
    def whole(promote_k: Values, block_k: Values) -> Values:
        at_least = np.maximum(promote_k, 1)
        return (promote_k == 0) | (block_k % at_least == 0) | (promote_k % block_k == 0)

    def in_turn(
        partials: Values, promote_k: Values, block_k: Values, across: Values, down: Values,
        instruction_m: Values, among: Values,
    ) -> Values:  # fmt: skip
        pieces = across // instruction_m * (down // among // _INSTRUCTION_ROWS)
        often = block_k // np.maximum(promote_k, 1) * pieces
        return (partials == 1) | ((promote_k > 0) & (promote_k <= block_k) & (often > 1))

    return (
        Constraint(
            "whole stages between promotions",
            whole,
            "a stage has whole intervals of promotion, or an interval whole stages",
            "divisibility",
        ),
        Constraint(
            "sets of partial sums",
            composed(
                in_turn, across=_BLOCK_SIDES[sides[0]], down=_BLOCK_SIDES[sides[1]], among=sharers
            ),
            "two sets make a difference where a stage is promoted more than once",
            "divisibility",
        ),
    )


def _hardware(
    arithmetic: Arithmetic, k_fast: tuple[bool, bool], device: DeviceSpec
) -> tuple[Constraint, ...]:
    room = device.shared_bytes_per_block
    memory = device.shared_bytes_per_multiprocessor
    shared = functools.partial(shared_bytes, arithmetic=arithmetic)
    # Rows in registers: four words for every 8 steps of a stage and 64 rows.
    words = 1 / 2 if arithmetic.rows_in_registers(k_fast) else 0
    rows = _BLOCK_SIDES["m" if arithmetic.rows_of_a(k_fast) else "n"]
    found = [
        Constraint(
            "shared memory of a block",
            composed(lambda used: used <= room, used=shared),
            f"a block has at most {room} bytes of shared memory",
            "hardware",
        ),
        Constraint(
            "registers of a consumer",
            composed(
                lambda held, block_k, side, among, taken, started: (
                    held + words * block_k * (side // (_INSTRUCTION_ROWS * among)) + OTHER_REGISTERS
                    <= np.where(taken == 0, started, taken)
                ),
                held=sums,
                side=rows,
                among=sharers,
                taken=consumer_registers,
                started=starting_registers,
            ),
            "sums and their addresses fit the registers that the producer leaves",
            "hardware",
        ),
        Constraint(
            "resident consumers",
            lambda consumers, min_blocks: consumers * min_blocks <= 3,
            "a thread starts with too few registers for an instruction's sums otherwise",
            "hardware",
        ),
    ]
    stage = arithmetic.parts * arithmetic.element_bytes
    found.append(
        Constraint(
            "sums of a cluster",
            lambda cluster_k, block_m, block_n, block_k, stages: (
                (cluster_k == 1)
                | (4 * block_m * block_n <= stages * stage * block_k * (block_m + block_n))
            ),
            "a block's sums lie where its stages were until another one has added them up",
            "hardware",
        )
    )
    if memory is not None:
        found.append(
            Constraint(
                "resident blocks",
                # 1 KiB of each block's shared memory is the system's.
                composed(
                    lambda min_blocks, used: min_blocks * (used + 1024) <= memory, used=shared
                ),
                "shared memory of a multiprocessor holds the blocks asked for",
                "hardware",
            )
        )
    if device.multiprocessors > 1:  # an architecture without a device says 1
        most = device.multiprocessors
        found.append(
            Constraint(
                "multiprocessors to fill",
                lambda multiprocessors: multiprocessors <= most,
                f"the device has {most} multiprocessors",
                "hardware",
            )
        )
    return tuple(found)


def _heuristics(columns: str) -> tuple[Constraint, ...]:
    return (
        Constraint(
            "instructions wide enough",
            composed(
                lambda side, instruction_m: instruction_m * 4 >= side, side=_BLOCK_SIDES[columns]
            ),
            "a row of more than four short instructions reads its operand of B too often",
            "heuristic",
        ),
        Constraint(
            "enough sums",
            lambda block_m, block_n, min_blocks: block_m * block_n * min_blocks >= 128 * 64,
            "a multiprocessor that holds fewer sums reads shared memory more than it multiplies",
            "heuristic",
        ),
    )
