"""Run a loop on every multiprocessor at once and say how many cycles a trip takes.

Kernels are ``loop(const float *data, int trips, int stride, long long *when)``, one thread block a
multiprocessor; each warp writes its clock before and after the loop and the multiprocessor it ran
on (``kernels/loop.cu``).  A kernel runs with few trips and with many; the difference is free of
everything that happens once: cold caches, warps that start late, the way in and out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.backend import LiveDevice
from tilewright.backend.cubin import Cubin
from tilewright.backend.cuda.device import CUDADevice, LoadedKernel
from tilewright.backend.cuda.launch import PreparedLaunch
from tilewright.hardware import DeviceSpec
from tilewright.microbench.experiment import Row
from tilewright.microbench.points import Point, measure_points
from tilewright.stencil import Launch

__all__ = ["LoopTimer", "Timing", "time_loops"]

WARP = 32
_VALUES = 3  # that each warp writes
_MOST_WARPS = 32
_FLOATS = 4096
_FEW = 5  # the short run has a fifth of the long one's trips
# Longest run: 0.15 ms at 2 GHz, long against a launch and an event's resolution, and short enough
# that neither heat nor the power limit comes in.
_CYCLES = 300_000
_REPEATS = 2
_STATIC_BYTES = 16 * 1024  # what the loops' kernels have in arrays, at most


@dataclass(frozen=True)
class Timing:
    """What a loop took.

    Parameters
    ----------
    cycles : float
        Of one trip of all warps of a multiprocessor; the median of the multiprocessors.
    clock_hz : float or None
        Cycles by time between events; None where that was too short to say.
    """

    cycles: float
    clock_hz: float | None


def time_loops(
    device: LiveDevice,
    emit: Callable[[Row], None],
    seconds: float,
    points: Callable[[LoopTimer], Iterable[Point]],
    floats: int = _FLOATS,
) -> None:
    """Measure loops on a CUDA device until the time is up; see `measure_points`."""
    assert isinstance(device, CUDADevice)
    with closing(LoopTimer(device, floats)) as timer:
        measure_points(points(timer), emit, seconds)


class LoopTimer:
    """Runs loops on one device; its memory is given back by `close`.

    Parameters
    ----------
    device : CUDADevice
        Where they run.
    floats : int
        Numbers that the loops read from.
    """

    def __init__(self, device: CUDADevice, floats: int = _FLOATS) -> None:
        self.device = device
        self.multiprocessors = device.spec.multiprocessors
        draw = np.random.default_rng(0)  # numbers that stay small when they are added up
        # Uniform and positive: no zeros, which would take less power, and no denormals.
        data = draw.uniform(1e-4, 1e-3, floats).astype(np.float32)
        self._data = device.upload(data)
        self._when = device.allocate(8 * _VALUES * _MOST_WARPS * self.multiprocessors)

    def close(self) -> None:
        """Give the memory back."""
        for memory in (self._data, self._when):
            self.device.free(memory)

    def load(self, cubin: Cubin, dynamic_shared_bytes: int = 0) -> LoadedKernel:
        """Return a loop's function, ready to be timed; so much shared memory is its own."""
        shared = max(dynamic_shared_bytes, alone(self.device.spec))
        return LoadedKernel(self.device, cubin, "loop", shared)

    def time(
        self, kernel: LoadedKernel, warps: int, expected_cycles: float, stride: int = 0
    ) -> Timing:
        """Return the cycles of a trip with so many warps on every multiprocessor.

        Parameters
        ----------
        kernel : LoadedKernel
            From `load`.
        warps : int
            Of the one thread block that each multiprocessor gets.
        expected_cycles : float
            Of a trip, roughly: the number of trips follows from it.
        stride : int
            Bytes between the shared addresses of neighbouring lanes.

        Raises
        ------
        LaunchError
            If the device refuses the launch or fails in it.
        ValueError
            If no multiprocessor ran exactly one block.
        """
        many = int(np.clip(_CYCLES / max(expected_cycles, 1.0), 2 * _FEW, 4000))
        few = max(1, many // _FEW)
        launch = Launch((self.multiprocessors, 1), (WARP * warps, 1))
        runs = {
            trips: [self._run(kernel, launch, trips, stride) for _ in range(_REPEATS)]
            for trips in (few, many)
        }
        trips = many - few
        least = {t: np.min([cycles for cycles, _ in both], axis=0) for t, both in runs.items()}
        cycles = float(np.median(least[many] - least[few])) / trips
        seconds = (min(s for _, s in runs[many]) - min(s for _, s in runs[few])) * 1e-9
        return Timing(cycles, cycles * trips / seconds if seconds > 0 else None)

    def _run(
        self, kernel: LoadedKernel, launch: Launch, trips: int, stride: int
    ) -> tuple[NDArray[np.float64], int]:
        """Return every multiprocessor's cycles, in order, and the whole launch's nanoseconds."""
        device = self.device
        arguments = (self._data, np.int32(trips), np.int32(stride), self._when)
        prepared = PreparedLaunch(
            device, kernel.function, launch, arguments, kernel.dynamic_shared_bytes
        )
        stream = device.stream
        event = device.between_events(lambda: prepared.enqueue(stream), stream, keep=kernel)
        took = event.nanoseconds()
        when = np.empty((launch.grid[0], launch.block[0] // WARP, _VALUES), np.int64)
        device.download(self._when, when)
        return cycles_by_multiprocessor(when), took


def alone(spec: DeviceSpec, static_bytes: int = _STATIC_BYTES) -> int:
    """Return the shared memory to ask for so that two blocks never meet on a multiprocessor.

    Parameters
    ----------
    spec : DeviceSpec
        Whose multiprocessors.
    static_bytes : int
        What the kernel has in arrays, at most: where both together are more than a block may
        have, nothing is asked for.
    """
    half = (spec.shared_bytes_per_multiprocessor or 0) // 2
    return half if half + static_bytes <= spec.shared_bytes_per_block else 0


def cycles_by_multiprocessor(when: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the cycles from the first warp's start to the last one's end.

    Parameters
    ----------
    when : array of int64, shape (blocks, warps, 3)
        Clock before, clock after, multiprocessor.

    Raises
    ------
    ValueError
        If two blocks shared a multiprocessor: each would have had half of it.
    """
    where = when[:, 0, 2]
    if len(np.unique(where)) != len(where):
        raise ValueError(
            f"blocks={len(where)} ran on {len(np.unique(where))} multiprocessors only;"
            " let nothing else use the device"
        )
    span = when[:, :, 1].max(axis=1) - when[:, :, 0].min(axis=1)
    ordered: NDArray[np.float64] = span[np.argsort(where)].astype(np.float64)
    return ordered
