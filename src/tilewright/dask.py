"""Products of Dask arrays: `tilewright.gemm` for the blocks, Dask's scheduler for the rest.

::

    A[i, p]  B[p, j]  --gemm-->  products of p = 0, 1, ...  --pairs of neighbours-->  C[i, j]

A block of C is the sum of its products, pairs of neighbours first: an order that follows from the
number of blocks along k alone, so that bits do not depend on how many workers there are, nor on
which is first.  A worker that is lost costs the tasks it had.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from tilewright.precision import precision_of
from tilewright.serve.accuracy import with_accuracy

__all__ = ["matmul"]


def matmul(a: Any, b: Any, *, accuracy: str = "ieee", device: str | None = None) -> Any:
    """Return a @ b as a Dask array, computed when it is asked for.

    Parameters
    ----------
    a, b : dask.array.Array, shapes (m, k) and (k, n)
        Of one dtype: float32, float64, complex64 or complex128.  b's blocks along k become a's.
    accuracy : str
        As of `tilewright.gemm` on arrays of the host.
    device : str, optional
        Where each worker multiplies, such as ``"cuda"``; its best device by default.

    Returns
    -------
    dask.array.Array, shape (m, n)
        In blocks of a's rows and b's columns.

    Raises
    ------
    TypeError
        If `a` or `b` is no Dask array.
    ValueError
        If shapes or dtypes do not fit, or the accuracy is unknown.
    """
    import dask.array as da

    for name, x in (("a", a), ("b", b)):
        if not isinstance(x, da.Array):
            raise TypeError(f"{name} is a {type(x).__name__}; give dask.array.asarray({name})")
        if x.ndim != 2:
            raise ValueError(f"{name}.shape={x.shape} is not a matrix; give two dimensions")
    for name, x, axis in (("a", a, 1), ("b", b, 0)):
        if x.shape[axis] != x.shape[axis]:  # NaN
            raise ValueError(
                f"{name}.shape={x.shape} has an unknown inner size; call"
                f" {name}.compute_chunk_sizes() first"
            )
    if a.shape[1] != b.shape[0]:
        raise ValueError(
            f"b.shape={b.shape} does not fit a.shape={a.shape}: their inner sizes must agree"
        )
    if a.dtype != b.dtype:
        raise ValueError(f"b.dtype={b.dtype} but a.dtype={a.dtype}; convert one with astype")
    try:
        precision = precision_of(a.dtype)
    except ValueError as error:
        raise ValueError(f"a.{error}") from None
    with_accuracy(precision, accuracy, invariant=False)  # here, not on a worker
    b = b.rechunk({0: a.chunks[1]})
    sums = [
        da.blockwise(
            _product, "ij", a.blocks[:, p], "ip", b.blocks[p, :], "pj", dtype=a.dtype,
            concatenate=True, accuracy=accuracy, device=device,
        )
        for p in range(a.numblocks[1])
    ]  # fmt: skip
    while len(sums) > 1:
        last = sums[len(sums) // 2 * 2 :]
        sums = [x + y for x, y in zip(sums[::2], sums[1::2], strict=False)] + last
    return sums[0]


def _product(a: NDArray[Any], b: NDArray[Any], accuracy: str, device: str | None) -> NDArray[Any]:
    from tilewright.serve.gemm import gemm

    made: NDArray[Any] = gemm(a, b, accuracy=accuracy, device=device)
    return made
