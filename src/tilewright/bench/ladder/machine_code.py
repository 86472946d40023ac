"""What the machine code of a rung says: registers, occupancy, and what bounds its loop."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tilewright.backend import Kernel, LiveDevice
from tilewright.sass import Inspection, inspect_kernel, read_cubin

__all__ = ["MachineCode", "machine_code"]


@dataclass(frozen=True)
class MachineCode:
    """A kernel as compiled for a CUDA device.

    Parameters
    ----------
    registers, shared_bytes, local_accesses : int
        Registers of a thread, shared memory of a block, loads and stores of spilled registers.
    blocks, warps, max_warps : int
        That a multiprocessor holds, and how many warps it could.
    limited_by : str
        What stands against more blocks.
    bound_by : str
        What bounds the loop over k, by the static model of `tilewright.sass`.
    useful_share, pipe_share : float
        Multiply-adds among the loop's instructions; share of the loop's cycles in which the
        model sees their pipe busy.
    """

    registers: int
    shared_bytes: int
    local_accesses: int
    blocks: int
    warps: int
    max_warps: int
    limited_by: str
    bound_by: str
    useful_share: float
    pipe_share: float

    @property
    def occupancy(self) -> float:
        """Warps as a share of the most."""
        return self.warps / self.max_warps

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {**asdict(self), "occupancy": self.occupancy}


def machine_code(
    live: LiveDevice, kernel: Kernel, threads: int, dynamic_shared_bytes: int
) -> MachineCode | None:
    """Return what a loaded kernel's machine code says; None where it cannot be read.

    OpenCL drivers keep their machine code to themselves.
    """
    if live.backend != "cuda":
        return None
    cubin = kernel.handle.cubin
    code = read_cubin(cubin.code).kernel(cubin.lowered.get(kernel.entry, kernel.entry))
    return summary(inspect_kernel(code, threads, dynamic_shared_bytes))


def summary(found: Inspection) -> MachineCode:
    """Return the few numbers of an inspection that tell rungs apart."""
    cycles, taken, fits = found.cycles, found.resources, found.occupancy
    return MachineCode(
        registers=taken.registers,
        shared_bytes=taken.shared_bytes + found.dynamic_shared_bytes,
        local_accesses=taken.local_loads + taken.local_stores,
        blocks=fits.blocks,
        warps=fits.warps,
        max_warps=fits.max_warps,
        limited_by=fits.limited_by,
        bound_by=cycles.bound_by if cycles else "",
        useful_share=cycles.multiply_adds / cycles.instructions if cycles else 0.0,
        pipe_share=cycles.pipe_share if cycles else 0.0,
    )
