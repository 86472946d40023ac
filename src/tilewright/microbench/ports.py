"""Cycles of FFMA loops by the registers they name: what register ports are known from.

One row a pattern of `tilewright.microbench.port_patterns`.  With one warp on each scheduler and
every stall count 1, what an FFMA takes beyond a cycle it waited for its operands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial

from tilewright.backend import LiveDevice
from tilewright.backend.cuda.device import CUDADevice, LoadedKernel
from tilewright.microbench.experiment import Experiment, Row
from tilewright.microbench.loops import Template, loop_source, template
from tilewright.microbench.points import Point
from tilewright.microbench.port_patterns import EVEN, ODD, TRIP, named, pattern, placed, sequences
from tilewright.microbench.timing import LoopTimer, time_loops

__all__ = ["EXPERIMENT", "points", "run", "wide_template"]

SCHEDULERS = 4
# 16 warps of 120 registers fill a multiprocessor; 88 sums and twice 8 factors leave each bank at
# least the 41 and 40 registers that patterns name.
THREADS, ACCUMULATORS, FACTORS = 512, 88, 8
# Three operands in one bank take a cycle each, and nothing takes longer.
_MOST_CYCLES = 3


def wide_template(device: CUDADevice) -> Template:
    """Return the loop that patterns are written into.

    Raises
    ------
    LoopRejectedError
        If the compiler made something else of it.
    ValueError
        If it left a bank with too few registers.
    """
    source = loop_source(THREADS, ACCUMULATORS, FACTORS, TRIP)
    return checked(template(device.compile(source).handle.cubin))


def checked(found: Template) -> Template:
    """Return a template that has registers enough for every pattern."""
    if len(found.even) < len(EVEN) or len(found.odd) < len(ODD) or found.slots < TRIP:
        raise ValueError(
            f"the loop leaves {len(found.even)} and {len(found.odd)} registers and {found.slots}"
            f" slots, patterns need {len(EVEN)}, {len(ODD)} and {TRIP}; use another NVRTC"
        )
    return found


def points() -> Iterator[tuple[str, bool, int]]:
    """Yield pattern, yield flag and warps a scheduler, those that teach the most first."""
    for name in named():
        yield name, False, 1
    for name in sequences():
        yield name, False, 1
    for name in named():
        for yields, warps in ((False, 2), (False, 4), (True, 1), (True, 2), (True, 4)):
            yield name, yields, warps


def _points(timer: LoopTimer) -> Iterator[Point]:
    loop = wide_template(timer.device)

    @lru_cache(maxsize=1)  # points of a pattern come together
    def loaded(name: str, yields: bool) -> LoadedKernel:
        body = placed(pattern(name), loop.even, loop.odd, yields)
        return timer.load(loop.filled(body))

    def measure(name: str, yields: bool, warps: int) -> Row:
        return _measured(timer, loaded(name, yields), warps)

    for name, yields, warps in points():
        row: Row = {"pattern": name, "yields": int(yields), "warps_per_scheduler": warps}
        yield row, partial(measure, name, yields, warps)


def run(device: LiveDevice, emit: Callable[[Row], None], seconds: float) -> None:
    """Measure every pattern; see `Experiment`."""
    time_loops(device, emit, seconds, _points)


def _measured(timer: LoopTimer, kernel: LoadedKernel, warps: int) -> Row:
    """Return what one pattern takes."""
    took = timer.time(kernel, SCHEDULERS * warps, _MOST_CYCLES * TRIP * warps)
    each = took.cycles / (TRIP * warps)
    return {
        "ffma_per_trip": TRIP,
        "cycles_per_trip": round(took.cycles, 3),
        "cycles_per_ffma": round(each, 5),
        # Whatever kept the scheduler from an FFMA each cycle; the loop's own end is in it.
        "stall_cycles_per_ffma": round(each - 1, 5),
        "clock_hz": took.clock_hz,
    }


EXPERIMENT = Experiment(
    "ports",
    "cycles per FFMA by register banks, reuse flags, yield flag and warps a scheduler",
    ("cuda",),
    run,
)
