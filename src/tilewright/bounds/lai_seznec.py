"""The upper bound of Lai & Seznec (2012), equations 1 to 12, for any blocking.

Symbols are the paper's (its Table 2): B_R register blocking factor, T_B threads of a block, Blk
blocks of a multiprocessor, T_SM = Blk T_B, R_T registers of a thread, R_Max and R_SM what a
thread and a multiprocessor may have, L stride of loading A and B, Sh_SM shared memory, B_Sh
blocking factor at shared memory, R_index registers for indices.  The paper treats single
precision; an element of w 32-bit words takes w registers and, if complex, 4 multiply-adds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isqrt

from tilewright.hardware.catalogue import CatalogueDevice
from tilewright.hardware.quantity import Mix, Quantity
from tilewright.precision import Precision

__all__ = [
    "R_INDEX",
    "WIDTHS",
    "Blocking",
    "best_blocking",
    "blockings",
    "derating",
    "ffma_share",
    "memory_bound",
    "sm_bound",
    "throughput",
    "tight_registers",
    "unit_throughputs",
]

# Section 4.1: 2 registers track A and B in global memory, 1 holds the loop's end, 2 and 2 track
# them in shared memory while it is filled and in the main loop.
R_INDEX = 2 + 1 + 2 + 2
WIDTHS = (32, 64, 128)  # bits of LDS, LDS.64 and LDS.128 (section 3.1)
# Strides beyond a cache line of 128 bytes bring no better coalescing and cost registers.
_STRIDES = range(1, 33)
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Blocking:
    """A choice of the paper's parameters that fits on the device, and what it can reach.

    Parameters
    ----------
    b_r, t_b, stride, width_bits : int
        B_R, T_B, L and the bits of a shared load.
    blocks : int
        Blk, blocks resident on a multiprocessor.
    registers : int
        R_T, the left side of equation 7.
    share : float
        Multiply-adds among the instructions of the main loop (Figure 1).
    throughput : float
        Thread instructions per cycle and multiprocessor (Figure 2).
    throughput_share : float
        The same as a share of what could be issued (section 3.1: 76.5 % with LDS.128).
    resource : str
        Which unit sets `throughput`.
    p_mem, p_sm : float
        Equations 10 and 11 in FLOP/s.
    """

    b_r: int
    t_b: int
    stride: int
    width_bits: int
    blocks: int
    registers: int
    share: float
    throughput: float
    throughput_share: float
    resource: str
    p_mem: float
    p_sm: float

    @property
    def b_sh(self) -> int:
        """Equation 8: the blocking factor at shared memory, sqrt(T_B B_R^2)."""
        return isqrt(self.t_b) * self.b_r

    @property
    def p_potential(self) -> float:
        """Equation 12: min(P_MemBound, P_SMBound)."""
        return min(self.p_mem, self.p_sm)


def _words(precision: Precision) -> int:
    """Return the 32-bit registers of an element."""
    return precision.element_bytes // 4


def tight_registers(
    b_r: int, t_b: int, stride: int, width_bits: int, precision: Precision, *, async_copy: bool
) -> int:
    """Return the left side of equation 7: registers of a thread that also prefetches.

    Parameters
    ----------
    b_r, t_b, stride : int
        B_R, T_B and L.
    width_bits : int
        Bits of a shared load; its destination replaces the paper's "1" (section 4.1 counts
        2 for LDS.64).
    precision : Precision
        Whose elements are held.
    async_copy : bool
        Whether blocks reach shared memory past the registers, so that prefetching takes none.
    """
    w = _words(precision)
    prefetch = 0 if async_copy else 2 * isqrt(t_b) * b_r * stride // t_b * w
    return (b_r * b_r + b_r) * w + max(w, width_bits // 32) + prefetch + R_INDEX


def ffma_share(b_r: int, width_bits: int, precision: Precision) -> float:
    """Return the share of multiply-adds in the main loop (Figure 1 and equation 11).

    B_R^2 multiply-adds meet 2 B_R loaded elements; the width of a load divides the loads.
    """
    useful = b_r * b_r * precision.flops // 2
    return useful / (useful + 2 * b_r * _words(precision) * 32 / width_bits)


def throughput(
    device: CatalogueDevice, ratio: float, width_bits: int, lane: str = "fma_lanes.s"
) -> tuple[float, str]:
    """Return equation 9: instructions a cycle when `ratio` multiply-adds meet one load.

    The units' rates decide, derated as the device's table says; see `derating`.

    Returns
    -------
    rate : float
        Thread instructions per cycle and multiprocessor.
    resource : str
        ``"issue slots"``, ``"multiply-add units"`` or ``"load/store units"``.

    Raises
    ------
    ValueError
        If a unit's rate is unknown.
    """
    rates = unit_throughputs(device, ratio, width_bits, lane)
    resource = min(rates, key=lambda name: rates[name])
    share = derating(device, ratio, width_bits) if lane == "fma_lanes.s" else 1.0
    return rates[resource] * share, resource


def derating(device: CatalogueDevice, ratio: float, width_bits: int) -> float:
    """Return the share of the units' rate that the device's table leaves a mix.

    Of the tabulated points next to `ratio`, below and above, the better one's: the bound stays
    one between them, and a tabulated mix is taken as it is.  1 without a table.
    """
    table = sorted((m.ratio, m.throughput) for m in _tabulated(device, width_bits) if m.ratio > 0)
    # Ratios come from shares, which are rounded.
    below = [p for p in table if p[0] <= ratio * (1 + _ROUNDING)]
    above = [p for p in table if p[0] >= ratio * (1 - _ROUNDING)]
    near = below[-1:] + above[:1]
    return max(
        (rate / min(unit_throughputs(device, at, width_bits).values()) for at, rate in near),
        default=1.0,
    )


def _tabulated(device: CatalogueDevice, width_bits: int) -> list[Mix]:
    """Return the points of Figure 2: every lane loads words of its own."""
    return [m for m in device.mixes if m.width_bits == width_bits and m.lanes == "conflict_free"]


def unit_throughputs(
    device: CatalogueDevice, ratio: float, width_bits: int, lane: str = "fma_lanes.s"
) -> dict[str, float]:
    """Return the mix's instructions a cycle that each unit alone would allow."""
    load_cost = width_bits / 32 / device.needs("shared_load_lanes")
    for mix in _tabulated(device, width_bits):  # loads alone, if somebody measured them
        if mix.ratio == 0:
            load_cost = 1 / mix.throughput
    rates = {
        "issue slots": device.needs("issue_lanes"),
        "load/store units": (ratio + 1) / load_cost,
    }
    if ratio > 0:
        rates["multiply-add units"] = (ratio + 1) * device.needs(lane) / ratio
    return rates


