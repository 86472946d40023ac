"""plan.c: what differs from call to call reaches launches that are otherwise as they were laid."""

from __future__ import annotations

import ctypes
import struct
import threading

import pytest

from tests.core.inside.driver import CONTEXT, OTHER, Driver
from tilewright.serve import plan as plans
from tilewright.serve.laid_out import PATCH, NativeLaunch
from tilewright.serve.plan import call_of

A, B, C, REPORT, SCRATCH, ALPHA, ALPHA_IM, BETA, BETA_IM = range(9)
FLOAT, DOUBLE, PAIR, INT = range(4)


class Made:
    """A plan made of plain numbers."""

    def __init__(self, launches, places, patches, maps=(), map_of=None, zero=0, scratch=0):
        core = plans.core()
        many = len(places)
        raw_patches = [PATCH.pack(*one[:3], 0, one[3]) for one in patches]
        laid = (NativeLaunch * len(launches))()
        for one, (function, grid, first, count, more) in zip(laid, launches, strict=True):
            one.function = function
            one.grid_x, one.grid_y, one.block_x, one.block_y = grid
            one.grid_z = 1
            one.first, one.count = first, count
            one.shared_bytes, one.early = more
        raw = b"".join(one.ljust(16, b"\0") for one in places)
        self.at = core.tilewright_plan_new(
            ctypes.c_void_p(CONTEXT), laid, len(launches), raw,
            (ctypes.c_int * many)(*(map_of or [-1] * many)), many, b"".join(maps), len(maps),
            b"".join(raw_patches), len(patches),
            ctypes.c_uint64(zero), ctypes.c_uint64(scratch),
        )  # fmt: skip

    def start(self, *call, memory=0):
        at = ctypes.byref(call_of(*call))
        core, mine = plans.core(), ctypes.c_void_p(self.at)
        if memory:
            return core.tilewright_start_in(mine, at, ctypes.c_uint64(memory))
        return core.tilewright_start(mine, at)


def one_launch(driver, places, patches, **options):
    function = driver.function(len(places), options.pop("maps_at", 0))
    return Made([(function, (1, 1, 32, 1), 0, len(places), (0, 0))], places, patches, **options)


def word(number):
    return number.to_bytes(8, "little")


def test_addresses_with_their_distances_and_the_stream(driver: Driver):
    patches = [(0, A, 0, 0), (1, B, 0, 64), (2, C, 0, -4), (3, REPORT, 0, 8)]
    made = one_launch(driver, [b""] * 4 + [word(77)], patches)
    for stream, base in ((7, 0x1000), (0, 0xFFFF_0000_1000)):
        driver.reset()
        assert made.start(base, base + 1, base + 2, 1, 0, stream, base + 3) == 0
        [found] = driver.launches
        assert [found.word(i) for i in range(5)] == [base, base + 65, base - 2, base + 11, 77]
        assert found.stream == stream


@pytest.mark.parametrize(
    ("type_of", "form", "right"),
    [
        (FLOAT, "<f", [(2.5,), (-3.0,), (0.5,), (4.0,)]),
        (DOUBLE, "<d", [(2.5,), (-3.0,), (0.5,), (4.0,)]),
        (INT, "<i", [(2,), (-3,), (0,), (4,)]),
    ],
)
def test_scalars_of_every_type(driver: Driver, type_of, form, right):
    made = one_launch(
        driver, [b"\xff" * 16] * 4,
        [(i, kind, type_of, 0) for i, kind in enumerate((ALPHA, ALPHA_IM, BETA, BETA_IM))],
    )  # fmt: skip
    assert made.start(1, 2, 3, 2.5 - 3j, 0.5 + 4j, 0) == 0
    [found] = driver.launches
    assert [found.numbers(i, form) for i in range(4)] == right
    size = struct.calcsize(form)
    assert found.arguments[0][size:16] == b"\xff" * (16 - size)  # the driver reads no more


def test_pairs_of_words_are_whole(driver: Driver):
    class Pair:
        hi, lo = 1 / 3 + 2j, 1e-18 - 4e-20j

    made = one_launch(driver, [b""] * 2, [(0, ALPHA, PAIR, 0), (1, ALPHA_IM, PAIR, 0)])
    assert made.start(1, 2, 3, Pair(), 0, 0) == 0
    [found] = driver.launches
    assert [found.numbers(i, "<2d") for i in (0, 1)] == [(1 / 3, 1e-18), (2.0, -4e-20)]


def test_launches_keep_their_order_and_share_no_argument(driver: Driver):
    """A second function reads the arguments of the one before it."""
    first, second, third = (driver.function(count) for count in (2, 2, 1))
    made = Made(
        [(first, (5, 6, 32, 2), 0, 2, (4096, 0)), (second, (7, 1, 64, 1), 0, 2, (0, 1)),
         (third, (1, 1, 1, 1), 2, 1, (0, 0))],
        [word(1), word(2), word(3)], [(1, C, 0, 0), (2, C, 0, 16)],
    )  # fmt: skip
    assert made.start(1, 2, 0x4000, 1, 0, 9) == 0
    found = driver.launches
    assert [one.function for one in found] == [first, second, third]
    assert [one.grid for one in found] == [(5, 6, 1), (7, 1, 1), (1, 1, 1)]
    assert [one.block for one in found] == [(32, 2, 1), (64, 1, 1), (1, 1, 1)]
    assert [(one.shared_bytes, one.early) for one in found] == [
        (4096, False), (0, True), (0, False)
    ]  # fmt: skip
    assert [one.word(0) for one in found] == [1, 1, 0x4010]
    assert [one.word(1) for one in found[:2]] == [0x4000] * 2


