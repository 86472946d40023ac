"""The public call on CuPy's arrays beside cuBLAS called in C, host time and all.

Nothing is held back: a batch of calls is enqueued as fast as the caller can, and its time is what
the host's clock says until the device has ended.  cuBLAS is called with arguments prepared
beforehand, in its default math mode, with its own workspace and with one of 64 MiB; the faster
counts.  Batches come in turns.
"""

from __future__ import annotations

import ctypes
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tilewright.bench.benchmarks.random_shapes import GPU_MOST, drawn_sides
from tilewright.bench.peers import UnavailableError
from tilewright.bench.peers.cublas import OPERATIONS, blas_handle
from tilewright.bench.registry import Asked, Cell, Measured, Row
from tilewright.library.gemm import gemm
from tilewright.precision import PRECISIONS
from tilewright.problem import Trans

__all__ = ["BENCHMARK", "skinny_sides"]

# A batch takes about so long, so that the clock and the last wait count little: 2 ms; no more
# calls than half of what a stream queues, and rounds enough for a median.
_BATCH_NS, _MOST_CALLS, _ROUNDS = 2_000_000, 500, 5

# What cuBLAS's documentation asks for on Hopper is 32 MiB; more was faster in some cases.
_WORKSPACE = 64 * 2**20

_LONGEST_K, _SHORT_SIDE = 500_000, 128

Side = tuple[int, int, int]
Call = Callable[[], Any]


def skinny_sides(seed: int, count: int) -> list[Side]:
    """Return m, n and k of which m or n is 1 to 128, log-uniform; k is up to 500,000."""
    rng = np.random.default_rng(seed)

    def drawn(most: int) -> int:
        return round(math.exp(rng.uniform(0, math.log(most))))

    found: list[Side] = []
    while len(found) < count:
        short, long, k = drawn(_SHORT_SIDE), drawn(GPU_MOST[0]), drawn(_LONGEST_K)
        if (short + long) * k <= 2**30 and short * long * k <= GPU_MOST[1]:
            found.append((short, long, k) if len(found) % 2 else (long, short, k))
    return found


# Linear layers of language models: output and input features of Llama 2 and 3 of 7 and 8 billion
# parameters (attention, up, down, vocabulary), and tokens of a step.
_FEATURES = ((4096, 4096), (11008, 4096), (4096, 11008), (14336, 4096), (32000, 4096))
_TOKENS = (1, 8, 16, 64, 256, 1024, 2048)

_SQUARES = (512, 1024, 2048, 4096, 8192, 16384)

Case = tuple[Side, tuple[Trans, Trans], str]


def _cases(asked: Asked, name: str) -> list[Case]:
    """Return sides, operations and storage order of what is asked for."""
    if asked.size == "layers":  # rows of tokens times the transpose of the weights, as PyTorch has
        return [
            ((tokens, out, features), (Trans.N, Trans.T), "C")
            for tokens in _TOKENS
            for out, features in _FEATURES
        ]
    if asked.size == "squares":
        pairs = [(a, b) for a in (Trans.N, Trans.T) for b in (Trans.N, Trans.T)]
        return [((side,) * 3, pair, "F") for side in _SQUARES for pair in pairs]
    draw = skinny_sides if asked.size == "skinny" else _random_sides
    rng = np.random.default_rng(asked.seed + 1)
    letters = "NTC"[: 3 if name in "cz" else 2]

    def one(side: Side) -> Case:
        a, b = (Trans(letters[rng.integers(len(letters))]) for _ in "ab")
        return side, (a, b), "FC"[rng.integers(2)]

    return [one(side) for side in draw(asked.seed, asked.count)]


def _random_sides(seed: int, count: int) -> list[Side]:
    return drawn_sides(seed, count, GPU_MOST)


class Calls(Measured):
    """See the module."""

    measures = "the public call on CuPy's arrays, random shapes, launches not held back"
    against = "cuBLAS in C with prepared arguments, the better of two workspaces"
    takes = "a minute for 100 shapes of a precision on an H100"
    # precision: also fp32, which is S with accuracy="fp32"; size: random, skinny, layers, squares.
    options = {"precision": "s", "size": "random", "seed": "0", "count": "100"}  # noqa: RUF012

    def rows(self, asked: Asked) -> Iterator[Row]:
        """Yield a row for each shape."""
        if asked.live.backend != "cuda":
            raise UnavailableError(f"CuPy's arrays are not on {asked.live.id}; use cuda:0")
        try:
            import cupy
        except ImportError:
            raise UnavailableError("cupy is not installed; pip install cupy-cuda13x") from None
        known = ("random", "skinny", "layers", "squares")
        if asked.size not in known:
            raise UnavailableError(f"size={asked.size!r} is unknown here; use {', '.join(known)}")
        peers = [blas_handle(0), blas_handle(_WORKSPACE)]
        for name in asked.precision.split(","):
            rng = np.random.default_rng(asked.seed + 2)
            for case in _cases(asked, name):
                yield _row(cupy, peers, name, case, rng)

    def line(self, row: Row) -> str:
        """Return how much faster the call was."""
        return f"{row['precision']} {row['trans']} {row['size']}: {row['ratio']:.2f} of cuBLAS"

    def table(self, rows: Sequence[Row]) -> tuple[Sequence[str], list[list[Cell]]]:
        """Return a line a precision."""
        lines: list[list[Cell]] = []
        for name in dict.fromkeys(row["precision"] for row in rows):
            mine = [row for row in rows if row["precision"] == name]
            ratios = sorted(row["ratio"] for row in mine)
            long = [row["ratio"] for row in mine if row["cublas_us"] > 20]
            lines.append([
                name, len(mine), f"{_mean(ratios):.3f}", f"{statistics.median(ratios):.2f}",
                f"{_mean(long):.3f}", f"{100 * sum(x < 0.9 for x in ratios) / len(ratios):.0f}",
                f"{min(long, default=math.nan):.2f}", f"{ratios[0]:.2f}",
            ])  # fmt: skip
        return (
            "precision", "shapes", "geometric mean", "median", "mean beyond 20 us", "% below 0.9",
            "least beyond 20 us", "least",
        ), lines  # fmt: skip


