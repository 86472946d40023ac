"""Errors of products on a device, in some rows and columns, against wider arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.double_double import error_of_product
from tilewright.precision import Precision
from tilewright.problem import Trans
from tilewright.tuning.matrices import apply, poison
from tilewright.tuning.measure import Workload

__all__ = ["Sample", "etas_of", "sampled_errors"]

# Rows and columns of C that are looked at: exact sums of all of them would take minutes.
ROWS, COLUMNS = 16, 64
# A long double takes some nanoseconds for a multiply-add: of longer sums fewer columns.
_MOST_LONG = 2**24
# In double-double sums are exact, which takes a thousand times as long.
ROWS_OF_PAIRS = COLUMNS_OF_PAIRS = 8


class Sample:
    """Some rows and columns of a workload's C, and what they should be.

    Parameters
    ----------
    workload : Workload
        With A and B in place.
    """

    def __init__(self, workload: Workload) -> None:
        p = workload.problem
        pairs = p.precision.parts == 2
        rows, columns = (ROWS_OF_PAIRS, COLUMNS_OF_PAIRS) if pairs else (ROWS, COLUMNS)
        self._workload = workload
        self._rows, self._columns = _spread(p.m, rows), _spread(p.n, columns)
        self._a = _part(workload, "a", p.trans_a, self._rows)
        turned = Trans.of(not p.trans_b.transposed, p.trans_b.conjugated)
        self._b = _part(workload, "b", turned, self._columns).T
        self._exact = None if pairs else _wide_product(self._a, self._b, p.precision)

    def errors_of(self, call: Callable[[], object]) -> dict[str, float]:
        """Return the errors of what a call leaves in C; NaN where it leaves an element as it was.

        Returns
        -------
        dict of str to float
            ``eta`` = max |C' - AB| / (|A| |B|), and ``frobenius`` = ||C' - AB|| / || |A| |B| ||.
        """
        p, live = self._workload.problem, self._workload.device
        of = p.precision
        memory, stride = self._workload.memory["c"], p.ldc * of.result_bytes
        column = np.zeros(p.ldc, of.result_dtype)
        if of.is_short:
            column[:] = poison(of.result_dtype)
        else:
            column.view(of.real_dtype)[:] = np.nan
        for j in self._columns:
            live.write(memory, column, int(j) * stride)
        call()
        found = np.empty((len(self._rows), len(self._columns)), of.result_dtype)
        for at, j in enumerate(self._columns):
            live.download(memory, column, int(j) * stride)
            found[:, at] = column[self._rows]
        if self._exact is None:
            error, size = error_of_product(found, self._a, self._b)
        else:
            exact, size = self._exact
            error = np.abs(found.astype(exact.dtype) - exact)
        whole = float(np.linalg.norm(size))
        return {
            "eta": float(np.max(np.abs(error) / size)),
            "frobenius": float(np.linalg.norm(np.abs(error)) / whole),
        }


def sampled_errors(
    workload: Workload, calls: Mapping[str, Callable[[], object]]
) -> dict[str, dict[str, float]]:
    """Return the errors of everybody who writes into the workload's C, by name."""
    sample = Sample(workload)
    return {name: sample.errors_of(call) for name, call in calls.items()}


def etas_of(
    a: Any, b: Any, ops: tuple[Trans, Trans], products: Sequence[Any], precision: Precision
) -> list[float]:
    """Return max |C' - AB| / (|A| |B|) of products of arrays, in some rows and columns.

    Parameters
    ----------
    a, b : array
        NumPy's or CuPy's, as they are stored.
    ops : tuple of Trans
        What is done to them.
    products : sequence of array
        op(A) op(B) by everybody.
    precision : Precision
        Of BLAS's.
    """
    (m, n), k = products[0].shape, a.shape[0 if ops[0].transposed else 1]
    few = max(1, _MOST_LONG // (ROWS * k))
    rows, columns = (_spread(side, most).tolist() for side, most in ((m, ROWS), (n, COLUMNS)))
    columns = columns[:: -(-len(columns) // few)]
    x = a[:, rows] if ops[0].transposed else a[rows]
    y = b[columns] if ops[1].transposed else b[:, columns]
    right, size = _wide_product(apply(ops[0], _host(x)), apply(ops[1], _host(y)), precision)
    found = (_host(c[rows][:, columns]) for c in products)
    return [float(np.max(np.abs(one - right) / size)) for one in found]


def _host(x: Any) -> NDArray[Any]:
    """Return an array in the host's memory."""
    return x.get() if hasattr(x, "get") else np.asarray(x)


def _spread(side: int, most: int) -> NDArray[np.intp]:
    """Return some numbers from 0 to the last of a side, both ends among them."""
    return np.unique(np.linspace(0, side - 1, most).round().astype(np.intp))


def _part(workload: Workload, name: str, trans: Trans, lines: NDArray[np.intp]) -> NDArray[Any]:
    """Return some rows of op(x) of a stored operand."""
    p = workload.problem
    ld = {"a": p.lda, "b": p.ldb}[name]
    flat = np.empty(workload.elements[name], p.precision.dtype)
    workload.device.download(workload.memory[name], flat)
    stored = flat.reshape(-1, ld)  # its rows are the matrix's columns
    picked = stored[lines, : p.k] if trans.transposed else stored[: p.k, lines].T
    return apply(Trans.of(False, trans.conjugated), picked)


def _wide_product(
    a: NDArray[Any], b: NDArray[Any], precision: Precision
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return A B and |A| |B| in a wider precision.

    The host's long doubles have 64 bits on x86, and more or as many as a double elsewhere.
    """
    wider = np.result_type(np.float64 if precision.real_bytes < 8 else np.longdouble)
    if precision.is_complex:
        wider = np.result_type(wider, np.complex64)
    x, y = a.astype(wider), b.astype(wider)
    return x @ y, np.abs(x) @ np.abs(y)
