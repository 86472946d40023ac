"""What products of parts, products with an epilogue, and triangles take, on tensor cores.

Their machine code is found by its source (`tilewright.serve.passes`), by their times the config:
they are measured and fitted as all others are, in one order of operands, since either is as fast.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from tilewright.backend import Operand
from tilewright.backend.cache import KernelCache
from tilewright.backend.cuda.compiler import cached_cubin
from tilewright.backend.cuda.device import CUDADevice
from tilewright.portfolio.fit import fitted_costs
from tilewright.portfolio.kernel import PortfolioKernel
from tilewright.portfolio.measure import document
from tilewright.portfolio.measured import Measured
from tilewright.portfolio.timers import interleaved_medians
from tilewright.stencil.asynchronous.folded import folded, folded_problem
from tilewright.stencil.asynchronous.realign import aligned_ld
from tilewright.stencil.wgmma import (
    Following,
    Parts,
    TensorCall,
    TensorVariant,
    Wgmma,
    operands_of,
    variant_named,
)

__all__ = ["kernels_of", "measure_arithmetic"]

# Sides are log-uniform; longer sums are cut into pieces (`tilewright.serve.routes.split`).
_LEAST, _MOST = 6.0, 13.0

# Elements of 2 bytes in a line of memory.
_UNIT = 64

# Numbers that operands repeat.
_DRAWN = 1 << 20


def kernels_of(measured: Measured) -> list[PortfolioKernel]:
    """Return all that was timed of an arithmetic, with costs, without machine code."""
    found = []
    family = Wgmma()
    variant = variant_named(measured.arithmetic)
    for case in measured.cases.values():
        best = case.best
        for column, config in enumerate(case.configs):
            geometry = family.geometry(config)
            times, least = case.times(column), best
            if variant.arithmetic.triangle:  # of several that have as many tiles, the last
                alike = {folded_problem(geometry, one): one for one in times}
                least = {of: best[one] for of, one in alike.items()}
                times = {of: times[one] for of, one in alike.items()}
            costs = fitted_costs(geometry, times, least, measured.multiprocessors)
            made = PortfolioKernel(config, family.version, variant, geometry, {}, tuple(costs))
            found.append(made)
    return found


def measure_arithmetic(
    live: CUDADevice, name: str, count: int, seed: int, seconds: float
) -> dict[str, Any]:
    """Return times of an arithmetic's starts, as `read_measured` takes them.

    Parameters
    ----------
    live : CUDADevice
        Where.
    name : str
        One of `tilewright.stencil.wgmma.NAMED`.
    count, seed : int
        Shapes.
    seconds : float
        After which no further shape begins.
    """
    family, variant = Wgmma(), variant_named(name)
    space = family.space(variant, live.spec)
    configs = [one for one in family.starts(variant, live.spec) if one in space]
    sources = [family.source(one, variant, "cuda") for one in configs]
    with ThreadPoolExecutor() as pool:  # NVRTC works outside Python's lock
        list(pool.map(lambda one: cached_cubin(one, live.arch, KernelCache()), sources))
    kernels = [live.compile(one) for one in sources]
    shapes, rows = [], []
    drawn = _squares(seed) if variant.arithmetic.triangle else _drawn(seed)
    sides = list(islice(drawn, count))
    memory = _memory(live, variant, sides)
    until = time.monotonic() + seconds
    try:
        for m, n, k in sides:
            if time.monotonic() >= until:
                break
            call = _call(variant, memory, m, n, k)

            def run(at: int, call: TensorCall = call) -> int:
                size = call.m, call.n
                if variant.arithmetic.triangle:
                    size = folded(family.geometry(configs[at]), call.n)
                launch = family.launch(configs[at], *size, call.k)
                arguments = family.arguments(configs[at], variant, call)
                return live.launch_timed(kernels[at], launch, arguments).nanoseconds()

            shapes.append([m, n, k])
            rows.append(interleaved_medians([partial(run, at) for at in range(len(configs))]))
    finally:
        for handle in memory.values():
            live.free(handle)
    case = {"shapes": shapes, "configs": [dict(one) for one in configs], "ns": rows, "won": []}
    letter = operands_of(variant.arithmetic).letter
    return document(live, letter, family.name, {"TN": case}) | {"arithmetic": name}


def _drawn(seed: int) -> Iterator[tuple[int, int, int]]:
    """Yield m, n and k, every third time a square."""
    rng = np.random.default_rng(seed)
    for number in range(1 << 30):
        m, n, k = (round(2.0**x) for x in rng.uniform(_LEAST, _MOST, 3))
        yield (m, m, m) if number % 3 == 0 else (m, n, k)


def _squares(seed: int) -> Iterator[tuple[int, int, int]]:
    """Yield m, m and k, two times of three multiples of a line of memory, as most that users have.

    Others take up to half as long again: TMA's rows begin amid sectors, C's columns anywhere.
    """
    for number, (m, _, k) in enumerate(_drawn(seed)):
        unit = 1 if number % 3 == 1 else _UNIT
        m, k = (max(1, round(side / unit)) * unit for side in (m, k))
        yield m, m, k


def _memory(
    live: CUDADevice, variant: TensorVariant, sides: list[tuple[int, int, int]]
) -> dict[str, Any]:
    """Return memory for the largest of all products: small random numbers, and zeros."""
    made, rng = variant.arithmetic, np.random.default_rng(0)
    kind = operands_of(made).dtype
    parts, size = made.parts, made.element_bytes

    def operand(which: int) -> Any:
        most = max(x[which] * aligned_ld(x[2], size) for x in sides)
        drawn = rng.integers(-3, 4, _DRAWN).astype(kind).view(f"u{size}")
        return live.upload(np.resize(drawn, parts * most))

    area, side = max(m * n for m, n, _ in sides), max(max(m, n) for m, n, _ in sides)
    zeros = np.zeros(side, np.int32)
    return {
        "a": operand(0), "b": operand(1), "c": live.allocate(area * made.result_bytes),
        "zeros": live.upload(zeros),
    }  # fmt: skip


def _call(variant: TensorVariant, memory: dict[str, Any], m: int, n: int, k: int) -> TensorCall:
    made, zeros = variant.arithmetic, memory["zeros"]
    ld = aligned_ld(k, made.element_bytes)
    several = made.parts > 1
    a, b = (
        Parts(memory[name], 0, ld, side * ld if several else 0)
        for name, side in (("a", m), ("b", n))
    )
    call = TensorCall(m, n, k, 1, a, b, 0, Operand(memory["c"], 0, m))
    if made.epilogue:
        return replace(call, then=Following(bias_m=zeros, activation="relu"))
    if made.triangle:
        return replace(call, lower=True)
    return replace(call, exponents_a=zeros, exponents_b=zeros, run_if=zeros, run_value=0)
