"""A small kernel of the stencil of asynchronous copies that the scheduler takes, in seconds."""

from __future__ import annotations

import functools

import pytest

from tilewright.backend.cache import KernelCache
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.backend.cuda.compiler import Cubin, cached_cubin, nvrtc
from tilewright.backend.cuda.rescheduling import RefusedScheduleError
from tilewright.precision import precision
from tilewright.problem import Trans
from tilewright.space import Config
from tilewright.stencil import Variant, unscheduled
from tilewright.stencil.schedule import with_unproved
from tilewright.stencil.simt_async import SimtAsync

FAMILY = SimtAsync()
TN = Variant(precision("s"), Trans.T, Trans.N)
_SMALL = {
    "block_m": 64, "block_n": 64, "tile_m": 4, "tile_n": 4, "lanes_m": 8, "block_k": 16,
    "unroll_k": 4, "stages": 3, "split_k": 1, "resident": 2, "copy_groups": 2, "walk": 0,
    "b_first": 0, "raster_rows": 4, "schedule": 1,
}  # fmt: skip
# Builds of the compiler differ: one of these is understood by each that was tried.
_OTHERS = ({}, {"walk": 1}, {"b_first": 1}, {"raster_rows": 0}, {"unroll_k": 8}, {"stages": 2})


@functools.cache
def small() -> tuple[Config, Cubin, Cubin]:
    """Return a config with a schedule, its twin's cubin and its own; skip without NVRTC."""
    if nvrtc() is None:
        pytest.skip("NVRTC is not here: pip install 'tilewright[tune]'")
    space = FAMILY.space(TN, with_unproved(architecture_spec("sm_90a")))
    cache, reasons = KernelCache(), []
    for changes in _OTHERS:
        config = space.config({**_SMALL, **changes})
        try:
            plain, made = (
                cached_cubin(FAMILY.source(one, TN, "cuda"), "sm_90a", cache)
                for one in (unscheduled(config), config)
            )
        except RefusedScheduleError as refused:
            reasons.append(str(refused))
            continue
        return config, plain, made
    pytest.fail(f"the scheduler refuses every small kernel: {reasons}")
