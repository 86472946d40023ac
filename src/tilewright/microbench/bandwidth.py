"""Bandwidth of shared memory, of the last shared cache (L2) and of device memory.

Rows have ``level`` (``"shared"``, ``"l2"``, ``"memory"``), ``access`` and ``bytes``: what a
multiprocessor holds, or the size of the array that is walked through.
``bytes_per_second`` is the median run's, ``best_bytes_per_second`` the fastest run's; a copied
byte counts twice, once read and once written.  Every run is checked: sums of what was read have
a closed form, and on CUDA the machine code must have the loads that are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tilewright.backend import Kernel, LiveDevice
from tilewright.microbench.experiment import Experiment, Row
from tilewright.microbench.points import Point, check_code, launched, measure_points, refused
from tilewright.microbench.sources import FACTOR, OFFSET, kernel_source, words_sum
from tilewright.microbench.timing import alone
from tilewright.stencil import Launch

__all__ = [
    "EXPERIMENT",
    "Stream",
    "Walker",
    "cache_sizes",
    "memory_sizes",
    "shared_defines",
    "shared_points",
    "stream_defines",
    "stream_points",
]

_MIB = 2**20
_UNROLLED = 8  # loads of 128 bits in flight a thread: 16 KiB a warp hides DRAM's latency
# Bytes that a run moves: over 100 us on the fastest memory known (20 TB/s of L2), so that a
# launch's few microseconds do not show; on a CPU a run takes about 0.1 s.
_BYTES_OF_RUN = {"gpu": 4 * 2**30, "cpu": 2**30}
# From here on the cache can hold at most a tenth of an array that is walked from end to end.
_ABOVE_CACHE = 10
_LARGEST = 4 * 2**30


@dataclass(frozen=True)
class Stream:
    """One way of walking through an array.

    Parameters
    ----------
    level, access : str
        As in the rows.
    mode : str
        ``"READ"``, ``"WRITE"`` or ``"COPY"``.
    size : int
        Bytes of the array.
    passes : int
        Times it is walked through in a launch.
    walk : int
        0: each block takes a part; 1: each takes all, from places apart; 2: all take the same.
    """

    level: str
    access: str
    mode: str
    size: int
    passes: int
    walk: int = 0


@dataclass(frozen=True)
class _Shape:
    """How an array is divided among a device's blocks."""

    blocks: int
    threads: int
    lanes: int
    unrolled: int

    @property
    def step(self) -> int:
        """Bytes that a step of a block takes."""
        return self.threads * self.unrolled * self.lanes * 4


def _shape(device: LiveDevice) -> _Shape:
    spec = device.spec
    if spec.kind == "cpu":
        return _Shape(spec.multiprocessors, 1, 16, _UNROLLED)
    # 2048 threads of 8 x 16 bytes in flight: 256 KiB a multiprocessor (Little's law asks for
    # about 40 KiB at 25 GB/s a multiprocessor and 1.5 us).
    threads = min(512, spec.max_threads_per_block)
    resident = (spec.max_threads_per_multiprocessor or 1024) // threads
    return _Shape(spec.multiprocessors * max(1, resident), threads, 4, _UNROLLED)


# -- device memory and L2 ------------------------------------------------------------------


