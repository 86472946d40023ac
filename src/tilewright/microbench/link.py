"""The link between host and device: copies by size, direction and kind of host memory.

``host_memory`` is ``"pageable"`` (what NumPy allocates) or ``"pinned"`` (locked pages that the
device reaches by itself).  Times are the caller's, from the call to its return, because that is
what equations 3 to 5 of Nakasato (2010) add to a kernel's time.  For each direction and kind a
row with ``fit`` gives the model T = latency + bytes / bandwidth over all sizes, and the size at
which half of that bandwidth is reached: latency x bandwidth.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.backend import LiveDevice
from tilewright.microbench.experiment import Experiment, Row
from tilewright.microbench.points import Point, measure_points

__all__ = ["EXPERIMENT", "HOST_MEMORY", "TO_DEVICE", "TO_HOST", "fitted_link", "link_sizes"]

_SMALLEST, _LARGEST = 4 * 2**10, 256 * 2**20
_REPEATS = 5  # the median of five: copies are disturbed more often than kernels
TO_DEVICE, TO_HOST = "host to device", "device to host"
HOST_MEMORY = ("pinned", "pageable")

Bytes = NDArray[np.uint8]


def link_sizes(device: LiveDevice) -> list[int]:
    """Return 4 KiB, 16 KiB, ... 64 MiB and 256 MiB, as far as the device allocates."""
    most = min(_LARGEST, (device.spec.memory_bytes or _LARGEST) // 8)
    most = min(most, device.max_allocation or most)
    sizes = [_SMALLEST << 2 * i for i in range(9)]
    return [size for size in sizes if size <= most]


def fitted_link(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Return latency in seconds and bandwidth in B/s of T = latency + bytes / bandwidth.

    Parameters
    ----------
    points : sequence of (bytes, seconds)
        Two or more of different sizes.

    Returns
    -------
    latency, bandwidth : float
        Least squares of relative errors, so that a copy of 4 KiB counts as much as one of
        256 MiB; a latency that would be negative is zero.

    Raises
    ------
    ValueError
        If the points have fewer than two sizes.
    """
    if len({size for size, _ in points}) < 2:
        raise ValueError(f"points={len(points)} is too few for a fit; measure two sizes or more")
    size, seconds = np.array(points, dtype=np.float64).T
    columns = np.stack([1 / seconds, size / seconds], axis=1)
    (latency, per_byte), *_ = np.linalg.lstsq(columns, np.ones(len(points)), rcond=None)
    if latency < 0 or per_byte <= 0:
        latency = 0.0
        ratio = size / seconds
        per_byte = ratio.sum() / (ratio * ratio).sum()
    return float(latency), float(1 / per_byte)


def _run(device: LiveDevice, emit: Callable[[Row], None], seconds: float) -> None:
    found: dict[tuple[str, str], list[tuple[int, float]]] = {}

    def keep(row: Row) -> None:
        emit(row)
        if "error" not in row:
            points = found.setdefault((str(row["direction"]), str(row["host_memory"])), [])
            points.append((int(row["bytes"] or 0), float(row["seconds"] or 0)))

    with ExitStack() as stack:
        measure_points(_points(device, stack), keep, seconds)
    for (direction, memory), points in found.items():
        emit({"direction": direction, "host_memory": memory, **_fit_row(points)})


def _fit_row(points: Sequence[tuple[int, float]]) -> Row:
    """Return the rest of a row that tells the model of all sizes."""
    named: Row = {"fit": "latency + bytes / rate"}
    try:
        latency, bandwidth = fitted_link(points)
    except ValueError as problem:
        return named | {"error": str(problem)}
    return named | {
        "bytes_per_second": bandwidth,
        "latency_seconds": latency,
        "half_rate_bytes": latency * bandwidth,
    }


def _points(device: LiveDevice, stack: ExitStack) -> Iterator[Point]:
    """Yield every copy as a point; the largest sizes first, on which bounds depend."""
    sizes = sorted(link_sizes(device), reverse=True)
    copies = _Copies(device, sizes[0], stack)
    for size in sizes:
        for memory in HOST_MEMORY:
            for direction in (TO_DEVICE, TO_HOST):
                named: Row = {"direction": direction, "host_memory": memory, "bytes": size}
                yield named, partial(copies.measure, direction, memory, size)


class _Copies:
    """Copies between a device and host memory that is allocated once for all sizes."""

    def __init__(self, device: LiveDevice, largest: int, stack: ExitStack) -> None:
        self._device = device
        self._stack = stack
        self._truth = np.random.default_rng(0).integers(0, 256, largest, dtype=np.uint8)
        self._host: dict[str, Bytes] = {}
        self._there: Any = None

    def measure(self, direction: str, memory: str, size: int) -> Row:
        """Time one copy and check what arrived; return the row's rest."""
        device, there, host = self._device, self._memory(), self._array(memory)[:size]
        truth = self._truth[:size]
        if direction == TO_DEVICE:
            host[:] = truth  # which touches every page: no copy pays for first use
            copy = partial(device.write, there, host)
        else:
            device.write(there, truth)
            host[:] = 0
            copy = partial(device.download, there, host)
        copy()
        runs = []
        for _ in range(_REPEATS):
            began = time.perf_counter()
            copy()
            runs.append(time.perf_counter() - began)
        if direction == TO_DEVICE:
            host[:] = 0
            device.download(there, host)
        if not np.array_equal(host, truth):
            raise ValueError("what was copied is not what was sent")
        seconds = median(runs)
        return {
            "seconds": seconds,
            "bytes_per_second": size / seconds,
            "best_bytes_per_second": size / min(runs),
        }

    def _memory(self) -> Any:
        if self._there is None:
            self._there = self._device.allocate(self._truth.size)
            self._stack.callback(self._device.free, self._there)
        return self._there

    def _array(self, memory: str) -> Bytes:
        if memory not in self._host:
            size = self._truth.size
            self._host[memory] = (
                np.empty(size, np.uint8)
                if memory == "pageable"
                else self._stack.enter_context(self._device.pinned(size))
            )
        return self._host[memory]


EXPERIMENT = Experiment("link", "Copies between host and device by size", ("cuda", "opencl"), _run)
