"""Rescheduling: what may move moves, and the checker refuses what would compute something else."""

from __future__ import annotations

import functools
import random
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sass.compiled import code_of as kernel
from tests.sass.compiled import kept
from tilewright.reschedule.dependencies import Block, blocks, dependencies
from tilewright.reschedule.equivalence import differences, same_values
from tilewright.reschedule.hazards import hazards
from tilewright.reschedule.latency import needed
from tilewright.reschedule.order import Order
from tilewright.reschedule.schedule import schedule
from tilewright.reschedule.serpentine import Surroundings
from tilewright.sass import Instruction, decode, edit, main_loop, patch, read_cubin
from tilewright.sass.edit import RefusedError
from tilewright.sass.ports import port_use

Kernel = tuple[Instruction, ...]
FFMA = 0x223


@functools.cache
def span() -> tuple[int, int]:
    """Return the block of the small SGEMM's loop that has most multiply-adds."""
    loop = main_loop(kernel())
    assert loop is not None
    found = [b for b in blocks(kernel()) if loop.start <= 16 * b.start <= loop.end]
    best = max(found, key=lambda b: b.stop - b.start)
    return best.start, best.stop


def with_changed(*changed: Instruction) -> Kernel:
    made = list(kernel())
    for one in changed:
        made[one.address // 16] = one
    return tuple(made)


def exchanged(x: Instruction, y: Instruction) -> Kernel:
    """Return the kernel with two instructions in each other's place, control fields staying."""

    def moved(one: Instruction, to: Instruction) -> Instruction:
        control = to.control
        return edit(
            one, 90, address=to.address, stall=control.stall, yields=control.yields,
            wait_mask=control.wait_mask, reuse=(False, False, False),
        )  # fmt: skip

    return with_changed(moved(x, y), moved(y, x))


def multiply_adds() -> list[Instruction]:
    start, stop = span()
    return [one for one in kernel()[start:stop] if one.opcode == FFMA]


# What the compiler wrote satisfies the model: that is how the model was found.


@pytest.mark.parametrize("name", ["", "dgemm", "mixed", "tensor"])
def test_compiled_kernels_have_no_hazard(name: str) -> None:
    assert hazards(kernel(name)) == []


@pytest.mark.parametrize("name", ["", "dgemm", "mixed"])
def test_no_latency_exceeds_what_the_compiler_left(name: str) -> None:
    seen: list[tuple[str, str, str, int]] = []
    hazards(kernel(name), lambda *what: seen.append(what))
    assert seen
    for producer, consumer, how, cycles in seen:
        assert needed(producer, consumer, how) <= cycles, (producer, consumer, how)


def test_sums_are_read_four_cycles_after_they_are_made_somewhere() -> None:
    """The least distance is one that occurs, not one chosen small enough."""
    seen: list[tuple[str, str, str, int]] = []
    hazards(kernel("dgemm"), lambda *what: seen.append(what))
    assert min(c for p, q, how, c in seen if (p, q, how) == ("fp64", "fp64", "read")) == 8


@pytest.mark.parametrize("name", ["", "dgemm", "mixed", "tensor"])
def test_every_modelled_block_keeps_its_own_dependencies(name: str) -> None:
    modelled = 0
    for block in blocks(kernel(name)):
        body = kernel(name)[block.start : block.stop]
        try:
            found = dependencies(body, 90)
        except RefusedError:
            continue
        modelled += 1
        times = [0]
        for one in body:
            times.append(times[-1] + max(1, one.control.stall))
        for index, mine in enumerate(found):
            assert all(times[index] - times[d.on] >= d.cycles for d in mine)
    assert modelled


def test_what_is_not_modelled_is_refused_with_the_reason() -> None:
    matrix = [one for one in kernel("tensor") if one.mnemonic in ("HMMA", "IMMA", "DMMA")]
    with pytest.raises(RefusedError, match="is not modelled; left alone"):
        dependencies(matrix[:1], 90)
    with pytest.raises(RefusedError, match="give a cubin for sm_90a"):
        dependencies(kernel(), 80)


# The checker: what computes the same is accepted, anything else is not.


def test_a_kernel_is_equivalent_to_itself() -> None:
    assert differences(kernel(), kernel(), 90) == []


@settings(max_examples=40)
@given(st.data())
def test_the_checker_and_the_dependencies_agree_on_exchanges(data: st.DataObject) -> None:
    """Two multiply-adds may change places just if neither depends on what lies between."""
    start, stop = span()
    body = kernel()[start:stop]
    places = [i for i, one in enumerate(body) if one.opcode == FFMA]
    x, y = sorted(data.draw(st.lists(st.sampled_from(places), min_size=2, max_size=2, unique=True)))
    found = dependencies(body, 90)
    bound = any(d.on in range(x, y) for d in found[y]) or any(
        d.on == x for later in found[x + 1 : y + 1] for d in later
    )
    made = exchanged(body[x], body[y])
    same = same_values(kernel(), made, 90)
    # Values do not know of waits: those are the hazards' part.
    if not bound:
        assert same == []
    # The same product of the same registers, steps apart, may take either's place; a b is b a.
    one, other = (({x.registers for x in body[i].srcs}, body[i].dst) for i in (x, y))
    alike = one == other
    if differences(kernel(), made, 90) == []:
        assert not bound or alike


@pytest.mark.parametrize(
    ("refusing", "told"), [((None, 8, 24), True), ((8, 24), False)], ids=["every", "not every"]
)
def test_serpentine_order_is_refused_if_every_distance_is(
    monkeypatch: pytest.MonkeyPatch, refusing: tuple[int | None, ...], told: bool
) -> None:
    """And is told so with the reason of the first; one way that is only no faster is no refusal."""

    def refused(around: Surroundings, *given: Any) -> Any:
        if given[-1] in refusing:
            raise RefusedError(f"no way {given[-1]}")
        return list(around.kernel[around.block.start : around.block.stop]), 0, 0

    monkeypatch.setattr(sys.modules[schedule.__module__], "serpentine", refused)
    loop = main_loop(kernel())
    assert loop is not None
    found = schedule(kernel(), loop, 90, ahead=True, rounds=1)
    assert list(found.refused.values()) == ["no way None"] * told


def test_dependent_sums_may_not_change_places() -> None:
    start, stop = span()
    body = kernel()[start:stop]
    for index, found in enumerate(dependencies(body, 90)):
        makers = [d.on for d in found if body[d.on].opcode == FFMA]
        if body[index].opcode == FFMA and makers:
            reasons = differences(kernel(), exchanged(body[makers[0]], body[index]), 90)
            assert "differ" in reasons[0]
            return
    pytest.fail("no sum of the loop depends on another")


def test_factors_may_change_sides_but_not_with_the_sum() -> None:
    one = next(x for x in multiply_adds() if len({o.value for o in x.srcs}) == 3)
    a, b, c = (o.value for o in one.srcs)
    plain = (False, False, False)
    assert differences(kernel(), with_changed(edit(one, 90, a=b, b=a, reuse=plain)), 90) == []
    assert differences(kernel(), with_changed(edit(one, 90, a=c, c=a, reuse=plain)), 90)


def test_another_register_is_another_value() -> None:
    one = multiply_adds()[0]
    other = next(x for x in multiply_adds() if x.srcs[0].value != one.srcs[0].value)
    assert differences(kernel(), with_changed(edit(one, 90, a=other.srcs[0].value)), 90)


def test_a_copy_that_a_write_made_stale_is_found() -> None:
    """A flag keeps R9 in slot A, then R9 is written: a later read there may get the old value."""
    from tests.sass.words import ffma

    flagged, write, late = (
        ffma(1, 9, 3, 4, reuse=1),
        ffma(9, 2, 3, 4),
        ffma(5, 9, 6, 7, address=0),
    )
    waits = [ffma(20 + 2 * i, 30, 3, 4) for i in range(4)]
    body = [flagged, write, *waits, late]
    body = [edit(one, 90, address=16 * i) for i, one in enumerate(body)]
    assert any("old value" in str(h) for h in hazards(body))
    assert not hazards([edit(body[0], 90, reuse=(False, False, False)), *body[1:]])


# The scheduler.


@functools.cache
def rescheduled() -> Kernel:
    loop = main_loop(kernel())
    assert loop is not None
    return schedule(kernel(), loop, 90, rounds=1).instructions


def test_a_rescheduled_loop_is_proved_and_fetches_no_slower() -> None:
    loop, made = main_loop(kernel()), main_loop(rescheduled())
    assert loop is not None
    assert made is not None
    assert differences(kernel(), rescheduled(), 90) == []
    assert sum(u.cycles for u in port_use(made.instructions)) <= sum(
        u.cycles for u in port_use(loop.instructions)
    )


def test_the_same_kernel_gives_the_same_code() -> None:
    again = rescheduled.__wrapped__()
    assert [one.raw for one in again] == [one.raw for one in rescheduled()]


def test_only_multiply_adds_change_and_the_cubin_stays_as_long() -> None:
    changed = [(x, y) for x, y in zip(kernel(), rescheduled(), strict=True) if x.raw != y.raw]
    assert all(x.opcode == y.opcode == FFMA for x, y in changed)
    data = kept("sm_90a")
    made = patch(data, rescheduled())
    assert len(made) == len(data)
    assert decode(read_cubin(made).kernel().code, 90) == rescheduled()


def test_another_architecture_is_refused() -> None:
    loop = main_loop(kernel())
    assert loop is not None
    with pytest.raises(RefusedError, match="latencies not known"):
        schedule(kernel(), loop, 80)


@settings(max_examples=12)
@given(st.integers(0, 1 << 30))
def test_whatever_the_search_allows_the_checker_proves(seed: int) -> None:
    """Exchanges at random, gainful or not: what the dependencies let pass computes the same."""
    start, stop = span()
    search, draw = Order(kernel(), Block(start, stop), 90), random.Random(seed)
    places = [s for s in range(stop - start) if search.movable[s]]
    taken = 0
    for _ in range(2000):
        one, other = draw.choice(places), draw.choice(places)
        if search.allowed(one, other):
            search.change(one, other)
            taken += 1
    assert taken > 20
    made = (*kernel()[:start], *search.code(), *kernel()[stop:])
    assert differences(kernel(), made, 90) == []


@settings(max_examples=12)
@given(st.integers(0, 1 << 30))
def test_shuffles_without_regard_to_dependencies_are_refused(seed: int) -> None:
    start, stop = span()
    search, draw = Order(kernel(), Block(start, stop), 90), random.Random(seed)
    places = [s for s in range(stop - start) if search.movable[s]]
    for _ in range(200):
        search.change(*draw.sample(places, 2))
    made = (*kernel()[:start], *search.code(), *kernel()[stop:])
    assert differences(kernel(), made, 90)
