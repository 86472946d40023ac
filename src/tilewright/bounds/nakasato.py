"""The models of Nakasato (2010): bandwidth of blocking, threads against registers, transfer.

Equation 1 says what bandwidth a blocking factor b needs; it holds at every level of the memory
hierarchy with that level's own b.  Equation 2 says how many threads a register count leaves on
Cypress.  Equations 3 to 5 add the time of copying to and from the device.
"""

from __future__ import annotations

from tilewright.hardware.catalogue import CatalogueDevice
from tilewright.precision import Precision
from tilewright.problem import Problem

__all__ = [
    "SPARE_REGISTERS",
    "active_threads",
    "attainable",
    "largest_cache_block",
    "required_bandwidth",
    "size_where_link_fades",
    "tile_registers",
    "transfer_bytes",
    "transfer_rate",
]

# Section 4.2.2: the SGEMM kernel needs 20 registers for its tiles and is compiled to 25.
SPARE_REGISTERS = 25 - 20
_REGISTER_BYTES = 16  # of Cypress: 128 bits


def required_bandwidth(rate: float, b: float, element_bytes: int, flops: int = 2) -> float:
    """Return equation 1, B_GEMM = W F S, in bytes a second.

    A block of b x b elements of C in registers reads 2 b elements for b^2 multiply-adds, so
    W = 1/b words a FLOP where a multiply-add counts 2; complex ones count `flops` = 8.

    Parameters
    ----------
    rate : float
        F in FLOP/s.
    b : float
        Blocking factor; for a block of p x q elements it is 2 p q / (p + q).
    element_bytes : int
        S.
    flops : int
        Operations of a multiply-add of elements.
    """
    return 2 / (b * flops) * rate * element_bytes


def attainable(bandwidth: float, b: float, element_bytes: int, flops: int = 2) -> float:
    """Return equation 1 solved for F: the FLOP/s that `bandwidth` bytes a second can feed."""
    return bandwidth * b * flops / (2 * element_bytes)


def active_threads(registers: int, device: CatalogueDevice) -> int:
    """Return equation 2: threads on one thread processor, floor(256 / registers) x 4 on Cypress.

    Raises
    ------
    ValueError
        If the device is not described in these terms.
    """
    return int(device.needs("wave_registers")) // registers * int(device.needs("wave_threads"))


def tile_registers(b: int, precision: Precision) -> int:
    """Return 128-bit registers of a thread: C's b x b block, two stripes, and the spare ones."""

    def registers(elements: int) -> int:
        return -(-elements * precision.element_bytes // _REGISTER_BYTES)

    return registers(b * b) + 2 * registers(b) + SPARE_REGISTERS


def largest_cache_block(device: CatalogueDevice, precision: Precision) -> int:
    """Return the largest b whose registers leave two wavefronts (equation 2).

    One wavefront alone would wait for every fetch from the cache; with two, one computes.

    Raises
    ------
    ValueError
        If the device is not described in these terms.
    """
    threads = 2 * int(device.needs("wave_threads"))
    b = 1
    while active_threads(tile_registers(b + 1, precision), device) >= threads:
        b += 1
    return b


def transfer_bytes(problem: Problem, *, reads_c: bool = True) -> int:
    """Return the bytes that cross the link: A, B and C to the device, C back.

    For N x N doubles that is the paper's 32 N^2.

    Parameters
    ----------
    problem : Problem
        Its sizes and precision.
    reads_c : bool
        Whether C goes to the device too, as it must unless beta = 0.
    """
    a, b, c = problem.elements
    elements = a + b + (2 if reads_c else 1) * c
    return elements * problem.precision.element_bytes


def transfer_rate(
    problem: Problem, link: float, rate: float, *, reads_c: bool = True, overlap: bool = False
) -> float:
    """Return FLOP/s with transfer: flops / (T_comm + T_kernel), equations 3 to 5.

    Parameters
    ----------
    problem : Problem
        What is computed.
    link : float
        B_PCIe in bytes a second.
    rate : float
        F, the kernel's FLOP/s.
    reads_c : bool
        See `transfer_bytes`.
    overlap : bool
        Whether copies hide behind the kernel: then the longer of the two times counts, which
        no implementation can beat on a link of one direction at a time.
    """
    if not problem.flops:
        return 0.0
    copying, computing = transfer_bytes(problem, reads_c=reads_c) / link, problem.flops / rate
    return problem.flops / (max(copying, computing) if overlap else copying + computing)


def size_where_link_fades(
    link: float, rate: float, precision: Precision, *, reads_c: bool = True
) -> float:
    """Return the N from which square problems reach 0.9 of `rate` in spite of the link.

    From equations 3 to 5, with T_kernel = 9 T_comm.

    Parameters
    ----------
    link, rate : float
        B_PCIe in bytes a second and F in FLOP/s.
    precision : Precision
        Element size and operations.
    reads_c : bool
        See `transfer_bytes`.
    """
    matrices = 4 if reads_c else 3
    # flops N^3 / rate = 9 matrices S N^2 / link
    return 9 * matrices * precision.element_bytes / link * rate / precision.flops
