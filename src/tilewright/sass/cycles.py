"""A static model of the loop over k: cycles a trip, and what sets them.

The loop's steady state (`tilewright.sass.trace`) is run on one scheduler with the warps that are
resident (`tilewright.sass.simulate`).  Beside the cycles that this takes stand the least that each
resource alone would take, for one trip of one warp on one of a multiprocessor's schedulers:

- *issue slots*: one cycle an instruction;
- *register ports*: the same, with the conflicts of operand fetch (`tilewright.sass.ports`);
- *pipe*: the multiply-adds' pipe, from lanes a scheduler;
- *shared wavefronts*: one a cycle for the four schedulers together;
- *memory queue*: memory instructions of a scheduler;
- *copies*: asynchronous copies to shared memory, by the lines that they meet
  (`tilewright.sass.lines`) or, of single elements, by their number, for the four schedulers
  together.  The simulation does not know this: a trip takes as long as they do at least.

Where the trip takes much longer than any of them, its warps wait: that is *latency*.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tilewright.sass.instruction import Instruction
from tilewright.sass.lines import LinePairs
from tilewright.sass.loops import Loop, is_useful
from tilewright.sass.machine import Machine, copy_cycles, latencies, machine_of, wavefront_cycles
from tilewright.sass.pipes import pipe_of
from tilewright.sass.ports import PortUse, port_use
from tilewright.sass.simulate import simulate
from tilewright.sass.trace import k_loop, steady_trace

__all__ = ["LoopCycles", "loop_cycles"]

# A trip so much longer than its largest term is not set by it: the simulated cycles of kernels
# that Nsight Compute shows waiting start about there.
_WAITING = 1.15

# Trips that are simulated.  Where instructions keep their pipe for long (DMMA), warps end their
# trips in bunches, and what is begun at the end of few trips counts for some percent.
_TRIPS, _TRIPS_OF_LONG = 4, 24


@dataclass(frozen=True)
class LoopCycles:
    """The model's answer for one loop.

    Parameters
    ----------
    terms : dict
        Least cycles a trip by what sets them.
    cycles : float
        Cycles that a trip takes a scheduler: simulated, or those of its copies' lines.
    useful : float
        Cycles of these in which the multiply-adds keep their pipe busy.
    instructions, multiply_adds : int
        Of one trip of the loop over k.
    ports : list of PortUse
        Operand fetch in the main loop, instruction by instruction.
    waits : list of int
        Cycles that each instruction of the main loop waits for a barrier in a
        warp running alone.
    """

    terms: dict[str, float]
    cycles: float
    useful: float
    instructions: int
    multiply_adds: int
    ports: list[PortUse] = field(repr=False)
    waits: list[int] = field(repr=False)

    @property
    def bound_by(self) -> str:
        """The largest term, of equal ones the first; latency where none explains the cycles."""
        largest = max(self.terms, key=lambda name: self.terms[name])
        return largest if self.cycles <= _WAITING * self.terms[largest] else "latency"

    @property
    def pipe_share(self) -> float:
        """Share of the cycles in which the multiply-adds' pipe is busy, 0 to 1."""
        return self.useful / self.cycles


def loop_cycles(
    instructions: Sequence[Instruction],
    loop: Loop,
    arch: int,
    blocks: int,
    warps: int,
    *,
    wavefronts: Mapping[int, int] | None = None,
    lines: Mapping[int, LinePairs] | None = None,
    machine: Machine | None = None,
) -> LoopCycles:
    """Return the static model's cycles for one trip of the loop over k.

    Parameters
    ----------
    instructions : sequence of Instruction
        The whole kernel.
    loop : Loop
        Its main loop, as `tilewright.sass.main_loop` gives it.
    arch : int
        Architecture number.
    blocks, warps : int
        Resident thread blocks of a multiprocessor, and warps of each; 1 or more.
    wavefronts : mapping, optional
        Wavefronts of a shared access by its address in the kernel, from
        `tilewright.sass.loop_accesses`; loads are taken as broadcasts and
        stores as free of conflicts where it says nothing.
    lines : mapping, optional
        Pairs of lines of an asynchronous copy of 16 bytes a lane, likewise; one that
        it says nothing of costs none.
    machine : Machine, optional
        The model's constants.
    """
    known, lines = wavefronts or {}, lines or {}
    chip = machine or machine_of(arch)
    trace = steady_trace(instructions, k_loop(instructions, loop))
    useful = sum(pipe_of(i, arch)[1] for i in trace if is_useful(i))
    queued = sum(pipe_of(i, arch)[0] == "memory" for i in trace)
    terms = {
        "issue slots": float(len(trace)),
        "pipe": useful,
        "shared wavefronts": sum(wavefront_cycles(i, known) for i in trace),
        "memory queue": float(chip.queue_cycles * queued),
    }
    copied = sum(copy_cycles(i, lines.get(i.address), chip) for i in trace)
    if copied:
        terms["copies"] = copied
    conflicted = float(sum(use.cycles for use in port_use(trace, chip.memory_apart)))
    if conflicted > terms["issue slots"]:
        terms["register ports"] = conflicted
    trips = _TRIPS_OF_LONG if useful > 2 * len(trace) else _TRIPS
    simulated = simulate(trace, arch, blocks, warps, wavefronts=known, machine=chip, trips=trips)
    return LoopCycles(
        terms,
        max(simulated, copied),
        useful,
        len(trace),
        sum(is_useful(i) for i in trace),
        port_use(loop.instructions, chip.memory_apart),
        _alone(loop.instructions, chip),
    )


def _alone(body: Sequence[Instruction], chip: Machine) -> list[int]:
    """Run one warp alone, in order: the cycles that each instruction waits for barriers.

    The second of two trips counts, so that loads issued in the first have
    their consumers.
    """
    ready = [0] * 6
    now = 0
    waits = [0] * len(body)
    for _ in range(2):
        for index, instruction in enumerate(body):
            control = instruction.control
            until = max((ready[b] for b in control.waits), default=0)
            waits[index] = max(0, until - now)
            now += waits[index]
            data, sources = latencies(instruction, chip)
            for barrier, done in ((control.write_barrier, data), (control.read_barrier, sources)):
                if barrier is not None and barrier < len(ready):
                    ready[barrier] = max(ready[barrier], now + done)
            now += max(1, control.stall)
    return waits
