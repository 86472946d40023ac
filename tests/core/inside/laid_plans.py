"""serve/plan.py: launches laid out at made-up addresses become those of each call."""

from __future__ import annotations

import gc
import struct

import numpy as np
import pytest

from tests.core.inside.driver import Device, loaded
from tilewright.backend import GemmCall, LaunchError, Operand
from tilewright.core import needed_library
from tilewright.precision import DOUBLE_DOUBLE, PRECISIONS, precision
from tilewright.serve import plan as plans
from tilewright.serve.double_double import DoubleDouble
from tilewright.serve.laid_out import ALPHA, BETA, REPORT, VECTORS, A, B, C, Space, member
from tilewright.serve.plan import Plan, call_of
from tilewright.stencil import Launch, TensorMap
from tilewright.stencil.geometry import SplitK
from tilewright.stencil.table import Table, row

GRID = Launch((9, 2), (32, 4))


def step(driver, *arguments, maps=0, launch=GRID, extra=0, **options):
    """Return a step of a kernel with these arguments, and so many that the plan adds."""
    function = driver.function(len(arguments) + extra, maps)
    return loaded(function, **options), launch, arguments


def started(driver, device, steps, call, space=None, begins=(0, 0), stream=7):
    """Return the launches of a call."""
    plan = Plan(device, steps, space or Space(), begins)
    native = call_of(*call, stream)
    plan.run(native)
    return driver.launches


def test_made_up_addresses_become_the_calls(driver, device):
    arguments = (np.int64(5), A, B + 64, C + 8, None, REPORT, np.float32(0.25))
    plan = Plan(device, [step(driver, *arguments)], Space())
    assert plan.start(call_of(0x1000, 0x2000, 0x3000, 1, 0, 7, 0x4000))
    [found] = driver.launches
    assert [found.word(i) for i in range(6)] == [5, 0x1000, 0x2040, 0x3008, 0, 0x4000]
    assert found.numbers(6, "<f") == (0.25,)
    assert (found.grid, found.block, found.stream) == ((9, 2, 1), (32, 4, 1), 7)


def of_group(driver, device, table):
    """Return a table as a kernel is given it, whose 128 first bytes count, of some members."""
    steps = [(loaded(driver.function(3, 1 << 2)), GRID, (np.int64(5), A, table))]
    plan = Plan(device, steps, Space(), is_group=True)
    members = [0x1000 * (3 * at + which) for at in range(3) for which in (1, 2, 3)]
    assert plan.start(call_of(0, 0, 0, 1, 0, 7, members=members))
    [found] = driver.launches
    assert (found.word(0), found.word(1)) == (5, 0x1000)
    return found.arguments[2]


def test_addresses_of_a_table_become_those_of_a_groups_members(driver, device):
    rows = [row(member(A, at) + 64, at, 5) for at in range(3)] + [row(C, 7), row(None, 1, 2)]
    raw = of_group(driver, device, Table((), rows, 0, 8))
    places = [(0x1040, 0, 5), (0x4040, 1, 5), (0x7040, 2, 5)]
    assert [struct.unpack_from("<qii", raw, 16 * at) for at in range(3)] == places
    assert struct.unpack_from("<qqqq", raw, 48) == (0x3000, 7, 1, 2)
    assert not any(raw[80:])


def test_maps_of_a_table_are_moved_where_they_are(driver, device, monkeypatch):
    monkeypatch.setattr("tilewright.backend.cuda.tensor_map.encoded", lambda _: bytes(128))
    one = TensorMap(member(B, 2), 16, "float16", (8, 8), (16,), (8, 8))
    raw = of_group(driver, device, Table([one], [row(C, 7)], 1, 1))
    assert int.from_bytes(raw[:8], "little") == 0x8010


def test_an_epilogues_vectors_become_the_calls(driver, device):
    plan = Plan(device, [step(driver, A, *VECTORS, None, BETA.real * np.float32(1))], Space())
    vectors = (0x5000, 0x6000, 0x7000)
    assert plan.start(call_of(0x1000, 2, 3, 1, 0.5, 7, vectors=vectors))
    [found] = driver.launches
    assert [found.word(i) for i in range(5)] == [0x1000, *vectors, 0]
    assert found.numbers(5, "<f") == (0.5,)


