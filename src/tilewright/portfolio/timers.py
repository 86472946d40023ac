"""How long a kernel takes, with its launches back to back, and several in turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from statistics import median

from tilewright.backend import Kernel
from tilewright.backend.base import BackendError, DeviceLostError
from tilewright.backend.cuda.device import CUDADevice
from tilewright.space import Config
from tilewright.stencil import Stencil, Variant
from tilewright.stencil.geometry import Geometry
from tilewright.tuning.measure import Workload

__all__ = ["RUNS", "Burst", "LostToError", "Timer", "interleaved_medians"]

RUNS = 3
"""Of each kernel that count, after one that does not."""

Timer = Callable[[], int]
"""Runs a kernel and returns nanoseconds."""

# What takes longer than a millisecond is timed once.
_SLOW_NS = 1_000_000

# Launches back to back take about so long, and are so many at most.
_BURST_NS, _MOST_OF_BURST = 500_000, 16

# What was far from the best in its first run is run again all the same where it took less: a cold
# start is a part of it.
_FAR_NS = 100_000


class LostToError(DeviceLostError):
    """A kernel took the device from this process.

    Attributes
    ----------
    config : Config
        The kernel's.
    """

    def __init__(self, config: Config, message: str) -> None:
        super().__init__(message)
        self.config = config


class Burst:
    """Times launches back to back, as calls come: power and early launches count as they do there.

    The first call times one launch, and says how many the next ones are.

    Parameters
    ----------
    live : CUDADevice
        Where.
    workload : Workload
        The product, and its matrices there.
    config, kernel, family : Config, Kernel, Stencil
        What computes it.
    geometry : Geometry
        As the kernel was compiled for: machine code of before may not wait where launches begin
        early today.
    """

    def __init__(
        self,
        live: CUDADevice,
        workload: Workload,
        config: Config,
        kernel: Kernel,
        family: Stencil,
        geometry: Geometry,
    ) -> None:
        p = workload.problem
        launch = geometry.launch(p.m, p.n, p.k)
        arguments = family.arguments(config, Variant.of(p), workload.call)
        self._live, self._kernel, self._count = live, kernel, 1
        self._config, self._problem = config, p
        self._prepared = live.prepare(kernel, launch, arguments)

    def __call__(self) -> int:
        """Return the nanoseconds of a launch.

        Raises
        ------
        LostToError
            If the kernel leaves the device unusable for this process.
        """
        live, count = self._live, self._count

        def enqueue() -> None:
            for _ in range(count):
                self._prepared.enqueue(live.stream)

        try:
            event = live.between_events(enqueue, keep=self._kernel, held=count)
            ns = event.nanoseconds() / count  # where the device says what went wrong
        except DeviceLostError as error:
            message = f"{self._config} of {self._problem}: {error}"
            raise LostToError(self._config, message) from None
        if count == 1:
            self._count = min(_MOST_OF_BURST, max(1, round(_BURST_NS / max(ns, 1))))
        return round(ns)


def interleaved_medians(
    timers: Sequence[Timer | None], rounds: int = RUNS, far: float = inf
) -> list[int | None]:
    """Return medians in nanoseconds; None where a kernel is not for a problem, or refused.

    Of so many rounds, after one that does not count, but for what takes long in it and `far` times
    the least: that is not run again.  What disturbs a device for a millisecond then counts in one
    round of each kernel.
    """
    runs: list[list[int]] = [[] for _ in timers]
    able = [at for at, timer in enumerate(timers) if timer is not None]
    for round_ in range(rounds + 1):
        for at in tuple(able):
            timer = timers[at]
            assert timer is not None  # those in `able`
            try:
                runs[at].append(timer())
            except DeviceLostError:  # no kernel that comes after it can be timed
                raise
            except BackendError:
                runs[at] = []
            if not runs[at] or (round_ and runs[at][-1] > _SLOW_NS):
                able.remove(at)
        if not round_ and able:
            most = max(_FAR_NS, far * min(runs[at][0] for at in able))
            able = [at for at in able if runs[at][0] <= most]
    return [round(median(row[1:] or row)) if row else None for row in runs]
