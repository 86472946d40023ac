"""What a device sustains: clock, power and rate while it computes or copies for some seconds.

Loads: outer products from shared memory in single and in double precision (a GEMM's main loop
with random data, because power depends on the bits that toggle), and copying device memory.
A row tells the second half of a load, when power and clock have settled.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from tilewright.backend import Event, LiveDevice
from tilewright.microbench.bandwidth import Stream, Walker, memory_sizes
from tilewright.microbench.experiment import Experiment, Row
from tilewright.microbench.points import check_code, measure_points
from tilewright.microbench.sensors import Reading, reasons_of, sensors
from tilewright.microbench.sources import kernel_source
from tilewright.microbench.timing import alone
from tilewright.stencil import Launch

__all__ = ["EXPERIMENT", "PowerSamples", "outer_defines", "sample_power"]

_INTERVAL = 0.02  # NVML's clock is renewed about every 20 ms
# Launches: one runs, others wait behind it; on a GPU for longer than Python may be held up.
_IN_FLIGHT = {"gpu": 8, "cpu": 2}
# Longer brings nothing: on an H100 power settles within about a second.
_LONGEST = 6.0


@dataclass
class PowerSamples:
    """Readings of a device's sensors, each with its time in seconds since the first.

    Parameters
    ----------
    readings : list of (float, Reading)
        In order of time.
    reason : str
        Why there are none; empty where the sensors can be read.
    """

    readings: list[tuple[float, Reading]] = field(default_factory=list)
    reason: str = ""

    def since(self, moment: float) -> PowerSamples:
        """Return the readings from `moment` on."""
        return PowerSamples([r for r in self.readings if r[0] >= moment], self.reason)

    def median(self, name: str) -> float | None:
        """Return the median of a field of `Reading`; None where nothing was read."""
        found = [v for _, reading in self.readings if (v := getattr(reading, name)) is not None]
        return float(median(found)) if found else None

    @property
    def clock_hz(self) -> float | None:
        """Median clock."""
        return self.median("clock_hz")

    @property
    def power_w(self) -> float | None:
        """Median power."""
        return self.median("power_w")

    @property
    def reasons(self) -> str:
        """Everything that held the clock down at some moment."""
        mask = 0
        for _, reading in self.readings:
            mask |= reading.reasons
        return reasons_of(mask)


@contextmanager
def sample_power(device: LiveDevice, seconds: float = _INTERVAL) -> Iterator[PowerSamples]:
    """Read a device's sensors in a thread while the ``with`` block runs.

    Parameters
    ----------
    device : LiveDevice
        Whose sensors are read.
    seconds : float
        Between two readings.

    Yields
    ------
    PowerSamples
        Filled while the block runs.  Where the sensors cannot be read it stays empty and says
        why: nothing that is measured beside depends on them.

    Examples
    --------
    >>> with sample_power(device) as samples:
    ...     run_something()
    >>> samples.clock_hz, samples.power_w
    """
    samples = PowerSamples()
    try:
        read = sensors(device)
    except (ValueError, RuntimeError) as problem:
        samples.reason = str(problem)
        yield samples
        return
    stop = threading.Event()
    began = time.perf_counter()

    def sample() -> None:
        while not stop.is_set():
            samples.readings.append((time.perf_counter() - began, read()))
            stop.wait(seconds)

    thread = threading.Thread(target=sample, name="tilewright-power", daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        stop.set()
        thread.join()


@dataclass(frozen=True)
class Load:
    """Something to keep a device busy with.

    Parameters
    ----------
    enqueue : callable
        Starts one piece of work.
    work : float
        FLOP or bytes of one.
    check : callable
        Raises ValueError if the result is wrong.
    cycles : callable
        Returns the cycles that the last piece took, or None.
    memory : tuple
        What is freed in the end.
    """

    enqueue: Callable[[], Event]
    work: float
    check: Callable[[], None]
    cycles: Callable[[], float | None]
    memory: tuple[Any, ...]


def outer_defines(device: LiveDevice, letter: str) -> dict[str, int | str]:
    """Return the macros of ``outer.cl`` for a device and a real precision, s or d."""
    # 8 x 8 singles or 6 x 6 doubles: 105 or 134 registers, as GEMM kernels have.
    side, vector = (8, 4) if letter == "s" else (6, 2)
    threads = 16 if device.spec.kind == "cpu" else min(256, device.spec.max_threads_per_block)
    # About 10 ms on an H100, against which a launch's microseconds are nothing; doubles are
    # slower everywhere, 64 times so on consumer GPUs.
    trips = 20_000 if letter == "s" else 5000
    return {"SIDE": side, "VECTOR": vector, "DEPTH": 8, "THREADS": threads, "TRIPS": trips}


def _outer_load(device: LiveDevice, letter: str) -> Load:
    """Return outer products on all multiprocessors; a launch takes some milliseconds."""
    defines = outer_defines(device, letter)
    side, depth, threads, trips = (int(defines[k]) for k in ("SIDE", "DEPTH", "THREADS", "TRIPS"))
    apart = alone(device.spec) if device.dialect == "cuda" else 0
    kernel = device.compile(kernel_source(device.dialect, "outer", defines, letter, apart))
    mnemonic = "FFMA" if letter == "s" else "DFMA"
    check_code(kernel, mnemonic, 32, depth * side * side)
    check_code(kernel, "LDS", 128, depth * 2 * side // int(defines["VECTOR"]))
    # One block a multiprocessor: all run at once, so that their cycles are the launch's.
    blocks = device.spec.multiprocessors
    count = blocks * threads
    real = np.dtype(np.float32 if letter == "s" else np.float64)
    out, ticks = device.allocate(count * real.itemsize), device.allocate(8 * count)
    launch = Launch((blocks, 1), (threads, 1))

    def check() -> None:
        found = np.empty(count, real)
        device.download(out, found)
        _check_outer(found.reshape(blocks, threads), side, int(defines["VECTOR"]), depth, trips)

    def cycles() -> float | None:
        if device.dialect != "cuda":
            return None
        found = np.empty(count, np.int64)
        device.download(ticks, found)
        return float(np.median(found.reshape(blocks, threads).max(axis=1)))

    enqueue = partial(device.launch, kernel, launch, (out, ticks, np.int32(0)))
    return Load(enqueue, 2.0 * side * side * depth * trips * count, check, cycles, (out, ticks))


def _noise(count: int, shift: int) -> Any:
    """Return what ``outer.cl`` fills shared memory with."""
    seed = np.arange(count, dtype=np.uint64) + shift
    x = (seed * 1664525 + 1013904223) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * 1664525 + 1013904223) & 0xFFFFFFFF
    return x.astype(np.uint32).view(np.int32) * 2.0**-31


def _check_outer(found: Any, side: int, vector: int, depth: int, trips: int) -> None:
    """Check every thread's sum against a product of sums in double precision.

    Raises
    ------
    ValueError
        If one is further away than rounding explains.
    """
    threads = found.shape[1]
    rows, columns = threads // 16, 16

    def values(lanes: int, shift: int) -> Any:
        # [k, piece, lane, word], as the source's drawing has it
        flat = _noise(depth * lanes * side, shift)
        return flat.reshape(depth, side // vector, lanes, vector).transpose(0, 2, 1, 3)

    a = values(rows, 0).reshape(depth, rows, side)
    b = values(columns, 77777).reshape(depth, columns, side)
    expected = np.einsum("kr,kc->rc", a.sum(axis=2), b.sum(axis=2)).ravel() * trips
    size = np.einsum("kr,kc->rc", abs(a).sum(axis=2), abs(b).sum(axis=2)).ravel() * trips
    # Adding one value many times over loses up to half a bit at each addition.
    allowed = size * trips * depth * np.finfo(found.dtype).eps
    if not np.all(abs(found - expected) <= allowed):
        raise ValueError("outer products from shared memory are wrong")


def _copy_load(device: LiveDevice) -> Load:
    """Return copying an array much larger than the caches."""
    walker = Walker(device)
    size = walker.rounded(min(memory_sizes(device)))
    arrays = tuple(device.allocate(n) for n in (size, size, walker.sums_bytes))
    stream = Stream("memory", "copy", "COPY", size, 1)
    first, last, sums = arrays
    filling = walker.walk(Stream("memory", "fill", "WRITE", size, 1), (first, first, sums), size)
    device.launch(*filling).wait()
    enqueue = partial(device.launch, *walker.walk(stream, (first, last, sums), size))
    return Load(
        enqueue, 2.0 * size, partial(walker.check_filled, last, sums, size), lambda: None, arrays
    )


def _busy(load: Load, seconds: float, in_flight: int) -> tuple[list[float], float]:
    """Keep a device busy; return the pieces' seconds in the second half, and when that began."""
    began = time.perf_counter()
    running: deque[Event] = deque()
    late: list[float] = []
    while (now := time.perf_counter() - began) < seconds or not late:
        running.append(load.enqueue())
        if len(running) >= in_flight:
            piece = running.popleft().nanoseconds() * 1e-9
            if now >= seconds / 2:
                late.append(max(piece, 1e-9))
    for event in running:
        event.wait()
    return late, seconds / 2


