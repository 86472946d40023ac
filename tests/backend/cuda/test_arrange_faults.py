"""What the proof that a kernel was only moved has to find: faults, planted one by one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.backend.cuda.assembled import (
    KERNEL,
    Code,
    kernel,
    raw,
    reachable,
    read,
    small_room,
    with_,
)
from tests.sass.words import nop
from tilewright.backend.cuda.arrange import arrange, moved_only
from tilewright.sass import Instruction, RefusedError, edit, main_loop


@pytest.fixture
def before() -> Code:
    return kernel(KERNEL)


@pytest.fixture
def after(before: Code, monkeypatch: pytest.MonkeyPatch) -> Code:
    small_room(monkeypatch)
    made = arrange(before, 90)
    assert made is not None
    return made


def exchanged(code: Code, first: int) -> Code:
    one, other = code[first], code[first + 1]
    pair = edit(one, 90, address=other.address), edit(other, 90, address=one.address)
    return with_(code, *pair)


def shifted(code: Code, first: Instruction) -> Code:
    """Return a version that begins with an instruction of its own; it has a NOP less at its end."""
    moved = (
        edit(one, 90, address=one.address + 16, target=one.target and one.target + 16)
        for one in code[:-1]
    )
    return read([first, *moved])


def further(branch: Instruction) -> Instruction:
    """Return a branch that leads one instruction further."""
    assert branch.target is not None
    return edit(branch, 90, target=branch.target + 16)


FAULTS: dict[str, Callable[[Code, Instruction, Instruction], Code]] = {
    "exchanged": lambda code, loop, own: exchanged(code, 20),
    "left out": lambda code, loop, own: with_(code, nop(code[20], 90)),
    "one further": lambda code, loop, own: with_(code, further(loop)),
    "own one further": lambda code, loop, own: with_(code, further(own)),
    "to itself": lambda code, loop, own: with_(code, edit(own, 90, target=own.address)),
    "under a predicate": lambda code, loop, own: with_(code, raw(own, 5 << 12)),
    "never": lambda code, loop, own: with_(code, raw(own, 1 << 15)),
    "under a second predicate": lambda code, loop, own: with_(code, raw(own, 5 << 87)),
    "waits": lambda code, loop, own: with_(code, edit(own, 90, wait_mask=1)),
    "sets a barrier": lambda code, loop, own: with_(code, edit(own, 90, write_barrier=0)),
    "sets another": lambda code, loop, own: with_(code, edit(own, 90, read_barrier=0)),
    "a stall less": lambda code, loop, own: with_(code, edit(code[20], 90, stall=4)),
    "a loop's branch waits": lambda code, loop, own: with_(code, edit(loop, 90, wait_mask=1)),
    "first instruction": lambda code, loop, own: shifted(code, nop(code[0], 90)),
    "overwritten by a branch": lambda code, loop, own: with_(
        code, edit(own, 90, address=code[20].address)
    ),
}
"""Of a version, given its loop's branch and the branch that it has besides."""


def own_branch(before: Code, after: Code) -> Instruction:
    """Return the branch that only the version has."""
    stands = moved_only(before, after, 90).values()
    (own,) = (one for one in after if one.address in reachable(after) - set(stands))
    assert own.mnemonic == "BRA"
    return own


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(before: Code, after: Code, fault: str) -> None:
    loop = main_loop(after)
    assert loop is not None
    wrong = FAULTS[fault](after, loop.instructions[-1], own_branch(before, after))
    assert wrong != after
    with pytest.raises(RefusedError, match=r"is not what runs there|ends the text"):
        moved_only(before, wrong, 90)


def test_a_version_may_begin_with_a_branch_to_the_first_instruction(
    before: Code, after: Code
) -> None:
    own = own_branch(before, after)
    where = moved_only(before, shifted(after, edit(own, 90, address=0, target=16)), 90)
    assert where[0] == 16
    assert set(where) == reachable(before)


def test_no_bit_of_what_runs_may_differ(before: Code, after: Code) -> None:
    """Any bit of any instruction but a branch's distance, which says where and no more."""
    stands = set(moved_only(before, after, 90).values())
    fixed = [one for one in after if one.address in stands and one.target is None]

    @settings(max_examples=60, derandomize=True)
    @given(st.sampled_from(fixed), st.integers(0, 127))
    def found(one: Instruction, bit: int) -> None:
        with pytest.raises(RefusedError):
            moved_only(before, with_(after, raw(one, 1 << bit)), 90)

    found()


def test_a_copy_of_what_runs_is_found(before: Code) -> None:
    """What runs is the same, but records of a cubin name one place for each instruction."""
    first, copied = 117, len(before) - 7
    block = [
        edit(one, 90, address=one.address + shift, target=one.target and one.target + shift)
        for one, shift in ((one, 16 * (copied - first)) for one in before[first : first + 5])
    ]
    assert [one.mnemonic for one in block] == ["BSSY", "FFMA", "FFMA", "BSYNC", "EXIT"]
    branch = next(one for one in before if one.target == 16 * first and one.guard.always)
    wrong = with_(before, *block, edit(branch, 90, target=16 * copied))
    with pytest.raises(RefusedError, match="is not what runs there"):
        moved_only(before, wrong, 90)


@pytest.mark.parametrize(
    "leads",
    [
        pytest.param(lambda store, text: store + 4, id="into an instruction"),
        pytest.param(lambda store, text: store - text, id="far in front"),
        pytest.param(lambda store, text: text, id="behind the text"),
        pytest.param(lambda store, text: store - 2 * text, id="farther in front"),
    ],
)
def test_a_branch_leads_to_an_instruction_of_the_text(
    before: Code, after: Code, leads: Callable[[int, int], int]
) -> None:
    store = moved_only(before, after, 90)[160]
    branch = next(one for one in after if one.guard.always and one.target == store)
    wrong = with_(after, edit(branch, 90, target=leads(store, 16 * len(after))))
    with pytest.raises(RefusedError):
        moved_only(before, wrong, 90)


def test_texts_that_are_cut_short_are_found(before: Code, after: Code) -> None:
    for pair in ((before, after[:60]), (before, ()), (before[:5], before[:5])):
        with pytest.raises(RefusedError):
            moved_only(*pair, 90)


@pytest.mark.parametrize("bits", [1 << 91, 1 << 91 | 1 << 32], ids=["BRA.DIV", "BRA.CONV"])
def test_what_runs_behind_a_branch_of_divergent_warps_is_followed(bits: int) -> None:
    """It has no predicate; bit 91 says that a divergent warp takes it, or only a convergent one."""
    code = kernel(KERNEL.replace("store:", "FFMA\nstore:"))
    code = with_(code, raw(code[9], bits))
    with pytest.raises(RefusedError):
        moved_only(code, with_(code, nop(code[10], 90)), 90)