def _mean(ratios: Sequence[float]) -> float:
    """Return the geometric mean."""
    return math.exp(statistics.fmean(map(math.log, ratios))) if ratios else math.nan


def _row(cupy: Any, peers: Sequence[Any], name: str, case: Case, rng: Any) -> Row:
    side, ops, order = case
    m, n, k = side
    precision = PRECISIONS["s" if name == "fp32" else name]
    shapes = [(m, k), (k, n)]
    a, b = (
        _random(cupy, rng, x[::-1] if op.transposed else x, precision.dtype, order)
        for x, op in zip(shapes, ops, strict=True)
    )
    ours, theirs = (cupy.empty((m, n), precision.dtype, order) for _ in "12")
    options: dict[str, Any] = {"trans_a": ops[0].value, "trans_b": ops[1].value}
    if name == "fp32":
        options["accuracy"] = "fp32"
    calls: list[Call] = [lambda: gemm(a, b, ours, **options)]
    calls += [_cublas(peer, precision.letter, side, ops, order, (a, b, theirs)) for peer in peers]
    times = _in_turns(cupy, calls)
    scale = float(cupy.abs(theirs).max()) or 1.0
    return {
        "precision": name, "trans": "".join(ops), "order": order, "size": list(side),
        "us": times[0] / 1e3, "cublas_us": min(times[1:]) / 1e3, "cublas_own_us": times[1] / 1e3,
        "ratio": min(times[1:]) / times[0],
        "difference": float(cupy.abs(ours - theirs).max()) / scale,
    }  # fmt: skip


def _random(cupy: Any, rng: Any, shape: tuple[int, int], dtype: Any, order: str) -> Any:
    """Return normal numbers, in columns or in rows, made on the device."""
    made = cupy.empty(shape, dtype, order)
    draw = cupy.random.default_rng(int(rng.integers(2**31)))
    real = np.dtype(f"f{dtype.itemsize // (2 if dtype.kind == 'c' else 1)}")
    words = draw.standard_normal(made.size * (2 if dtype.kind == "c" else 1), dtype=real)
    made.ravel(order)[:] = words.view(dtype)
    return made


def _cublas(
    handle: Any, letter: str, side: Side, ops: Sequence[Trans], order: str, arrays: tuple[Any, ...]
) -> Call:
    """Return a call of cublas?gemm, its arguments prepared; rows are the columns of C^T."""
    m, n, k = side
    (a, b, c), (op_a, op_b) = arrays, ops
    if order == "C":
        m, n, a, b, op_a, op_b = n, m, b, a, op_b, op_a
    lds = [max(1, k if op_a.transposed else m), max(1, n if op_b.transposed else k), max(1, m)]
    scalars = np.array([1, 0], c.dtype)
    whole, at = ctypes.c_int64, ctypes.c_void_p
    function = getattr(handle.api, f"cublas{letter.upper()}gemm_v2_64")
    arguments = (
        handle.handle, OPERATIONS[op_a], OPERATIONS[op_b], whole(m), whole(n), whole(k),
        at(scalars.ctypes.data), at(a.data.ptr), whole(lds[0]), at(b.data.ptr), whole(lds[1]),
        at(scalars.ctypes.data + scalars.itemsize), at(c.data.ptr), whole(lds[2]),
    )  # fmt: skip

    def call() -> Any:
        return function(*arguments)

    call.scalars = scalars  # type: ignore[attr-defined]  # held for its address
    if call() != 0:
        raise UnavailableError(f"cublas refused {letter} {side}")
    return call


def _in_turns(cupy: Any, calls: Sequence[Call]) -> list[float]:
    """Return the median nanoseconds a call, batches in turns."""
    wait = cupy.cuda.get_current_stream().synchronize

    def batch(call: Call, count: int) -> float:
        wait()
        started = time.perf_counter_ns()
        for _ in range(count):
            call()
        wait()
        return (time.perf_counter_ns() - started) / count

    for call in calls:  # chosen, loaded, laid out
        batch(call, 2)
    longest = max(batch(call, 2) for call in calls)
    count = max(1, min(_MOST_CALLS, int(_BATCH_NS / longest)))
    rounds = _ROUNDS if count > 1 else 3
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, mine in zip(calls, times, strict=True):
            mine.append(batch(call, count))
    return [statistics.median(mine) for mine in times]


BENCHMARK = Calls()
