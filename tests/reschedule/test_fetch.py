"""The numbers that searches run on say what the models on instructions say."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sass.compiled import code_of
from tests.sass.words import LDS, ffma, word
from tilewright.reschedule.fetch import cycles, flagged, op_of, slow
from tilewright.sass import Instruction, Ports, main_loop
from tilewright.sass.decode import decode_one
from tilewright.sass.machine import Machine, machine_of
from tilewright.sass.ports import port_use

Body = list[Instruction]


def loop() -> Body:
    found = main_loop(code_of())
    assert found is not None
    return list(found.instructions)


def drawn(seed: int) -> Body:
    """Return FFMAs and loads of a few registers, some flagged, some yielding, some loads."""
    draw = random.Random(seed)
    body = []
    for place in range(60):
        d, a, b, c = (draw.choice([*range(12), 255]) for _ in range(4))
        if draw.random() < 0.1:
            raw = word(LDS, 4 * (d % 3), a % 12, stall=draw.choice([1, 4]))
        else:
            raw = ffma(d, a, b, c, draw.randrange(8)).raw
            if draw.random() < 0.05:
                raw &= ~(1 << 109)  # advises the scheduler to yield
        body.append(decode_one(raw, 16 * place, 90))
    return body


def took(body: Body, apart: bool) -> int:
    """Return what `Ports` says, instruction by instruction."""
    ports, now = Ports(apart), 0
    for one in body:
        now = ports.issue(one, now) + max(1, one.control.stall)
    return ports.drained()


@settings(max_examples=60)
@given(st.integers(0, 1 << 30), st.booleans())
def test_cycles_are_those_of_the_port_rule(seed: int, apart: bool) -> None:
    body = drawn(seed)
    ops = [op_of(one, False) for one in body]
    assert cycles(ops, [op.flags for op in ops], apart) == took(body, apart)


def test_an_operand_is_kept_where_its_latch_is_next_read_for_it() -> None:
    body = [ffma(40, 2, 11, 20), ffma(41, 2, 13, 22), ffma(42, 4, 13, 24), ffma(13, 4, 13, 25)]
    ops = [op_of(one, True) for one in (*body, ffma(44, 6, 13, 27))]
    yes, no = True, False
    kept = [(yes, no, no), (no, yes, no), (yes, yes, no), (no, no, no), (no, no, no)]
    assert flagged(ops) == kept  # the last write of R13 leaves an old copy behind


def test_a_late_instruction_is_one_that_waits_for_its_operands() -> None:
    body = [ffma(40 + i, 2 * i, 10 + 2 * i, 20 + 2 * i) for i in range(4)]  # three of one bank
    ops = [op_of(one, False) for one in body]
    assert slow(ops, [op.flags for op in ops]) == [1, 2, 3]


def test_loads_that_read_apart_leave_more_copies() -> None:
    """The compiled loop fetches no slower if its loads do not touch the latches."""
    alike, apart = (sum(u.cycles for u in port_use(loop(), way)) for way in (False, True))
    assert apart <= alike


def test_the_answer_is_the_hardware_catalogue_s() -> None:
    from tilewright.hardware.catalogue import catalogue_device

    known = catalogue_device("h100").value("memory_apart")
    assert machine_of(90).memory_apart == (known == 1)
    assert machine_of(80) == Machine()


@pytest.mark.parametrize("apart", [False, True])
def test_a_load_ends_the_reuse_only_through_the_latch(apart: bool) -> None:
    """FFMA keeps R2 in slot A, a load has its address in R4, slot A: the same latch."""
    body = [ffma(41, 2, 6, 43, reuse=1), decode_one(word(LDS, 8, 4), 0, 90), ffma(45, 2, 8, 47)]
    hit = port_use(body * 4, apart)[2].hits
    assert hit == int(apart)
