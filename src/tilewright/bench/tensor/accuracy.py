"""Errors of a product against double precision, in the measures that BLAS users compare."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.problem import Problem

__all__ = ["DATA", "Exact", "draw", "errors"]

# Random normal data, and the matrices of the field, (U - 1/2) exp(phi N): wider with phi.
DATA = ("normal", "phi 0", "phi 0.5", "phi 1", "phi 2", "phi 4")


def draw(rng: np.random.Generator, shape: tuple[int, int], data: str) -> NDArray[Any]:
    """Return random numbers in single precision.

    Parameters
    ----------
    rng : Generator
        Where from.
    shape : tuple of int
        Of the array.
    data : str
        One of `DATA`, or ``"phi"`` with any number.

    Raises
    ------
    ValueError
        If it is none.
    """
    if data == "normal":
        return rng.standard_normal(shape, np.float32)
    kind, _, phi = data.partition(" ")
    try:
        width = float(phi)
    except ValueError:
        width = -1.0
    if kind != "phi" or not width >= 0:
        raise ValueError(f"data={data!r} is unknown; use normal, or phi and a number from 0 on")
    spread = np.exp(width * rng.standard_normal(shape, np.float32))
    drawn: NDArray[Any] = (rng.random(shape, np.float32) - np.float32(0.5)) * spread
    return drawn


def _gpu() -> Any:
    """Return CuPy where it has a GPU to compute with, else None."""
    try:
        import cupy

        return cupy if cupy.cuda.runtime.getDeviceCount() else None
    except Exception:  # not installed, no driver, or no device: NumPy computes
        return None


class Exact:
    """op(A) op(B) and |op(A)| |op(B)| in double precision, transposed as `Matrices` has C.

    Parameters
    ----------
    problem : Problem
        Sizes and transposes.
    a, b : ndarray
        Stored matrices, their columns as rows.
    sample : tuple of ndarray of int, optional
        Rows and columns of C; all without it.  Some are enough to find a wrong kernel.
    """

    def __init__(
        self,
        problem: Problem,
        a: NDArray[Any],
        b: NDArray[Any],
        sample: tuple[NDArray[Any], NDArray[Any]] | None = None,
    ) -> None:
        self.sample = sample
        op_a = a if problem.trans_a.transposed else a.T
        op_b_t = b.T if problem.trans_b.transposed else b
        library: Any = np
        if sample is None:
            library = _gpu() or np
        else:
            op_a, op_b_t = op_a[sample[0]], op_b_t[sample[1]]
        self.product, self.size = _products(library, op_a, op_b_t)

    @classmethod
    def of_sides(cls, op_a: NDArray[Any], op_b: NDArray[Any], sample: Any) -> Exact:
        """Return what a sample has, from those rows of op(A) and columns of op(B), as rows."""
        made = cls.__new__(cls)
        made.sample = sample
        made.product, made.size = _products(np, op_a, op_b)
        return made

    def part_of(self, result: NDArray[Any]) -> NDArray[Any]:
        """Return what is compared of C^T."""
        return result if self.sample is None else result[np.ix_(self.sample[1], self.sample[0])]


def _products(library: Any, op_a: Any, op_b: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return op(B)^T op(A)^T and the same of magnitudes, from rows along k."""
    x, y = (library.asarray(v, library.float64) for v in (op_a, op_b))
    product, size = y @ x.T, abs(y) @ abs(x).T
    return (product, size) if library is np else (product.get(), size.get())


def errors(result: NDArray[Any], exact: Exact, *, picked: bool = False) -> dict[str, float]:
    """Return eta, the median relative error and the Frobenius error; NaN where C' has one.

    Parameters
    ----------
    result : ndarray
        C^T, all of it; with `picked` what the sample has of it.
    exact : Exact
        What it should be.
    picked : bool
        Whether the sample was taken already.

    Returns
    -------
    dict of str to float
        ``eta`` = max |C' - AB| / (|A||B|), ``median_relative`` of |C' - AB| / |AB|, and
        ``frobenius`` = ||C' - AB|| / ||AB||.
    """
    off = np.abs((result if picked else exact.part_of(result)) - exact.product)
    tiny = np.finfo(np.float64).tiny
    return {
        "eta": float(np.max(off / np.maximum(exact.size, tiny))),
        "median_relative": float(np.median(off / np.maximum(np.abs(exact.product), tiny))),
        "frobenius": float(np.linalg.norm(off) / max(np.linalg.norm(exact.product), tiny)),
    }
