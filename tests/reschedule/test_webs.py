"""Live ranges: what they are, and that the prover follows them into other registers."""

from __future__ import annotations

import functools

import pytest

from tests.sass.compiled import code_of as kernel
from tilewright.reschedule.equivalence import differences
from tilewright.reschedule.webs import Webs, find_webs, registers_of
from tilewright.sass import Instruction, RefusedError, edit, main_loop

Kernel = tuple[Instruction, ...]


@functools.cache
def webs(name: str = "") -> Webs:
    return find_webs(kernel(name))


# Live ranges.


def test_each_register_that_is_named_has_one_web_there() -> None:
    found = webs()
    for index, one in enumerate(kernel()):
        if not one.guard.never:
            assert found.reads[index].keys() == one.reads
            assert found.writes[index].keys() == set(one.dst)
            for register, web in (*found.reads[index].items(), *found.writes[index].items()):
                assert found.register[web] == register


def test_a_wide_operand_is_one_body() -> None:
    found = webs()
    for index, one in enumerate(kernel()):
        if one.mnemonic == "LDS" and one.access_bits == 128 and one.dst:
            assert len({found.body[found.writes[index][r]] for r in one.dst}) == 1


def test_sums_and_their_successors_are_webs_of_their_own() -> None:
    """A sum's register before an FFMA and after it need not be the same one."""
    found = webs()
    index, one = next(
        (i, x) for i, x in enumerate(kernel()) if x.mnemonic == "FFMA" and x.dst[0] in x.reads
    )
    r = one.dst[0]
    assert found.reads[index][r] != found.writes[index][r] or found.reads[index][r] in {
        w for names in found.reads for w in names.values()
    }


def test_a_kernel_that_is_not_modelled_is_refused() -> None:
    with pytest.raises(RefusedError, match="is not modelled: no renaming"):
        find_webs(kernel("tensor"))


# In other registers.


def renamed(web: int, register: int) -> list[Instruction]:
    """Return the kernel with a web of single registers in another register."""
    found, made = webs(), list(kernel())
    for index, one in enumerate(kernel()):
        fields = {
            operand.slot.lower(): register
            for operand in one.srcs
            if operand.kind == "reg" and found.reads[index].get(operand.value) == web
        }
        if one.dst and found.writes[index].get(one.dst[0]) == web:
            fields["d"] = register
        if fields:
            reuse = (False, False, False) if one.mnemonic == "FFMA" else None
            made[index] = edit(one, 90, reuse=reuse, **fields)
    return made


@functools.cache
def sums() -> tuple[int, ...]:
    """Return webs of the loop that FFMA alone read and write."""
    found, loop = webs(), main_loop(kernel())
    assert loop is not None
    inside = {
        found.reads[at][one.srcs[2].value]
        for at, one in enumerate(kernel())
        if loop.start <= one.address <= loop.end and one.mnemonic == "FFMA" and one.srcs[2].width
    }
    others = {
        web
        for at, one in enumerate(kernel())
        if one.mnemonic != "FFMA"
        for web in (*found.reads[at].values(), *found.writes[at].values())
    }
    return tuple(sorted(inside - others))


def test_a_live_range_in_a_register_of_its_own_is_proved_the_same() -> None:
    free = registers_of(kernel())
    assert sums()
    for web in sums()[:6]:
        assert differences(kernel(), renamed(web, free), 90) == []


def test_two_live_ranges_in_one_register_are_found() -> None:
    found, tried = webs(), 0
    for web in sums():
        for other in sums():
            apart = found.register[web] != found.register[other]
            if apart and found.live[web] & found.live[other]:
                assert differences(kernel(), renamed(web, found.register[other]), 90)
                tried += 1
                break
        if tried == 6:
            return
    assert tried


def test_a_read_that_was_forgotten_is_found() -> None:
    free, found = registers_of(kernel()), webs()
    for web in sums()[:6]:
        code = renamed(web, free)
        reader = next(at for at, names in enumerate(found.reads) if web in names.values())
        code[reader] = kernel()[reader]
        assert differences(kernel(), code, 90)
