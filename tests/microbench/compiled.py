"""Templates compiled for an H100, which need no GPU."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import pytest

from tilewright.backend.cuda.compiler import Cubin, compile_cubin, nvrtc
from tilewright.microbench import mixes
from tilewright.microbench.loops import Slot, Template, loop_source, template
from tilewright.sass import Loop, decode, find_loops, read_cubin
from tilewright.stencil import Source

ARCH = "sm_90a"


@functools.cache
def _cubin(threads: int, accumulators: int, factors: int, slots: int) -> Cubin:
    return compiled(loop_source(threads, accumulators, factors, slots))


def compiled(source: Source) -> Cubin:
    """Compile a source; skip where NVRTC is not installed."""
    if nvrtc() is None:
        pytest.skip("NVRTC is not here: pip install 'tilewright[tune]'")
    return compile_cubin(source, ARCH)


def narrow() -> Template:
    """Return the loop of mixtures: 64 registers."""
    where = mixes.THREADS, mixes.ACCUMULATORS, mixes.FACTORS, mixes.SLOTS
    return template(_cubin(*where))


def banks(loop: Template) -> tuple[list[int], list[int]]:
    """Return a loop's registers of even and of odd number."""
    return [r for r in loop.registers if r % 2 == 0], [r for r in loop.registers if r % 2]


def trip(loop: Template, body: Sequence[Slot]) -> Loop:
    """Fill the loop with a body and read it again out of the cubin."""
    kernel = read_cubin(loop.filled(body).code).kernel()
    (found,) = (one for one in find_loops(decode(kernel.code, kernel.arch)) if one.end == loop.end)
    return found