def test_operands_begin_where_they_were_laid_out_to(driver, device):
    """An operand that begins 4 bytes behind a multiple of 16 is laid out so."""
    arguments = (A + 4, A + 4 + 64, B + 8, C)
    found = started(
        driver, device, [step(driver, *arguments)], (0x1004, 0x2008, 0x3000, 1, 0), begins=(4, 8)
    )
    assert [found[0].word(i) for i in range(4)] == [0x1004, 0x1044, 0x2008, 0x3000]


@pytest.mark.parametrize("letter", [*PRECISIONS, *DOUBLE_DOUBLE])
def test_scalars_of_every_precision(driver, device, letter):
    of = precision(letter)
    given = (2.5 - 3j, 0.5 + 4j) if of.is_complex else (2.5, 0.5)
    if of.parts == 2:
        given = tuple(DoubleDouble(x) / 3 for x in given)
    made_up = (ALPHA, BETA) if of.is_complex else (ALPHA.real, BETA.real)

    def scalars(values):
        operand = Operand(A, 0, 1)
        call = GemmCall(of, 1, 1, 1, values[0], operand, operand, values[1], Operand(C, 0, 1))
        return [x for x in call.arguments() if isinstance(x, np.generic) and x.dtype != np.int64]

    found = started(driver, device, [step(driver, *scalars(made_up))], (1, 2, 3, *given))
    right = [x.tobytes() for x in scalars(given)]
    assert len(right) == 4
    assert [found[0].arguments[i][: len(x)] for i, x in enumerate(right)] == right


def test_integers_are_filled_in_and_sizes_are_not_taken_for_scalars(driver, device):
    size = int(ALPHA.real)
    arguments = (np.int64(size), np.int32(size), np.int32(int(BETA.real)))
    [found] = started(driver, device, [step(driver, *arguments)], (1, 2, 3, -3, 2**31 - 1))
    assert found.word(0) == size
    assert [found.numbers(i, "<i")[0] for i in (1, 2)] == [-3, 2**31 - 1]


def test_tensor_maps_begin_at_the_operands(driver, device, monkeypatch):
    seen = []
    monkeypatch.setattr(
        "tilewright.backend.cuda.tensor_map.encoded",
        lambda x: seen.append(x.memory + x.offset) or bytes(8) + b"\x07" * 120,
    )
    arguments = tuple(
        TensorMap(at, offset, "float32", (64, 64), (256,), (32, 32), 128)
        for at, offset in ((A, 0), (B, 128))
    )
    [found] = started(driver, device, [step(driver, *arguments, maps=3)], (0x1000, 0x2000, 3, 1, 0))
    assert seen == [A, B + 128]
    assert [found.word(i) for i in (0, 1)] == [0x1000, 0x2080]
    assert found.arguments[0][8:] == b"\x07" * 120


def test_words_lie_right_before_the_scratch_and_parts_behind(driver, device):
    """Pieces that are zero lie before the words, and the others behind the parts."""
    space = Space()
    pieces = [space.need("x", 100), space.need("tops", 300, zeroed=True), space.need("y", 8)]
    plan = Plan(device, [step(driver, *pieces, parts=1024, extra=1)], space)
    assert plan.scratch_bytes == 18 * 512 + 512  # no more than whole pieces
    assert plan.zero_bytes == 512 + 16384
    assert plan.start(call_of(1, 2, 3, 1, 0, 7), 1 << 32)
    clear, found = driver.log
    assert (clear.kind, clear.memory, clear.bytes) == ("clear", 1 << 32, plan.zero_bytes)
    scratch = (1 << 32) + plan.zero_bytes
    x, tops, y, words = (found.word(i) for i in range(4))
    assert words == scratch - 16384  # parts are 16384 bytes behind the words
    parts_end = scratch + 9 * 1024
    assert (x, y) == (parts_end, parts_end + 256)
    assert tops == 1 << 32
    assert tops + 300 <= words
    assert y + 8 <= scratch + plan.scratch_bytes


