"""Constants of one multiprocessor that the simulation needs, and what accesses cost by them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.hardware.catalogue import catalogue_device
from tilewright.sass.instruction import Instruction
from tilewright.sass.lines import LinePairs
from tilewright.sass.pipes import SCHEDULERS

__all__ = [
    "FETCHED_BYTES",
    "Machine",
    "copy_cycles",
    "latencies",
    "machine_of",
    "reads_wide",
    "wavefront_cycles",
]

FETCHED_BYTES = {90: 64 << 10}
"""Bytes of a kernel's code that a launch brings, by architecture; others were not measured."""

# Wavefronts of an access whose lane addresses are not known: a GEMM's fragment loads share words
# between lanes, and every lane of a store writes words of its own.
_LOAD = {32: 1, 64: 1, 128: 2}
_STORE = {32: 1, 64: 2, 128: 4}


@dataclass(frozen=True)
class Machine:
    """Constants of the model, in cycles unless said otherwise, for sm_90.

    Found by a coarse search on the kernels marked "fit" in
    ``benchmarks/results/h100/cycle_model.json``; only the last choice, among four
    sets, looked at those held out too.  None is a documented number.

    Parameters
    ----------
    queue : int
        Memory instructions of a scheduler that wait for that path.
    queue_cycles : int
        Cycles between two memory instructions of a scheduler.
    shared_latency, sources_latency : int
        From the last wavefront of a load to its data; from the first one of any
        access to its source registers being free.
    global_latency : int
        From the issue of a load to its data: most of a GEMM's tiles come from L2.
    other_latency : int
        Of anything else that ends in a barrier.
    branch : int
        From a taken branch to the next instruction.
    wide_read : float
        After a shared read of 128 bits, in which its scheduler issues nothing,
        beside the read's own slot.  Not of that search: 0.7 to 1.5 a read where
        reads were taken out of SGEMM's loops, 0.7 where some were put into a
        loop of FFMA, and nothing for narrower ones.
    barrier : int
        From the last warp's arrival at a thread block's barrier to the first
        one's next instruction.
    free_pair, crowded_pair : float
        Of a multiprocessor, for a pair of lines that an asynchronous copy of 16
        bytes a lane meets (`tilewright.sass.lines`): just below the least of
        experiment copies of `tilewright microbench`, on an H100
        (``benchmarks/results/h100/microbench.json``).
    word_copy, double_copy : float
        Of a multiprocessor, for an asynchronous copy of 4 or 8 bytes a lane,
        wherever they lie: the least of the same.
    memory_apart : bool
        Whether memory instructions read their registers without the operands'
        latches, so that copies for reuse outlive them.  Not known: no.
    """

    queue: int = 4
    queue_cycles: int = 4
    shared_latency: int = 23
    sources_latency: int = 12
    global_latency: int = 400
    other_latency: int = 24
    branch: int = 24
    wide_read: float = 1.0
    barrier: int = 20
    free_pair: float = 1.05
    crowded_pair: float = 1.75
    word_copy: float = 4.3
    double_copy: float = 5.8
    memory_apart: bool = False


# Whose numbers stand for an architecture's multiprocessors.
_CATALOGUED = {90: "h100"}


@functools.cache
def machine_of(arch: int) -> Machine:
    """Return the constants for an architecture, with what the hardware catalogue says of it."""
    name = _CATALOGUED.get(arch)
    if name is None:
        return Machine()
    return Machine(memory_apart=catalogue_device(name).value("memory_apart") == 1)


def reads_wide(instruction: Instruction) -> bool:
    """Return whether an instruction is an LDS.128 that is not switched off."""
    wide = instruction.mnemonic == "LDS" and instruction.access_bits == 128
    return wide and not instruction.guard.never


def wavefront_cycles(instruction: Instruction, known: Mapping[int, int]) -> float:
    """Return the cycles that an access keeps the path to shared memory and L1, for one scheduler.

    Four schedulers share the path: what it serves for one keeps it from the
    others, which run the same loop.
    """
    if instruction.guard.never:
        return 0.0
    bits = instruction.access_bits or 32
    if instruction.mnemonic in ("LDS", "LDSM"):
        return float(SCHEDULERS * known.get(instruction.address, _LOAD.get(bits, 1)))
    if instruction.mnemonic == "STS":
        return float(SCHEDULERS * known.get(instruction.address, _STORE.get(bits, 1)))
    if instruction.mnemonic in ("LDG", "STG", "LDGSTS"):
        return float(SCHEDULERS * _STORE.get(bits, 1))  # 128 bytes a wavefront, coalesced
    return 0.0


def copy_cycles(instruction: Instruction, pairs: LinePairs | None, chip: Machine) -> float:
    """Return the cycles that a copy keeps what writes it, which four schedulers share.

    `pairs` are those of one of 16 bytes a lane, where they are known.
    """
    if instruction.mnemonic != "LDGSTS" or instruction.guard.never:
        return 0.0
    if pairs is not None:
        return SCHEDULERS * (chip.free_pair * pairs.free + chip.crowded_pair * pairs.crowded)
    single = {32: chip.word_copy, 64: chip.double_copy}
    return SCHEDULERS * single.get(instruction.access_bits or 32, 0.0)


def latencies(instruction: Instruction, chip: Machine) -> tuple[int, int]:
    """Return cycles from the end of its service to its data, and to its sources being free."""
    name = instruction.mnemonic
    if name in ("LDS", "LDSM"):
        return chip.shared_latency, chip.sources_latency
    if name in ("LDG", "LDGSTS", "LDL"):
        return chip.global_latency, chip.sources_latency
    return chip.other_latency, chip.sources_latency
