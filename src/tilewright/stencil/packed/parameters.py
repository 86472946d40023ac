"""Parameters of the packed stencil."""

from __future__ import annotations

from tilewright.space import Parameter

__all__ = ["BLOCKS_M", "BLOCKS_N", "parameters"]

# Multiples of every micro-tile height and width; above 512, problems of the size that
# people tune first (512 to 2048) have fewer thread blocks than a CPU has cores.
BLOCKS_M = (32, 48, 64, 96, 128, 192, 240, 256, 288, 384, 480, 512)
BLOCKS_N = (32, 42, 48, 64, 96, 126, 128, 168, 192, 240, 252, 256, 336, 384, 480, 504, 512)


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
