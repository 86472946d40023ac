"""Products of NumPy arrays by NumPy's own BLAS, where no kernel of a CPU device is faster.

::

    no kernel tuned here, or for larger products only  --+--> op(A) op(B) by BLAS, the rest here
    none was faster in a race of this size or near it  --+
    else                                               -----> OpenCL

Which serves depends on the problem, the arrays' layouts, and what tuning kept of the device, never
on times taken in the process, so that equal calls give equal bits.

BLAS is asked for op(A) op(B) alone, by `numpy.matmul`, which copies what BLAS does not take;
`numpy.dot` would fill C with zeros first.
"""

from __future__ import annotations

import contextvars
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tilewright.backend import GemmCall, LiveDevice, Operand
from tilewright.backend import device as find_device
from tilewright.portfolio.choose import choose
from tilewright.portfolio.find import generation, own
from tilewright.precision import PRECISIONS
from tilewright.problem import Problem
from tilewright.serve.host_products import (
    computed,
    keep_infinities,
    may_have_nan,
    multiplied,
    operand,
)
from tilewright.serve.overlap import in_one_file
from tilewright.serve.request import Request, column_major_call, strided
from tilewright.timeline import on_change, span, traced

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tilewright.tuning.host_blas import Race

__all__ = ["at_once", "is_plain", "is_serving", "left_out", "serve"]

# As it is when the process begins, so that equal calls give equal bits; see `left_out`.
_serves = os.environ.get("TILEWRIGHT_HOST_BLAS") != "0"

# From the call to the kernel's first instruction, and back from its last: what 8 x 8 x 8 takes by
# PoCL 3 on two cores of a Zen 3, whose kernel takes 2 us.
_LAUNCH_NS = 120_000

_OF_DTYPE = {p.dtype: p for p in PRECISIONS.values()}

_TRANS = frozenset("NTC")

# Infinities and NaN are results here, not warnings.  `numpy.errstate` takes 1.3 us, running in a
# copy of a context 0.1 us.
_QUIET = contextvars.copy_context()
_QUIET.run(np.seterr, all="ignore")

_matmul: Callable[..., Any] = np.matmul
_multiply: Callable[..., Any] = np.multiply


def _trace() -> None:
    """Let a timeline see short products, too; with none, nothing stands between."""
    global _matmul, _multiply
    _matmul, _multiply = traced("BLAS", np.matmul), traced("BLAS", np.multiply)


on_change(_trace)


def at_once(
    a: NDArray[Any], b: Any, c: Any, alpha: Any, beta: Any, trans_a: Any, trans_b: Any,
    device: str | LiveDevice | None,
) -> NDArray[Any] | None:  # fmt: skip
    """Return the product of ordinary arrays, in `c` if given; None in any doubt.

    What `serve` would do behind a look at everything that may be otherwise, which takes ten times
    as long as a small product.
    """
    kind = a.dtype
    precision = _OF_DTYPE.get(kind)
    if precision is None or not _serves or type(b) is not np.ndarray or b.dtype is not kind:
        return None
    if not type(trans_a) is type(trans_b) is str or not a.ndim == b.ndim == 2:
        return None
    if not (trans_a == trans_b == "N" or (trans_a in _TRANS and trans_b in _TRANS)):
        return None
    unscaled = type(alpha) is type(beta) is int and alpha == 1 and beta == 0
    if not unscaled and not (is_plain(alpha) and alpha != 0 and is_plain(beta)):
        return None
    real = kind.kind == "f"
    x = a if trans_a == "N" else a.T if real else operand(a, trans_a)
    y = b if trans_b == "N" else b.T if real else operand(b, trans_b)
    (m, k), (terms, n) = x.shape, y.shape
    least = _least_of_kernels(find_device(device), precision.letter, generation())
    if k != terms or not 0 < m * n * k < least:
        return None
    if beta != 0 if c is None else not _is_writable(c, kind, (m, n), a, b):
        return None
    try:
        if not unscaled:
            with span("BLAS"):
                return _QUIET.copy().run(computed, x, y, c, alpha, beta, precision)
        made: NDArray[Any] = _QUIET.copy().run(_matmul if k > 1 else _multiply, x, y, c)
    except (MemoryError, ValueError):  # no room for a result: who makes one says what to do
        return None
    if not real and k > 1 and may_have_nan(x, y, made):  # as `computed` does
        _QUIET.copy().run(keep_infinities, x, y, made)
    return made


def is_plain(scalar: Any) -> bool:
    """Whether a scalar is a real number that is the same in single precision, but for rounding."""
    return type(scalar) in (int, float) and (scalar == 0 or 1e-30 < abs(scalar) < 1e30)


def _is_writable(
    c: Any, kind: np.dtype[Any], shape: tuple[int, int], a: NDArray[Any], b: NDArray[Any]
) -> bool:
    """Whether C fits, is whole and shares no memory: at a glance where all own theirs."""
    if type(c) is not np.ndarray or c.dtype is not kind or c.shape != shape:
        return False
    flags = c.flags
    if not flags.writeable or not (flags.forc or _has_whole_rows(c)):
        return False
    if flags.owndata and a.base is b.base is None and c is not a and c is not b:
        return True
    if np.shares_memory(a, c) or np.shares_memory(b, c):
        return False
    base = c.base  # whose memory is NumPy's own is in no file
    if base is None or (type(base) is np.ndarray and base.base is None):
        return True
    return not (in_one_file(a, c) or in_one_file(b, c))


