"""The arithmetic peak of a live device, measured: the hundred of "percent of peak"."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial

import numpy as np

from tilewright.backend import LiveDevice
from tilewright.bounds.double_double import SEQUENCE_OF, SEQUENCES
from tilewright.microbench.experiment import Experiment, Row
from tilewright.microbench.numbers import live_numbers
from tilewright.microbench.points import Point, measure_points
from tilewright.microbench.sources import kernel_source
from tilewright.precision import PRECISIONS, Precision
from tilewright.stencil import Dialect, Launch, Source

__all__ = ["EXPERIMENT", "measured_peak", "peak_source"]

# Accumulators in the kernels' text.
_CHAINS = 12

# Long enough for a clock to settle and to hide the launch, short enough not to be noticed.
_TRIPS = 200_000


def peak_source(dialect: Dialect, real_bytes: int, defines: Mapping[str, int | str]) -> Source:
    """Return the kernel's source after a dialect's and a real precision's prelude."""
    return kernel_source(dialect, "peak", defines, "s" if real_bytes == 4 else "d")


@lru_cache(maxsize=16)
def measured_peak(device: LiveDevice, precision: Precision) -> float:
    """Return the best multiply-add rate of a device, in FLOP/s.

    A loop of independent multiply-adds, with the native vector on a CPU; the fastest of
    some runs, since everything that disturbs a run only makes it slower.  Complex
    arithmetic is real arithmetic counted alike, so its peak is the real one; in
    double-double a multiply-add takes as many instructions as its sequence has.  Of 16-bit
    operands the peak of their sums' type is measured: tensor cores, if any, do more.
    """
    cpu = device.spec.kind == "cpu"
    real = np.dtype(np.float32 if precision.is_short else precision.real_name)
    size = real.itemsize
    vector = max(4, min(16, device.spec.vector_bytes // size)) if cpu else 1
    launch = (
        Launch((2 * device.spec.multiprocessors, 1), (1, 1))
        if cpu
        else Launch((8 * device.spec.multiprocessors, 1), (256, 1))
    )
    trips = _TRIPS // 8 if size == 8 and not cpu else _TRIPS
    defines = {"VECTOR": vector, "THREADS": launch.block[0], "TRIPS": trips}
    kernel = device.compile(peak_source(device.dialect, size, defines))
    items = launch.grid[0] * launch.block[0]
    out = device.allocate(items * size)
    try:
        arguments = (out, real.type(0.999), real.type(0.001))
        runs = [device.launch(kernel, launch, arguments).nanoseconds() for _ in range(8)]
    finally:
        device.free(out)
    flops = 2.0 * _CHAINS * vector * trips * items
    if precision.parts == 2:
        flops /= SEQUENCES[SEQUENCE_OF[precision.letter]].instructions
    return float(flops / np.min(runs) * 1e9)


def _run(device: LiveDevice, emit: Callable[[Row], None], seconds: float) -> None:
    def measure(letter: str) -> Row:
        measured_peak.cache_clear()
        rate = measured_peak(device, PRECISIONS[letter])
        row: Row = {"flops_per_second": rate}
        known = live_numbers(device)
        clock = known.value("clock_hz")
        if clock:
            lanes = rate / (2 * known.needs("multiprocessors") * clock)
            row["multiply_adds_per_cycle_per_multiprocessor"] = lanes
        return row

    letters = "sd" if device.spec.has_fp64 else "s"
    points: list[Point] = [({"precision": letter}, partial(measure, letter)) for letter in letters]
    measure_points(points, emit, seconds)


EXPERIMENT = Experiment("peak", "Rate of independent multiply-adds", ("cuda", "opencl"), _run)
