"""What asks the copy engine for boxes: its instructions hold registers until a barrier says so.

The kernel is an SGEMM whose warps wait at barriers in shared memory (SYNCS) and ask for boxes
(UTMALDG) within the loop over k, where multiply-adds soon overwrite what these still read.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from tests.sass.compiled import boxed, cubin
from tilewright.reschedule.access import UNIFORM, access
from tilewright.reschedule.dependencies import dependencies
from tilewright.reschedule.equivalence import differences
from tilewright.reschedule.hazards import entry, hazards
from tilewright.reschedule.latency import GUARD, needed
from tilewright.reschedule.schedule import schedule
from tilewright.sass import Instruction, decode, edit, find_loops, main_loop, read_cubin

Kernel = tuple[Instruction, ...]


@functools.cache
def kernel(data: bytes) -> Kernel:
    found = read_cubin(data).kernels[0]
    return decode(found.code, found.arch)


def without_wait(code: Kernel, one: Instruction, barrier: int) -> Kernel:
    """Return a kernel one of whose instructions no longer waits for a barrier."""
    made, at = list(code), one.address // 16
    made[at] = edit(one, 90, wait_mask=one.control.wait_mask & ~(1 << barrier))
    return tuple(made)


def released(code: Kernel, kind: str) -> Iterator[tuple[Instruction, Instruction, int]]:
    """Yield accesses of a class, who overwrites what they read, and the barrier it waits for."""
    for at, one in enumerate(code):
        barrier = one.control.read_barrier
        if access(one).kind != kind or barrier is None:
            continue
        holds = {*one.reads, *(UNIFORM + r for r in one.ureads)}
        later = next((x for x in code[at + 1 :] if access(x).writes & holds), None)
        if later is not None and barrier in later.control.waits:
            yield one, later, barrier


def test_compiled_kernels_have_no_hazard() -> None:
    assert {one.mnemonic for one in kernel(boxed()) if access(one).kind == "engine"} == {
        "SYNCS", "UTMALDG", "FENCE",
    }  # fmt: skip
    assert hazards(kernel(boxed())) == []


def test_latencies_are_those_that_the_compiler_left() -> None:
    """Each distance occurs, and none that the compiler left is shorter."""
    seen: dict[tuple[str, str, str], int] = {}

    def observe(producer: str, consumer: str, how: str, cycles: int) -> None:
        what = producer, consumer, how
        seen[what] = min(cycles, seen.get(what, cycles))

    hazards(kernel(boxed()), observe)
    for what, cycles in seen.items():
        assert needed(*what) <= cycles, what
    assert seen["alu", "engine", "read"] == needed("alu", "engine", "read")
    assert seen["uniform", "engine", "read"] == needed("uniform", "engine", "read")
    assert seen["elect", "order", "guard"] == GUARD
    # UMOV UR10 behind USEL UR4, UR10: one cycle less was wrong on an H100, in every product.
    assert seen["uniform", "uniform move", "overwrite"] == 3


def test_a_move_waits_for_who_reads_late() -> None:
    """A stall that keeps UMOV three cycles behind an instruction of the uniform pipe is needed."""
    code, found = kernel(boxed()), 0
    for at, (one, behind, move) in enumerate(zip(code, code[1:], code[2:], strict=False)):
        near = one.control.stall + behind.control.stall == 3
        late = access(one).kind == "uniform" and access(move).kind == "uniform move"
        if late and near and one.ureads & set(move.udst):
            longer = one if one.control.stall > 1 else behind
            made = list(code)
            made[at + (longer is behind)] = edit(longer, 90, stall=longer.control.stall - 1)
            early = [x for x in hazards(tuple(made)) if x.address == move.address]
            assert any("2 cycles after it was read" in x.reason for x in early)
            # Who reorders keeps the distance, and so does who begins a block with the move.
            (needs,) = (d.cycles for d in dependencies(code[at : at + 3], 90)[2] if d.on == 0)
            assert needs == 3
            read_ago = entry(code, at + 2).read_ago[UNIFORM + move.udst[0]]
            assert ("uniform", 3) in read_ago
            found += 1
    assert found


def test_what_is_still_read_may_not_be_overwritten() -> None:
    """Such as FFMA R10 behind @P0 SYNCS [R10+UR8]: sums were wrong now and then on an H100."""
    code, found = kernel(boxed()), set()
    for one, later, barrier in released(code, "engine"):
        early = [x for x in hazards(without_wait(code, later, barrier)) if x.address >= one.address]
        assert early, (one, later)
        assert all("before a engine access read it" in x.reason for x in early)
        found.add((one.mnemonic, later.mnemonic))
    assert {"SYNCS", "UTMALDG"} <= {mnemonic for mnemonic, _ in found}


def test_whether_a_barrier_was_met_is_waited_for() -> None:
    """The predicate that says whether a barrier was met: SYNCS P0; @!P0 BRA."""
    code = kernel(boxed())
    tried = [x for x in code if x.mnemonic == "SYNCS" and x.dst_predicates]
    assert tried
    for one in tried:
        barrier = one.control.write_barrier
        assert barrier is not None
        following = code[one.address // 16 + 1 :]
        branch = next(x for x in following if barrier in x.control.waits)
        made = without_wait(code, branch, barrier)
        assert any(x.address == branch.address for x in hazards(made))


def test_an_instruction_that_is_not_modelled_holds_its_registers_too() -> None:
    """UBLKCP, whose operands are known and whose time is not."""
    code = kernel(cubin("bulk", "sm_90a"))
    before, pairs = set(hazards(code)), list(released(code, "unknown"))
    assert pairs
    for _, later, barrier in pairs:
        more = set(hazards(without_wait(code, later, barrier))) - before
        assert any("before a unknown access read it" in x.reason for x in more)


def test_waiting_once_more_is_no_loop_of_what_waits() -> None:
    """Compilers put it behind the kernel's end; its branch back leads into the loop over k."""
    code = kernel(boxed())
    back = {x.address: x.target for x in code if x.mnemonic == "BRA" and x.target is not None}
    back = {at: target for at, target in back.items() if target < at}
    loops = find_loops(code)
    left_out = set(back) - {loop.end for loop in loops}
    assert left_out
    main = main_loop(code)
    assert main is not None
    assert main.useful == 4 * 8 * 4
    assert main.end < min(left_out)
    assert any(main.start < back[at] < main.end for at in left_out)


def test_a_rescheduled_loop_is_proved() -> None:
    code = kernel(boxed())
    loop = main_loop(code)
    assert loop is not None
    made = schedule(code, loop, 90, rounds=1)
    assert made.moved
    assert made.renamed
    assert hazards(made.instructions) == []
    assert differences(code, made.instructions, 90) == []


def test_a_rescheduled_loop_without_a_wait_is_refused() -> None:
    """What moved waits for what it overwrites, wherever it stands now."""
    code = kernel(boxed())
    loop = main_loop(code)
    assert loop is not None
    made = schedule(code, loop, 90, rounds=1).instructions
    pairs = [p for p in released(made, "engine") if loop.start <= p[0].address <= loop.end]
    assert pairs
    for _, later, barrier in pairs:
        assert differences(code, without_wait(made, later, barrier), 90)