def _has_whole_rows(c: NDArray[Any]) -> bool:
    """Whether C is part of a row-major matrix, as blocks of factorisations are."""
    down, across = c.strides
    return across == c.itemsize and down >= across * c.shape[1]


def serve(live: LiveDevice, request: Request) -> bool:
    """Compute a request whose C overlaps neither A nor B, if BLAS serves it.

    Parameters
    ----------
    live : LiveDevice
        Where a kernel would run otherwise.
    request : Request
        Of NumPy arrays.

    Returns
    -------
    bool
        Whether it is computed.

    Raises
    ------
    MemoryError
        If the product needs memory of its own, as with beta c added, and there is none.
    """
    precision = request.precision
    if not _serves or live.spec.kind != "cpu" or precision.letter not in PRECISIONS:
        return False
    least = _least_of_kernels(live, precision.letter, generation())
    if request.m * request.n * request.k >= least and _kernel_is_faster(
        live, _as_kernels_see(request)[0]
    ):
        return False
    why = "accuracy is 'ieee'"
    if request.arithmetic:  # as of few calls: what multiplies on devices is not imported here
        from tilewright.serve.routes.lay_out import why_ieee

        why = why_ieee(live, *_as_kernels_see(request), request.arithmetic)
        if not why:
            return False
    # A subclass's own way of multiplying is not asked for.
    a, b, c = (x.view(np.ndarray) for x in (request.a, request.b, request.c))
    if request.batch is not None and not request.batch.repeats:  # one product after all
        a, b, c = (
            as_strided(x, matrix.shape, matrix.strides)
            for x, matrix in zip((a, b, c), map(request.matrix, "abc"), strict=True)
        )
    with span("BLAS"):
        x = y = None  # neither is read
        if request.k and any(precision.scalar(request.alpha)):
            x, y = operand(a, request.trans_a), operand(b, request.trans_b)
        update = multiplied
        if request.triangle is not None:
            from tilewright.serve.host_triangles import update_of

            update = update_of(request.triangle)
        try:
            _QUIET.copy().run(update, x, y, c, request.alpha, request.beta, precision)
        except MemoryError:
            sizes = " x ".join(map(str, c.shape))
            raise MemoryError(
                f"c has {sizes} elements, and there is no memory for a product of that size beside"
                " it; multiply parts"
            ) from None
    if request.report is not None:
        request.report.fixed("ieee", f"{why}; NumPy's BLAS computed it")
    return True


def is_serving() -> bool:
    """Whether BLAS serves at all."""
    return _serves


@contextmanager
def left_out() -> Iterator[None]:
    """Let kernels serve all threads within a ``with`` block, to measure them."""
    global _serves
    before, _serves = _serves, False
    try:
        yield
    finally:
        _serves = before


# -- which serves --------------------------------------------------------------------------


# Of a `generation()` of portfolios, as what a call read before a reload says nothing afterwards.
@lru_cache(maxsize=64)
def _least_of_kernels(live: LiveDevice, letter: str, seen: int) -> float:
    """Return the least m n k at which a kernel may be faster: of any race; 0 on a GPU."""
    if live.spec.kind != "cpu":
        return 0
    tuned = own(live.portfolio_key, letter)
    kernels = () if tuned is None else tuned.kernels
    return min((math.prod(sizes) for one in kernels for sizes in one.won), default=math.inf)


def _kernel_is_faster(live: LiveDevice, problem: Problem) -> bool:
    """Whether the kernel that serves a problem is known to be faster.

    The largest race that it won, of no more rows, columns or terms, is scaled to this size; larger
    products are hardly faster, by either.
    """
    kernel = choose(live, problem).kernel
    times = _raced(live.portfolio_key, generation())
    letter, sides = problem.precision.letter, (problem.m, problem.n, problem.k)
    known = [
        (math.prod(sizes), ns, times[letter, problem.trans, *sizes])
        for sizes, ns in (kernel.won.items() if kernel is not None else ())
        if (letter, problem.trans, *sizes) in times
        and all(x <= side for x, side in zip(sizes, sides, strict=True))
    ]
    if not known:
        return False
    volume, kernel_ns, blas_ns = max(known)
    return _LAUNCH_NS * volume < (blas_ns - kernel_ns) * math.prod(sides)


@lru_cache(maxsize=16)
def _raced(key: str, seen: int) -> dict[Race, int]:
    """Return BLAS's times in races; read once, as portfolios are."""
    from tilewright.tuning.host_blas import times

    return times(key)


def _as_kernels_see(request: Request) -> tuple[Problem, GemmCall]:
    def placed(name: str) -> tuple[Operand, bool]:
        x, matrix = getattr(request, name), request.matrix(name)
        layout = strided(matrix.shape, matrix.strides, x.itemsize)
        return Operand(None, 0, 0), layout is None or layout[0]  # copies are row-major

    operands = placed("a"), placed("b"), placed("c")
    problem, call, _ = column_major_call(request, operands)
    return problem, call
