"""cuBLAS's strided-batched products in C, on arrays that lie behind each other."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

import numpy as np

from tilewright.bench.peers.cublas import KINDS, Handle
from tilewright.precision import precision

__all__ = ["prepared_batch"]

_N = 0  # CUBLAS_OP_N
_DEFAULT_ALGORITHM = -1


def prepared_batch(
    handle: Handle, letter: str, sides: tuple[int, int, int], batch: int, addresses: Sequence[int]
) -> Callable[[], int]:
    """Return a call of cuBLAS on row-major arrays of three dimensions, its arguments prepared.

    Parameters
    ----------
    handle : Handle
        By `tilewright.bench.peers.cublas.blas_handle`.
    letter : str
        s, d, c or z; or one of `KINDS`.
    sides : tuple of int
        m, n and k of each product.
    batch : int
        Of them.
    addresses : sequence of int
        Of A, B and C.

    Returns
    -------
    callable
        Enqueues the products; returns 0, or cuBLAS's status.
    """
    whole, at, kind = ctypes.c_int64, ctypes.c_void_p, ctypes.c_int
    (n, m, k), (b, a, c) = sides, addresses  # C^T = B^T A^T
    of = KINDS.get(letter)
    scalars = np.array([1, 0], precision(letter).dtype if of is None else of[3])
    alpha, beta = (at(scalars.ctypes.data + i * scalars.itemsize) for i in range(2))
    steps = (at(a), whole(m), whole(m * k)), (at(b), whole(k), whole(k * n)), (
        at(c), whole(m), whole(m * n)
    )  # fmt: skip
    head = (handle.handle, _N, _N, whole(m), whole(n), whole(k), alpha)
    if of is None:
        function = getattr(handle.api, f"cublas{letter.upper()}gemmStridedBatched_64")
        arguments: tuple[object, ...] = (*head, *steps[0], *steps[1], beta, *steps[2], whole(batch))
    else:
        function = handle.api.cublasGemmStridedBatchedEx_64
        types = (of[0], of[0], of[1])
        x, y, z = ((p, kind(t), ld, step) for (p, ld, step), t in zip(steps, types, strict=True))
        last = whole(batch), kind(of[2]), kind(_DEFAULT_ALGORITHM)
        arguments = (*head, *x, *y, beta, *z, *last)

    def call() -> int:
        return int(function(*arguments))

    call.scalars = scalars  # type: ignore[attr-defined]  # held for its address
    return call
