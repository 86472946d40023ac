"""A device that compiles as an H100 would and answers launches with a model's cycles.

It stands in for the one thing that cannot be here, the GPU: everything else of an experiment runs.
"""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.microbench.compiled import compiled
from tilewright.backend import Kernel
from tilewright.backend.cubin import Cubin
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.backend.cuda.device import CUDADevice
from tilewright.microbench.timing import LoopTimer
from tilewright.sass import decode, find_loops, read_cubin
from tilewright.stencil import Launch, Source

CLOCK_HZ = 1.98e9
ONCE = 700  # cycles that a run takes besides its trips


class SimulatedDevice(CUDADevice):
    """Compiles; remembers nothing else of a CUDA device."""

    def __init__(self) -> None:
        self.id = "cuda:simulated"
        self.spec = dataclasses.replace(architecture_spec("sm_90a"), multiprocessors=132)
        self.arch = "sm_90a"

    def compile(self, source: Source) -> Kernel:
        return Kernel(SimpleNamespace(cubin=compiled(source)), source.entry, 0.0)

    def upload(self, array: Any) -> int:
        return 256

    def allocate(self, size: int) -> int:
        return 512

    def free(self, memory: int) -> None:
        assert memory in (256, 512)


def load(timer: LoopTimer, cubin: Cubin) -> Any:
    """Return the cycles that the longest loop's instructions take of a scheduler's issue."""
    kernel = read_cubin(cubin.code).kernel()
    loops = find_loops(decode(kernel.code, kernel.arch))
    return SimpleNamespace(cubin=cubin, instructions=max(len(one.instructions) for one in loops))


def run(timer: LoopTimer, kernel: Any, launch: Launch, trips: int, stride: int) -> Any:
    """Return what an issue a cycle and scheduler would give."""
    warps = launch.block[0] // 32
    cycles = ONCE + trips * kernel.instructions * max(1.0, warps / 4)
    return np.full(launch.grid[0], cycles), round(cycles / CLOCK_HZ * 1e9)