def test_tensor_maps_are_moved_in_a_copy(driver: Driver):
    tensor = [word(64) + bytes(range(120)), word(128) + b"\x05" * 120]
    made = one_launch(
        driver, [b"", word(9), b""], [(0, A, 0, 32), (2, SCRATCH, 0, 256)],
        maps=tensor, map_of=[0, -1, 1], maps_at=0b101, scratch=1024,
    )  # fmt: skip
    assert made.start(0x1000, 2, 3, 1, 0, 0, memory=0x8000) == 0
    assert made.start(0x2000, 2, 3, 1, 0, 0, memory=0x9000) == 0
    first, second = driver.launches
    assert (first.word(0), first.word(1), first.word(2)) == (0x1020, 9, 0x8100)
    assert (second.word(0), second.word(2)) == (0x2020, 0x9100)
    assert first.arguments[0][8:] == tensor[0][8:]
    assert first.arguments[2][8:] == tensor[1][8:]


def test_what_the_driver_says_of_a_map_is_the_status(driver: Driver):
    made = one_launch(driver, [b""], [(0, A, 0, 0)], maps=[bytes(128)], map_of=[0], maps_at=1)
    assert made.start(0x1008, 2, 3, 1, 0, 0) == 1  # of no multiple of 16
    assert driver.log == []


def test_plans_larger_than_a_stack_has_room_for(driver: Driver):
    count = 600
    function = driver.function(1)
    made = Made(
        [(function, (1, 1, 1, 1), i, 1, (0, 0)) for i in range(count)],
        [word(i) for i in range(count)], [(i, A, 0, i) for i in range(0, count, 2)],
    )  # fmt: skip
    assert made.start(1 << 40, 2, 3, 1, 0, 0) == 0
    right = [(1 << 40) + i if i % 2 == 0 else i for i in range(count)]
    assert [one.word(0) for one in driver.launches] == right


def test_threads_start_one_plan_at_once_with_addresses_of_their_own(driver: Driver):
    made = one_launch(driver, [b""] * 3, [(0, A, 0, 0), (1, B, 0, 0), (2, ALPHA, DOUBLE, 0)])

    def work(number):
        for i in range(200):
            base = (number + 1) << 20
            assert made.start(base + i, 2 * (base + i), 3, float(base + i), 0, number) == 0

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = driver.launches
    assert len(found) == 400
    for one in found:
        assert one.word(1) == 2 * one.word(0)
        assert one.numbers(2, "<d") == (one.word(0),)
        assert one.stream == (one.word(0) >> 20) - 1


def test_a_refused_launch_is_the_status_and_the_last(driver: Driver):
    function = driver.function(1)
    made = Made([(function, (1, 1, 1, 1), 0, 1, (0, 0))] * 3, [word(1)], [])
    driver.set(launch_result=701, fails_after=1)
    assert made.start(1, 2, 3, 1, 0, 0) == 701
    assert len(driver.launches) == 1


def test_the_plans_context_is_there_while_it_launches(driver: Driver):
    made = one_launch(driver, [b""], [])
    for context in (0, CONTEXT, OTHER):
        driver.reset()
        if context:
            with driver.within(context):
                assert made.start(1, 2, 3, 1, 0, 0) == 0
                assert driver.current() == context
        else:
            assert made.start(1, 2, 3, 1, 0, 0) == 0
            assert driver.current() == 0
        assert [one.context for one in driver.launches] == [CONTEXT]


def test_another_context_comes_back_after_a_failure(driver: Driver):
    made = one_launch(driver, [b""], [])
    driver.set(launch_result=719)
    with driver.within(OTHER):
        assert made.start(1, 2, 3, 1, 0, 0) == 719
        assert driver.current() == OTHER


def test_a_plan_copies_what_it_is_given_and_may_be_freed(driver: Driver):
    core = plans.core()
    core.tilewright_plan_free(None)
    for _ in range(100):
        made = one_launch(driver, [b""] * 8, [(i, A, 0, i) for i in range(8)])
        core.tilewright_plan_free(ctypes.c_void_p(made.at))


def test_a_workspace_whose_size_has_no_64_bits_is_no_plan(driver: Driver):
    assert one_launch(driver, [b""], [], zero=2**64 - 8, scratch=8).at is None
    assert one_launch(driver, [b""], [], zero=2**64 - 8, scratch=7).at


def test_a_batch_is_started_product_by_product_in_one_call(driver: Driver):
    """The last repeat is the fastest; operands that all products have stay where they are."""
    patches = [(0, A, 0, 4), (1, B, 0, 0), (2, C, 0, 0), (3, SCRATCH, 0, 0)]
    made = one_launch(driver, [b""] * 4, patches, scratch=64)
    flat = (ctypes.c_int64 * 8)(2, 1000, 0, -100, 3, 10, 20, 30)
    assert plans.core().tilewright_plan_repeat(ctypes.c_void_p(made.at), flat, 2)
    assert made.start(0x1000, 0x2000, 0x4000, 1, 0, 0, memory=0x8000) == 0
    found = [[one.word(i) for i in range(4)] for one in driver.launches]
    assert found == [
        [0x1004 + 1000 * i + 10 * j, 0x2000 + 20 * j, 0x4000 - 100 * i + 30 * j, 0x8000]
        for i in range(2) for j in range(3)
    ]  # fmt: skip


def test_a_launch_that_is_refused_ends_a_batch(driver: Driver):
    made = one_launch(driver, [b""], [(0, A, 0, 0)])
    flat = (ctypes.c_int64 * 4)(5, 8, 8, 8)
    assert plans.core().tilewright_plan_repeat(ctypes.c_void_p(made.at), flat, 1)
    driver.set(launch_result=7)
    assert made.start(0x1000, 0, 0, 1, 0, 0) == 7
    assert len(driver.launches) <= 1
