"""Matrices in the host's memory to measure with, and what their products cannot be faster than."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.backend import GemmCall, Operand
from tilewright.bench.peers import UnavailableError
from tilewright.bench.peers.cublas import library_file
from tilewright.bench.registry import Row
from tilewright.precision import precision
from tilewright.problem import Problem
from tilewright.serve.calls import Wanted, launch

__all__ = [
    "TURNS",
    "arithmetic_of",
    "cublas_xt",
    "drawn",
    "error",
    "fill",
    "kernel_ms",
    "link_ms",
    "link_rates",
    "ms",
    "peer_rate",
]

TURNS = 3
_BLOCKS = (2048, 4096)  # of cuBLASXt; 2048 is its default

# Rows that are drawn; matrices repeat them, in another order each time.
_DRAWN = 512

# What is copied from a device to another to time that.
_PEER_BYTES = 256 << 20

# Entries of C that are compared with sums in float64.
_SAMPLES = 32


def arithmetic_of(name: str) -> tuple[str, str]:
    """Return the precision and the accuracy that a name on a command line stands for."""
    return ("s", "fp32") if name == "fp32" else (name, "ieee")


def drawn(live: Any, stack: ExitStack, n: int, dtype: np.dtype[Any]) -> list[NDArray[Any]]:
    """Return A, B and C in pinned memory, C's undefined."""
    made: list[NDArray[Any]] = [
        stack.enter_context(live.pinned(n * n * dtype.itemsize)).view(dtype).reshape(n, n)
        for _ in "abc"
    ]
    for seed, x in enumerate(made[:2]):
        fill(x, seed)
    return made


def fill(x: NDArray[Any], seed: int) -> None:
    """Fill a matrix with random numbers: some are drawn, for to draw all takes too long."""
    rng, columns = np.random.default_rng(seed), x.shape[1]
    drawn = rng.uniform(-1, 1, (_DRAWN, columns)).astype(x.dtype)
    starts = range(0, len(x), _DRAWN)

    def turn(first: int, by: int) -> None:
        rows = x[first : first + _DRAWN]
        rows[:, :by] = drawn[: len(rows), columns - by :]
        rows[:, by:] = drawn[: len(rows), : columns - by]

    with ThreadPoolExecutor() as threads:  # pages are found as they are written
        list(threads.map(turn, starts, map(int, rng.integers(columns, size=len(starts)))))


def error(a: NDArray[Any], b: NDArray[Any], c: NDArray[Any]) -> float:
    """Return the largest eta of some entries."""
    rng, worst = np.random.default_rng(2), 0.0
    for i, j in rng.integers(0, len(c), (_SAMPLES, 2)):
        x, y = a[i].astype(np.float64), b[:, j].astype(np.float64)
        worst = max(worst, abs(float(c[i, j]) - x @ y) / float(abs(x) @ abs(y)))
    return worst


def ms(call: Callable[[], Any]) -> float:
    """Return the milliseconds of a call."""
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1e3


