"""What a launch is asked to compute: a product of matrices, as argument lists are made of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.dataclass import dataclass
from tilewright.precision import Precision

__all__ = ["GemmCall", "Operand", "TensorMap"]


@dataclass(frozen=True)
class TensorMap:
    """A kernel's argument that tells a copy engine about an array in device memory.

    CUDA's tensor map (`cuTensorMapEncodeTiled`), of compute capability 9.0 and later: 128
    bytes that are made when the launch is prepared.  What a copy finds outside the array is
    zero.

    Parameters
    ----------
    memory : object
        The backend's handle of the device memory.
    offset : int
        Bytes before the first element; with the memory's address a multiple of 16.
    element : str
        NumPy's name of the element type, or ``"bfloat16"``.
    sizes : tuple of int
        Elements in each dimension, the contiguous one first; one to five, each at least 1.
    strides : tuple of int
        Bytes between neighbours in the second dimension, the third, ...; multiples of 16.
    box : tuple of int
        Elements that one copy takes in each dimension, at most 256.
    swizzle : int
        Span in bytes (128, 64 or 32) within which 16-byte pieces are exchanged in shared
        memory, the box's contiguous side at most; 0: none are.
    """

    memory: Any
    offset: int
    element: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int = 0

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return 2 if self.element == "bfloat16" else np.dtype(self.element).itemsize


@dataclass(frozen=True)
class Operand:
    """A matrix as a kernel sees it.

    Parameters
    ----------
    memory : object
        The backend's handle of a piece of device memory.
    offset : int
        Elements before the matrix's first one.
    ld : int
        Leading dimension in elements, column-major.
    """

    memory: Any
    offset: int
    ld: int


@dataclass(frozen=True)
class GemmCall:
    """One product to launch."""

    precision: Precision
    m: int
    n: int
    k: int
    alpha: complex
    a: Operand
    b: Operand
    beta: complex
    c: Operand

    def arguments(self) -> tuple[Any, ...]:
        """Return the argument list of `tilewright.stencil.base`, with memory handles in it."""
        alpha, beta = self.precision.scalar(self.alpha), self.precision.scalar(self.beta)
        # alpha = 0 must not read A and B: an empty sum over k says exactly that.
        k = 0 if self.alpha == 0 else self.k
        whole = np.int64
        return (
            whole(self.m), whole(self.n), whole(k),
            *alpha, self.a.memory, whole(self.a.offset), whole(self.a.ld),
            self.b.memory, whole(self.b.offset), whole(self.b.ld),
            *beta, self.c.memory, whole(self.c.offset), whole(self.c.ld),
        )  # fmt: skip
