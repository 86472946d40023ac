"""How many warps fit on a multiprocessor, and which resource says no to more.

Limits are from the CUDA C++ Programming Guide's table "Technical Specifications per Compute
Capability" and granularities from NVIDIA's ``cuda_occupancy.h`` (CUDA 13.0): registers are
allocated to a warp in units of 256 and a warp lives in one of four partitions; shared memory is
allocated in units of 128 bytes since sm_80 (256 before), which adds 1 KiB a block for the system.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Limits", "Occupancy", "limits_of", "occupancy"]

WARP = 32
PARTITIONS = 4
REGISTER_UNIT = 256  # registers of a warp come in these
MAX_THREADS = 1024
MAX_REGISTERS = 255


@dataclass(frozen=True)
class Limits:
    """What one multiprocessor of an architecture holds.

    Parameters
    ----------
    warps, blocks : int
        Most warps and thread blocks at a time.
    shared_bytes, shared_bytes_per_block : int
        Largest shared memory, of the multiprocessor and of one block.
    registers : int
        32-bit registers.
    shared_unit, shared_reserved : int
        Unit of allocation, and bytes a block that the system keeps.
    """

    warps: int
    blocks: int
    shared_bytes: int
    shared_bytes_per_block: int
    registers: int = 65536
    shared_unit: int = 128
    shared_reserved: int = 1024


def _kib(warps: int, blocks: int, shared: int) -> Limits:
    """Limits since sm_80: a block may have all shared memory but the reserved KiB."""
    return Limits(warps, blocks, shared * 1024, (shared - 1) * 1024)


_LIMITS = {
    70: Limits(64, 32, 96 * 1024, 96 * 1024, shared_unit=256, shared_reserved=0),
    75: Limits(32, 16, 64 * 1024, 64 * 1024, shared_unit=256, shared_reserved=0),
    80: _kib(64, 32, 164),
    86: _kib(48, 16, 100),
    87: _kib(48, 16, 164),
    89: _kib(48, 24, 100),
    90: _kib(64, 32, 228),
    100: _kib(64, 32, 228),
    103: _kib(64, 32, 228),
    110: _kib(48, 24, 228),
    120: _kib(48, 24, 100),
    121: _kib(48, 24, 100),
}


@dataclass(frozen=True)
class Occupancy:
    """Blocks and warps that a multiprocessor holds of one kernel.

    Parameters
    ----------
    blocks, warps : int
        At a time; 0 where not even one block fits.
    max_warps : int
        What the architecture could hold.
    limited_by : str
        ``"registers"``, ``"shared memory"``, ``"warps"`` or ``"blocks"``.
    limits : dict
        Blocks that each of the four would allow.
    """

    blocks: int
    warps: int
    max_warps: int
    limited_by: str
    limits: dict[str, int]

    @property
    def fraction(self) -> float:
        """Warps as a share of the most."""
        return self.warps / self.max_warps


def limits_of(arch: int) -> Limits:
    """Return an architecture's limits.

    Raises
    ------
    ValueError
        If the architecture is not in the table.
    """
    if arch not in _LIMITS:
        known = ", ".join(f"sm_{a}" for a in _LIMITS)
        raise ValueError(f"arch=sm_{arch} has no occupancy limits here; known are {known}")
    return _LIMITS[arch]


def occupancy(arch: int, threads: int, registers: int, shared_bytes: int = 0) -> Occupancy:
    """Return how many blocks of a kernel a multiprocessor holds.

    Parameters
    ----------
    arch : int
        Architecture number, such as 90.
    threads : int
        Threads a block, 1 to 1024.
    registers : int
        Registers a thread, 0 to 255.
    shared_bytes : int
        Static and dynamic shared memory of a block, without what the system
        reserves.

    Raises
    ------
    ValueError
        If an argument is out of range or the architecture unknown.
    """
    limits = limits_of(arch)
    if not 1 <= threads <= MAX_THREADS:
        raise ValueError(f"threads={threads} is no block size; give 1 to {MAX_THREADS}")
    if not 0 <= registers <= MAX_REGISTERS:
        raise ValueError(f"registers={registers} is out of range; give 0 to {MAX_REGISTERS}")
    warps = -(-threads // WARP)
    allowed = {
        "warps": limits.warps // warps,
        "blocks": limits.blocks,
        "registers": _by_registers(limits, warps, registers),
        "shared memory": _by_shared(limits, shared_bytes),
    }
    tightest = min(allowed, key=lambda name: allowed[name])
    blocks = allowed[tightest]
    return Occupancy(blocks, blocks * warps, limits.warps, tightest, allowed)


def _by_registers(limits: Limits, warps: int, registers: int) -> int:
    """Blocks that the register files hold: each partition takes whole warps."""
    if not registers:
        return limits.blocks
    per_warp = -(-registers * WARP // REGISTER_UNIT) * REGISTER_UNIT
    per_partition = limits.registers // PARTITIONS // per_warp
    if -(-warps // PARTITIONS) > per_partition:  # the fullest partition cannot take its share
        return 0
    return per_partition * PARTITIONS // warps


def _by_shared(limits: Limits, shared_bytes: int) -> int:
    if shared_bytes > limits.shared_bytes_per_block:
        return 0
    needed = shared_bytes + limits.shared_reserved
    per_block = -(-needed // limits.shared_unit) * limits.shared_unit
    return limits.shared_bytes // per_block if per_block else limits.blocks
