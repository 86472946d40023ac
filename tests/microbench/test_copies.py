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

needs_nvrtc = pytest.mark.skipif(nvrtc() is None, reason="needs NVRTC: tilewright[tune]")


def of_a_trip(pattern: Pattern) -> list[tuple[int, int]]:
    """Return where all pieces of a warp's trip lie: in device and shared memory."""
    defines = pattern.source().defines
    return [
        (at + copy * int(defines["NEXT"]), to + copy * pattern.step)
        for copy in range(int(defines["COPIES"]))
        for at, to in pattern.places()
    ]


@pytest.mark.parametrize("pattern", list(patterns()), ids=str)
def test_pieces_lie_apart_and_are_aligned(pattern: Pattern) -> None:
    """Those of all copies of a trip, in the shared memory that a warp has."""
    places = of_a_trip(pattern)
    for side in zip(*places, strict=True):
        assert len(set(side)) == len(places)
        assert all(at % pattern.piece_bytes == 0 for at in side)
    most = int(pattern.source().defines["WARP_BYTES"])
    assert max(to for _, to in places) + pattern.piece_bytes <= most


@pytest.mark.parametrize("pattern", list(patterns()), ids=str)
def test_no_piece_is_read_again_before_all_others(pattern: Pattern) -> None:
    """Else the first cache, or copies on their way, would serve it."""
    defines = pattern.source().defines
    row, trip = int(defines["STRIDE"]), int(defines["TRIP"])
    reads = {
        (at // row, (at + n * trip) % row)
        for at, _ in of_a_trip(pattern)
        for n in range(row // trip)
    }
    assert len(reads) * pattern.piece_bytes == pattern.warp_rows * row
    assert int(defines["THREADS"]) // 32 * pattern.warp_rows * row >= 512 * 1024


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
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_a_trip_is_so_many_copies(arch: str) -> None:
    for pattern in patterns():
        check(compile_cubin(pattern.source(), arch).code, pattern)


@needs_nvrtc
@pytest.mark.parametrize("change", [{"COPIES": 4}, {"BYTES": 8, "RUN": 64}])
def test_a_loop_of_other_copies_is_refused(change: dict[str, int]) -> None:
    pattern = Pattern(16, 128, 128)
    source = pattern.source()
    other = replace(source, defines=source.defines | change)
    with pytest.raises(LoopRejectedError, match=r"'LDGSTS\.E\.128': 8"):
        check(compile_cubin(other, "sm_90a").code, pattern)


def test_the_command_line_knows_it() -> None:
    assert experiments()["copies"].backends == ("cuda",)


@pytest.mark.gpu
@pytest.mark.alone
def test_every_pattern_is_timed(cuda: CUDADevice) -> None:
    rows: list[Row] = []
    run(cuda, rows.append, 60.0)
    assert len(rows) == len(list(patterns()))
    assert not [row for row in rows if "error" in row]
    assert all(float(row["bytes_per_cycle"] or 0) > 0 for row in rows)
