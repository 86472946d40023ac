"""The host's share of a warm call on an OpenCL device, beside the least that OpenCL asks for.

pyopencl's arrays stand beside an enqueue of the very kernel, with all arguments set before;
NumPy's, whose memory the device reads and writes in place, beside that behind three buffers made of
their memory, with C mapped at the end.  Both are waited for after each call, and calls on
pyopencl's arrays are also made eight in a row on an idle queue.  Times are of the calling thread by
its processor clock: waiting does not count, nor do other programs, but what is left of the caches.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tilewright.backend import GemmCall, Operand
from tilewright.bench.registry import Asked, Benchmark, Cell, Row
from tilewright.bench.sizes import parse_sizes
from tilewright.precision import precision
from tilewright.problem import Problem
from tilewright.serve.gemm import gemm
from tilewright.serve.host_blas import left_out
from tilewright.serve.routes.direct import direct

__all__ = ["BENCHMARK"]

# Calls of a batch that are waited for one by one, calls in a row, and turns of either.
WAITED, IN_A_ROW, TURNS = 50, 8, 100

Calls = tuple[Callable[[], Any], Callable[[], Any]]
"""Ours, and the least that OpenCL asks for."""


class OpenCLCalls(Benchmark):
    measures = "the host's time of a warm call on an OpenCL device"
    against = "a bare enqueue of the same kernel by pyopencl"
    takes = "ten seconds"
    options = {"precision": "s,z", "size": "8,64"}  # noqa: RUF012
    needs = "opencl"

    def rows(self, asked: Asked) -> Iterator[Row]:
        live: Any = asked.live
        for letter, (m, n, k) in itertools.product(
            asked.precision.split(","), parse_sizes(asked.size)
        ):
            problem = Problem(n, m, k, precision(letter))  # of C^T, which is what kernels see
            about = {"precision": letter, "size": [m, n, k]}
            waited, enqueued = _on_pyopencl(live, problem)
            us, least = _in_turns(waited, WAITED, live.finish)
            row_us, least_row = _in_turns(enqueued, IN_A_ROW, live.finish)
            yield {
                **about, "arrays": "pyopencl", "us": us, "least_us": least,
                "row_us": row_us, "least_row_us": least_row,
            }  # fmt: skip
            if live.spec.unified_memory:
                with left_out():
                    us, least = _in_turns(_on_numpy(live, problem), WAITED, live.finish)
                yield {**about, "arrays": "NumPy", "us": us, "least_us": least}

    def line(self, row: Row) -> str:
        size = "x".join(map(str, row["size"]))
        return f"{row['precision']} {size} {row['arrays']}: {row['us']} us, {row['least_us']} us"

    def table(self, rows: Sequence[Row]) -> tuple[Sequence[str], list[list[Cell]]]:
        """Return all rows, with what ours take more."""
        lines: list[list[Cell]] = [
            [
                row["arrays"], row["precision"], "x".join(map(str, row["size"])), row["us"],
                row["least_us"], f"{row['us'] - row['least_us']:.1f}",
                f"{row['row_us'] - row['least_row_us']:.1f}" if "row_us" in row else "",
            ]
            for row in rows
        ]  # fmt: skip
        return (
            "arrays", "precision", "size", "waited for, us", "the least", "more",
            "eight in a row: more us a call",
        ), lines  # fmt: skip


def _drawn(problem: Problem) -> list[Any]:
    """Return random row-major A, B and C of a product whose transpose the problem is."""
    rng, of, p = np.random.default_rng(0), problem.precision, problem
    drawn = [rng.uniform(-1, 1, (*s, of.words)) for s in ((p.n, p.k), (p.k, p.m), (p.n, p.m))]
    return [x.astype(of.real_name).view(of.dtype)[..., 0].copy() for x in drawn]


def _prepared(live: Any, problem: Problem, memory: Sequence[Any]) -> Callable[..., Any]:
    """Return what enqueues the kernel that serves a problem, its arguments set; or with others."""
    import pyopencl as cl

    p = problem
    a, b, c = (Operand(x, 0, ld) for x, ld in zip(memory, (p.lda, p.ldb, p.ldc), strict=True))
    call = GemmCall(p.precision, p.m, p.n, p.k, 1, a, b, 0, c)
    kernel, launch, arguments = direct(live, p, call)
    # Arguments are an object's: the library's own has others after each call.
    own = cl.Kernel(kernel.handle.get_info(cl.kernel_info.PROGRAM), kernel.entry)
    own.set_args(*arguments)
    places = [arguments.index(x) for x in memory]
    queue, size, block = live.queue, launch.threads, launch.block

    def enqueue(*others: Any) -> Any:
        for place, other in zip(places, others, strict=False):
            own.set_arg(place, other)
        return cl.enqueue_nd_range_kernel(queue, own, size, block)

    return enqueue


def _on_pyopencl(live: Any, problem: Problem) -> tuple[Calls, Calls]:
    """Return calls that are waited for, and those that are only enqueued."""
    import pyopencl.array

    a, b, c = (pyopencl.array.to_device(live.queue, x) for x in _drawn(problem))
    bare = _prepared(live, problem, (b.base_data, a.base_data, c.base_data))

    def waited() -> None:
        gemm(a, b, c)
        c.events[-1].wait()

    return (waited, lambda: bare().wait()), (lambda: gemm(a, b, c), bare)


def _on_numpy(live: Any, problem: Problem) -> Calls:
    """Return calls on memory of the host's."""
    a, b, c = arrays = _drawn(problem)
    bare = _prepared(live, problem, [live.upload(x) for x in (b, a, c)])

    def least() -> None:
        memory = [live.wrap(x) for x in (b, a, c)]
        bare(*memory)
        live.unwrap(memory[2], arrays[2])
        for one in memory:
            one.release()

    return (lambda: gemm(a, b, c, device=live)), least


def _in_turns(calls: Calls, count: int, finish: Callable[[], object]) -> list[float]:
    """Return the least microseconds a call of this thread, of batches in turns."""
    times: list[list[int]] = [[], []]
    for _ in range(1 + TURNS):
        for call, taken in zip(calls, times, strict=True):
            finish()
            started = time.thread_time_ns()
            for _ in range(count):
                call()
            taken.append(time.thread_time_ns() - started)
    return [round(min(taken[1:]) / count / 1e3, 1) for taken in times]


BENCHMARK = OpenCLCalls()
