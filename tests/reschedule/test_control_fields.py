"""Waits and stalls of a block in another order: proved, and planted faults are found."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from tests.sass.compiled import code_of as kernel
from tilewright.reschedule.access import access
from tilewright.reschedule.control_fields import (
    with_control_fields,
    with_stalls,
    with_waits,
)
from tilewright.reschedule.dependencies import Block, blocks, dependencies
from tilewright.reschedule.equivalence import differences
from tilewright.reschedule.hazards import Entry, entry, hazards
from tilewright.reschedule.latency import BARRIER, pace
from tilewright.reschedule.schedule import schedule
from tilewright.sass import Instruction, edit, main_loop
from tilewright.sass.edit import RefusedError

Kernel = tuple[Instruction, ...]


@functools.cache
def loop_block(name: str = "", entry_name: str | None = None) -> Block:
    """Return the block of the loop that has most instructions."""
    code = kernel(name, entry_name)
    loop = main_loop(code)
    assert loop is not None
    inside = [b for b in blocks(code) if loop.start <= 16 * b.start <= loop.end]
    return max(inside, key=lambda b: b.stop - b.start)


def with_body(body: Sequence[Instruction], name: str = "", entry_name: str | None = None) -> Kernel:
    code, block = kernel(name, entry_name), loop_block(name, entry_name)
    return (*code[: block.start], *body, *code[block.stop :])


def least_stalls(name: str = "", entry_name: str | None = None) -> list[Instruction]:
    """Return the block's instructions in their order, with the least stalls."""
    code, block = kernel(name, entry_name), loop_block(name, entry_name)
    body = code[block.start : block.stop]
    return with_stalls(body, body, entry(code, block.start), 90)


@functools.cache
def reordered() -> Kernel:
    """Return the kernel with each shared load as early as its address and waits let it."""
    block = loop_block()
    body, before = list(kernel()[block.start : block.stop]), entry(kernel(), block.start)
    order = list(body)
    for load in [x for x in body if x.mnemonic == "LDS" and x.dst]:
        earlier = list(order)
        at = earlier.index(load)
        if at < 2 or not all(access(x).pure for x in earlier[at - 2 : at]):
            continue
        earlier.insert(at - 2, earlier.pop(at))
        if _made(body, earlier, before):
            order = earlier
    return _made(body, order, before)


def _made(body: Sequence[Instruction], order: Sequence[Instruction], before: Entry) -> Kernel:
    """Return the kernel with a block in another order; empty if that is refused or not proved."""
    try:
        code = with_body(with_control_fields(body, order, before, 90))
    except RefusedError:
        return ()
    return code if not differences(kernel(), code, 90) else ()


