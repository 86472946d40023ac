"""Everything about one kernel's machine code in one record, as `tilewright inspect` prints it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from tilewright.sass.annotate import verdict
from tilewright.sass.cycles import LoopCycles, loop_cycles
from tilewright.sass.decode import decode
from tilewright.sass.elf import Kernel
from tilewright.sass.lanes import loop_accesses
from tilewright.sass.lines import LinePairs
from tilewright.sass.loops import Loop, main_loop
from tilewright.sass.machine import FETCHED_BYTES
from tilewright.sass.occupancy import Occupancy, occupancy
from tilewright.sass.pipes import WARP, pipe_of
from tilewright.sass.resources import Resources, resources
from tilewright.sass.trace import k_loop
from tilewright.sass.warpgroups import MULTIPLIES, WarpgroupLoop, multiply_runs

__all__ = ["Inspection", "inspect_kernel"]

DEFAULT_THREADS = 256  # where neither the caller nor __launch_bounds__ says how large a block is


@dataclass(frozen=True)
class Inspection:
    """What a kernel takes, how many fit, and its main loop, None where there is none.

    ``wavefronts`` holds those of the loop's shared accesses, ``lines`` the pairs of lines that its
    copies meet, by address, which `tilewright.sass.lanes` derives from the code.  A loop of
    warpgroup multiplies has ``warpgroups`` instead of ``cycles``: copies and multiplies are of
    different warps there, which the cycle model does not know.
    """

    resources: Resources
    threads: int
    occupancy: Occupancy
    unknown: int
    loop: Loop | None
    cycles: LoopCycles | None
    wavefronts: dict[int, int] = field(default_factory=dict)
    lines: dict[int, LinePairs] = field(default_factory=dict)
    dynamic_shared_bytes: int = 0
    warpgroups: WarpgroupLoop | None = None

    @property
    def verdict(self) -> str:
        """One line that says what bounds the kernel."""
        if self.warpgroups is not None:
            return self.warpgroups.verdict
        if self.cycles is None:
            return "no loop with multiply-adds: nothing to bound"
        return verdict(self.cycles)

    @property
    def comes_late(self) -> bool:
        """Whether the main loop ends beyond the text that a launch brings (`arrange`).

        `tilewright.backend` moves it there when it compiles for a device, if it can.
        """
        fetched = FETCHED_BYTES.get(self.resources.arch)
        return fetched is not None and self.loop is not None and self.loop.end >= fetched

    def as_dict(self) -> dict[str, Any]:
        """Return it all as plain data for JSON."""
        loop = self.loop
        return {
            "resources": asdict(self.resources),
            "threads": self.threads,
            "dynamic_shared_bytes": self.dynamic_shared_bytes,
            "occupancy": {**asdict(self.occupancy), "fraction": self.occupancy.fraction},
            "unknown_instructions": self.unknown,
            "loop": loop
            and {
                "start": loop.start,
                "end": loop.end,
                "comes_late": self.comes_late,
                "instructions": len(loop.instructions),
                "multiply_adds": loop.useful,
                "useful_share": loop.useful_share,
                "mix": loop.mix(),
                "names": loop.names(),
            },
            "wavefronts": {f"{at:#x}": count for at, count in self.wavefronts.items()},
            "lines": {f"{at:#x}": asdict(pairs) for at, pairs in self.lines.items()},
            "cycles": self.cycles
            and {
                "terms": self.cycles.terms,
                "bound_by": self.cycles.bound_by,
                "pipe_share": self.cycles.pipe_share,
                "cycles": self.cycles.cycles,
                "instructions": self.cycles.instructions,
                "multiply_adds": self.cycles.multiply_adds,
            },
            "warpgroups": self.warpgroups and asdict(self.warpgroups),
            "verdict": self.verdict,
        }


def inspect_kernel(
    kernel: Kernel, threads: int | None = None, dynamic_shared_bytes: int = 0
) -> Inspection:
    """Return everything that a kernel's machine code says.

    Parameters
    ----------
    kernel : Kernel
        From `tilewright.sass.read_cubin`.
    threads : int, optional
        Threads a block; the most that the source promised, or 256.
    dynamic_shared_bytes : int
        Shared memory asked for at launch.

    Raises
    ------
    ValueError
        If the architecture is older than sm_70 or unknown, or an argument is
        out of range.
    """
    if dynamic_shared_bytes < 0:
        raise ValueError(f"dynamic_shared_bytes={dynamic_shared_bytes} is negative; give 0 or more")
    taken = resources(kernel)
    size = threads if threads is not None else taken.max_threads or DEFAULT_THREADS
    fits = occupancy(kernel.arch, size, taken.registers, taken.shared_bytes + dynamic_shared_bytes)
    instructions = decode(kernel.code, kernel.arch)
    unknown = sum(not i.known for i in instructions)
    loop = main_loop(instructions)
    if loop is None:
        return Inspection(
            taken, size, fits, unknown, None, None, dynamic_shared_bytes=dynamic_shared_bytes
        )
    if loop.multiplies:
        return Inspection(
            taken, size, fits, unknown, loop, None, dynamic_shared_bytes=dynamic_shared_bytes,
            warpgroups=_warpgroups(loop, kernel.arch),
        )  # fmt: skip
    warps = -(-size // WARP)
    seen = loop_accesses(instructions, k_loop(instructions, loop), size)
    cycles = loop_cycles(
        instructions, loop, kernel.arch, max(1, fits.blocks), warps,
        wavefronts=seen.wavefronts, lines=seen.lines,
    )  # fmt: skip
    return Inspection(
        taken, size, fits, unknown, loop, cycles, seen.wavefronts, seen.lines, dynamic_shared_bytes,
    )  # fmt: skip


def _warpgroups(loop: Loop, arch: int) -> WarpgroupLoop:
    """Return what the multiplies of a loop ask of a tensor core."""
    multiplies = [i for i in loop.instructions if i.mnemonic in MULTIPLIES]
    cycles = sum(pipe_of(i, arch)[1] for i in multiplies)
    return WarpgroupLoop(multiply_runs(loop.instructions), cycles)
