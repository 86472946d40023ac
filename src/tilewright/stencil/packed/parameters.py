"""Parameters and constraints of the packed stencil."""

from __future__ import annotations

import numpy as np

from tilewright.hardware import DeviceSpec
from tilewright.precision import Precision
from tilewright.space import Constraint, Parameter

__all__ = [
    "BLOCKS_M",
    "BLOCKS_N",
    "constraints",
    "parameters",
    "spared_registers",
    "vector_registers",
]

# Multiples of every micro-tile height and width; above 512, problems of the size that
# people tune first (512 to 2048) have fewer thread blocks than a CPU has cores.
BLOCKS_M = (32, 48, 64, 96, 128, 192, 240, 256, 288, 384, 480, 512)
BLOCKS_N = (32, 42, 48, 64, 96, 126, 128, 168, 192, 240, 252, 256, 336, 384, 480, 504, 512)

# A compiled loop of fewer multiply-adds than this cannot hide an FMA's latency:
# 4 cycles on two pipes need 8 independent accumulators (Intel and AMD alike).
LEAST_ACCUMULATORS = 8

# ASTRA's register reuse (Kurzak et al., section 5): multiply-adds for each vector loaded.
# Two loads and two multiply-adds a cycle leave no room below 1; the first micro-tile that
# ran within 10 % of the best on any CPU tried was 2 x 6 of real elements: 1.5.
LEAST_REUSE = 1.5


def parameters() -> tuple[Parameter, ...]:
    """Return what may be varied, the same for every precision and device."""
    return (
        Parameter(
            "vector", (4, 8, 16), "reals in a vector", "vectors wider than the hardware's are split"
        ),
        Parameter(
            "micro_vectors",
            (1, 2, 3, 4),
            "vectors in a column of the micro-tile",
            "vector registers: accumulators and one column of A",
        ),
        Parameter(
            "micro_n",
            (2, 3, 4, 6, 8, 10, 12, 14),
            "columns of the micro-tile",
            "vector registers: accumulators",
        ),
        Parameter(
            "block_m",
            BLOCKS_M,
            "most rows of C a thread block owns",
            "local memory; fewer thread blocks to share among cores",
        ),
        Parameter(
            "block_n",
            BLOCKS_N,
            "most columns of C a thread block owns",
            "local memory; fewer thread blocks to share among cores",
        ),
        Parameter(
            "block_k",
            (32, 64, 96, 128, 192, 256, 320, 384, 512),
            "most steps in k between two packings",
            "local memory; short blocks load and store C more often",
        ),
        Parameter("unroll", (1, 2, 4), "steps in k a loop trip does", "compile time; code size"),
        Parameter(
            "order",
            (0, 1),
            "whose panel stays in the first-level cache: 0 B's, 1 A's",
            "the other operand's panels are read again for each",
        ),
    )


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
    words, size = precision.words * precision.parts, precision.real_bytes
    registers = vector_registers(device) - spared_registers(precision)
    width = max(16, device.vector_bytes)
    # Local memory on a CPU is ordinary memory: what has to hold is that the packed
    # blocks stay in a core's second-level cache, which PoCL reports as local memory.
    room = device.shared_bytes_per_block

    def parts(vector: np.ndarray) -> np.ndarray:
        return -(-vector * size // width)

    return (
        Constraint(
            "vector fits",
            lambda vector: (vector * size <= 2 * width) & (vector * size >= 16),
            f"a vector of more than two {width}-byte registers only spills",
            "hardware",
        ),
        Constraint(
            "registers hold the micro-tile",
            lambda vector, micro_vectors, micro_n: (
                words * parts(vector) * (micro_vectors * micro_n + micro_vectors) + 1 <= registers
            ),
            f"accumulators, one column of A and a value of B need {registers} vector registers",
            "hardware",
        ),
        Constraint(
            "latency is hidden",
            lambda vector, micro_vectors, micro_n: (
                words * parts(vector) * micro_vectors * micro_n >= LEAST_ACCUMULATORS
            ),
            f"fewer than {LEAST_ACCUMULATORS} accumulators wait for the FMA before them",
            "heuristic",
        ),
        Constraint(
            "register reuse",
            lambda vector, micro_vectors, micro_n: (
                words * parts(vector) * micro_vectors * micro_n
                >= LEAST_REUSE * (parts(vector) * micro_vectors + micro_n)
            ),
            f"fewer than {LEAST_REUSE} multiply-adds for each vector loaded wait for loads",
            "heuristic",
        ),
        Constraint(
            "whole panels of A",
            lambda vector, micro_vectors, block_m: block_m % (vector * micro_vectors) == 0,
            "a block is a whole number of micro-tiles high",
            "divisibility",
        ),
        Constraint(
            "whole panels of B",
            lambda micro_n, block_n: block_n % micro_n == 0,
            "a block is a whole number of micro-tiles wide",
            "divisibility",
        ),
        Constraint(
            "packed blocks fit",
            lambda vector, micro_vectors, micro_n, block_m, block_n, block_k: (
                ((block_m + block_n) * block_k + vector * micro_vectors * micro_n) * words * size
                <= room
            ),
            f"packed A and B and one micro-tile take at most {room} bytes of local memory",
            "hardware",
        ),
        Constraint(
            "packing pays",
            lambda block_m, block_n: block_m * block_n >= 64 * (block_m + block_n),
            "each packed element serves at least 64 multiply-adds, or copying dominates",
            "heuristic",
        ),
        Constraint(
            "balanced block",
            lambda block_m, block_n: (block_m <= 4 * block_n) & (block_n <= 4 * block_m),
            "a block four times longer than wide packs more than a square one",
            "heuristic",
        ),
    )
