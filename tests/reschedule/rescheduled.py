"""A small kernel of the stencil of asynchronous copies that the scheduler takes, in seconds."""

from __future__ import annotations

import functools

import pytest

from tilewright.backend.cache import KernelCache
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.backend.cuda.compiler import Cubin, cached_cubin, nvrtc
from tilewright.precision import precision
from tilewright.problem import Trans
from tilewright.reschedule.cubin import RefusedScheduleError, reschedule
from tilewright.reschedule.levels import LEVELS, permission, schedule_space, unscheduled
from tilewright.space import Config
from tilewright.stencil import Variant
from tilewright.stencil.simt_async import SimtAsync

FAMILY = SimtAsync()
TN = Variant(precision("s"), Trans.T, Trans.N)
PROVED = [permission(FAMILY.name, "s", one) for one in LEVELS.values()]
_SMALL = {
    "block_m": 64, "block_n": 64, "tile_m": 4, "tile_n": 4, "lanes_m": 8, "block_k": 16,
    "unroll_k": 4, "stages": 3, "cluster_k": 1, "min_blocks": 2, "copy_groups": 2,
    "serpentine_rows": 0,
    "b_first": 0, "swizzle_rows": 4, "schedule": 5,
}  # fmt: skip
# Builds of the compiler differ: one of these is understood by each that was tried.
_OTHERS = (
    {},
    {"serpentine_rows": 1},
    {"b_first": 1},
    {"swizzle_rows": 0},
    {"unroll_k": 8},
    {"stages": 2},
)


@functools.cache
def small() -> tuple[Config, Cubin, Cubin]:
    """Return a config with a schedule, its baseline's cubin and its own; skip without NVRTC."""
    if nvrtc() is None:
        pytest.skip("NVRTC is not here: pip install 'tilewright[tune]'")
    space = schedule_space(FAMILY, TN, architecture_spec("sm_90a"), PROVED)
    cache, reasons = KernelCache(), []
    for changes in _OTHERS:
        config = space.config({**_SMALL, **changes})
        try:
            plain = cached_cubin(FAMILY.source(unscheduled(config), TN, "cuda"), "sm_90a", cache)
            made = reschedule(plain, "gemm", LEVELS[5], cache)
        except RefusedScheduleError as refused:
            reasons.append(str(refused))
            continue
        return config, plain, made
    pytest.fail(f"the scheduler refuses every small kernel: {reasons}")
