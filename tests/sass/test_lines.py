"""Lines that asynchronous copies meet, from addresses and from machine code."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.sass.words import ffma, word
from tests.stencil.portable_harness import variant
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.backend.cuda.compiler import compile_cubin, nvrtc
from tilewright.microbench.copies import Pattern, patterns
from tilewright.sass import Loop, decode, loop_cycles, read_cubin
from tilewright.sass.annotate import annotate
from tilewright.sass.decode import decode_one
from tilewright.sass.lane_values import EXACT, UNIFORM, Lanes, LaneValue, add, made, multiply
from tilewright.sass.lanes import loop_accesses
from tilewright.sass.lines import LinePairs, line_pairs
from tilewright.stencil import Source, stencil
from tilewright.tuning.inspection import inspect_config

needs_nvrtc = pytest.mark.skipif(nvrtc() is None, reason="needs NVRTC: tilewright[tune]")
LANE = np.arange(32, dtype=np.uint64).reshape(1, 32)


def exact(lanes: Lanes) -> LaneValue:
    return made(lanes.astype(np.uint64), EXACT)


def matrix(lanes_of_a_row: int) -> LaneValue:
    """Return addresses in rows that an unknown leading dimension keeps apart."""
    row, piece = LANE // np.uint64(lanes_of_a_row), LANE % np.uint64(lanes_of_a_row)
    at = add(multiply(exact(row), UNIFORM), exact(piece * np.uint64(16)))
    assert at is not None
    return at


def met(device: LaneValue, shared: LaneValue) -> tuple[float, float]:
    pairs = line_pairs(device, shared, 1)
    assert pairs is not None
    return pairs.free, pairs.crowded


def test_whole_lines_side_by_side_are_four_pairs() -> None:
    assert met(matrix(32), exact(LANE * np.uint64(16))) == (4, 0)
    assert met(matrix(8), exact(LANE * np.uint64(16))) == (4, 0)
    assert met(matrix(4), exact(LANE * np.uint64(16))) == (8, 0)
    assert met(matrix(2), exact(LANE * np.uint64(16))) == (0, 16)


def test_a_padded_row_cuts_every_line() -> None:
    """Where a line of shared memory begins is known, so that it lies across the others."""
    assert met(matrix(32), exact(LANE * np.uint64(16) + np.uint64(32))) == (8, 0)
    aligned = add(multiply(UNIFORM, exact(np.full((1, 1), 128))), exact(LANE * np.uint64(16) + 32))
    assert aligned is not None
    assert met(matrix(32), aligned) == (8, 0)


def test_units_exchanged_within_a_line_change_nothing() -> None:
    turned = LANE * np.uint64(16) ^ (LANE // np.uint64(8) % np.uint64(4) * np.uint64(32))
    assert met(matrix(8), exact(turned)) == (4, 0)


def test_the_fewest_are_counted_where_a_line_may_begin_anywhere() -> None:
    somewhere = add(UNIFORM, exact(LANE * np.uint64(16) + np.uint64(32)))
    assert somewhere is not None
    assert met(matrix(32), somewhere) == (4, 0)
    known = exact(LANE * np.uint64(16) + np.uint64(32))
    assert met(known, known) == (5, 0)


def test_known_bits_of_where_a_row_begins_count() -> None:
    """A base that 64 divides leaves a row that begins 32 bytes on across the lines."""
    at = add(multiply(UNIFORM, exact(np.full((1, 1), 64))), exact(LANE * np.uint64(16) + 32))
    assert at is not None
    assert met(at, exact(LANE * np.uint64(16))) == (8, 0)


def test_a_piece_that_two_lanes_copy_is_one() -> None:
    twice = exact(LANE // np.uint64(2) * np.uint64(16))
    assert met(twice, twice) == (2, 0)


def test_warps_are_averaged_and_what_cannot_be_is_no_copy() -> None:
    warps = np.concatenate([LANE * np.uint64(16), LANE * np.uint64(16) + np.uint64(64)])
    assert line_pairs(matrix(32), exact(warps), 2) == LinePairs(free=6, crowded=0)
    assert line_pairs(matrix(32), exact(LANE * np.uint64(8)), 1) is None  # not aligned
    assert line_pairs(matrix(32), matrix(8), 1) is None  # shared memory has no rows unknown apart


@needs_nvrtc
@pytest.mark.parametrize(
    "pattern", [p for p in patterns() if p.piece_bytes == 16], ids=lambda p: f"{p.run_bytes}"
)
def test_code_of_a_microbenchmark_meets_what_its_pattern_says(pattern: Pattern) -> None:
    """Its rows are a known distance apart, and the array's first piece begins a line."""
    counts = [pairs.count for pairs in of_source(pattern.source(), 256).values()]
    assert len(counts) == 8  # a trip's copies, which padded rows move against the lines
    assert sum(counts) / len(counts) == pattern.line_pairs()


