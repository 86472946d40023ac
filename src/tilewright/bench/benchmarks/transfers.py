"""Products of matrices in the host's memory beside what they cannot be faster than.

Beside each call, in the same run: the kernel alone on matrices that are on the device (T_kernel);
the link, A and B copied there while C is copied back, in pinned memory (T_comm, the longer of both
directions at once); their sum, as Nakasato (2010) has it in equations 3 to 5; and their maximum,
which is what overlapping leaves.  cuBLASXt is the peer, in the better of two block sizes, with
pages pinned by it where they are pageable.
"""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.backend import GemmCall, Operand
from tilewright.bench.peers import UnavailableError
from tilewright.bench.peers.cublas import library_file
from tilewright.bench.registry import Asked, Benchmark, Cell, Row
from tilewright.bench.sizes import parse_sizes
from tilewright.precision import precision
from tilewright.problem import Problem
from tilewright.serve.calls import Wanted, launch
from tilewright.serve.gemm import gemm

__all__ = ["BENCHMARK"]

TURNS = 3
MEMORY = ("pinned", "pageable")
BLOCKS = (2048, 4096)  # of cuBLASXt; 2048 is its default

# Rows that are drawn; matrices repeat them, in another order each time.
_DRAWN = 512

# Entries of C that are compared with sums in float64.
_SAMPLES = 32


class Transfers(Benchmark):
    """See the module."""

    measures = "products of matrices in the host's memory, beside link and kernel"
    against = "cuBLASXt"
    takes = "a minute for 8192 and 16384"
    options = {"precision": "s,d,fp32", "size": "8192,16384"}  # noqa: RUF012

    def rows(self, asked: Asked) -> Iterator[Row]:
        """Yield a row for each precision, size and kind of host memory."""
        if asked.live.backend != "cuda":
            raise UnavailableError(f"{asked.live.id} is no CUDA device")
        for name in asked.precision.split(","):
            letter, accuracy = ("s", "fp32") if name == "fp32" else (name, "ieee")
            for n, _, _ in parse_sizes(asked.size):
                with ExitStack() as stack:
                    yield from _rows(asked.live, stack, name, letter, accuracy, n)

    def line(self, row: Row) -> str:
        """Return how much longer a call took than it must."""
        return (
            f"{row['precision']} {row['size']} {row['memory']}: {row['ms']:.1f} ms,"
            f" {row['of_longest']:.2f} of max(T_comm, T_kernel), cuBLASXt {row['xt_ms']}"
        )

    def table(self, rows: Sequence[Row]) -> tuple[Sequence[str], list[list[Cell]]]:
        """Return all rows."""
        names = ("precision", "size", "memory", "ms", "kernel_ms", "link_ms", "of_longest", "xt_ms")
        heads = ("precision", "n", "memory", "ms", "T_kernel", "T_comm", "total / max", "cuBLASXt")
        return heads, [[row[name] for name in names] for row in rows]


def _rows(
    live: Any, stack: ExitStack, name: str, letter: str, accuracy: str, n: int
) -> Iterator[Row]:
    of = precision(letter)
    pinned = [_pinned(live, stack, n, of.dtype) for _ in "abc"]
    for at, x in enumerate(pinned[:2]):
        _fill(x, at)
    link_ms, kernel_ms = _link(live, pinned), _kernel(live, pinned, letter, accuracy, n)
    for memory in MEMORY:
        a, b, c = pinned if memory == "pinned" else [np.array(x) for x in pinned]
        c.fill(np.nan)
        gemm(a, b, c, accuracy=accuracy, device=live)
        error = _error(a, b, c)
        times = [_ms(lambda: gemm(a, b, c, accuracy=accuracy, device=live)) for _ in range(TURNS)]  # noqa: B023
        total, longest = statistics.median(times), max(link_ms, kernel_ms)
        peer = _cublas_xt(letter, a, b, c, memory == "pageable") if accuracy == "ieee" else None
        yield {
            "precision": name, "size": n, "memory": memory, "ms": round(total, 2),
            "kernel_ms": round(kernel_ms, 2), "link_ms": round(link_ms, 2),
            "sum_ms": round(link_ms + kernel_ms, 2), "of_longest": round(total / longest, 3),
            "xt_ms": None if peer is None else round(peer, 2), "eta": error,
        }  # fmt: skip