def memory_bound(bandwidth: float, b_sh: int, precision: Precision) -> float:
    """Return equation 10 in FLOP/s.

    The paper's #GlobalMem_bandwidth * B_Sh counts bandwidth in elements: a step of a block
    reads 2 B_Sh elements for B_Sh^2 multiply-adds of `precision.flops` operations.

    Parameters
    ----------
    bandwidth : float
        Bytes a second.
    b_sh : int
        Equation 8.
    precision : Precision
        Whose elements are read.
    """
    return bandwidth / precision.element_bytes * b_sh * precision.flops / 2


def sm_bound(share: float, throughput: float, lanes: float, p_theoretical: float) -> float:
    """Return equation 11 in FLOP/s.

    Of `throughput` instructions a cycle `share` are multiply-adds, and the units take `lanes`
    of those.  Where issue slots equal lanes, as on Fermi, that is the paper's product of the
    multiply-adds' share and the throughput's.
    """
    return min(1.0, share * throughput / lanes) * p_theoretical


def best_blocking(device: CatalogueDevice, precision: Precision, p_theoretical: float) -> Blocking:
    """Return the blocking with the largest P_potential; ties go to the largest B_Sh.

    Raises
    ------
    ValueError
        If a number of the device is unknown, or no blocking fits.
    """
    found = list(blockings(device, precision, p_theoretical))
    if not found:
        raise ValueError(f"precision={precision} has no blocking that fits on {device.id}")
    # Of equals (to a FLOP/s: the rest is rounding), as the paper chooses: two blocks at least,
    # so that one computes while another waits at its barrier; then the largest B_Sh; then the
    # largest L, which has the fewest barriers; then the narrowest load.
    return max(
        found,
        key=lambda b: (round(b.p_potential), b.blocks >= 2, b.b_sh, b.stride, -b.width_bits),
    )


