"""Constraints of the packed stencil."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tilewright.hardware import DeviceSpec
from tilewright.precision import Precision
from tilewright.space import Constraint
from tilewright.space.constraint import composed

__all__ = ["constraints", "spared_registers", "vector_registers"]

# A compiled loop of fewer multiply-adds than this cannot hide an FMA's latency:
# 4 cycles on two pipes need 8 independent accumulators (Intel and AMD alike).
LEAST_ACCUMULATORS = 8

# ASTRA's register reuse (Kurzak et al., section 5): multiply-adds for each vector loaded.
# Two loads and two multiply-adds a cycle leave no room below 1; the first micro-tile that
# ran within 10 % of the best on any CPU tried was 2 x 6 of real elements: 1.5.
LEAST_REUSE = 1.5


def vector_registers(device: DeviceSpec) -> int:
    """Return the architectural vector registers: AVX-512 has 32, x86 before it 16."""
    return 32 if device.vector_bytes >= 64 else 16


def spared_registers(precision: Precision) -> int:
    """Return the vector registers for what is between an element's product and its sum.

    Four hold a double-double product and the sum it goes into while it does.
    """
    return 4 if precision.parts == 2 else 0


def constraints(precision: Precision, device: DeviceSpec) -> tuple[Constraint, ...]:
    """Return the named constraints for a precision on a device."""
    return (*_hardware(precision, device), *_whole_panels(), *_heuristics(precision, device))


def _hardware(precision: Precision, device: DeviceSpec) -> Iterator[Constraint]:
    words, size = precision.words * precision.parts, precision.real_bytes
    registers = vector_registers(device) - spared_registers(precision)
    width = _register_bytes(device)
    # Local memory on a CPU is ordinary memory: what has to hold is that the packed
    # blocks stay in a core's second-level cache, which PoCL reports as local memory.
    room = device.shared_bytes_per_block
    yield Constraint(
        "vector fits",
        lambda vector: (vector * size <= 2 * width) & (vector * size >= 16),
        f"a vector of more than two {width}-byte registers only spills",
        "hardware",
    )
    yield Constraint(
        "registers hold the micro-tile",
        composed(
            lambda column, micro_n: words * column * (micro_n + 1) + 1 <= registers,
            column=_column(precision, device),
        ),
        f"accumulators, one column of A and a value of B need {registers} vector registers",
        "hardware",
    )
    yield Constraint(
        "packed blocks fit",
        lambda vector, micro_vectors, micro_n, block_m, block_n, block_k: (
            ((block_m + block_n) * block_k + vector * micro_vectors * micro_n) * words * size
            <= room
        ),
        f"packed A and B and one micro-tile take at most {room} bytes of local memory",
        "hardware",
    )


def _whole_panels() -> Iterator[Constraint]:
    yield Constraint(
        "whole panels of A",
        lambda vector, micro_vectors, block_m: block_m % (vector * micro_vectors) == 0,
        "a block is a whole number of micro-tiles high",
        "divisibility",
    )
    yield Constraint(
        "whole panels of B",
        lambda micro_n, block_n: block_n % micro_n == 0,
        "a block is a whole number of micro-tiles wide",
        "divisibility",
    )


def _heuristics(precision: Precision, device: DeviceSpec) -> Iterator[Constraint]:
    words, column = precision.words * precision.parts, _column(precision, device)
    yield Constraint(
        "latency is hidden",
        composed(
            lambda column, micro_n: words * column * micro_n >= LEAST_ACCUMULATORS, column=column
        ),
        f"fewer than {LEAST_ACCUMULATORS} accumulators wait for the FMA before them",
        "heuristic",
    )
    yield Constraint(
        "register reuse",
        composed(
            lambda column, micro_n: words * column * micro_n >= LEAST_REUSE * (column + micro_n),
            column=column,
        ),
        f"fewer than {LEAST_REUSE} multiply-adds for each vector loaded wait for loads",
        "heuristic",
    )
    yield Constraint(
        "packing pays",
        lambda block_m, block_n: block_m * block_n >= 64 * (block_m + block_n),
        "each packed element serves at least 64 multiply-adds, or copying dominates",
        "heuristic",
    )
    yield Constraint(
        "balanced block",
        lambda block_m, block_n: (block_m <= 4 * block_n) & (block_n <= 4 * block_m),
        "a block four times longer than wide packs more than a square one",
        "heuristic",
    )


def _register_bytes(device: DeviceSpec) -> int:
    return max(16, device.vector_bytes)


def _column(precision: Precision, device: DeviceSpec) -> Callable[..., Any]:
    """Return how many registers hold a word of a column of the micro-tile."""
    size, width = precision.real_bytes, _register_bytes(device)

    def registers(vector: Any, micro_vectors: Any) -> Any:
        return -(-vector * size // width) * micro_vectors

    return registers