def _pinned(live: Any, stack: ExitStack, n: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    held = stack.enter_context(live.pinned(n * n * dtype.itemsize))
    made: NDArray[Any] = held.view(dtype).reshape(n, n)
    return made


def _fill(x: NDArray[Any], seed: int) -> None:
    """Fill a matrix with random numbers: some are drawn, for to draw all takes too long."""
    rng = np.random.default_rng(seed)
    drawn = rng.uniform(-1, 1, (_DRAWN, x.shape[1])).astype(x.dtype)
    for first in range(0, len(x), _DRAWN):
        rows = x[first : first + _DRAWN]
        rows[...] = np.roll(drawn, int(rng.integers(x.shape[1])), axis=1)[: len(rows)]


def _error(a: NDArray[Any], b: NDArray[Any], c: NDArray[Any]) -> float:
    """Return the largest eta of some entries."""
    rng, worst = np.random.default_rng(2), 0.0
    for i, j in rng.integers(0, len(c), (_SAMPLES, 2)):
        x, y = a[i].astype(np.float64), b[:, j].astype(np.float64)
        worst = max(worst, abs(float(c[i, j]) - x @ y) / float(abs(x) @ abs(y)))
    return worst


def _ms(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1e3


def _link(live: Any, arrays: Sequence[NDArray[Any]]) -> float:
    """Return how long A and B take to the device while C comes from there, at the link's best."""
    from tilewright.serve.streamed.overlapped import Overlapped

    carrier = Overlapped(live)
    try:
        up, down = carrier.allocate([arrays[0].nbytes] * 2)

        def both() -> None:
            n = arrays[0].shape[1]
            ends = [carrier.upload(up, x, n, ()) for x in arrays[:2]]
            carrier.download(down, arrays[2], n, ())
            for one in ends:
                one.wait()

        both()
        return min(_ms(both) for _ in range(TURNS))
    finally:
        carrier.close()


def _kernel(live: Any, arrays: Sequence[NDArray[Any]], letter: str, accuracy: str, n: int) -> float:
    """Return what the launches take on matrices that are on the device."""
    held = [live.upload(x) for x in arrays[:2]] + [live.allocate(arrays[2].nbytes)]
    try:
        of = precision(letter)
        # Row-major: C^T = B^T A^T.
        a, b, c = (Operand(x, 0, n) for x in (held[1], held[0], held[2]))
        call = GemmCall(of, n, n, n, 1, a, b, 0, c)
        problem = Problem(n, n, n, of)
        wanted = Wanted(problem, call, True, "fp32" if accuracy == "fp32" else "")
        times = [launch(live, wanted, timed=True).nanoseconds() for _ in range(TURNS + 1)]
        return min(times[1:]) / 1e6
    finally:
        for memory in held:
            live.free(memory)


def _cublas_xt(
    letter: str, a: NDArray[Any], b: NDArray[Any], c: NDArray[Any], pins: bool
) -> float | None:
    """Return the milliseconds of cuBLASXt in its better block size; None where it is not here."""
    try:
        api = ctypes.CDLL(library_file())
    except UnavailableError:
        return None
    handle, n = ctypes.c_void_p(), ctypes.c_size_t(len(a))
    if api.cublasXtCreate(ctypes.byref(handle)):
        return None
    one, zero = (np.array(value, c.dtype) for value in (1, 0))
    function = getattr(api, f"cublasXt{letter.upper()}gemm")
    try:
        api.cublasXtDeviceSelect(handle, 1, (ctypes.c_int * 1)(0))
        api.cublasXtSetPinningMemMode(handle, int(pins))
        best = float("inf")
        for block in BLOCKS:
            api.cublasXtSetBlockDim(handle, block)

            def call() -> None:
                x, y, z = (ctypes.c_void_p(v.ctypes.data) for v in (b, a, c))
                alpha, beta = (ctypes.c_void_p(v.ctypes.data) for v in (one, zero))
                status = function(handle, 0, 0, n, n, n, alpha, x, n, y, n, beta, z, n)
                if status:
                    raise UnavailableError(f"cuBLASXt failed with status {status}")

            call()
            best = min(best, *(_ms(call) for _ in range(2)))
        return best
    finally:
        api.cublasXtDestroy(handle)


BENCHMARK = Transfers()