def blockings(
    device: CatalogueDevice, precision: Precision, p_theoretical: float
) -> Iterator[Blocking]:
    """Yield every blocking that satisfies equations 1 to 7.

    Parameters
    ----------
    device : CatalogueDevice
        Its registers, threads, shared memory, units and memory bandwidth must be known.
    precision : Precision
        Of the problem.
    p_theoretical : float
        Peak in FLOP/s.

    Raises
    ------
    ValueError
        If a number is unknown; the message names it.
    """
    bandwidth = device.needs("memory_bytes_per_s")
    lane = f"fma_lanes.{'s' if precision.real_bytes == 4 else 'd'}"
    copies = device.value("async_copy") == 1
    for b_r, t_b, stride, width in _candidates(device):
        registers = tight_registers(b_r, t_b, stride, width, precision, async_copy=copies)
        blocks = _resident(device, b_r, t_b, stride, registers, precision)
        if blocks == 0:
            continue
        share = ffma_share(b_r, width, precision)
        rate, resource = throughput(device, share / (1 - share), width, lane)
        b_sh = isqrt(t_b) * b_r
        p_mem = memory_bound(bandwidth, b_sh, precision)
        p_sm = sm_bound(share, rate, device.needs(lane), p_theoretical)
        rate_share = rate / device.needs("issue_lanes")
        yield Blocking(
            b_r, t_b, stride, width, blocks, registers, share, rate, rate_share, resource,
            p_mem, p_sm,
        )  # fmt: skip


def _resident(
    device: CatalogueDevice, b_r: int, t_b: int, stride: int, registers: int, precision: Precision
) -> int:
    """Return Blk, or 0 where equations 1, 2, 3 or 6 fail."""
    if registers > device.needs("max_registers_per_thread"):  # (2)
        return 0
    shared = 2 * isqrt(t_b) * b_r * stride * precision.element_bytes
    blocks = min(
        int(device.needs("registers_per_multiprocessor")) // (t_b * registers),  # (3)
        int(device.needs("shared_bytes_per_multiprocessor")) // shared,  # (6)
        int(device.value("max_blocks_per_multiprocessor") or 1 << 30),
        int(device.value("max_threads_per_multiprocessor") or 1 << 30) // t_b,
    )
    return blocks if blocks * t_b >= least_threads(device) else 0


def least_threads(device: CatalogueDevice) -> float:
    """Return the right side of equation 1; 1 where the pipeline's latency is unknown.

    #Issue_latency follows from the units: a scheduler's share of them takes a warp in
    warp_size * schedulers / lanes cycles, at least one.
    """
    latency, schedulers = device.value("pipeline_latency"), device.value("schedulers")
    if latency is None or schedulers is None:
        return 1.0
    warp = device.needs("warp_size")
    return warp * latency / max(1.0, warp * schedulers / device.needs("fma_lanes.s"))


def _candidates(device: CatalogueDevice) -> Iterator[tuple[int, int, int, int]]:
    """Yield (B_R, T_B, L, bits): square blocks of whole warps that satisfy equation 5."""
    warp = int(device.needs("warp_size"))
    largest = isqrt(int(device.needs("max_registers_per_thread")))  # C's tile alone fills them
    for side in range(1, isqrt(int(device.needs("max_threads_per_block"))) + 1):
        t_b = side * side
        if t_b % warp:
            continue
        for b_r in range(1, largest + 1):
            for stride in _STRIDES:
                if side * b_r * stride % t_b == 0:  # (5)
                    yield from ((b_r, t_b, stride, width) for width in WIDTHS)


def inputs_of(blocking: Blocking) -> tuple[Quantity, ...]:
    """Return a blocking's parameters as inputs of a term."""
    searched = "best of all that equations 1 to 7 allow"
    return (
        Quantity("B_R", blocking.b_r, "", searched),
        Quantity("T_B", blocking.t_b, "threads", searched),
        Quantity("L", blocking.stride, "", searched),
        Quantity("width", blocking.width_bits, "bit", searched),
        Quantity("Blk", blocking.blocks, "", "equations 3 and 6"),
        Quantity("R_T", blocking.registers, "", "equation 7"),
        Quantity("B_Sh", blocking.b_sh, "", "equation 8"),
    )
