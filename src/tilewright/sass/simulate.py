"""One scheduler of a multiprocessor, cycle by cycle, running a loop in its steady state.

    warps ──> scheduler ──> register ports ──> FMA | ALU | FP64 | uniform | queue to memory
              one a cycle   Ports               pipes                         |
                                                       wavefronts, one a cycle for four schedulers

A warp may issue when its stall count has run down and the barriers that its instruction waits for
are released; the scheduler stays with the warp it served last while that one may issue, else it
takes the one that has waited longest.  What the model leaves out: misses of the instruction cache,
the time that global loads of many lines take, and how warps of one block lie on the schedulers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tilewright.sass.instruction import Instruction
from tilewright.sass.machine import Machine, latencies, machine_of, reads_wide, wavefront_cycles
from tilewright.sass.pipes import SCHEDULERS, Pipes, pipe_of
from tilewright.sass.ports import Ports

__all__ = ["simulate"]


@dataclass
class _Warp:
    """Where a warp stands: what it executes next, and from which cycle on it may."""

    block: int
    ready: float
    at: int = 0
    trips: int = 0
    released: list[float] = field(default_factory=lambda: [0.0] * 7)  # the field has three bits
    held: bool = False  # waits at a barrier of its thread block


@dataclass(frozen=True)
class _Step:
    """What the scheduler needs to know of an instruction, worked out once."""

    instruction: Instruction
    waits: tuple[int, ...]
    stall: int
    pipe: str
    occupies: float
    memory: bool
    passes: float
    latency: float
    read_latency: float
    barrier: bool
    taken: bool
    pause: float


def simulate(
    trace: Sequence[Instruction],
    arch: int,
    blocks: int,
    warps_a_block: int,
    *,
    wavefronts: Mapping[int, int] | None = None,
    machine: Machine | None = None,
    trips: int = 4,
) -> float:
    """Return the cycles that a scheduler takes for one trip of one of its warps.

    Parameters
    ----------
    trace : sequence of Instruction
        One trip of the loop, from `tilewright.sass.steady_trace`.
    arch : int
        Architecture number.
    blocks, warps_a_block : int
        Resident thread blocks of a multiprocessor, and warps of each.
    wavefronts : mapping, optional
        Wavefronts of a shared access by its address in the kernel.
    machine : Machine, optional
        The model's constants.
    trips : int
        Trips that each warp makes in the mean, 3 or more; the first is not counted.
    """
    chip = machine or machine_of(arch)
    steps = _steps(trace, arch, wavefronts or {}, chip)
    total = max(1, round(blocks * warps_a_block / SCHEDULERS))
    # Blocks drift apart while a kernel runs; here they start spread over a trip.
    apart = len(trace) * total / (2 * blocks)
    warps = [_Warp(w % blocks, (w % blocks) * apart) for w in range(total)]
    return _Scheduler(chip, steps, warps, Ports(chip.memory_apart), Pipes(), trips).run()


def _steps(
    trace: Sequence[Instruction], arch: int, known: Mapping[int, int], chip: Machine
) -> list[_Step]:
    steps = []
    for position, instruction in enumerate(trace):
        pipe, occupies = pipe_of(instruction, arch)
        following = trace[(position + 1) % len(trace)]
        memory = pipe == "memory"
        passes = wavefront_cycles(instruction, known) if memory else 0.0
        latency, read = latencies(instruction, chip)
        steps.append(
            _Step(
                instruction=instruction,
                waits=instruction.control.waits,
                stall=max(1, instruction.control.stall),
                pipe=pipe,
                occupies=occupies,
                memory=memory,
                passes=passes,
                latency=latency,
                read_latency=read,
                barrier=instruction.mnemonic == "BAR",
                taken=instruction.mnemonic == "BRA"
                and following.address != instruction.address + 16,
                pause=chip.wide_read if reads_wide(instruction) else 0.0,
            )
        )
    return steps


class _Scheduler:
    """The event loop: always the next issue, at the earliest cycle that any warp can make it."""

    def __init__(
        self,
        chip: Machine,
        steps: list[_Step],
        warps: list[_Warp],
        ports: Ports,
        pipes: Pipes,
        trips: int,
    ) -> None:
        self.chip, self.steps, self.warps = chip, steps, warps
        self.ports, self.pipes, self.trips = ports, pipes, trips
        self.shared_free = 0.0
        self.queue: list[float] = []  # when each of the last memory instructions leaves the queue
        self.queue_free = 0.0
        self.pauses = 0.0  # of wide reads, less than a cycle: what is whole was taken

    def run(self) -> float:
        """Return the mean cycles between ends of trips, once each warp could have made one."""
        now, last = 0.0, None
        first = len(self.warps)
        goal = first * (self.trips - 1)
        finished = counted = 0
        begun = 0.0
        while finished < goal:
            chosen, when = self._choose(now, last)
            step = self.steps[chosen.at]
            ended, when = self._issue(chosen, when, chosen is not last)
            finished += ended
            self.pauses, whole = math.modf(self.pauses + step.pause)
            now, last = when + 1 + int(whole), chosen
            if ended and finished == first:
                begun, counted = when, finished
        return (now - 1 - begun) / (finished - counted)

    def _choose(self, now: float, last: _Warp | None) -> tuple[_Warp, float]:
        """Stay with the last warp if it may issue now; else the one that may issue first."""
        if last is not None and not last.held:
            when = self._earliest(last)
            if when <= now:
                return last, now
        best, earliest = None, 0.0
        for warp in self.warps:
            if warp.held or warp.trips >= self.trips + 2:
                continue
            when = max(now, self._earliest(warp))
            if best is None or when < earliest or (when == earliest and warp.ready < best.ready):
                best, earliest = warp, when
        assert best is not None
        return best, earliest

    def _earliest(self, warp: _Warp) -> float:
        step = self.steps[warp.at]
        when = warp.ready
        for number in step.waits:
            when = max(when, warp.released[number])
        when = max(when, self.pipes.free(step.pipe))
        if step.memory:
            when = max(when, self.queue_free)
            waiting = len(self.queue)
            if waiting >= self.chip.queue:
                when = max(when, self.queue[waiting - self.chip.queue])
        return when

    def _issue(self, warp: _Warp, when: float, switched: bool) -> tuple[bool, int]:
        """Issue a warp's instruction; return whether that ended its trip, and the cycle."""
        step = self.steps[warp.at]
        late = self.ports.issue(step.instruction, math.ceil(when), switched)
        self.pipes.take(step.pipe, late, step.occupies)
        warp.ready = late + step.stall
        if step.taken:
            warp.ready = max(warp.ready, late + self.chip.branch)
        if step.memory:
            self._to_memory(step, warp, late)
        else:
            self._release(step, warp, late + step.latency, late + step.read_latency)
        if step.barrier:
            self._arrive(warp, late)
        warp.at += 1
        if warp.at == len(self.steps):
            warp.at = 0
            warp.trips += 1
            return True, late
        return False, late

    def _release(self, step: _Step, warp: _Warp, data: float, sources: float) -> None:
        control = step.instruction.control
        for number, when in ((control.write_barrier, data), (control.read_barrier, sources)):
            if number is not None:
                warp.released[number] = max(warp.released[number], when)

    def _to_memory(self, step: _Step, warp: _Warp, when: float) -> None:
        """Queue an access; the path serves one after another."""
        self.queue_free = when + self.chip.queue_cycles
        start = max(when, self.shared_free)
        self.shared_free = start + step.passes
        self.queue.append(start)
        if len(self.queue) > 4 * self.chip.queue:
            del self.queue[: -2 * self.chip.queue]
        served = self.shared_free
        self._release(step, warp, served + step.latency, start + step.read_latency)

    def _arrive(self, warp: _Warp, when: float) -> None:
        """Hold a warp at its block's barrier until the last one of this scheduler is there."""
        warp.held = True
        mine = [w for w in self.warps if w.block == warp.block]
        if all(w.held for w in mine):
            for other in mine:
                other.held = False
                other.ready = max(other.ready, when + self.chip.barrier)