def changed(code: Kernel, one: Instruction, **fields: Any) -> Kernel:
    """Return a kernel with some fields of one instruction set."""
    made = list(code)
    made[one.address // 16] = edit(one, 90, **fields)
    return tuple(made)


# Another order.


def test_accesses_in_other_places_are_proved_and_keep_their_order_and_barriers() -> None:
    def told(code: Kernel) -> list[tuple[object, ...]]:
        found = [one for one in code if not access(one).pure]
        return [(x.name, x.offset, x.control.write_barrier, x.control.read_barrier) for x in found]

    assert any(x.opcode != y.opcode for x, y in zip(kernel(), reordered(), strict=True))
    assert differences(kernel(), reordered(), 90) == []
    assert told(reordered()) == told(kernel())


def test_waits_for_the_old_order_are_no_more_than_the_compiler_s() -> None:
    block = loop_block()
    body = kernel()[block.start : block.stop]
    made = with_waits(body, body, entry(kernel(), block.start), 90)
    assert differences(kernel(), with_body(made), 90) == []
    count = sum(bin(x.control.wait_mask).count("1") for x in body)
    assert sum(bin(x.control.wait_mask).count("1") for x in made) <= count + 1


def test_a_reader_before_its_load_is_refused() -> None:
    """Not even waits can help: the barrier would be waited for before it is set."""
    block = loop_block()
    body = list(kernel()[block.start : block.stop])
    load = next(i for i, x in enumerate(body) if x.mnemonic == "LDS" and x.dst)
    reader = next(i for i, x in enumerate(body) if i > load and set(body[load].dst) & x.reads)
    order = [*body[:load], body[reader], *body[load:reader], *body[reader + 1 :]]
    before = entry(kernel(), block.start)
    try:
        made = with_control_fields(body, order, before, 90)
    except RefusedError:
        return
    assert differences(kernel(), with_body(made), 90)


# Planted faults.


def test_a_dropped_wait_is_found_wherever_it_is() -> None:
    found = tried = 0
    for one in reordered():
        if one.control.wait_mask and access(one).pure:
            tried += 1
            found += bool(differences(reordered(), changed(reordered(), one, wait_mask=0), 90))
    # A wait may be for what another one of the same class says too.
    assert found >= 0.8 * tried > 0


def alone(code: Kernel, load: Instruction) -> bool:
    """Whether no other access gives a load's barrier before it is waited for."""
    barrier = load.control.write_barrier
    for one in code[load.address // 16 + 1 :]:
        if barrier in one.control.waits:
            return True
        if barrier in (one.control.write_barrier, one.control.read_barrier):
            return False
    return False


def test_a_wrong_barrier_is_found() -> None:
    """But where what is waited for next says the same: that is slower, and right."""
    start, stop = loop_block().start, loop_block().stop
    loads = [x for x in reordered()[start:stop] if x.mnemonic == "LDS" and alone(reordered(), x)]
    assert loads
    found = []
    for one in loads[:6]:
        assert one.control.write_barrier is not None
        assert differences(reordered(), changed(reordered(), one, write_barrier=None), 90)
        other = (one.control.write_barrier + 1) % 6
        wrong = changed(reordered(), one, write_barrier=other)
        found.append(bool(differences(reordered(), wrong, 90)))
    assert sum(found) > len(found) / 2


def test_a_load_that_passes_a_barrier_is_found() -> None:
    code = list(kernel())
    at = next(i for i, x in enumerate(code) if x.mnemonic == "BAR" and i > 0)
    load = next(i for i in range(at + 1, len(code)) if code[i].mnemonic == "LDS" and code[i].dst)
    moved = [code[load], *code[at:load]]
    code[at : load + 1] = [edit(x, 90, address=16 * (at + i)) for i, x in enumerate(moved)]
    assert differences(kernel(), code, 90)


def test_a_stall_that_is_too_short_is_found_behind_every_producer() -> None:
    """Stalls that `with_stalls` has set are the least: with less there is a hazard."""
    body = least_stalls()
    code = with_body(body)
    assert differences(kernel(), code, 90) == []
    tried = [x for x in body if access(x).pure and x.control.stall > 4]
    for one in tried[:6]:
        assert differences(code, changed(code, one, stall=1), 90)


def test_a_barrier_that_is_waited_for_at_once_is_found() -> None:
    code = list(kernel())
    load = next(i for i, x in enumerate(code) if x.control.write_barrier is not None)
    one, following = code[load], code[load + 1]
    mask = following.control.wait_mask | 1 << (one.control.write_barrier or 0)
    code[load] = edit(one, 90, stall=BARRIER - 1)
    code[load + 1] = edit(following, 90, wait_mask=mask)
    assert any("cycles after it was set" in str(h) for h in hazards(code))


def test_two_accesses_one_after_the_other_are_kept_apart() -> None:
    pair = next(
        (x, y)
        for x, y in itertools.pairwise(kernel())
        if x.mnemonic == y.mnemonic == "LDS" and x.dst and y.dst
    )
    assert pair[0].control.stall >= 4
    assert hazards(changed(kernel(), pair[0], stall=1))


def test_stalls_become_no_longer() -> None:
    block = loop_block()
    assert sum(x.control.stall for x in least_stalls()) <= sum(
        x.control.stall for x in kernel()[block.start : block.stop]
    )


# The tensor core's doubles.


def test_doubles_of_the_matrix_unit_are_modelled() -> None:
    code = kernel("tensor", "dmma")
    assert any(one.mnemonic == "DMMA" for one in code)
    assert hazards(code) == []
    block = loop_block("tensor", "dmma")
    body = code[block.start : block.stop]
    units = [i for i, one in enumerate(body) if pace(one)]
    found = dependencies(body, 90)
    for earlier, later in itertools.pairwise(units):
        assert any(d.on == earlier and d.cycles >= 16 for d in found[later])


def test_faults_around_matrix_instructions_are_found() -> None:
    code = kernel("tensor", "dmma")
    start = loop_block("tensor", "dmma").start
    units = [x for x in code if x.mnemonic == "DMMA" and x.address >= 16 * start]
    waiting = next(x for x in units if x.control.wait_mask)
    assert differences(code, changed(code, waiting, wait_mask=0), 90)
    filler = next(x for x in code if x.address == units[0].address + 16 and x.guard.never)
    assert differences(code, changed(code, filler, stall=1), 90)


def test_stalls_around_matrix_instructions_stay_long_enough() -> None:
    code, body = kernel("tensor", "dmma"), least_stalls("tensor", "dmma")
    assert differences(code, with_body(body, "tensor", "dmma"), 90) == []


@pytest.mark.parametrize("name", ["hmma", "imma"])
def test_other_matrix_instructions_are_refused_with_the_reason(name: str) -> None:
    code = kernel("tensor", name)
    loop = main_loop(code)
    assert loop is not None
    with pytest.raises(RefusedError, match="is not modelled"):
        schedule(code, loop, 90)
