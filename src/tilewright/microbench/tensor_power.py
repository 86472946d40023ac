"""Endless warpgroup multiplies, a load of the experiment ``power``.

Each type draws a power of its own, and the clock that is left bounds endless products.  Operands
are random but stay the same in shared memory, and nothing is copied: a real product draws more,
so the clock found here is never below a product's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from tilewright.backend import LiveDevice
from tilewright.microbench.power import Load
from tilewright.microbench.rates import KINDS, Kind
from tilewright.microbench.timing import alone, cycles_by_multiprocessor
from tilewright.stencil import Launch

__all__ = ["TENSOR_LOADS", "suits", "tensor_load"]

# What single precision in parts is made of, FP16 and TF32; each more would shorten all loads.
TENSOR_LOADS = {
    f"warpgroup multiplies, {name}": kind
    for name, kind in (("fp16", "wgmma_f16"), ("tf32", "wgmma_tf32"))
}
# Two warpgroups keep all four tensor cores busy (experiment `rates`).
_WARPS = 8
# A trip takes 8192 cycles: about 10 ms at 1.7 GHz, against which a launch is nothing.
_TRIPS = 2000
_WORDS = (64 + 256) * 32 // 4  # of A and B in kernels/wgmma.cu
# What is faster than the units by more than a clock's jitter did not multiply.
_POSSIBLE = 0.98


def suits(device: LiveDevice) -> bool:
    """Whether a device has warpgroup multiplies: Hopper has, through CUDA."""
    return device.backend == "cuda" and device.spec.compute_capability == 90


def tensor_load(device: LiveDevice, name: str) -> Load:
    """Return a load of `TENSOR_LOADS`.

    Raises
    ------
    LoopRejectedError
        If the compiled loop is none of just these multiplies.
    """
    kind = next(one for one in KINDS if one.name == TENSOR_LOADS[name])
    blocks = device.spec.multiprocessors
    kernel = device.compile(replace(kind.source(), dynamic_shared_bytes=alone(device.spec)))
    kind.check(kernel.handle.cubin.code)
    words = np.random.default_rng(0).integers(0, 2**32, _WORDS, np.uint32)
    data, when = device.upload(words), device.allocate(8 * 3 * _WARPS * blocks)
    launch = Launch((blocks, 1), (32 * _WARPS, 1))
    arguments = (data, np.int32(_TRIPS), np.int32(0), when)

    def cycles() -> float:
        found = np.empty((blocks, _WARPS, 3), np.int64)
        device.download(when, found)
        return float(np.median(cycles_by_multiprocessor(found)))

    def free() -> None:
        device.free(data)
        device.free(when)

    work = 2.0 * kind.multiply_adds * kind.instructions * _WARPS * _TRIPS * blocks
    enqueue = partial(device.launch, kernel, launch, arguments)
    return Load(enqueue, work, partial(_check, kind, cycles), cycles, free)


def _check(kind: Kind, cycles: Callable[[], float]) -> None:
    """Refuse a run that the units cannot have done.

    Raises
    ------
    ValueError
        If it took fewer cycles than its multiplies do.
    """
    least = kind.multiply_adds * kind.instructions * _WARPS * _TRIPS / kind.expected
    if cycles() < _POSSIBLE * least:
        raise ValueError(f"{kind.name} took {cycles():.0f} cycles, at least {least:.0f} are needed")
