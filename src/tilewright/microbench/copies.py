"""Bytes a cycle that asynchronous copies bring to shared memory, by how pieces lie in both.

One row a pattern: what 32 lanes read side by side in device memory, and where that lies in shared
memory.  A copy of 16 bytes a lane goes past the first cache; what it costs is the pairs of a line
of the caches and a line of shared memory that its pieces meet (`line_pairs`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial

from tilewright.backend import LiveDevice
from tilewright.microbench.experiment import Experiment, Row
from tilewright.microbench.loops import check_names
from tilewright.microbench.points import Point
from tilewright.microbench.sources import kernel_file
from tilewright.microbench.timing import LoopTimer, time_loops
from tilewright.stencil import Source

__all__ = ["EXPERIMENT", "LINE_BYTES", "Pattern", "patterns", "run"]

# A line of the caches, and of shared memory: 32 banks of 4 bytes.
LINE_BYTES = 128
# Half of the warps that a multiprocessor has: they hide the second cache's latency (128 copies of
# 512 bytes are on their way), and leave each shared memory enough on every device.
_LANES, _WARPS, _COPIES = 32, 8, 8
# Rows are a leading dimension of 4096 doubles apart; each warp has rows of its own, and walks along
# them.  A block's are 512 KiB and more, twice what a first cache holds; all blocks share them, as
# those of one row or column of C do, so that a second cache has room.
_STRIDE = 32768
# Where blocks begin in the rows that they share: at as many places.
_PLACES = 16
# Shared memory of a warp: all of a trip's copies.
_WARP_BYTES = 10 * 1024
# What a cycle brings, roughly: the number of trips follows from it.
_LIKELY_BYTES = 32
# Besides the copies: addresses of eight rows, where they wrap, three empty reads that compilers put
# before copies, the group, the counter and the branch.
_EXTRA = 28
_NAMES = {16: "LDGSTS.E.128", 8: "LDGSTS.E.64", 4: "LDGSTS.E"}


@dataclass(frozen=True)
class Pattern:
    """How the pieces of a copy lie.

    Parameters
    ----------
    piece_bytes : int
        What a lane copies: 4, 8 or 16.
    run_bytes : int
        What lies side by side in device memory; rows of as much are 32 KiB apart.
    part_bytes : int
        What of a run lies side by side in shared memory too; the parts of other rows come next,
        and then the next parts of all rows.  0: runs are transposed.
    shift_bytes : int
        By how much each copy's place is moved against the line: rows that are longer by so much.
        Of what is transposed, how much a row is longer than its 64 pieces.
    turned : bool
        Of what is transposed: whether pieces are exchanged with those of another row, 8 pieces with
        the same one, so that no two of a run lie in one bank.
    """

    piece_bytes: int
    run_bytes: int
    part_bytes: int
    shift_bytes: int = 0
    turned: bool = False

    @property
    def lanes(self) -> int:
        """Lanes side by side in device memory."""
        return self.run_bytes // self.piece_bytes

    @property
    def rows(self) -> int:
        """Runs of a copy."""
        return _LANES // self.lanes

    @property
    def pitch(self) -> int:
        """Bytes between a run's pieces where it is transposed, else 0."""
        return 0 if self.part_bytes else 64 * self.piece_bytes + self.shift_bytes

    @property
    def side_by_side(self) -> bool:
        """Whether all of a copy is one run: its copies take a row each."""
        return self.rows == 1

    @property
    def plane(self) -> int:
        """Bytes from a run's part to its next, behind those of all of a trip's rows.

        64 more, so that two parts of 32 bytes, one behind the other, lie in different banks.
        """
        if self.part_bytes in (0, self.run_bytes):
            return 0
        return _COPIES * self.rows * self.part_bytes + 64

    def places(self) -> list[tuple[int, int]]:
        """Return where the lanes' pieces of the first copy lie: in device and shared memory."""
        found = []
        for lane in range(_LANES):
            row, piece = divmod(lane, self.lanes)
            there = piece * self.piece_bytes
            if self.part_bytes:
                part, within = divmod(there, self.part_bytes)
                to = part * self.plane + row * self.part_bytes + within
            else:
                moved = row ^ (piece // 8 if self.turned else 0)
                to = piece * self.pitch + moved * self.piece_bytes
            found.append((row * _STRIDE + there, to))
        return found

    @property
    def step(self) -> int:
        """Bytes in shared memory from one copy of a trip to the next: behind the other's rows."""
        longer = self.shift_bytes if self.part_bytes else 0  # than their run, if not transposed
        return self.rows * (self.part_bytes or self.piece_bytes) + longer

    @property
    def warp_rows(self) -> int:
        """Rows of device memory that a warp reads."""
        return self.rows * (_COPIES if self.side_by_side else 1)

    def line_pairs(self) -> float:
        """Return the pairs of a line of the caches and one of shared memory that a copy meets.

        The mean over a trip's copies, which padded rows move against the lines.
        """
        pairs = 0
        for copy in range(_COPIES):
            ends = [
                (at + byte, to + byte + copy * self.step)
                for at, to in self.places()
                for byte in (0, self.piece_bytes - 1)
            ]
            pairs += len({(at // LINE_BYTES, to // LINE_BYTES) for at, to in ends})
        return pairs / _COPIES

    def source(self) -> Source:
        """Return the specialised text."""
        defines: dict[str, int | str] = {
            "BYTES": self.piece_bytes,
            "RUN": self.run_bytes,
            "STRIDE": _STRIDE,
            "NEXT": _STRIDE if self.side_by_side else self.run_bytes,
            "PART": self.part_bytes or 1,
            "PLANE": self.plane,
            "PITCH": self.pitch,
            "TURNED": int(self.turned),
            "STEP": self.step,
            "COPIES": _COPIES,
            "THREADS": _LANES * _WARPS,
            "WARP_BYTES": _WARP_BYTES,
            "WARP_ROWS": self.warp_rows,
            "TRIP": self.run_bytes * (1 if self.side_by_side else _COPIES),
            "PLACES": _PLACES,
        }
        shared = _WARPS * _WARP_BYTES
        return Source(kernel_file("copies.cu"), defines, "loop", dynamic_shared_bytes=shared)


def patterns() -> Iterator[Pattern]:
    """Yield every pattern, those that kernels have first."""
    for shift in (0, 16, 32, 64):  # rows along m or n, padded
        yield Pattern(16, 512, 512, shift)
    for run in (64, 128):  # rows along k, and their parts
        yield from (Pattern(16, run, part) for part in (32, 64, 128) if part <= run)
    yield Pattern(16, 32, 32)
    for piece in (8, 4):
        yield Pattern(piece, _LANES * piece, _LANES * piece)
        for run in (32, 64, 128):
            yield Pattern(piece, run, 0, 16)
            if run // piece > 8:
                yield Pattern(piece, run, 0, 16, turned=True)


def _points(timer: LoopTimer) -> Iterator[Point]:
    for pattern in patterns():
        row: Row = {**asdict(pattern), "line_pairs": pattern.line_pairs()}
        yield row, partial(measured, timer, pattern)


def run(device: LiveDevice, emit: Callable[[Row], None], seconds: float) -> None:
    """Measure every pattern; see `Experiment`."""
    rows = max(pattern.warp_rows for pattern in patterns())
    time_loops(device, emit, seconds, _points, _WARPS * rows * _STRIDE // 4)


def measured(timer: LoopTimer, pattern: Pattern) -> Row:
    """Return what one pattern takes."""
    source = pattern.source()
    cubin = timer.device.compile(source).handle.cubin
    check(cubin.code, pattern)
    moved = _LANES * pattern.piece_bytes * _COPIES * _WARPS
    kernel = timer.load(cubin, source.dynamic_shared_bytes)
    # The first time the second cache may hold nothing of what is read.
    took = [timer.time(kernel, _WARPS, moved / _LIKELY_BYTES) for _ in range(2)][-1]
    each = moved / took.cycles
    rate = None if took.clock_hz is None else each * timer.multiprocessors * took.clock_hz
    return {
        "bytes_per_cycle": round(each, 2),
        "cycles_per_copy": round(took.cycles / (_COPIES * _WARPS), 3),
        "clock_hz": took.clock_hz,
        "bytes_per_second": rate,
    }


def check(code: bytes, pattern: Pattern) -> None:
    """Refuse a compiled source whose loop is not a trip's copies and little else.

    Raises
    ------
    LoopRejectedError
        If no loop is like that.
    """
    check_names(code, {_NAMES[pattern.piece_bytes]: _COPIES}, _EXTRA)


EXPERIMENT = Experiment(
    "copies",
    "asynchronous copies to shared memory, bytes a cycle by how pieces lie in both memories",
    ("cuda",),
    run,
)
