"""How many multiply-adds of each kind a multiprocessor does in a cycle, by warps.

One row a kind and number of warps.  Each loop is one source compiled with independent sums
(``kernels/rates.cu``) or with tiles in shared memory (``kernels/wgmma.cu``); a loop that the
compiler filled with anything else is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from tilewright.backend import BackendError, LiveDevice
from tilewright.backend.cuda.device import LoadedKernel
from tilewright.microbench.experiment import Experiment, Row
from tilewright.microbench.loops import LoopRejectedError, check_names
from tilewright.microbench.points import Point, refused
from tilewright.microbench.sources import kernel_file
from tilewright.microbench.timing import LoopTimer, time_loops
from tilewright.stencil import Source

__all__ = ["EXPERIMENT", "KINDS", "Kind", "run"]

# The loop's counter, comparison and branch; for warpgroups also their fence and wait.
_EXTRA, _EXTRA_WARPGROUP = 3, 5


@dataclass(frozen=True)
class Kind:
    """One kind of multiply-add.

    Parameters
    ----------
    name : str
        As rows have it, and its macro in the source.
    instruction : str
        Its name when decoded.
    multiply_adds : int
        Of elements that one instruction does for each warp: a warpgroup's tile is shared by
        four.
    chains : int
        Independent sums, as many as registers allow and latency asks for.
    rounds : int
        Times that all of them are in a trip.
    warps : tuple of int
        Of a multiprocessor.
    expected : float
        Multiply-adds a cycle and multiprocessor that are roughly to be expected; says only how
        many trips are run.
    file : str
        File of the kernel.
    """

    name: str
    instruction: str
    multiply_adds: int
    chains: int
    rounds: int
    warps: tuple[int, ...]
    expected: float
    file: str = "rates.cu"

    @property
    def instructions(self) -> int:
        """Instructions of its kind in a trip."""
        return self.chains * self.rounds

    def source(self) -> Source:
        """Return the specialised source."""
        defines: dict[str, int | str] = {
            f"KIND_{self.name.upper()}": 1,
            "ROUNDS": self.rounds,
            "THREADS": 32 * max(self.warps),
        }
        if self.file == "rates.cu":
            defines["CHAINS"] = self.chains
        return Source(kernel_file(self.file), defines, "loop")

    def check(self, code: bytes) -> int:
        """Return the fillers in the compiled loop.

        Raises
        ------
        LoopRejectedError
            If it is no loop of just this instruction.
        """
        extra = _EXTRA if self.file == "rates.cu" else _EXTRA_WARPGROUP
        return check_names(code, {self.instruction: self.instructions}, extra)


_WARPS = (1, 2, 4, 8, 16)
_GROUPS = (4, 8, 12)  # 12 warps of 168 registers fill a multiprocessor

KINDS = (
    Kind("ffma", "FFMA", 32, 16, 16, (*_WARPS, 32), 128),
    Kind("hfma2", "HFMA2", 64, 16, 16, (*_WARPS, 32), 256),
    Kind("dfma", "DFMA", 32, 16, 16, _WARPS, 64),
    Kind("dmma_8x8x4", "DMMA.8x8x4", 256, 8, 8, _WARPS, 128),
    Kind("dmma_16x8x4", "DMMA.16x8x4", 512, 8, 8, _WARPS, 128),
    Kind("dmma_16x8x8", "DMMA.16x8x8", 1024, 6, 8, _WARPS, 128),
    Kind("dmma_16x8x16", "DMMA.16x8x16", 2048, 4, 8, _WARPS, 128),
    Kind("tf32_16x8x8", "HMMA.1688.F32.TF32", 1024, 12, 16, _WARPS, 512),
    Kind("f16_16x8x16", "HMMA.16816.F32", 2048, 12, 16, _WARPS, 1024),
    Kind("bf16_16x8x16", "HMMA.16816.F32.BF16", 2048, 12, 16, _WARPS, 1024),
    Kind("s8_16x8x32", "IMMA.16832", 4096, 12, 16, _WARPS, 2048),
    Kind("wgmma_f16", "HGMMA.64x256x16.F32", 65536, 1, 32, _GROUPS, 2048, "wgmma.cu"),
    Kind("wgmma_bf16", "HGMMA.64x256x16.F32.BF16", 65536, 1, 32, _GROUPS, 2048, "wgmma.cu"),
    Kind("wgmma_tf32", "HGMMA.64x256x8.F32.TF32", 32768, 1, 32, _GROUPS, 1024, "wgmma.cu"),
    Kind("wgmma_s8", "IGMMA.64x256x32", 131072, 1, 32, _GROUPS, 4096, "wgmma.cu"),
)


def _points(timer: LoopTimer) -> Iterator[Point]:
    """Yield a kind's points; only one, with the reason, where the loop cannot be made."""
    for kind in KINDS:
        labels: Row = {"kind": kind.name, "instruction": kind.instruction}
        try:
            cubin = timer.device.compile(kind.source()).handle.cubin
            fillers = kind.check(cubin.code)
            kernel = timer.load(cubin)
        except (BackendError, LoopRejectedError) as error:
            yield labels, partial(refused, error)
            continue
        labels["fillers_per_trip"] = fillers
        for warps in kind.warps:
            row = labels | {"warps_per_multiprocessor": warps}
            yield row, partial(_rates, timer, kind, kernel, warps)


def run(device: LiveDevice, emit: Callable[[Row], None], seconds: float) -> None:
    """Measure every kind; see `Experiment`."""
    time_loops(device, emit, seconds, _points)


def _rates(timer: LoopTimer, kind: Kind, kernel: LoadedKernel, warps: int) -> Row:
    work = kind.instructions * warps * kind.multiply_adds
    took = timer.time(kernel, warps, work / kind.expected * max(1.0, 4 / warps))
    each = work / took.cycles
    rate = None
    if took.clock_hz is not None:
        rate = 2 * each * timer.multiprocessors * took.clock_hz
    return {
        "instructions_per_cycle": round(kind.instructions * warps / took.cycles, 5),
        "multiply_adds_per_cycle": round(each, 3),
        "clock_hz": took.clock_hz,
        "flops_per_second": rate,
    }


EXPERIMENT = Experiment(
    "rates",
    "multiply-adds a cycle and multiprocessor of every arithmetic unit, by warps",
    ("cuda",),
    run,
)
