"""What lanes hold along the ways of a kernel: spills, branches that skip copies, calls."""

from __future__ import annotations

import pytest

from tests.sass.offsets import lane_offsets
from tests.sass.words import BRA, LDS, word
from tilewright.sass import Instruction, Loop
from tilewright.sass.decode import decode_one
from tilewright.sass.lane_walk import Walk
from tilewright.sass.lanes import loop_accesses
from tilewright.sass.lines import LinePairs

S2R, IMAD, MOV, STL, LDL, LDG, LDC, ISETP = 0x919, 0x824, 0x202, 0x387, 0x983, 0x381, 0xB82, 0x80C
LDGSTS, CALL, EXIT, LDS_AT = 0xFAE, 0x944, 0x94D, LDS
TID_X = 0x21 << 72
WORDS, PAIRS, FOURS = 4 << 73, 5 << 73, 6 << 73  # 32, 64 and 128 bits of a lane


def tid(d: int) -> int:
    return word(S2R, d, extra=TID_X)


def times(d: int, a: int, factor: int) -> int:
    """Return Rd = Ra * factor."""
    return word(IMAD, d, a, 0, extra=factor << 32 | 7 << 81)


def move(d: int, b: int) -> int:
    return word(MOV, d, b=b, extra=0xF << 72)


def spill(offset: int, data: int, base: int = 1, size: int = WORDS) -> int:
    return word(STL, 255, base, data, extra=size | offset << 40)


def back(d: int, offset: int, base: int = 1, size: int = WORDS) -> int:
    return word(LDL, d, base, 0, extra=size | offset << 40)


def read(d: int, a: int) -> int:
    return word(LDS_AT, d, a, 0, extra=WORDS)


def go(to: int, at: int, guard: int = 7, opcode: int = BRA) -> int:
    offset = (to - at - 1) * 4 & (1 << 48) - 1
    return opcode | guard << 12 | offset << 34 | 7 << 87 | 1 << 109


def kernel(*words: int) -> tuple[Instruction, ...]:
    """Return instructions for sm_80, one behind the other."""
    made = tuple(decode_one(raw, 16 * at, 80) for at, raw in enumerate(words))
    assert all(one.known for one in made)
    return made


def read_offsets(*words: int) -> list[int] | None:
    """Return where the last instruction's lanes read, None if that is not known."""
    made = kernel(*words)
    found = lane_offsets(made, Loop(made), 32).get(made[-1].address)
    return None if found is None else found[0].tolist()


def test_a_spilled_register_comes_back() -> None:
    begin = (tid(2), times(4, 2, 4), spill(8, 4))
    assert read_offsets(*begin, back(5, 8), read(6, 5)) == [4 * lane for lane in range(32)]
    assert read_offsets(*begin, back(5, 12), read(6, 5)) == [0] * 32  # nobody wrote that
    both = (tid(2), times(4, 2, 4), times(5, 2, 8), spill(8, 4, size=PAIRS))
    assert read_offsets(*both, back(7, 12), read(6, 7)) == [8 * lane for lane in range(32)]


def test_results_that_nobody_keeps_do_no_harm() -> None:
    wide = word(0x825, 255, 2, 0, extra=4 << 32 | 7 << 81)  # IMAD.WIDE into RZ
    assert read_offsets(tid(2), wide, back(255, 8), times(4, 2, 4), read(6, 4)) == [
        4 * lane for lane in range(32)
    ]


def test_only_what_addresses_depend_on_is_run() -> None:
    """Nothing is known of the others; what a guard may leave as it was is needed, too."""
    begin, sums = (tid(2), times(4, 2, 4)), (times(9, 2, 8), times(9, 9, 3))
    assert Walk(kernel(*begin, *sums, read(6, 4)), {}, {4}).wanted == {0, 1, 4}
    assert Walk(kernel(*begin, times(4, 2, 8), read(6, 4)), {}, {3}).wanted == {0, 2, 3}
    guarded = times(4, 2, 8) ^ 7 << 12
    assert Walk(kernel(*begin, guarded, read(6, 4)), {}, {3}).wanted == {0, 1, 2, 3}


@pytest.mark.parametrize(
    "between",
    [
        (word(LDG, 9, 2, extra=WORDS), spill(8, 9)),  # something else
        (word(LDG, 9, 2, extra=WORDS), move(8, 9), spill(4, 8, size=PAIRS)),  # beside it, and on it
        (spill(0, 2, base=2),),  # anywhere
        (times(1, 1, 2),),  # the stack pointer is another
    ],
    ids=["another", "a pair", "through another register", "stack"],
)
def test_what_may_have_been_overwritten_is_not_known(between: tuple[int, ...]) -> None:
    begin = (tid(2), times(4, 2, 4), spill(8, 4), *between)
    found = read_offsets(*begin, back(5, 8), read(6, 5))
    assert found != [4 * lane for lane in range(32)]


def copy(shared: int, device: int) -> int:
    return word(LDGSTS, shared, device, 0, extra=FOURS | 7 << 87)


def test_a_loop_of_copies_is_an_interior_tiles() -> None:
    """Who skips the first copies has other addresses: a tile at an edge, which copies none."""
    body = (
        tid(2),
        times(4, 2, 4),  # what it has who skips them
        times(8, 2, 16),
        word(LDC, 10, 255, 0, extra=WORDS | 0x210 << 38),
        word(ISETP, 255, 10, 5, extra=7 << 84 | 7 << 87 | 7 << 68 | 2 << 76),  # P0, of all lanes
        go(8, 5, guard=0),
        times(4, 2, 16),
        copy(4, 8),
        copy(4, 8),  # the loop
        go(8, 9, guard=0),
    )
    made = kernel(*body)
    loop = Loop(made[8:])
    assert loop_accesses(made, loop, 32).lines == {8 * 16: LinePairs(free=4, crowded=0)}
    # Without such copies both ways are a tile's.
    plain = (*made[:7], decode_one(times(11, 2, 1), 7 * 16, 80), *made[8:])
    assert loop_accesses(plain, Loop(plain[8:]), 32).lines == {}


def test_a_call_that_never_returns_is_a_branch() -> None:
    made = kernel(
        tid(2),
        times(4, 2, 4),
        word(LDC, 10, 255, 0, extra=WORDS | 0x210 << 38),
        word(ISETP, 255, 10, 5, extra=7 << 84 | 7 << 87 | 7 << 68 | 2 << 76),
        go(6, 4, guard=0, opcode=CALL),
        word(EXIT, 0, 0, 0, extra=7 << 87),
        read(6, 4),
        word(EXIT, 0, 0, 0, extra=7 << 87),
    )
    found = lane_offsets(made, Loop(made), 32)
    assert found[6 * 16][0].tolist() == [4 * lane for lane in range(32)]
