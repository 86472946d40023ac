"""Kernels ready to launch: machine code of a portfolio, or compiled here where none is there."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

from tilewright.backend import BackendError, CompileError, GemmCall, Kernel, LiveDevice, Operand
from tilewright.portfolio import Choice, PortfolioError, choose, refuse, shipped
from tilewright.portfolio.batches import choose_batched, choose_grouped
from tilewright.portfolio.invariant import choose_invariant
from tilewright.portfolio.kernel import BATCHED, GROUPED, TRIANGLE
from tilewright.precision import Precision
from tilewright.problem import Problem
from tilewright.stencil import Source, Variant
from tilewright.stencil.asynchronous.resources import CHUNK_BYTES
from tilewright.text import install_hint

__all__ = [
    "begin_aligned",
    "begins",
    "begins_aligned",
    "keeps_alignment",
    "kernel_of",
    "ready",
    "ready_by",
    "ready_for_batch",
    "ready_for_group",
]

# Kernels belong to a device's context and go with it.
_kernels: WeakKeyDictionary[LiveDevice, dict[Any, Kernel]] = WeakKeyDictionary()
# Two threads that want a kernel at once load it once.
_loading = threading.RLock()


def begin_aligned(call: GemmCall) -> bool:
    """Whether A's and B's first elements lie at multiples of 16 bytes, as far as one can see."""
    return begins_aligned(call.a, call.precision) and begins_aligned(call.b, call.precision)


def begins_aligned(x: Operand, precision: Precision) -> bool:
    """Whether an operand's first element lies at a multiple of 16 bytes, as far as one can see."""
    return begins(x, precision) == 0


def begins(x: Operand, precision: Precision) -> int:
    """Return how many bytes beyond a multiple of 16 an operand's first element lies.

    Handles that are no addresses are of memory that begins at one.
    """
    first = x.memory if isinstance(x.memory, int) else 0
    return (first + x.offset * precision.element_bytes) % CHUNK_BYTES


def keeps_alignment(steps: Iterable[int], element_bytes: int) -> bool:
    """Whether matrices so many elements apart are all aligned to 16 bytes if the first one is."""
    return all(step * element_bytes % CHUNK_BYTES == 0 for step in steps)


def ready(
    live: LiveDevice,
    problem: Problem,
    aligned: bool = True,
    *,
    routed: bool = False,
    invariant: bool = False,
) -> tuple[Choice, Kernel]:
    """Return the kernel that serves a problem, loaded; arguments as of `portfolio.choose`.

    With `invariant` it is that of `portfolio.invariant`.

    Machine code that is damaged, or that the driver refuses, is named in one warning, and the next
    best kernel serves.

    Raises
    ------
    BackendError
        If no kernel can be had: there is no machine code, and nothing to compile with.
    """

    def chosen() -> Choice:
        if invariant:
            return choose_invariant(live, problem, aligned)
        return choose(live, problem, aligned, routed=routed)

    found = _first(live, chosen, Variant.of(problem), routed=routed)
    assert found is not None  # a default serves where nothing else does
    return found


def _first(
    live: LiveDevice, choice: Callable[[], Choice | None], variant: Variant, *, routed: bool = False
) -> tuple[Choice, Kernel] | None:
    """Return the first choice whose kernel can be loaded; others are chosen no more."""
    while (chosen := choice()) is not None:
        kernel = _unless_damaged(live, chosen, variant, routed)
        if kernel is not None:
            return chosen, kernel
    return None


def ready_by(live: LiveDevice, chosen: Choice, variant: Variant) -> Kernel | None:
    """Return the kernel of a choice that a caller made, loaded; None where it cannot be had."""
    with suppress(BackendError):  # another one serves
        return _unless_damaged(live, chosen, variant, False)
    return None


def _unless_damaged(
    live: LiveDevice, chosen: Choice, variant: Variant, routed: bool
) -> Kernel | None:
    """Return the kernel of a choice; None if its code is damaged, with a warning, and refused."""
    try:
        return _kernel(live, chosen, variant, routed)
    except (PortfolioError, _RefusedError) as problem:
        assert chosen.digest(routed)
        _warn_once(str(problem))
        refuse(chosen.digest(routed))
    return None