def memory_sizes(device: LiveDevice) -> list[int]:
    """Return array sizes in bytes that the last shared cache holds a tenth of, or less.

    Where memory is too small for that, the largest that an eighth of it holds.
    """
    spec = device.spec
    room = min((spec.memory_bytes or _LARGEST) // 8, device.max_allocation or _LARGEST, _LARGEST)
    least = _ABOVE_CACHE * (spec.l2_bytes or 32 * _MIB)
    return sorted({min(least, room), min(2 * least, room)})


def cache_sizes(device: LiveDevice) -> list[int]:
    """Return working sets from 1 MiB to the size of the last shared cache, in bytes."""
    whole = device.spec.l2_bytes
    if whole is None:
        return []
    powers = [_MIB << i for i in range(40) if _MIB << i < whole]
    return [*powers, whole]


def _streams(device: LiveDevice) -> Iterator[Stream]:
    """Yield every walk, those that a device's TOML needs first."""
    # The largest first: of memory because its numbers are least helped by the cache, of the
    # cache because on a CPU smaller sets lie in the cores' own ones.
    largest, *others = reversed(memory_sizes(device))
    yield Stream("memory", "read", "READ", largest, 1)
    budget, blocks = _BYTES_OF_RUN[device.spec.kind], _shape(device).blocks
    for size in reversed(cache_sizes(device)):
        passes = max(1, budget // (size * blocks))
        yield Stream("l2", "read, from places apart", "READ", size, passes, walk=1)
        # OpenCL C cannot pass the first-level cache by, which would serve equal reads.
        if device.dialect == "cuda":
            yield Stream("l2", "read, the same lines by all", "READ", size, passes, walk=2)
    yield Stream("memory", "copy", "COPY", largest, 1)
    yield Stream("memory", "write", "WRITE", largest, 1)
    for size in others:
        for access, mode in (("read", "READ"), ("copy", "COPY"), ("write", "WRITE")):
            yield Stream("memory", access, mode, size, 1)


def stream_points(device: LiveDevice) -> Iterator[Point]:
    """Yield every walk through memory as a point for `measure_points`."""
    walker = Walker(device)
    for stream in _streams(device):
        named: Row = {"level": stream.level, "access": stream.access, "bytes": stream.size}
        yield named, partial(walker.measure, stream)


def stream_defines(device: LiveDevice, mode: str) -> dict[str, int | str]:
    """Return the macros of ``stream.cl`` for a device."""
    shape = _shape(device)
    return {
        f"MODE_{mode}": 1,
        "LANES": shape.lanes,
        "THREADS": shape.threads,
        "UNROLLED": shape.unrolled,
    }


class Walker:
    """Walks through a device's memory; compiles each kernel once."""

    def __init__(self, device: LiveDevice) -> None:
        self._device = device
        self._shape = _shape(device)
        self._kernels: dict[str, Kernel] = {}

    @property
    def sums_bytes(self) -> int:
        """Bytes that the sums of all threads take."""
        return 4 * self._shape.blocks * self._shape.threads

    def rounded(self, size: int, walk: int = 0) -> int:
        """Return the largest size up to `size` that gives every block whole steps."""
        grain = self._shape.step * (1 if walk else self._shape.blocks)
        return max(1, size // grain) * grain

    def measure(self, stream: Stream) -> Row:
        """Fill an array, time the walk, check what was read or written; return the row's rest."""
        device, shape = self._device, self._shape
        size = self.rounded(stream.size, stream.walk)
        arrays = [device.allocate(self.sums_bytes)]
        try:
            arrays += [device.allocate(size) for _ in range(2 if stream.mode == "COPY" else 1)]
            sums, first, last = arrays[0], arrays[1], arrays[-1]
            once = Stream("memory", "once", "WRITE", size, 1)
            device.launch(*self.walk(once, (first, first, sums), size)).wait()
            runs = launched(device, *self.walk(stream, (first, last, sums), size))
            if stream.mode == "READ":
                self._check(sums, size, stream)
            else:
                self.check_filled(last, sums, size)
        finally:
            for memory in arrays:
                device.free(memory)
        moved = size * _reads(stream, shape) * (len(arrays) - 1)
        return {
            "bytes": size,
            "passes": stream.passes,
            "seconds": runs.median,
            "bytes_per_second": moved / runs.median,
            "best_bytes_per_second": moved / runs.best,
        }

    def check_filled(self, memory: Any, sums: Any, size: int) -> None:
        """Check that an array holds the pattern.

        Raises
        ------
        ValueError
            If it does not.
        """
        once = Stream("memory", "check", "READ", size, 1)
        self._device.launch(*self.walk(once, (memory, memory, sums), size)).wait()
        self._check(sums, size, once)

    def _kernel(self, mode: str) -> Kernel:
        if mode not in self._kernels:
            defines = stream_defines(self._device, mode)
            kernel = self._device.compile(kernel_source(self._device.dialect, "stream", defines))
            for mnemonic in {"READ": ("LDG",), "WRITE": ("STG",), "COPY": ("LDG", "STG")}[mode]:
                check_code(kernel, mnemonic, 128, _UNROLLED)
            self._kernels[mode] = kernel
        return self._kernels[mode]

    def walk(
        self, stream: Stream, memory: tuple[Any, Any, Any], size: int
    ) -> tuple[Kernel, Launch, tuple[Any, ...]]:
        """Return kernel, launch and arguments; `memory` is read, written, and takes the sums."""
        shape = self._shape
        arguments = (*memory, np.int32(size // shape.step), np.int32(shape.blocks),
                     np.int32(stream.passes), np.int32(stream.walk))  # fmt: skip
        launch = Launch((shape.blocks, 1), (shape.threads, 1))
        return self._kernel(stream.mode), launch, arguments

    def _check(self, sums: Any, size: int, stream: Stream) -> None:
        """Check that the threads' sums are those of every word, read as often as it should be.

        Raises
        ------
        ValueError
            If they are not: then the rate means nothing.
        """
        shape = self._shape
        found = np.empty(shape.blocks * shape.threads, np.uint32)
        self._device.download(sums, found)
        expected = _reads(stream, shape) * words_sum(size // 4)
        expected = (expected + found.size * words_sum(shape.lanes)) % 2**32
        total = int(found.sum(dtype=np.uint64)) % 2**32
        if total != expected:
            raise ValueError(f"sum={total} of what was read is wrong, it should be {expected}")


def _reads(stream: Stream, shape: _Shape) -> int:
    """Return how often a launch reads or writes each byte of the array."""
    return stream.passes * (shape.blocks if stream.walk else 1)


# -- shared memory -------------------------------------------------------------------------


def shared_defines(device: LiveDevice, words: int) -> dict[str, int | str]:
    """Return the macros of ``shared_read.cl`` for loads of `words` 32-bit words."""
    threads = min(1024, device.spec.max_threads_per_block)
    # 32 KiB for every width; 100 us and more on a multiprocessor that reads 128 bytes a cycle.
    return {"WORDS": words, "THREADS": threads, "UNROLLED": 8 // words, "TRIPS": 2000}


def shared_points(device: LiveDevice) -> Iterator[Point]:
    """Yield each width of a shared load as a point for `measure_points`."""
    if device.spec.kind == "cpu":
        why = "a CPU keeps local memory in its caches: there is nothing to measure"
        yield {"level": "shared", "access": "read"}, partial(refused, ValueError(why))
        return
    for words in (4, 2, 1):
        bits = 32 * words
        named: Row = {"level": "shared", "access": f"read, {bits}-bit loads", "width_bits": bits}
        yield named, partial(_measure_shared, device, words)


def _measure_shared(device: LiveDevice, words: int) -> Row:
    """Time one block a multiprocessor that reads its shared memory; return the row's rest."""
    defines = shared_defines(device, words)
    threads, trips, unrolled = (int(defines[key]) for key in ("THREADS", "TRIPS", "UNROLLED"))
    # The array and what the system keeps of a block's shared memory.
    static = 4 * words * threads * unrolled + 1024
    apart = alone(device.spec, static) if device.dialect == "cuda" else 0
    source = kernel_source(device.dialect, "shared_read", defines, dynamic_shared_bytes=apart)
    kernel = device.compile(source)
    check_code(kernel, "LDS", 32 * words, unrolled)
    blocks = device.spec.multiprocessors
    count = blocks * threads
    sums, cycles = device.allocate(4 * count), device.allocate(8 * count)
    try:
        launch = Launch((blocks, 1), (threads, 1))
        runs = launched(device, kernel, launch, (sums, cycles, np.int32(0)))
        found, ticks = np.empty(count, np.uint32), np.empty(count, np.int64)
        device.download(sums, found)
        device.download(cycles, ticks)
    finally:
        device.free(sums)
        device.free(cycles)
    if not np.array_equal(found.reshape(blocks, threads), _expected(threads, words, trips, blocks)):
        raise ValueError("sums of what was read from shared memory are wrong")
    of_block = 4 * words * threads * unrolled * trips
    row: Row = {
        "bytes": 4 * words * threads * unrolled,
        "seconds": runs.median,
        "bytes_per_second": of_block * blocks / runs.median,
        "best_bytes_per_second": of_block * blocks / runs.best,
    }
    if device.dialect == "cuda":  # OpenCL has no cycle counter
        slowest = float(np.median(ticks.reshape(blocks, threads).max(axis=1)))
        row["bytes_per_cycle_per_multiprocessor"] = of_block / slowest
    return row


def _expected(threads: int, words: int, trips: int, blocks: int) -> Any:
    """Return every thread's sum, and so every block's: the first row counts once more."""
    rows = 8 // words
    numbers = np.arange(rows * threads * words, dtype=np.uint64)
    values = (numbers * FACTOR + OFFSET) & 0xFFFFFFFF
    by_thread = values.reshape(rows, threads, words).sum(axis=2)
    total = (by_thread.sum(axis=0) * trips + by_thread[0]) & 0xFFFFFFFF
    return np.broadcast_to(total.astype(np.uint32), (blocks, threads))


def _run(device: LiveDevice, emit: Callable[[Row], None], seconds: float) -> None:
    def points() -> Iterator[Point]:
        yield from shared_points(device)
        yield from stream_points(device)

    measure_points(points(), emit, seconds)


EXPERIMENT = Experiment(
    "bandwidth", "Bandwidth of shared memory, L2 and device memory", ("cuda", "opencl"), _run
)