def _measure(device: LiveDevice, named: Row, make: Callable[[], Load], seconds: float) -> Row:
    """Run one load and return its row's rest."""
    load = make()
    try:
        load.enqueue().wait()
        load.check()
        with sample_power(device) as samples:
            pieces, half = _busy(load, seconds, _IN_FLIGHT[device.spec.kind])
        cycles = load.cycles()
    finally:
        for memory in load.memory:
            device.free(memory)
    late = samples.since(half)
    unit = "bytes_per_second" if named["load"] == "copy" else "flops_per_second"
    row: Row = {
        "seconds": seconds,
        unit: load.work / median(pieces),
        "clock_hz": late.clock_hz,
        "power_w": late.power_w,
        "power_limit_w": late.median("limit_w"),
        "temperature_c": late.median("temperature_c"),
        "throttle_reasons": late.reasons,
    }
    if cycles is not None:  # the clock as the kernel itself counts it
        row["counted_clock_hz"] = cycles / pieces[-1]
    if samples.reason:
        row["sensors"] = samples.reason
    return row


def _run(device: LiveDevice, emit: Callable[[Row], None], seconds: float) -> None:
    loads: list[tuple[str, Callable[[], Load]]] = [
        ("outer products, single precision", partial(_outer_load, device, "s")),
        ("copy", partial(_copy_load, device)),
    ]
    if device.spec.has_fp64:
        loads.append(("outer products, double precision", partial(_outer_load, device, "d")))
    each = min(_LONGEST, 0.8 * seconds / len(loads))  # a fifth is for compiling and filling
    named: list[Row] = [{"load": name} for name, _ in loads]
    measure_points(
        (
            (row, partial(_measure, device, row, make, each))
            for row, (_, make) in zip(named, loads, strict=True)
        ),
        emit,
        seconds,
    )


EXPERIMENT = Experiment("power", "Clock, power and rate under load", ("cuda", "opencl"), _run)