def of_source(source: Source, threads: int) -> dict[int, LinePairs]:
    (kernel,) = read_cubin(compile_cubin(source, "sm_90a").code).kernels
    instructions = decode(kernel.code, kernel.arch)
    return loop_accesses(instructions, Loop(instructions), threads).lines


@pytest.mark.every(3)
@needs_nvrtc
@pytest.mark.parametrize("name", ["dNN", "dNT", "dTN", "dTT", "zNN", "zTC"])
def test_tensor_cores_get_whole_lines(name: str) -> None:
    """Along m, n and k alike: what DGEMM's copies cost is the least there is."""
    of = variant(name)
    trans = name[1:]
    seen = inspect_config(stencil="mma_f64", precision=of.precision.letter, trans=trans).kernel
    loop = seen.loop
    assert loop is not None
    copies = [i for i in loop.instructions if i.mnemonic == "LDGSTS"]
    assert copies
    assert {seen.lines[i.address] for i in copies} == {LinePairs(free=4, crowded=0)}


@needs_nvrtc
def test_rows_of_half_a_line_meet_twice_as_many() -> None:
    """Planes of eight doubles along k, as in a layer that is less deep than a line."""
    device, of = architecture_spec("sm_90a"), variant("dTN")
    family = stencil("mma_f64")
    config = family.default(of, device).replace(block_k=8, stages=4)
    pairs = of_source(family.source(config, of, "cuda"), family.resources(config, of).threads)
    assert LinePairs(free=8, crowded=0) in pairs.values()


def test_crowded_lines_bound_a_loop() -> None:
    copy = decode_one(word(0xFAE, 4, 8, extra=6 << 73 | 7 << 87), 16, 90)
    assert copy.name.startswith("LDGSTS")
    body = (replace(ffma(1, 2, 3, 255), address=0), copy)
    loop = Loop(body)
    lines = {16: LinePairs(free=0, crowded=16)}
    plain, crowded = (loop_cycles(body, loop, 90, 1, 4, lines=one) for one in (None, lines))
    assert "copies" not in plain.terms
    assert crowded.terms["copies"] == pytest.approx(4 * 16 * 1.75)
    assert crowded.bound_by == "copies"
    assert crowded.cycles == pytest.approx(4 * 16 * 1.75)
    assert annotate(loop, crowded, lines=lines).endswith("16 pairs of lines, 16 crowded")
    whole = {16: LinePairs(free=4, crowded=0)}
    assert annotate(loop, plain, lines=whole).endswith("4 pairs of lines")


@pytest.mark.parametrize(("size", "cycles"), [(4, 4.3), (5, 5.8)])
def test_copies_of_single_elements_count_wherever_they_lie(size: int, cycles: float) -> None:
    """Of 4 and of 8 bytes, with what no address says; one that is switched off costs none."""
    copy = decode_one(word(0xFAE, 4, 8, extra=size << 73 | 7 << 87), 16, 90)
    body = (replace(ffma(1, 2, 3, 255), address=0), copy)
    terms = loop_cycles(body, Loop(body), 90, 1, 4).terms
    assert terms["copies"] == pytest.approx(4 * cycles)
    off = (body[0], replace(copy, guard=replace(copy.guard, index=7, negated=True)))
    assert "copies" not in loop_cycles(off, Loop(off), 90, 1, 4).terms


def test_eight_lanes_that_meet_three_lines_are_crowded() -> None:
    """Whatever the other lanes of the warp meet; a pair that both meet counts once."""
    rows = np.array([[0, 0, 0, 1, 1, 1, 2, 2, *([3] * 8), *([4] * 8), *([5] * 8)]], np.uint64)
    at = add(multiply(exact(rows), UNIFORM), exact(LANE % np.uint64(8) * np.uint64(16)))
    assert at is not None
    assert met(at, exact(LANE * np.uint64(16))) == (3, 3)


@needs_nvrtc
def test_the_report_has_them() -> None:
    seen = inspect_config(stencil="mma_f64", precision="d", trans="TN").kernel
    assert seen.cycles is not None
    assert 0 < seen.cycles.terms["copies"] < seen.cycles.terms["pipe"] / 4
    document = seen.as_dict()
    assert {"free": 4.0, "crowded": 0.0} in document["lines"].values()
