"""matmul(): products by the shape rules of the Python array API standard, on top of gemm()."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.serve.checks import check_given
from tilewright.serve.gemm import gemm

if TYPE_CHECKING:
    from tilewright.backend import LiveDevice

__all__ = ["matmul"]


def matmul(
    a: Any,
    b: Any,
    /,
    *,
    accuracy: str = "ieee",
    out_dtype: Any = None,
    device: str | LiveDevice | None = None,
) -> Any:
    """Return the matrix product of arrays, vectors and batches, as `numpy.matmul` does.

    Parameters
    ----------
    a, b : array
        As of `tilewright.gemm`, of one dtype, or of one dimension: a vector, which is a row as `a`
        and a column as `b`.  Dimensions before the last two broadcast.
    accuracy, out_dtype, device
        As of `tilewright.gemm`.

    Returns
    -------
    array
        Of the batch's shape, without the dimension that a vector was given; of two vectors an
        array without dimensions.

    Raises
    ------
    ValueError
        If an argument is wrong; the message names it.
    TypeError
        If `a` and `b` are not arrays of one kind.
    BackendError
        If the device refuses to compile or to run a kernel.

    Notes
    -----
    The rules are those of the Python array API standard 2024.12, ``matmul``.
    """
    check_given(a, b)
    shapes: list[Any] = []
    for name, x in (("a", a), ("b", b)):
        shapes.append(getattr(x, "shape", None))  # gemm() says what has none
        if shapes[-1] == ():
            raise ValueError(f"{name} has no dimensions; multiply by a number with *")
    row, column = (shape is not None and len(shape) == 1 for shape in shapes)
    if (row or column) and None not in shapes and shapes[0][-1] != shapes[1][0 if column else -2]:
        raise ValueError(f"b.shape={tuple(shapes[1])} does not fit a.shape={tuple(shapes[0])}")
    rows = _vector("a", a).reshape((1, a.shape[0])) if row else a
    columns = _vector("b", b).reshape((b.shape[0], 1)) if column else b
    made = gemm(rows, columns, accuracy=accuracy, out_dtype=out_dtype, device=device)
    if not row and not column:
        return made
    shape = tuple(made.shape)
    kept = shape[: len(shape) - 2] + ((shape[-2],) if not row else ()) + (
        (shape[-1],) if not column else ()
    )  # fmt: skip
    return made.reshape(kept)


def _vector(name: str, x: Any) -> Any:
    """Return an array of one dimension, read whole from a file of h5py's or Zarr's."""
    found = x if hasattr(x, "reshape") else x[:]
    if not hasattr(found, "reshape"):
        raise TypeError(f"{name} is a {type(x).__name__}; give np.asarray({name})")
    return found
