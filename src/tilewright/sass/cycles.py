"""A static model of the main loop: cycles an iteration, and what sets them.

The loop takes the largest of these terms, each in cycles of one of a multiprocessor's four
schedulers for one iteration of one of its warps:

- *issue*: one cycle an instruction;
- *ports*: the same, with operand fetch conflicts by a `PortRule`;
- *pipe*: the multiply-adds' pipe, from lanes a scheduler;
- *shared*: wavefronts, one a cycle for the four schedulers together;
- *memory queue*: memory instructions, one every `QUEUE_CYCLES` a scheduler;
- *latency*: an iteration of one warp alone, stalls and barriers kept, over the warps there are.

Measured for the project on an H100: FFMA-only loops by port rule (see `tilewright.sass.ports`).
Read: throughputs, in the CUDA C++ Programming Guide's table "Throughput of Native Arithmetic
Instructions".  Assumed: `QUEUE_CYCLES`, latencies, broadcast fragment loads.  The model is not yet
calibrated against measured kernels; it says what bounds a loop, not how fast it runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tilewright.sass.instruction import Instruction
from tilewright.sass.loops import Loop, is_useful
from tilewright.sass.ports import PortRule, PortUse, TwoBanks

__all__ = ["LoopCycles", "loop_cycles", "pipe_cycles"]

SCHEDULERS = 4
QUEUE_CYCLES = 2  # assumed: address and data take the path to the memory pipes in halves of a warp
MEMORY = frozenset(
    ("LDS", "LDSM", "STS", "LDG", "STG", "LDGSTS", "LDL", "STL", "LDC", "ATOMG", "SHFL")
)
SHARED = frozenset(("LDS", "LDSM", "STS"))
# Wavefronts of a fragment load whose lane addresses are not given: a GEMM's lanes share rows and
# columns, so that a warp reads few different words (assumed).
_BROADCAST = {32: 1, 64: 1, 128: 2}
_FULL_STORE = {32: 1, 64: 2, 128: 4}  # a store writes a different word for every lane
# Cycles from issue to a released barrier, assumed: of the order that microbenchmarks published
# for sm_70 to sm_90 report.
_LATENCY = {"LDS": 29, "LDSM": 33, "STS": 20, "LDG": 500, "LDGSTS": 500, "LDC": 40, "LDL": 40}
_OTHER_LATENCY = 20
# FP32 lanes of a multiprocessor (Programming Guide); a quarter of it is a scheduler's.
_FP32_LANES = {70: 64, 75: 64, 80: 64}
_FP64_LANES = {70: 32, 80: 32, 90: 64, 100: 64, 103: 64}


@dataclass(frozen=True)
class LoopCycles:
    """The model's answer for one loop.

    Parameters
    ----------
    terms : dict
        Cycles an iteration by what sets them.
    useful : int
        Cycles that the multiply-adds keep their pipe busy.
    ports : list of PortUse
        Operand fetch, instruction by instruction.
    waits : list of int
        Cycles that each instruction waits for a barrier in a warp running alone.
    rule : str
        Name of the port rule.
    """

    terms: dict[str, float]
    useful: float
    ports: list[PortUse] = field(repr=False)
    waits: list[int] = field(repr=False)
    rule: str

    @property
    def cycles(self) -> float:
        """Cycles an iteration: the largest term."""
        return max(self.terms.values())

    @property
    def bound_by(self) -> str:
        """The term that sets the cycles; of equal ones the first."""
        return max(self.terms, key=lambda name: self.terms[name])

    @property
    def pipe_share(self) -> float:
        """Share of the cycles in which the multiply-adds' pipe is busy, 0 to 1."""
        return self.useful / self.cycles


def pipe_cycles(instruction: Instruction, arch: int) -> float | None:
    """Return the cycles a multiply-add occupies its pipe; None where that is not known here."""
    if instruction.mnemonic == "FFMA":
        return 32 * SCHEDULERS / _FP32_LANES.get(arch, 128)
    if instruction.mnemonic == "FFMA2":
        return 2 * 32 * SCHEDULERS / 128
    if instruction.mnemonic == "DFMA":
        return 32 * SCHEDULERS / _FP64_LANES.get(arch, 2)
    return None


def loop_cycles(
    loop: Loop,
    arch: int,
    warps: int,
    *,
    rule: PortRule | None = None,
    wavefronts: Mapping[int, int] | None = None,
) -> LoopCycles:
    """Return the static model's cycles for one iteration of a loop.

    Parameters
    ----------
    loop : Loop
        As `tilewright.sass.main_loop` gives it.
    arch : int
        Architecture number.
    warps : int
        Warps that each scheduler holds, 1 or more.
    rule : PortRule, optional
        How operand fetch costs cycles; `TwoBanks` by default.
    wavefronts : mapping, optional
        Wavefronts of a shared access by its address in the kernel, from
        `tilewright.sass.wavefronts`; loads are taken as broadcasts and stores
        as free of conflicts where it says nothing.

    Raises
    ------
    ValueError
        If `warps` is below 1.
    """
    if warps < 1:
        raise ValueError(f"warps={warps} cannot issue anything; give 1 or more for each scheduler")
    rule = rule or TwoBanks()
    body = loop.instructions
    ports = rule.walk(body)
    waits, alone = _alone(body)
    pipes = [pipe_cycles(i, arch) or 1.0 for i in body if is_useful(i)]
    passes = sum(_wavefronts(i, wavefronts or {}) for i in body)
    queued = sum(i.mnemonic in MEMORY and not i.guard.never for i in body)
    issue = float(len(body))
    terms = {
        "issue slots": issue,
        "pipe": sum(pipes),
        "shared wavefronts": float(SCHEDULERS * passes),
        "memory queue": float(QUEUE_CYCLES * queued),
        "latency": alone / warps,
    }
    conflicted = float(sum(use.cycles for use in ports))
    if conflicted > issue:
        terms["register ports"] = conflicted
    return LoopCycles(terms, sum(pipes), ports, waits, rule.name)


def _wavefronts(instruction: Instruction, known: Mapping[int, int]) -> int:
    if instruction.mnemonic not in SHARED or instruction.guard.never:
        return 0
    if instruction.address in known:
        return known[instruction.address]
    if instruction.mnemonic == "LDSM":  # one pass for each 8 x 8 matrix of 16-bit elements
        return len(instruction.dst)
    table = _FULL_STORE if instruction.mnemonic == "STS" else _BROADCAST
    return table.get(instruction.access_bits or 32, 1)


def _alone(body: Sequence[Instruction]) -> tuple[list[int], int]:
    """Run one warp alone, in order: waits of each instruction, and cycles an iteration.

    The second of two iterations counts, so that loads issued in the first
    have their consumers.
    """
    ready = [0] * 6
    now, start = 0, 0
    waits = [0] * len(body)
    for _ in range(2):
        start = now
        for index, instruction in enumerate(body):
            control = instruction.control
            until = max((ready[b] for b in control.waits), default=0)
            waits[index] = max(0, until - now)
            now += waits[index]
            latency = _LATENCY.get(instruction.mnemonic, _OTHER_LATENCY)
            for barrier in (control.write_barrier, control.read_barrier):
                if barrier is not None and barrier < len(ready):
                    done = latency if barrier == control.write_barrier else _OTHER_LATENCY
                    ready[barrier] = max(ready[barrier], now + done)
            now += max(1, control.stall)
    return waits, now - start
