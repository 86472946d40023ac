"""Times of batches: of the configs that may serve them, compiled for batches.

Main loops are rescheduled as those that are served will be, where that is proved.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.backend import BackendError, GemmCall, Kernel, Operand
from tilewright.backend.cache import KernelCache
from tilewright.backend.cuda.arranging import arranged_cubin
from tilewright.backend.cuda.device import CUDADevice
from tilewright.portfolio.drawn import drawn_batches
from tilewright.portfolio.measure import document
from tilewright.portfolio.timers import interleaved_medians
from tilewright.precision import Precision, precision
from tilewright.problem import Problem, Trans
from tilewright.reschedule.cubin import rewriting
from tilewright.reschedule.levels import LEVELS, SCHEDULE, baseline_and_level, permission
from tilewright.reschedule.proofs import proved
from tilewright.space import Config
from tilewright.stencil import Source, Variant, stencil, stencils
from tilewright.stencil.geometry import PLAIN, Mode, elements_of_chunk, with_aligned_operands
from tilewright.tuning.measure import random_matrix

if TYPE_CHECKING:
    from tilewright.backend.base import Rewrite

__all__ = ["batch_configs", "batch_sources", "measure_batches"]

# Elements of a matrix of all products: what is drawn, of sides that are longer by a chunk.
_MOST = 1 << 26

# How main loops are rescheduled: of the two levels, which are as fast, the one of fewer changes.
_SCHEDULE = 5

# A launch mode besides the plain one that is timed: most tiles are longer than small sides.
_CLAMPED = Mode(clamped=True)

_PAIRS = tuple((a, b) for a in (Trans.N, Trans.T) for b in (Trans.N, Trans.T))


def _pairs(of: Precision) -> tuple[tuple[Trans, Trans], ...]:
    """Return the pairs of transposes that kernels of a precision have."""
    return ((Trans.T, Trans.N),) if of.reads_along_k else _PAIRS


def batch_configs(variant: Variant, allowed: Collection[str] = ()) -> Iterator[Config]:
    """Yield the configs that are timed for batches of a variant, whichever stencils have some.

    Rescheduled where `allowed`, which is `tilewright.reschedule.proofs.proved`.
    """
    level = LEVELS[_SCHEDULE]
    for family in stencils():
        faster = permission(family.name, variant.precision, level) in allowed
        for config in family.batch_configs(variant):
            yield Config(family.name, {**config, SCHEDULE: _SCHEDULE}) if faster else config


def _timed(variant: Variant, allowed: Collection[str], unaligned: bool) -> list[Config]:
    """Return the configs that are timed where operands are aligned, or where they are not."""
    return [
        one for one in batch_configs(variant, allowed)
        if stencil(one.stencil).geometry(one).reads_unaligned == unaligned
    ]  # fmt: skip


def batch_sources(
    letter: str, allowed: Collection[str] = (), *, unaligned: bool = False
) -> Iterator[tuple[Variant, Config, Mode, Source]]:
    """Yield what is timed of a precision: configs in the launch modes that they are timed in."""
    of = precision(letter)
    for a, b in _pairs(of):
        variant = Variant(of, a, b)
        for config in _timed(variant, allowed, unaligned):
            family, (baseline, _) = stencil(config.stencil), baseline_and_level(config)
            geometry = family.geometry(baseline)
            several = geometry.stages > 1 and not (geometry.tma or geometry.any_alignment)
            for mode in (PLAIN, _CLAMPED) if several else (PLAIN,):
                source = family.source(baseline, variant, "cuda", mode)
                yield variant, config, mode, source.batched()


def _prepared(arch: str, config: Config, mode: Mode, source: Source) -> Rewrite | None:
    """Compile a source into the cache; return how it is rescheduled, if the scheduler can."""
    level = baseline_and_level(config)[1] if mode == PLAIN else None
    rewrite = rewriting(source, level)
    try:
        arranged_cubin(source, arch, KernelCache(), rewrite)
    except BackendError:
        return None  # as the compiler made it, then
    return rewrite


def measure_batches(
    live: CUDADevice, letter: str, count: int, seed: int, seconds: float, *, unaligned: bool = False
) -> dict[str, Any]:
    """Return times of a precision, as `tilewright.portfolio.measured.read_measured` takes them.

    Parameters
    ----------
    live : CUDADevice
        Where.
    letter : str
        Of the precision.
    count, seed : int
        Batches of each pair of transposes; the same for the same seed.
    seconds : float
        After which no further batch begins.
    unaligned : bool
        Whether operands are not aligned, and those kernels are timed that take them so.

    Raises
    ------
    ValueError
        If there are no such configs of the precision.
    """
    of, allowed = precision(letter), proved(live.arch)
    every = list(batch_sources(letter, allowed, unaligned=unaligned))
    if not every:
        raise ValueError(
            f"precision={letter!r} has no configs for such batches; use shapes=batches"
        )
    with ThreadPoolExecutor() as pool:  # NVRTC works outside Python's lock, the scheduler apart
        rewrites = list(pool.map(lambda one: _prepared(live.arch, *one[1:]), every))
    kernels = {
        one[:3]: live.compile(one[3], rewrite=rewrite)
        for one, rewrite in zip(every, rewrites, strict=True)
    }
    whole = random_matrix(np.random.default_rng(seed), _MOST, Problem(1, 1, 1, of))
    until = time.monotonic() + seconds  # compiled, and drawn
    memory, cases = {name: live.upload(whole) for name in "abc"}, {}
    try:
        pairs = _pairs(of)
        for at, (a, b) in enumerate(pairs):
            variant = Variant(of, a, b)
            configs = _timed(variant, allowed, unaligned)
            share = time.monotonic() + (until - time.monotonic()) / (len(pairs) - at)
            shapes: list[list[int]] = []
            rows = []
            for number, drawn in enumerate(drawn_batches(variant, seed, count)):
                if time.monotonic() >= share:
                    break
                problem = (_unaligned if unaligned else _aligned)(drawn, number)
                timers = [
                    partial(_run, live, kernels, problem, config, memory) for config in configs
                ]
                shapes.append([problem.m, problem.n, problem.k, problem.batch])
                rows.append(interleaved_medians(timers))
            cases[f"{a}{b}"] = {
                "shapes": shapes,
                "configs": [{"stencil": one.stencil, **one} for one in configs],
                "ns": rows, "won": [],
            }  # fmt: skip
    finally:
        for handle in memory.values():
            live.free(handle)
    found = document(live, letter, every[0][1].stencil, cases)
    return found if unaligned else found | {"copied": True}  # columns of C alone are odd in some


def _aligned(drawn: Problem, number: int) -> Problem:
    """Return a batch with aligned columns, but for those of every fourth one's C."""
    step = max(4, elements_of_chunk(drawn))
    m, n, k = (-(-side // step) * step for side in (drawn.m, drawn.n, drawn.k))
    batch, ops = _resized(drawn, m, n, k).batch, (drawn.trans_a, drawn.trans_b)
    m -= number % 4 == 3
    return with_aligned_operands(Problem(m, n, k, drawn.precision, *ops, batch=batch))


def _unaligned(drawn: Problem, number: int) -> Problem:
    """Return a batch with columns of odd lengths, but for m of every third and n of every third."""
    m, n, k = (side | 1 for side in (drawn.m, drawn.n, drawn.k))
    step = elements_of_chunk(drawn)
    m, n = (-(-x // step) * step if number % 3 == at else x for at, x in ((1, m), (2, n)))
    return _resized(drawn, m, n, k)


def _resized(drawn: Problem, m: int, n: int, k: int) -> Problem:
    """Return a batch with other sides, of no more products than there is memory for."""
    size, result = drawn.precision.element_bytes, drawn.precision.result_bytes
    most = _MOST * size // max(m * n * result, m * k * size, n * k * size)
    ops = drawn.trans_a, drawn.trans_b
    return Problem(m, n, k, drawn.precision, *ops, batch=min(drawn.batch, most))


def _run(
    live: CUDADevice, kernels: dict[Any, Kernel], p: Problem, config: Config, memory: dict[str, Any]
) -> int:
    variant, family = Variant.of(p), stencil(config.stencil)
    geometry = family.geometry(config)
    mode = geometry.mode(p)
    mode = _CLAMPED if mode.clamped and (variant, config, _CLAMPED) in kernels else PLAIN
    a, b, c = (
        Operand(memory[name], 0, ld) for name, ld in zip("abc", (p.lda, p.ldb, p.ldc), strict=True)
    )
    call = GemmCall(p.precision, p.m, p.n, p.k, 1, a, b, 0, c)
    steps = p.step_a, p.step_b, p.step_c
    arguments = family.batched_arguments(config, variant, call, p.batch, steps)
    launch = geometry.batched(p.m, p.n, p.batch)
    return live.launch_timed(kernels[variant, config, mode], launch, arguments).nanoseconds()
