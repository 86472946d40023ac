"""What experiments do alike: run until the time is up, time, read machine code."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from tilewright.backend import BackendError, DeviceLostError, Kernel, LiveDevice
from tilewright.microbench.experiment import Row
from tilewright.sass import decode, find_loops, read_cubin
from tilewright.sass.instruction import ACCESS_BITS
from tilewright.stencil import Launch

__all__ = [
    "Point",
    "Timed",
    "accesses_of_loops",
    "check_code",
    "launched",
    "measure_points",
    "refused",
    "require_accesses",
]

# The median of seven shrugs off three runs that something disturbed.
_REPEATS = 7


Point = tuple[Row, Callable[[], Row]]
"""What a point is, and a call that measures it and returns the rest of its row."""


@dataclass(frozen=True)
class Timed:
    """Seconds of several equal runs."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The run to report."""
        return median(self.seconds)

    @property
    def best(self) -> float:
        """The run that a bound may rely on: whatever disturbs a run makes it slower."""
        return min(self.seconds)


def launched(device: LiveDevice, kernel: Kernel, launch: Launch, arguments: Sequence[Any]) -> Timed:
    """Return the device's own times of `_REPEATS` launches after one that warms up."""
    device.launch(kernel, launch, arguments).wait()
    runs = [device.launch(kernel, launch, arguments) for _ in range(_REPEATS)]
    # A clock that has no ticks for so short a run would give an infinite rate.
    return Timed(tuple(max(1, run.nanoseconds()) * 1e-9 for run in runs))


def measure_points(points: Iterable[Point], emit: Callable[[Row], None], seconds: float) -> None:
    """Emit a row for each point until the time is up.

    Parameters
    ----------
    points : iterable of Point
        A call that fails for a reason of the device's or of the data's makes a row with
        ``"error"``.
    emit : callable
        Takes each row.
    seconds : float
        When to stop; the first point is measured in any case.

    Raises
    ------
    DeviceLostError
        After its row, since no further point can be measured.
    """
    end = time.perf_counter() + seconds
    for number, (named, measure) in enumerate(points):
        if number and time.perf_counter() > end:
            return
        try:
            emit(named | measure())
        except (BackendError, ValueError, MemoryError) as problem:
            emit(
                named | {"error": str(problem).splitlines()[0] if str(problem) else "out of memory"}
            )
            if isinstance(problem, DeviceLostError):
                raise


def refused(problem: Exception) -> Row:
    """Measure a point that cannot be."""
    raise problem


def accesses_of_loops(code: bytes, name: str) -> list[dict[tuple[str, int], int]]:
    """Return what each loop of a kernel has: how many instructions by mnemonic and bits.

    Bits are what an access moves for each thread, and 32 for what is no access.

    Parameters
    ----------
    code : bytes
        A cubin.
    name : str
        The kernel's symbol.
    """
    kernel = read_cubin(code).kernel(name)
    found = []
    for loop in find_loops(decode(kernel.code, kernel.arch)):
        counts: dict[tuple[str, int], int] = {}
        for one in loop.instructions:
            sizes = [ACCESS_BITS[m] for m in one.name.split(".")[1:] if m in ACCESS_BITS]
            key = (one.mnemonic, sizes[0] if sizes else 32)  # 32 bits have no modifier
            counts[key] = counts.get(key, 0) + 1
        found.append(counts)
    return found


def require_accesses(code: bytes, name: str, mnemonic: str, bits: int, count: int) -> None:
    """Check that some loop of a cubin's kernel has exactly the instructions that are timed.

    Raises
    ------
    ValueError
        If the compiler removed, split or joined them; the message says what is there.
    """
    loops = accesses_of_loops(code, name)
    if not any(loop.get((mnemonic, bits)) == count for loop in loops):
        there = sorted({(m, b, n) for loop in loops for (m, b), n in loop.items() if m == mnemonic})
        raise ValueError(
            f"kernel={name!r} has no loop with {count} {mnemonic} of {bits} bits but {there};"
            " this compiler needs another source"
        )


def check_code(kernel: Kernel, mnemonic: str, bits: int, count: int) -> None:
    """Check a CUDA kernel's machine code; OpenCL's is not ours to read."""
    cubin = getattr(kernel.handle, "cubin", None)
    if cubin is not None:
        name = cubin.lowered.get(kernel.entry, kernel.entry)
        require_accesses(cubin.code, name, mnemonic, bits, count)
