"""An NVIDIA architecture where no GPU of it is: what it allows, and compiling for it."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING

from tilewright.backend.cache import KernelCache
from tilewright.backend.cuda.arranging import arranged_cubin
from tilewright.hardware import DeviceSpec
from tilewright.sass.occupancy import MAX_REGISTERS, MAX_THREADS, WARP, limits_of
from tilewright.timeline import span

if TYPE_CHECKING:
    from tilewright.backend.base import Rewrite
    from tilewright.stencil import Source

__all__ = ["Architecture", "architecture_spec"]

# The widest load and store: LDG.128, LDS.128 (CUDA C++ Programming Guide, "Device Memory
# Accesses": instructions read 1, 2, 4, 8 or 16 bytes).
_VECTOR_BYTES = 16


def architecture_spec(arch: str) -> DeviceSpec:
    """Return the numbers that all GPUs of an architecture share.

    The number of multiprocessors, clocks and memories differ between such GPUs:
    there is one multiprocessor here, and the others are unknown.

    Parameters
    ----------
    arch : str
        As the compiler takes it, such as ``"sm_90a"``.

    Raises
    ------
    ValueError
        If `arch` is not of that form, or is not in the table of
        `tilewright.sass.occupancy`, the source of the numbers.
    """
    found = re.fullmatch(r"sm_(\d+)[af]?", arch)
    if found is None:
        raise ValueError(f"arch={arch!r} is no architecture; write sm_80, sm_90a or the like")
    number = int(found[1])
    limits = limits_of(number)
    return DeviceSpec(
        name=arch,
        vendor="NVIDIA Corporation",
        kind="gpu",
        multiprocessors=1,
        warp_size=WARP,
        max_threads_per_block=MAX_THREADS,
        shared_bytes_per_block=limits.shared_bytes_per_block,
        vector_bytes=_VECTOR_BYTES,
        max_threads_per_multiprocessor=limits.warps * WARP,
        registers_per_multiprocessor=limits.registers,
        max_registers_per_thread=MAX_REGISTERS,
        shared_bytes_per_multiprocessor=limits.shared_bytes,
        max_blocks_per_multiprocessor=limits.blocks,
        compute_capability=number,
    )


class Architecture:
    """What stands for a device in a process that only compiles: it needs no GPU and no driver.

    Parameters
    ----------
    arch : str
        As `architecture_spec` takes it.
    """

    dialect = "cuda"

    def __init__(self, arch: str) -> None:
        self.arch = arch

    @cached_property
    def _cache(self) -> KernelCache:
        return KernelCache()

    def compile_ahead(self, source: Source, rewrite: Rewrite | None = None) -> bytes:
        """Compile a source into the disk cache; see `LiveDevice.compile_ahead`."""
        with span("compile"):
            return arranged_cubin(source, self.arch, self._cache, rewrite).code
