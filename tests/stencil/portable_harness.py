"""Runs a kernel on integers and judges every element of C's memory.

Small integers make every sum of products exact in any order, with or without fused
multiply-adds: a right kernel agrees with NumPy bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.backend import LiveDevice
from tilewright.precision import precision
from tilewright.problem import Trans
from tilewright.space import Config
from tilewright.stencil import Stencil, Variant

# A matrix in a buffer, by columns, and its leading dimension.
Laid = tuple[NDArray[Any], int]

# Around C; no sum below comes near it, so a stray write shows.
GUARD = 123456.0
GUARD_ELEMENTS = 40


def variant(name: str) -> Variant:
    """Return the variant of a name like ``"sNT"`` or ``"bf16TN"``."""
    return Variant(precision(name[:-2]), Trans(name[-2]), Trans(name[-1]))


@dataclass
class Case:
    """One call of a kernel: sizes, scalars, and where matrices lie in their buffers."""

    m: int
    n: int
    k: int
    alpha: complex = 1.0
    beta: complex = 0.0
    pad: int = 0  # elements by which leading dimensions exceed the least
    offset: int = 0
    nan_in_c: bool = False
    seed: int = 0


def integers(rng: np.random.Generator, shape: tuple[int, int], dtype: Any) -> NDArray[Any]:
    """Return integers from -4 to 4, complex where the type is."""
    values = rng.integers(-4, 5, shape).astype(dtype)
    if np.issubdtype(dtype, np.complexfloating):
        values += 1j * rng.integers(-4, 5, shape).astype(dtype)
    return values


def apply(op: Trans, stored: NDArray[Any]) -> NDArray[Any]:
    """Return op(stored)."""
    transposed = stored.T if op.transposed else stored
    return transposed.conj() if op.conjugated else transposed


def laid_out(matrix: NDArray[Any], case: Case, outside: float) -> tuple[NDArray[Any], int]:
    """Return a buffer that holds a matrix by columns, and its leading dimension."""
    rows, columns = matrix.shape
    ld = max(1, rows) + case.pad
    buffer = np.full(case.offset + ld * columns + GUARD_ELEMENTS, outside, matrix.dtype)
    for j in range(columns):
        buffer[case.offset + j * ld :][:rows] = matrix[:, j]
    return buffer, ld


@dataclass
class Runner:
    """A stencil on one device; a kernel is compiled once for a config and a variant."""

    live: LiveDevice
    stencil: Stencil
    kernels: dict[Any, Any] = field(default_factory=dict)

    def launch(
        self, config: Config, of: Variant, case: Case, a: Laid, b: Laid, c: Laid
    ) -> NDArray[Any]:
        """Run the kernel on matrices laid out in buffers; return C's buffer."""
        if (config, of) not in self.kernels:
            source = self.stencil.source(config, of, "opencl")
            self.kernels[config, of] = self.live.compile(source)
        memory = [self.live.upload(buffer) for buffer, _ in (a, b, c)]
        real, whole = of.precision.real_dtype.type, np.int64
        alpha, beta = complex(case.alpha), complex(case.beta)
        at = whole(case.offset)
        arguments = (
            *map(whole, (case.m, case.n, case.k)), real(alpha.real), real(alpha.imag),
            memory[0], at, whole(a[1]), memory[1], at, whole(b[1]),
            real(beta.real), real(beta.imag), memory[2], at, whole(c[1]),
        )  # fmt: skip
        launch = self.stencil.launch(config, case.m, case.n)
        self.live.launch(self.kernels[config, of], launch, arguments).wait()
        result = np.empty_like(c[0])
        self.live.download(memory[2], result)
        for piece in memory:
            self.live.free(piece)
        return result

    def check(self, config: Config, name: str, case: Case) -> None:
        """Run one case on integers and compare every element of C's buffer."""
        of = variant(name)
        dtype = of.precision.dtype
        rng = np.random.default_rng(case.seed)
        shape_a = (case.k, case.m) if of.trans_a.transposed else (case.m, case.k)
        shape_b = (case.n, case.k) if of.trans_b.transposed else (case.k, case.n)
        a, b = integers(rng, shape_a, dtype), integers(rng, shape_b, dtype)
        c = integers(rng, (case.m, case.n), dtype)
        wide = np.result_type(dtype, np.float64)
        product = apply(of.trans_a, a).astype(wide) @ apply(of.trans_b, b).astype(wide)
        scalar = complex if of.precision.is_complex else (lambda x: complex(x).real)
        # An empty sum is zero whatever alpha is.
        expected = scalar(case.alpha) * product if case.k else product
        if case.beta != 0:
            expected = expected + scalar(case.beta) * c
        if case.nan_in_c:
            c[...] = np.nan
        before, ldc = laid_out(c, case, GUARD)
        wanted, _ = laid_out(expected.astype(dtype), case, GUARD)
        # NaN between columns of A and B, and past them: who reads it, shows it.
        inputs = laid_out(a, case, np.nan), laid_out(b, case, np.nan)
        if case.m and case.n:
            before = self.launch(config, of, case, *inputs, (before, ldc))
        np.testing.assert_array_equal(
            before, wanted, err_msg=f"{config!r} {name} {case} on {self.live}"
        )
