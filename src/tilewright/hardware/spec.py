"""DeviceSpec: one device's numbers.  None means unknown, never zero."""

from __future__ import annotations

from typing import Literal

from tilewright.dataclass import dataclass

__all__ = ["DeviceSpec"]


@dataclass(frozen=True)
class DeviceSpec:
    """Numbers of one device that a bound or a constraint may use.

    Sizes are in bytes, registers are 32-bit registers, rates are per second.
    A field that is None is unknown; whatever needs it says so.

    Parameters
    ----------
    name, vendor : str
        As the driver reports them.
    kind : {"gpu", "cpu"}
        A CPU runs a work-group as a loop on one core.
    multiprocessors : int
        Compute units: multiprocessors of a GPU, cores of a CPU.
    warp_size : int
        Threads that execute together; 1 on a CPU.
    max_threads_per_block : int
        Largest thread block.
    shared_bytes_per_block : int
        Shared (OpenCL: local) memory one thread block may have.
    has_fp64 : bool
        Whether double precision is supported.
    vector_bytes : int
        Width of the widest native vector: 64 with AVX-512, 16 on a GPU whose
        widest load is 128 bits.
    max_threads_per_multiprocessor, max_blocks_per_multiprocessor : int or None
        Limits of occupancy.
    registers_per_multiprocessor, max_registers_per_thread : int or None
        Limits of occupancy and of a thread.
    shared_bytes_per_multiprocessor : int or None
        A limit of occupancy.
    clock_hz : float or None
        Highest clock the driver reports.
    memory_bytes, l2_bytes : int or None
        Device memory and last shared cache.
    unified_memory : bool
        Whether the device reads the host's memory in place.
    compute_capability : int or None
        Ten times CUDA's compute capability, 90 for 9.0, where CUDA serves the device.
    """

    name: str
    vendor: str
    kind: Literal["gpu", "cpu"]
    multiprocessors: int
    warp_size: int
    max_threads_per_block: int
    shared_bytes_per_block: int
    has_fp64: bool = True
    vector_bytes: int = 16
    max_threads_per_multiprocessor: int | None = None
    registers_per_multiprocessor: int | None = None
    max_registers_per_thread: int | None = None
    shared_bytes_per_multiprocessor: int | None = None
    max_blocks_per_multiprocessor: int | None = None
    clock_hz: float | None = None
    memory_bytes: int | None = None
    l2_bytes: int | None = None
    unified_memory: bool = False
    compute_capability: int | None = None

    def __hash__(self) -> int:
        """Return what tells most devices apart: every choice of a kernel looks one up."""
        return hash((self.name, self.multiprocessors, self.compute_capability))
