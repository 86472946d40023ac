"""What a launch is asked to compute: a product of matrices, as argument lists are made of it."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from tilewright.dataclass import dataclass

__all__ = ["Call", "Matrix", "TensorMap"]


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


class Matrix(Protocol):
    """An operand of a call: a handle of memory, elements before the first one, and ld."""

    @property
    def memory(self) -> Any:
        """Return the backend's handle."""

    @property
    def offset(self) -> int:
        """Return the elements before the first one."""

    @property
    def ld(self) -> int:
        """Return the leading dimension in elements."""


class Call(Protocol):
    """One product to launch; `tilewright.backend.GemmCall` is one."""

    @property
    def m(self) -> int:
        """Return the rows of C."""

    @property
    def n(self) -> int:
        """Return the columns of C."""

    @property
    def k(self) -> int:
        """Return how many products an element sums up."""

    @property
    def alpha(self) -> Any:
        """Return the product's factor."""

    @property
    def beta(self) -> Any:
        """Return the factor of C's old values."""

    @property
    def a(self) -> Matrix:
        """Return A."""

    @property
    def b(self) -> Matrix:
        """Return B."""

    @property
    def c(self) -> Matrix:
        """Return C."""

    def arguments(self) -> tuple[Any, ...]:
        """Return the argument list that most stencils share."""
