"""A live device's numbers: the catalogue's and the driver's, and of a CPU what they are not.

Of a CPU an OpenCL driver reports the nominal clock, which its cores exceed (by half on some
servers), and threads where two of them share a core's multiply-add units.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache

import numpy as np

from tilewright.backend import BackendError, LiveDevice
from tilewright.hardware.catalogue import CatalogueDevice, described
from tilewright.hardware.host import highest_clock_hz, threads_per_core
from tilewright.hardware.quantity import QUANTITIES, Quantity
from tilewright.microbench.sources import kernel_source
from tilewright.stencil import Launch

__all__ = ["live_numbers", "measured_clock"]

# A millisecond at 3 GHz: longer than a tick of any timer, shorter than a scheduler's turn.
_TRIPS = 200_000
_CYCLES_PER_TRIP = 16
# Time enough for a core that sleeps to reach its highest clock, which takes some milliseconds.
_RUNS = 40


@lru_cache(maxsize=16)
def live_numbers(device: LiveDevice) -> CatalogueDevice:
    """Return a live device's numbers with their sources; of a CPU the clock is measured once."""
    of_cpu = _of_cpu(device) if device.spec.kind == "cpu" else ()
    return described(device.spec, device.id, of_cpu)


def measured_clock(device: LiveDevice) -> float:
    """Return the highest clock that one core of a CPU had in some runs, in Hz.

    Whatever disturbs a run makes it slower, and a core alone is clocked at least as high as all
    of them together.

    Raises
    ------
    BackendError
        If the kernel cannot be compiled or run.
    """
    kernel = device.compile(kernel_source(device.dialect, "chain", {"TRIPS": _TRIPS}))
    launch = Launch((1, 1), (1, 1))
    out = device.allocate(4)
    try:
        arguments = (out, np.uint32(0x9E3779B9), np.uint32(12345))
        least = min(device.launch(kernel, launch, arguments).nanoseconds() for _ in range(_RUNS))
    finally:
        device.free(out)
    return _CYCLES_PER_TRIP * _TRIPS / least * 1e9


def _of_cpu(device: LiveDevice) -> tuple[Quantity, ...]:
    """Return the highest clock that anything tells, and the cores where threads share them."""
    clocks = {
        "reported by the driver": device.spec.clock_hz,
        "the highest that the governor may set": highest_clock_hz(),
    }
    with suppress(BackendError):
        clocks["the highest measured, of one core in a chain of additions"] = measured_clock(device)
    known = {source: clock for source, clock in clocks.items() if clock}
    found = []
    if known:
        source = max(known, key=lambda one: known[one])
        found.append(_quantity("clock_hz", known[source], source))
    threads = threads_per_core()
    if threads > 1:
        cores = max(1, device.spec.multiprocessors // threads)
        found.append(_quantity("multiprocessors", cores, f"cores of {threads} threads each"))
    return tuple(found)


def _quantity(name: str, value: float, source: str) -> Quantity:
    return Quantity(name, value, QUANTITIES[name][0], source)