def test_pieces_of_a_space_are_aligned_and_apart():
    space = Space()
    first, same, larger = space.need("x", 100), space.need("x", 90), space.need("x", 300)
    assert first == same != larger
    assert larger == first + 256
    assert space.need("empty", 0) % 256 == 0
    assert space.pool_bytes == 256 + 512 + 256
    assert space.zero == space.zero
    assert space.zero_bytes == 256


def test_second_functions_follow_and_begin_early_where_a_device_can(driver):
    launch = Launch((6, 1), (64, 1), early=True, second_blocks=2, second_threads=96)
    for capability, early in ((90, True), (80, False)):
        driver.reset()
        second = driver.function(2)
        made = step(driver, A, np.int64(3), launch=launch, second=second, shared=2048)
        found = started(driver, Device(driver, capability), [made], (0x1000, 2, 3, 1, 0))
        assert [one.function for one in found] == [made[0].handle.function, second]
        assert [(one.grid, one.block) for one in found] == [
            ((6, 1, 1), (64, 1, 1)), ((12, 1, 1), (96, 1, 1)),
        ]  # fmt: skip
        assert [one.shared_bytes for one in found] == [2048, 0]
        assert [one.early for one in found] == [early, early]
        assert [one.word(0) for one in found] == [0x1000] * 2


def test_whole_tiles_start_no_second_function_and_take_no_workspace(driver, device):
    """Where k is too short to be worth slices, as it is for the first of these."""
    cut = SplitK(1000.0, 256, 1, 96, most_parts=528, reduction_cycles=20000.0)
    for steps, functions in ((2, 1), (500, 2)):
        driver.reset()
        launch = Launch(
            (6, 1), (64, 1), split_k=cut, steps=steps, second_blocks=1, second_threads=96
        )
        second = driver.function(2)
        made = step(driver, A, launch=launch, second=second, parts=1024, extra=1)
        plan = Plan(device, [made], Space())
        assert (plan.scratch_bytes > 0) == (functions == 2)
        assert plan.start(call_of(0x1000, 2, 3, 1, 0, 7), 1 << 32)
        found = [one for one in driver.log if one.kind == "launch"]
        assert len(found) == functions
        assert [one.word(1) > 0 for one in found] == [functions == 2] * functions


def test_persistent_grids_are_cut_to_the_device(driver, device):
    made = step(driver, A, launch=Launch((1000, 1), (32, 1), resident=2))
    assert started(driver, device, [made], (1, 2, 3, 1, 0))[0].grid == (264, 1, 1)


@pytest.mark.parametrize("grid", [(0, 1), (1, 65536), (2**31, 1)])
def test_grids_that_no_device_has_are_refused(driver, device, grid):
    with pytest.raises(LaunchError, match="grid"):
        Plan(device, [step(driver, A, launch=Launch(grid, (32, 1)))], Space())


def test_a_refused_launch_is_raised(driver, device):
    plan = Plan(device, [step(driver, A)], Space())
    driver.set(launch_result=701)
    with pytest.raises(LaunchError, match="launching on cuda:0"):
        plan.start(call_of(1, 2, 3, 1, 0, 7))


def test_a_plan_goes_with_its_last_reference(driver, device, monkeypatch):
    freed = []
    core, free = plans.core(), plans.core().tilewright_plan_free
    monkeypatch.setattr(core, "tilewright_plan_free", lambda at: freed.append(at) or free(at))
    plan = Plan(device, [step(driver, A)], Space())
    native = plan.native
    del plan
    gc.collect()
    assert freed == [native]


def test_plans_and_the_table_are_of_one_library(driver, monkeypatch):
    """Whose driver is found once: texts may change while a program runs, or the cache."""
    monkeypatch.setattr("tilewright.core.build.library_path", lambda: "elsewhere.so")
    plans.core.cache_clear()
    found = plans.core()
    assert found._name == needed_library()._name
    assert found.tilewright_find_driver() == 1
