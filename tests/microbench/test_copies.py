"""Asynchronous copies: where their pieces lie, and that what is timed is so many of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilewright.backend.cuda.compiler import compile_cubin, nvrtc
from tilewright.backend.cuda.device import CUDADevice
from tilewright.microbench import experiments
from tilewright.microbench.copies import LINE_BYTES, Pattern, check, patterns, run
from tilewright.microbench.experiment import Row
from tilewright.microbench.loops import LoopRejectedError

needs_nvrtc = pytest.mark.skipif(nvrtc() is None, reason="needs NVRTC: tilewright[cuda]")


@pytest.mark.parametrize("pattern", list(patterns()), ids=str)
def test_pieces_lie_apart_and_are_aligned(pattern: Pattern) -> None:
    places = pattern.places()
    for side in zip(*places, strict=True):
        assert len(set(side)) == len(places)
        assert all(at % pattern.piece_bytes == 0 for at in side)


@pytest.mark.parametrize(
    ("pattern", "pairs"),
    [
        (Pattern(16, 512, 512), 4),  # lines as they are
        (Pattern(16, 512, 512, 16), (4 + 7 * 8) / 8),  # all but one copy of eight cut every line
        (Pattern(16, 128, 128), 4),
        (Pattern(16, 128, 32), 16),
        (Pattern(16, 64, 32), 16),  # what DGEMM's planes of 4 steps were
        (Pattern(16, 64, 64), 8),
    ],
    ids=str,
)
def test_pairs_of_lines_are_counted(pattern: Pattern, pairs: float) -> None:
    assert pattern.line_pairs() == pairs
    assert pattern.line_pairs() >= 32 * pattern.piece_bytes / LINE_BYTES


@needs_nvrtc
@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_a_trip_is_so_many_copies(arch: str) -> None:
    for pattern in patterns():
        check(compile_cubin(pattern.source(), arch).code)


@needs_nvrtc
def test_a_loop_of_other_copies_is_refused() -> None:
    source = Pattern(16, 128, 128).source()
    short = replace(source, defines=source.defines | {"COPIES": 4})
    with pytest.raises(LoopRejectedError, match="none 8"):
        check(compile_cubin(short, "sm_90a").code)


def test_the_command_line_knows_it() -> None:
    assert experiments()["copies"].backends == ("cuda",)


@pytest.mark.gpu
def test_every_pattern_is_timed(cuda: CUDADevice) -> None:
    rows: list[Row] = []
    run(cuda, rows.append, 60.0)
    assert len(rows) == len(list(patterns()))
    assert not [row for row in rows if "error" in row]
    assert all(float(row["bytes_per_cycle"] or 0) > 0 for row in rows)
