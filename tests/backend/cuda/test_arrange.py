"""Moving a main loop towards the front: it lands inside, and the kernel runs the same."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.backend.cuda.assembled import (
    KERNEL,
    ROOM,
    Code,
    kernel,
    raw,
    reachable,
    read,
    run,
    small_room,
    with_,
    words,
)
from tests.sass.words import word
from tilewright.backend.cuda.arrange import arrange, moved_only
from tilewright.sass import RefusedError, edit, main_loop
from tilewright.sass.decode import decode_one
from tilewright.sass.machine import FETCHED_BYTES


@pytest.fixture(autouse=True)
def _room(monkeypatch: pytest.MonkeyPatch) -> None:
    small_room(monkeypatch)


@pytest.fixture
def before() -> Code:
    return kernel(KERNEL)


@pytest.fixture
def after(before: Code) -> Code:
    made = arrange(before, 90)
    assert made is not None
    return made


def test_a_loop_moves_in_front_of_what_is_stored(before: Code, after: Code) -> None:
    old, new = main_loop(before), main_loop(after)
    assert old is not None
    assert new is not None
    assert old.end // 16 >= ROOM > new.end // 16
    assert [one.raw for one in old.instructions] == [one.raw for one in new.instructions]
    where = moved_only(before, after, 90)
    assert (where[0], where[old.start]) == (0, new.start)
    assert set(where) == reachable(before)
    # Control went on to the piece with the loop once: a branch does it, in a NOP's place.
    kinds = [Counter(one.mnemonic for one in code) for code in (before, after)]
    assert (kinds[1] - kinds[0], kinds[0] - kinds[1]) == ({"BRA": 1}, {"NOP": 1})
    assert words(before) == words(after)
    assert read(after) == after
    assert arrange(after, 90) is None


def test_what_need_not_move_stays(before: Code) -> None:
    assert arrange(before, 80) is None  # nobody measured what is fetched there
    assert arrange(before[:ROOM], 90) is None
    assert arrange(kernel(KERNEL.replace("60 FFMA", "2 FFMA")), 90) is None
    assert arrange(kernel(KERNEL.replace("@P2 BRA loop", "FFMA")), 90) is None


def test_a_loop_longer_than_what_is_fetched_stays(before: Code) -> None:
    assert arrange(kernel(KERNEL.replace("30 FFMA", f"{ROOM} FFMA")), 90) is None


def test_without_a_nop_to_spare_nothing_moves(before: Code) -> None:
    """The branch to the loop needs a place: the text stays as long as it is."""
    assert arrange(before[:-7], 90) is None
    made = arrange(before[:-6], 90)
    assert made is not None
    assert set(moved_only(before[:-6], made, 90)) == reachable(before)


def test_the_branch_to_the_loop_waits_for_nothing_though_others_do(before: Code) -> None:
    waits = edit(before[9], 90, wait_mask=63, write_barrier=2, read_barrier=3, stall=1)
    assert waits.mnemonic == "BRA"
    code = with_(before, waits)
    made = arrange(code, 90)
    assert made is not None
    assert set(moved_only(code, made, 90)) == reachable(code)


CALL, LONG_CALL, RET, UNKNOWN, SOME, BRANCH_BY_TABLE = 0x944, 0x943, 0x950, 0xFFF, 0x348, 0x949


@pytest.mark.parametrize("opcode", [CALL, LONG_CALL, RET, UNKNOWN, SOME, BRANCH_BY_TABLE])
def test_an_instruction_that_may_name_a_place_is_refused(
    before: Code, after: Code, opcode: int
) -> None:
    place = before[20]
    wrong = with_(before, raw(place, place.opcode ^ opcode))
    with pytest.raises(RefusedError, match="at 0x140 may name a place in the text"):
        arrange(wrong, 90)
    for pair in ((wrong, after), (before, with_(after, raw(after[20], place.opcode ^ opcode)))):
        with pytest.raises(RefusedError, match="may name a place"):
            moved_only(*pair, 90)


def test_a_wait_for_all_of_a_warp_names_no_place(before: Code) -> None:
    code = with_(before, decode_one(word(0x948), before[20].address, 90))
    made = arrange(code, 90)
    assert made is not None
    assert set(moved_only(code, made, 90)) == reachable(code)


blocks = st.lists(
    st.tuples(
        st.integers(1, 20),
        st.sampled_from(["", "BRA {0}", "@P1 BRA {0}", "@P1 BRA {0}\nBRA {1}", "EXIT"]),
        st.integers(0, 99),
        st.integers(0, 99),
    ),
    min_size=3,
    max_size=9,
)


def written(parts: list[tuple[int, str, int, int]], loop: int, padding: int) -> str:
    """Return the text of a kernel of blocks, one of which is a loop of its own."""
    rows = []
    for at, (count, last, one, other) in enumerate(parts):
        rows.append(f"b{at}: {count} FFMA")
        if at == loop % len(parts):
            rows.append(f"@P2 BRA b{at}")
        if last:
            rows.append(last.format(f"b{one % len(parts)}", f"b{other % len(parts)}"))
    return "\n".join([*rows, "stop: BRA stop", f"{padding} NOP"])


def test_any_kernel_runs_the_same_or_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its conditions say; and most of those whose loops lie far back are moved."""
    monkeypatch.setitem(FETCHED_BYTES, 90, 16 * 40)
    moved = []

    @settings(max_examples=150, derandomize=True)
    @given(blocks, st.integers(2, 8), st.integers(1, 8), st.integers(0, 999))
    def runs_the_same(
        parts: list[tuple[int, str, int, int]], loop: int, padding: int, seed: int
    ) -> None:
        before = kernel(written(parts, loop, padding))
        after = arrange(before, 90)
        if after is None:
            return
        moved.append(after)
        assert len(after) == len(before)
        assert read(after) == after
        assert words(after) == words(before)
        assert set(moved_only(before, after, 90)) == reachable(before)
        for each in range(5):
            assert run(after, seed + each, 300) == run(before, seed + each, 300)

    runs_the_same()
    assert len(moved) > 10


INSIDE = """
    loop:  10 FFMA
           @P3 BRA else
           9 FFMA
           BRA join
    else:  9 FFMA
    join:  FFMA
"""


def test_a_loop_with_two_ways_inside_moves_as_a_whole() -> None:
    before = kernel(KERNEL.replace("    loop:  30 FFMA\n", INSIDE[1:]))
    after = arrange(before, 90)
    assert after is not None
    assert set(moved_only(before, after, 90)) == reachable(before)
    loop = main_loop(after)
    assert loop is not None
    assert loop.end // 16 < ROOM


@pytest.mark.parametrize(
    "text",
    [
        KERNEL.replace("7 NOP", "2 NOP\npad: 5 NOP\n").replace("@P1 BRA next", "@P1 BRA pad"),
        # The loop stands last, and the text goes on behind it.
        "8 FFMA\n@P0 BRA end\nBRA loop\nstore: 60 FFMA\nend: EXIT\n"
        "loop: 30 FFMA\n@P2 BRA loop\n@P4 EXIT\n7 NOP",
    ],
    ids=["a branch to it", "a loop in front of it"],
)
def test_what_does_nothing_at_the_end_may_run(text: str) -> None:
    """No compiler writes such texts; they stay, are refused, or run the same."""
    before = kernel(text)
    try:
        after = arrange(before, 90)
    except RefusedError:
        return
    assert after is None or set(moved_only(before, after, 90)) == reachable(before)