def ready_for_batch(
    live: LiveDevice, problem: Problem, aligned: bool, apart_ns: float | None = None
) -> tuple[Choice, Kernel] | None:
    """Return the kernel that computes a batch in one launch, loaded; see `choose_batched`.

    Raises
    ------
    BackendError
        As of `ready`.
    """
    of = Variant.of(problem)
    return _first(live, lambda: choose_batched(live, problem, aligned, apart_ns), of)


def ready_for_group(
    live: LiveDevice, problems: Sequence[Problem], aligned: bool
) -> tuple[Choice, Kernel] | None:
    """Return the kernel that computes some products in one launch, loaded; see `choose_grouped`.

    None where there is none, or a device's kernels take no tables.

    Raises
    ------
    BackendError
        As of `ready`.
    """
    if live.dialect != "cuda":
        return None
    of = Variant.of(problems[0])
    return _first(live, lambda: choose_grouped(live, problems, aligned), of)


class _RefusedError(BackendError):
    """A driver does not take a kernel's machine code."""


def _kernel(live: LiveDevice, chosen: Choice, variant: Variant, routed: bool) -> Kernel:
    digest = chosen.digest(routed)
    key = digest or (chosen.config, chosen.mode, variant, routed, chosen.form)
    with _loading:
        known = _kernels.setdefault(live, {})
        if key not in known:
            if digest:
                known[key] = _loaded(live, chosen, digest)
            else:
                known_as = chosen.config, variant, live.dialect, chosen.mode
                if chosen.form == GROUPED:
                    source = chosen.stencil.grouped_source(*known_as)
                elif chosen.form == TRIANGLE:
                    source = chosen.stencil.triangle_source(*known_as)
                else:
                    source = chosen.stencil.source(*known_as)
                if chosen.form == BATCHED:
                    source = source.batched()
                known[key] = live.compile(source.run_if_zero() if routed else source)
        return known[key]


def _loaded(live: LiveDevice, chosen: Choice, digest: str) -> Kernel:
    portfolio = chosen.portfolio
    assert portfolio is not None
    cubin = portfolio.machine_code(digest)  # before its code, which may be missing
    code = portfolio.codes[digest]
    try:
        return live.load(code, cubin)
    except BackendError as error:
        raise _RefusedError(
            f"{live.id} refuses machine code of {code.compiler} for {chosen.config.stencil}:"
            f" {error}; update the driver, or, to compile, {install_hint('tune')}"
        ) from None


@lru_cache(maxsize=32)
def _warn_once(problem: str) -> None:
    warnings.warn(problem, RuntimeWarning, stacklevel=2)


def kernel_of(live: LiveDevice, source: Source | Kernel) -> Kernel:
    """Return a source's kernel: from the portfolio of what calls launch besides GEMM, or compiled.

    One that is loaded is returned as it is.

    Raises
    ------
    CompileError, BackendError
        As of `LiveDevice.compile`.
    """
    if isinstance(source, Kernel):
        return source
    key = (source.unit or source.text, source.entry, tuple(source.defines.items()))
    with _loading:
        known = _kernels.setdefault(live, {})
        if key not in known:
            known[key] = _shipped(live, source) or live.compile(source)
        return known[key]


def _shipped(live: LiveDevice, source: Source) -> Kernel | None:
    """Return a source's machine code, loaded; None where it does not ship."""
    if not source.unit or live.dialect != "cuda":
        return None
    portfolio = shipped(live.spec, "passes")
    digest = None if portfolio is None else portfolio.sources.get(source.identity)
    if portfolio is None or digest is None:
        return None
    try:
        cubin = portfolio.machine_code(digest)  # before its code, which may be missing
        return live.load(portfolio.codes[digest], cubin)
    except (PortfolioError, CompileError, BackendError) as error:
        _warn_once(str(error))
        return None
