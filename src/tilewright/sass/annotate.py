"""The main loop as text: each line with what it costs, and one line that says what bounds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.sass.cycles import LoopCycles
from tilewright.sass.instruction import Control, Instruction
from tilewright.sass.lines import LinePairs
from tilewright.sass.loops import Loop
from tilewright.sass.ports import PortUse

__all__ = ["annotate", "notes", "verdict"]

_ADVICE = {
    "issue slots": "every issue slot is taken: only fewer instructions beside them help",
    "register ports": "operand fetch takes more cycles than there are instructions",
    "pipe": "the multiply-adds' pipe is full: this is as fast as the arithmetic goes",
    "shared wavefronts": "shared memory is too slow for the fragments: enlarge the register tile",
    "memory queue": "memory instructions queue: wider loads or larger register tiles",
    "copies": "copies take all the time: 16 bytes at once, whole lines of 128 bytes, larger tiles",
    "latency": "warps wait: load further ahead or hold more warps",
}
_LONG_STALL = 5  # an FFMA's result takes four cycles; more than that is worth a word


def verdict(cycles: LoopCycles) -> str:
    """Return one line: what bounds the loop, and what its pipe reaches by the model."""
    return (
        f"bound by {cycles.bound_by}: {cycles.cycles:.0f} cycles for a warp's trip over k, "
        f"{cycles.multiply_adds} of its {cycles.instructions} instructions are multiply-adds, "
        f"pipe {100 * cycles.pipe_share:.1f} % busy; {_ADVICE[cycles.bound_by]}"
    )


def notes(
    instruction: Instruction,
    use: PortUse | None,
    wait: int,
    wavefronts: int | None = None,
    lines: LinePairs | None = None,
) -> list[str]:
    """Return what is worth saying about one line."""
    found = []
    if wavefronts is not None:
        # A warp's own words, all different, take a pass for each 32 bits of a lane's access.
        conflict = wavefronts * 32 > (instruction.access_bits or wavefronts * 32)
        passes = "wavefront" if wavefronts == 1 else "wavefronts"
        found.append(f"{wavefronts} {passes}" + (", bank conflict" if conflict else ""))
    if lines is not None:
        crowded = f", {lines.crowded:g} crowded" if lines.crowded else ""
        found.append(f"{lines.count:g} pairs of lines{crowded}")
    if use is not None and use.cycles > 1:
        banks = "+".join(str(count) for count in use.reads)
        found.append(f"port conflict ({banks} reads, {use.cycles} cycles)")
        if use.missed_reuse:
            found.append("reuse miss")
    if instruction.control.stall > _LONG_STALL:
        found.append(f"stall {instruction.control.stall}")
    if wait:
        numbers = ",".join(str(b) for b in instruction.control.waits)
        found.append(f"wait on {numbers} ({wait} cycles alone)")
    elif instruction.control.wait_mask:
        found.append("wait on " + ",".join(str(b) for b in instruction.control.waits))
    return found


def annotate(
    loop: Loop,
    cycles: LoopCycles | None,
    wavefronts: Mapping[int, int] | None = None,
    lines: Mapping[int, LinePairs] | None = None,
) -> str:
    """Return the loop line by line: address, control, instruction, notes.

    Where the cycle model does not know the loop nothing is said of ports.
    Wavefronts of shared accesses and pairs of lines of copies are told where they are
    given, by address.
    The control column reads ``stall, Y (yields), W (write barrier), R (read
    barrier)``.
    """
    listing = []
    count = len(loop.instructions)
    ports: Sequence[PortUse | None] = (None,) * count if cycles is None else cycles.ports
    waits = (0,) * count if cycles is None else cycles.waits
    for instruction, use, wait in zip(loop.instructions, ports, waits, strict=True):
        passes = (wavefronts or {}).get(instruction.address)
        pairs = (lines or {}).get(instruction.address)
        said = "; ".join(notes(instruction, use, wait, passes, pairs))
        text = (
            f"{instruction.address:06x}  {_control(instruction.control):12s}  {instruction!s:56s}"
        )
        listing.append(f"{text}  {said}".rstrip())
    return "\n".join(listing)


def _control(control: Control) -> str:
    write = "-" if control.write_barrier is None else str(control.write_barrier)
    read = "-" if control.read_barrier is None else str(control.read_barrier)
    return f"{control.stall:2d} {'Y' if control.yields else '-'} W{write} R{read}"
