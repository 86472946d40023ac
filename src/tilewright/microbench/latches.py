"""Whether loads read their address through the operands' latches, and so end a register's reuse.

    FFMA d x.reuse b c  | g of them     x stays in the latch of slot A and its bank,
    LDS  t [address]    | then a load   b and c lie in different banks: a cycle each, if x is kept

With the address in the bank of x the load, if it reads through slot A's latch, drops the copy, and
the next FFMA has to read x again: three reads of one bank in two slots, a cycle more for each load.
With the address in the other bank nothing is dropped; without the flag every FFMA takes longer.
Both answers' cycles stand beside the measured ones (`tilewright.sass.Ports`), so that one run
decides; the last row says which is nearer.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from tilewright.backend import LiveDevice
from tilewright.microbench.experiment import Experiment, Row
from tilewright.microbench.loops import Slot, Template
from tilewright.microbench.points import Point
from tilewright.microbench.port_patterns import TRIP
from tilewright.microbench.ports import SCHEDULERS, wide_template
from tilewright.microbench.timing import LoopTimer, time_loops
from tilewright.sass import decode, find_loops, port_use, read_cubin
from tilewright.sass.decode import RZ

__all__ = ["EXPERIMENT", "Pattern", "body", "patterns", "predicted", "run", "verdict"]

_KINDS = ("LDS", "LDS.64", "LDS.128")
_GAPS = (4, 8, 16)  # multiply-adds to a load
_WAYS = ("same latch", "other bank", "other slot", "no flag")
_DECISIVE = "same latch"
_MOST_CYCLES = 3
_TAKEN = 4  # registers at the end of the list that loads write


class Pattern(NamedTuple):
    """A loop of multiply-adds with loads between.

    Parameters
    ----------
    kind : str
        Which load.
    gap : int
        Multiply-adds before each load.
    way : str
        Where the kept register lies: in the latch that the address would take
        (``same latch``), in slot A's other one, in slot B's of the address's
        bank; or ``no flag``, the first without a flag.
    """

    kind: str
    gap: int
    way: str


def patterns() -> Iterator[Pattern]:
    """Yield every loop, those that decide first."""
    ways = sorted(_WAYS, key=lambda way: way != _DECISIVE)
    for way, kind, gap in itertools.product(ways, _KINDS, _GAPS):
        yield Pattern(kind, gap, way)


def address_bank(loop: Template) -> int:
    """Return the bank of the register that a template's loads have their address in."""
    return loop.kinds["LDS"].srcs[0].value % 2


def body(loop: Template, wanted: Pattern) -> list[Slot]:
    """Return a trip: groups of multiply-adds and a load."""
    bank = address_bank(loop) ^ (wanted.way == "other bank")
    written = _written(loop, wanted.kind)
    free = [r for r in loop.registers if r not in written]
    mine, others = ([r for r in free if r % 2 == side] for side in (bank, 1 - bank))
    kept, factors, sums = mine[0], itertools.cycle(mine[1:]), itertools.cycle(others)
    found: list[Slot] = []
    while len(found) + wanted.gap < TRIP:
        for _ in range(wanted.gap):
            b, c = next(factors), next(sums)
            if wanted.way == "other slot":
                found.append(Slot("FFMA", c, b, kept, c, reuse=2))
            else:
                found.append(Slot("FFMA", c, kept, b, c, reuse=int(wanted.way != "no flag")))
        found.append(Slot(wanted.kind, written[0]))
    return [*found, *[Slot("FFMA", sum_, RZ, RZ, RZ) for sum_ in others[: TRIP - len(found)]]]


def _written(loop: Template, kind: str) -> list[int]:
    """Return registers that a load may write: side by side, and named by nothing else."""
    groups = loop.aligned(_TAKEN)
    if not groups:
        raise ValueError("the loop has no four registers side by side; use another NVRTC")
    return list(groups[-1][: {"LDS": 1, "LDS.64": 2, "LDS.128": 4}[kind]])


def predicted(loop: Template, slots: Sequence[Slot], apart: bool) -> int:
    """Return the cycles of a trip if memory instructions leave the latches alone, or if not."""
    kernel = read_cubin(loop.filled(slots).code).kernel()
    code = decode(kernel.code, kernel.arch)
    (found,) = (one for one in find_loops(code) if one.end == loop.end)
    return sum(use.cycles for use in port_use(found.instructions, apart))


def verdict(rows: Sequence[Row]) -> Row:
    """Return which answer the loops that decide are nearer to.

    What a loop takes beyond its prediction with the address in the other bank, where both answers
    agree, is taken off first: it is the loop's own.
    """
    own: dict[tuple[object, object], float] = {}
    for row in rows:
        if row.get("way") == "other bank" and "cycles_per_trip" in row:
            extra = float(row["cycles_per_trip"] or 0) - float(row["cycles_if_apart"] or 0)
            own[row["load"], row["gap"]] = extra
    found: dict[str, list[str]] = {"through the latches": [], "apart": []}
    for row in rows:
        key = (row.get("load"), row.get("gap"))
        if row.get("way") != _DECISIVE or "cycles_per_trip" not in row or key not in own:
            continue
        took = float(row["cycles_per_trip"] or 0) - own[key]
        through, apart = (float(row[f"cycles_if_{x}"] or 0) for x in ("through", "apart"))
        answer = "apart" if abs(took - apart) < abs(took - through) else "through the latches"
        found[answer].append(f"{row['load']} every {row['gap']}")
    votes = {answer: len(loops) for answer, loops in found.items()}
    if not any(votes.values()):
        return {"answer": "not decided", "why": "no loop with both controls was measured"}
    best = max(votes, key=lambda answer: votes[answer])
    against = [loop for answer, loops in found.items() if answer != best for loop in loops]
    return {
        "answer": best, "loops_for": votes[best], "loops_against": len(against),
        "which_against": ", ".join(against), "memory_apart": int(best == "apart"),
    }  # fmt: skip


def _points(timer: LoopTimer) -> Iterator[Point]:
    loop = wide_template(timer.device)

    def measure(wanted: Pattern) -> Row:
        slots = body(loop, wanted)
        through, apart = (predicted(loop, slots, apart=one) for one in (False, True))
        took = timer.time(timer.load(loop.filled(slots)), SCHEDULERS, _MOST_CYCLES * TRIP)
        return {
            "loads_per_trip": sum(slot.kind != "FFMA" for slot in slots),
            "cycles_if_through": through, "cycles_if_apart": apart,
            "cycles_per_trip": round(took.cycles, 3), "clock_hz": took.clock_hz,
        }  # fmt: skip

    for wanted in patterns():
        row: Row = {"load": wanted.kind, "gap": wanted.gap, "way": wanted.way,
                    "address_bank": "EO"[address_bank(loop)]}  # fmt: skip
        yield row, partial(measure, wanted)


def run(device: LiveDevice, emit: Callable[[Row], None], seconds: float) -> None:
    """Measure every pattern with one warp a scheduler, then say what they tell."""
    rows: list[Row] = []

    def keep(row: Row) -> None:
        rows.append(row)
        emit(row)

    time_loops(device, keep, seconds, _points)
    emit(verdict(rows))


EXPERIMENT = Experiment(
    "latches",
    "cycles of FFMA and loads by what their registers share: do loads end a reuse?",
    ("cuda",),
    run,
)
