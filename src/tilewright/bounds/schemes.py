"""Single precision from products of shorter numbers: how many parts, how many products.

A and B are split into parts whose sum is the element, or nearly; products of parts are summed in
single precision, but for those that are too small to matter:

    A = A0 + A1 + A2          B0      B1      B2
                        A0    big     mid     small
                        A1    mid     small   ...          FP16x3, TF32x3: big and both mid
                        A2    small   ...     ...          BF16x6: to small,  BF16x9: all nine

Tensor cores sum by truncation (measured, and simulated in the papers named below), so that sums
are taken out of them and added in single precision every `promote_k` steps of k.

A complex product is a real one of four times the multiply-adds (`real_product`), because memory
of a complex C is that of a real one with twice the rows::

    | re  |     | re  -im |   | re |
    | im  |  =  | im   re |   | im |        C 2m x n,  A 2m x 2k,  B 2k x n
       C             A           B

References
----------
G. Henry, P. T. P. Tang and A. Heinecke, "Leveraging the bfloat16 artificial intelligence datatype
for higher-precision computations", ARITH 2019.  H. Ootomo and R. Yokota, "Recovering single
precision accuracy from Tensor Cores while surpassing the FP32 theoretical peak performance",
IJHPCA 2022.  F. G. Van Zee, "Implementing high-performance complex matrix multiplication via the
1m method", SIAM J. Sci. Comput. 42(5), 2020: of its two formats, "1e" is this A and "1r" this B.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.problem import Problem

__all__ = [
    "ACCURACY",
    "OF_SINGLE",
    "PROMOTE_FP8",
    "PROMOTE_K",
    "SCHEMES",
    "Scheme",
    "arithmetic_of",
    "real_product",
]

# Steps of k between two additions: what FP16x3 was measured with on an H100 and TF32x3 simulated,
# both more accurate than single precision's own sums.  Other intervals are `promote_k`'s to ask.
PROMOTE_K = 32

# The same of FP8, whose sums keep 14 bits there (docs/tensor_cores.md).
PROMOTE_FP8 = 128


@dataclass(frozen=True)
class Scheme:
    """One way to single precision.

    Parameters
    ----------
    name : str
        As ``arithmetic`` has it.
    stored : str
        Type of a part: ``"fp16"``, ``"bf16"`` or ``"tf32"``.
    part_bytes : int
        Bytes of a part in memory.
    parts : int
        Parts of an element.
    products : int
        Products of parts for one of elements.
    """

    name: str
    stored: str
    part_bytes: int
    parts: int
    products: int

    @property
    def element_bytes(self) -> int:
        """Bytes of all parts of an element."""
        return self.parts * self.part_bytes

    def __str__(self) -> str:
        return f"{self.name}: {self.products} products of {self.parts} {self.stored} parts"


SCHEMES: dict[str, Scheme] = {
    s.name: s
    for s in (
        Scheme("fp16x3", "fp16", 2, 2, 3),
        Scheme("tf32x3", "tf32", 4, 2, 3),
        Scheme("bf16x6", "bf16", 2, 3, 6),
        Scheme("bf16x9", "bf16", 2, 3, 9),
    )
}

# Arithmetics whose operands are single precision: those of its complex type may be, too.
OF_SINGLE = ("tf32", *SCHEMES)

# What a named accuracy may be computed with.
ACCURACY: dict[str, tuple[str, ...]] = {
    "ieee": ("ieee",),
    "tf32": ("tf32",),
    "fp32": ("ieee", *SCHEMES),
    "fp64": ("ieee", "residues"),
}


def arithmetic_of(accuracy: str) -> tuple[str, ...]:
    """Return the arithmetics that meet a named accuracy.

    Raises
    ------
    ValueError
        If it is unknown.
    """
    if accuracy not in ACCURACY:
        raise ValueError(f"accuracy={accuracy!r} is unknown; use one of {', '.join(ACCURACY)}")
    return ACCURACY[accuracy]


def real_product(problem: Problem) -> Problem:
    """Return the product of real numbers that computes a problem; a real one as it is.

    Neither sizes nor memory of B and C grow, and A's doubles: every element becomes four numbers.
    It has as many operations as BLAS counts for a complex product (Van Zee 2020, the 1m method).
    """
    if not problem.precision.is_complex:
        return problem
    letter = {"float32": "s", "float64": "d"}[problem.precision.real_name]
    m, n, k = 2 * problem.m, problem.n, 2 * problem.k
    return Problem(m, n, k, letter, batch=problem.batch)  # type: ignore[arg-type]
