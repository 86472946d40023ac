"""What the machine code of a rung says: registers, occupancy, and what bounds its loop."""

from __future__ import annotations

from typing import Any

from tilewright.backend import Kernel, LiveDevice
from tilewright.sass import Inspection, inspect_kernel, read_cubin

__all__ = ["machine_code", "summary"]


def machine_code(
    live: LiveDevice, kernel: Kernel, threads: int, dynamic_shared_bytes: int
) -> dict[str, Any] | None:
    """Return what a loaded kernel's machine code says; None where it cannot be read.

    OpenCL drivers keep their machine code to themselves.
    """
    if live.backend != "cuda":
        return None
    cubin = kernel.handle.cubin
    code = read_cubin(cubin.code).kernel(cubin.lowered.get(kernel.entry, kernel.entry))
    return summary(inspect_kernel(code, threads, dynamic_shared_bytes))


def summary(found: Inspection) -> dict[str, Any]:
    """Return the few numbers of an inspection that tell rungs apart.

    ``bound_by`` is what bounds the loop over k by the static model of `tilewright.sass`,
    ``useful_share`` the multiply-adds among its instructions, ``pipe_share`` the cycles in which
    the model sees their pipe busy, ``local_accesses`` loads and stores of spilled registers.
    """
    cycles, taken, fits = found.cycles, found.resources, found.occupancy
    return {
        "registers": taken.registers,
        "shared_bytes": taken.shared_bytes + found.dynamic_shared_bytes,
        "local_accesses": taken.local_loads + taken.local_stores,
        "blocks": fits.blocks,
        "warps": fits.warps,
        "max_warps": fits.max_warps,
        "limited_by": fits.limited_by,
        "bound_by": cycles.bound_by if cycles else "",
        "useful_share": cycles.multiply_adds / cycles.instructions if cycles else 0.0,
        "pipe_share": cycles.pipe_share if cycles else 0.0,
        "occupancy": fits.warps / fits.max_warps,
    }
