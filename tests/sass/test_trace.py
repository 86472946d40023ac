"""The steady state of a loop over k: which way a warp goes, and how often inner loops run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.sass.compiled import kept
from tests.sass.words import LDS, ffma, word
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.backend.cuda.compiler import compile_cubin, nvrtc
from tilewright.precision import precision
from tilewright.problem import Trans
from tilewright.sass import Instruction, Loop, decode, main_loop, read_cubin, steady_trace
from tilewright.sass.decode import decode_one
from tilewright.sass.loops import is_useful
from tilewright.sass.trace import k_loop, trip_count, ways_around_copies
from tilewright.stencil import Variant
from tilewright.stencil.portable import Portable

LDG, STS, LDGSTS, BRA = 0x981, 0x988, 0xFAE, 0x947


def _branch(to: int, at: int, guard: int = 0) -> Instruction:
    offset = ((to - at - 1) * 4) & ((1 << 48) - 1)
    return decode_one(BRA | guard << 12 | offset << 34 | 7 << 87 | 1 << 109, 16 * at, 80)


def _kernel(*body: Instruction) -> tuple[Instruction, ...]:
    return tuple(replace(one, address=16 * at) for at, one in enumerate(body))


def _fetch() -> Instruction:
    return decode_one(word(LDG, 8, 4, extra=4 << 73), 0, 80)


def _put() -> Instruction:
    return decode_one(word(STS, 255, 4, 8, extra=4 << 73), 0, 80)


def test_of_two_ways_that_fetch_alike_the_shorter_is_taken() -> None:
    """0 may skip to 5; 1 to 4 is the way with checks, 5 and 6 the one without."""
    check = ffma(1, 2, 3, 1)
    kernel = list(_kernel(check, _fetch(), check, check, check, _fetch(), check, _put(), check))
    kernel[0] = _branch(5, 0)
    kernel[4] = _branch(7, 4, guard=7)
    kernel[8] = _branch(0, 8, guard=1)
    trace = steady_trace(kernel, Loop(tuple(kernel)))
    assert [i.address // 16 for i in trace] == [0, 5, 6, 7, 8]


def test_an_interior_tile_comes_by_way_of_its_first_copies() -> None:
    """0 may skip them, to the loop of 3 to 5; as basic blocks 0 and 2."""
    work, copy = ffma(1, 2, 3, 1), decode_one(word(LDGSTS, 4, 8, extra=6 << 73), 0, 80)
    kernel = list(_kernel(work, copy, work, work, copy, work, work))
    kernel[0] = _branch(3, 0)
    kernel[5] = _branch(3, 5, guard=1)
    assert ways_around_copies(kernel, Loop(tuple(kernel[3:6]))) == {(0, 2)}
    kernel[1] = replace(work, address=16)  # nothing to come by
    assert ways_around_copies(kernel, Loop(tuple(kernel[3:6]))) == frozenset()


def test_a_step_that_skips_the_fetch_is_not_the_steady_state() -> None:
    work = ffma(1, 2, 3, 1)
    kernel = list(_kernel(work, _fetch(), work, work, _put(), work))
    kernel[0] = _branch(2, 0)  # no more to fetch
    kernel[3] = _branch(5, 3)  # nor to put
    kernel[5] = _branch(0, 5, guard=1)
    trace = steady_trace(kernel, Loop(tuple(kernel)))
    assert [i.address // 16 for i in trace] == [0, 1, 2, 3, 4, 5]


def test_trips_follow_from_a_step_and_a_bound() -> None:
    add = decode_one(0x810 | 7 << 12 | 5 << 16 | 5 << 24 | 8 << 32 | 255 << 64, 0, 80)
    compare = decode_one(0x80C | 7 << 12 | 5 << 24 | 32 << 32 | 7 << 84, 0, 80)
    assert (add.mnemonic, compare.mnemonic) == ("IADD3", "ISETP")
    assert trip_count([add, compare]) == 4
    assert trip_count([add]) == 1


def test_a_loop_of_one_instruction_is_its_own_steady_state() -> None:
    load = decode_one(word(LDS, 8, 4, 0, 0, extra=4 << 73), 0, 90)
    assert steady_trace([load], Loop((load,))) == (load,)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100"])
def test_kept_kernels_have_a_steady_state(arch: str) -> None:
    kernel = read_cubin(kept(arch)).kernels[0]
    instructions = decode(kernel.code, kernel.arch)
    main = main_loop(instructions)
    assert main is not None
    trace = steady_trace(instructions, k_loop(instructions, main))
    assert sum(map(is_useful, trace)) >= main.useful


@pytest.mark.skipif(nvrtc() is None, reason="needs NVRTC")
@pytest.mark.parametrize(("depth", "unroll"), [(16, 16), (16, 4), (32, 8)])
def test_a_trip_holds_a_whole_block_of_k(depth: int, unroll: int) -> None:
    """Multiply-adds of a trip are the thread's tile times block_k, however it is unrolled."""
    variant = Variant(precision("s"), Trans("N"), Trans("T"))
    default = Portable().default(variant, architecture_spec("sm_90a"))
    config = default.replace(block_k=depth, unroll_k=unroll)
    kernel = read_cubin(
        compile_cubin(Portable().source(config, variant, "cuda"), "sm_90a").code
    ).kernel()
    instructions = decode(kernel.code, kernel.arch)
    main = main_loop(instructions)
    assert main is not None
    trace = steady_trace(instructions, k_loop(instructions, main))
    sides = (("block_m", "threads_m"), ("block_n", "threads_n"))
    tile = [config.integer(block) // config.integer(threads) for block, threads in sides]
    assert sum(map(is_useful, trace)) == tile[0] * tile[1] * depth
    names = [i.mnemonic for i in trace]
    assert "LDG" in names
    assert "STS" in names
