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
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.backend import LiveDevice
from tilewright.microbench.experiment import Row
from tilewright.microbench.timing import measure_points

__all__ = ["LINK", "fitted_link", "link_sizes"]

_SMALLEST, _LARGEST = 4 * 2**10, 256 * 2**20
_REPEATS = 5  # the median of five: copies are disturbed more often than kernels
DIRECTIONS = ("host to device", "device to host")
HOST_MEMORY = ("pinned", "pageable")


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
        named: Row = {"direction": direction, "host_memory": memory, "fit": "latency + bytes / rate"}
        try:
            latency, bandwidth = fitted_link(points)
        except ValueError as problem:
            emit(named | {"error": str(problem)})
            continue
        emit(
            named
            | {
                "bytes_per_second": bandwidth,
                "latency_seconds": latency,
                "half_rate_bytes": latency * bandwidth,
            }
        )


def _points(
    device: LiveDevice, stack: ExitStack
) -> Iterator[tuple[Row, Callable[[], Row]]]:
    """Yield every copy as a point; the largest sizes first, on which bounds depend."""
    sizes = link_sizes(device)
    opened: dict[str, tuple[NDArray[np.uint8], Any]] = {}
    for size in sorted(sizes, reverse=True):
        for memory in HOST_MEMORY:
            for direction in DIRECTIONS:
                named: Row = {"direction": direction, "host_memory": memory, "bytes": size}
                yield named, partial(
                    _measure, device, stack, opened, max(sizes), memory, direction, size
                )


def _measure(
    device: LiveDevice,
    stack: ExitStack,
    opened: dict[str, tuple[NDArray[np.uint8], Any]],
    largest: int,
    memory: str,
    direction: str,
    size: int,
) -> Row:
    """Time one copy; `opened` keeps host and device memory for the next one."""
    if memory not in opened:
        host = stack.enter_context(_host_array(device, memory, largest))
        # Every page is touched here: a copy must not pay for its first use.
        host[:] = np.arange(largest, dtype=np.uint32).astype(np.uint8) ^ 0x5A
        there = device.allocate(largest)
        stack.callback(device.free, there)
        opened[memory] = host, there
    host, there = opened[memory]
    part = host[:size]
    copy = device.write if direction == DIRECTIONS[0] else device.download
    copy(there, part)
    runs = []
    for _ in range(_REPEATS):
        began = time.perf_counter()
        copy(there, part)
        runs.append(time.perf_counter() - began)
    _check(device, there, part)
    seconds = median(runs)
    return {
        "seconds": seconds,
        "bytes_per_second": size / seconds,
        "best_bytes_per_second": size / min(runs),
    }


def _check(device: LiveDevice, there: Any, part: NDArray[np.uint8]) -> None:
    """Check that a copy arrived: the last bytes come back through other memory.

    Raises
    ------
    ValueError
        If they differ.
    """
    tail = np.empty(min(part.size, 4096), np.uint8)
    device.write(there, part)
    device.download(there, tail, part.size - tail.size)
    if not np.array_equal(tail, part[part.size - tail.size :]):
        raise ValueError("what was copied to the device and back is not what was sent")


def _host_array(
    device: LiveDevice, memory: str, size: int
) -> AbstractContextManager[NDArray[np.uint8]]:
    """Return host memory of a kind, given back at the end of the ``with`` block."""
    from contextlib import nullcontext

    if memory == "pageable":
        return nullcontext(np.empty(size, np.uint8))
    return device.pinned(size)