def link_ms(devices: Sequence[Any], arrays: Sequence[NDArray[Any]]) -> float:
    """Return how long operands take to devices while C comes from there, at the links' best.

    Each of several devices takes B, and its rows of A and of C.
    """
    from tilewright.serve.streamed.overlapped import Overlapped

    n, count = len(arrays[0]), len(devices)
    carriers = [Overlapped(one) for one in devices]
    try:
        rooms = [one.allocate([arrays[0].nbytes] * 3) for one in carriers]

        def carry(number: int) -> None:
            part = slice(number * n // count, (number + 1) * n // count)
            one, (a, b, c) = carriers[number], rooms[number]
            ends = (
                one.upload(b, arrays[1], n, ()),
                one.upload(a, arrays[0][part], n, ()),
                one.fetch(c, arrays[2][part], n, ()),
            )
            for end in ends:
                if end is not None:
                    end.wait()

        def all_at_once() -> None:
            threads = [threading.Thread(target=carry, args=(at,)) for at in range(1, count)]
            for thread in threads:
                thread.start()
            carry(0)
            for thread in threads:
                thread.join()

        all_at_once()
        return min(ms(all_at_once) for _ in range(TURNS))
    finally:
        for one in carriers:
            one.close()


def peer_rate(devices: Sequence[Any]) -> float:
    """Return the bytes a second that the second device copies from the first at best."""
    from tilewright.serve.streamed.overlapped import Overlapped
    from tilewright.serve.streamed.placed import DeviceLines

    first, other = devices[:2]
    memory, carrier = first.allocate(_PEER_BYTES), Overlapped(other)
    try:
        (room,) = carrier.allocate([_PEER_BYTES])
        lines = DeviceLines(first, memory, _PEER_BYTES, (1, _PEER_BYTES // 4), 4)

        def copied() -> None:
            carrier.upload(room, lines, _PEER_BYTES // 4, ()).wait()

        copied()
        return _PEER_BYTES / min(ms(copied) for _ in range(TURNS)) * 1e3
    finally:
        carrier.close()
        first.free(memory)


def link_rates(live: Any, arrays: Sequence[NDArray[Any]]) -> Row:
    """Return GB/s from pinned memory to a device and from there, alone, and of both together."""
    from tilewright.serve.streamed.overlapped import Overlapped

    n, size = arrays[0].shape[1], arrays[0].nbytes
    one = Overlapped(live)
    try:
        a, c = one.allocate([size] * 2)

        def there() -> Any:
            return one.upload(a, arrays[0], n, ())

        def back() -> Any:
            return one.fetch(c, arrays[2], n, ())

        def rate(*copies: Callable[[], Any]) -> float:
            def carry() -> None:
                for end in [copy() for copy in copies]:
                    end.wait()

            return round(len(copies) * size / min(ms(carry) for _ in range(TURNS)) / 1e6, 1)

        return {"to_gbs": rate(there), "from_gbs": rate(back), "both_gbs": rate(there, back)}
    finally:
        one.close()


def kernel_ms(
    live: Any, arrays: Sequence[NDArray[Any]], letter: str, accuracy: str, columns: int,
    turns: int = TURNS,
) -> float:  # fmt: skip
    """Return what the launches of so many columns of C take on matrices that are on the device."""
    n, of = len(arrays[0]), precision(letter)
    held = [live.upload(x) for x in arrays[:2]] + [live.allocate(arrays[2].nbytes)]
    try:
        # Row-major: C^T = B^T A^T.
        a, b, c = (Operand(x, 0, n) for x in (held[1], held[0], held[2]))
        call = GemmCall(of, columns, n, n, 1, a, b, 0, c)
        problem = Problem(columns, n, n, of, "N", "N", n, n, n)  # type: ignore[arg-type]
        wanted = Wanted(problem, call, True, "fp32" if accuracy == "fp32" else "")
        times = [launch(live, wanted, timed=True).nanoseconds() for _ in range(turns + 1)]
        return min(times[1:]) / 1e6
    finally:
        for memory in held:
            live.free(memory)


def cublas_xt(
    letter: str, a: NDArray[Any], b: NDArray[Any], c: NDArray[Any], pins: bool, devices: int = 1
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
        api.cublasXtDeviceSelect(handle, devices, (ctypes.c_int * devices)(*range(devices)))
        api.cublasXtSetPinningMemMode(handle, int(pins))
        best = float("inf")
        for block in _BLOCKS:
            api.cublasXtSetBlockDim(handle, block)

            def call() -> None:
                x, y, z = (ctypes.c_void_p(v.ctypes.data) for v in (b, a, c))
                alpha, beta = (ctypes.c_void_p(v.ctypes.data) for v in (one, zero))
                status = function(handle, 0, 0, n, n, n, alpha, x, n, y, n, beta, z, n)
                if status:
                    raise UnavailableError(f"cuBLASXt failed with status {status}")

            call()
            best = min(best, *(ms(call) for _ in range(2)))
        return best
    finally:
        api.cublasXtDestroy(handle)
