"""Bytes a cycle that asynchronous copies bring to shared memory, by how pieces lie in both.

One row a pattern: what 32 lanes read side by side in device memory, and where that lies in shared
memory.  A copy of 16 bytes a lane goes past the first cache; what it costs is the pairs of a line
of the caches and a line of shared memory that its pieces meet (`line_pairs`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

from tilewright.backend.cuda.device import CUDADevice
from tilewright.microbench.experiment import Device, Experiment, Row, register
from tilewright.microbench.loops import LoopRejectedError
from tilewright.microbench.texts import kernel_text
from tilewright.microbench.timing import Budget, LoopTimer, emitting
from tilewright.sass import decode, find_loops, read_cubin
from tilewright.stencil import Source

__all__ = ["COPIES", "LINE_BYTES", "Pattern", "patterns", "run"]

# A line of the caches, and of shared memory: 32 banks of 4 bytes.
LINE_BYTES = 128
_LANES, _WARPS, _COPIES = 32, 16, 8
# What is read: far more than the first cache holds and well below the 50 MB of an H100's second.
# Rows are a leading dimension of 1024 doubles apart.
_DATA_BYTES, _STRIDE = 8 << 20, 8192
# Runs and their rows end so far behind the last place where a warp begins.
_BEHIND_BYTES = _LANES * _STRIDE + _COPIES * _STRIDE
# Shared memory of a warp: all of a trip's copies.
_WARP_BYTES = 10 * 1024
# A cycle, roughly: with as many the longest run has some hundred trips, the fastest some fifty.
_LIKELY_BYTES = 24


@dataclass(frozen=True)
class Pattern:
    """How the pieces of a copy lie.

    Parameters
    ----------
    piece_bytes : int
        What a lane copies: 4, 8 or 16.
    run_bytes : int
        What lies side by side in device memory; rows of as much are 8 KiB apart.
    part_bytes : int
        What of a run lies side by side in shared memory too; the parts of other rows come next,
        and then the next parts of all rows.  0: runs are transposed.
    shift_bytes : int
        By how much each copy's place is moved against the line: rows that are longer by so much.
        Of what is transposed, how much a row is longer than its 64 pieces.
    turned : bool
        Of what is transposed: whether every eighth row is moved by a piece more.
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
    def plane(self) -> int:
        """Bytes from a run's part to its next; two neighbours of 32 bytes differ in banks."""
        return self.rows * self.part_bytes + 64 if self.part_bytes < self.run_bytes else 0

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
        """Bytes in shared memory from one copy of a trip to the next."""
        if self.part_bytes:
            return _LANES * self.piece_bytes + self.shift_bytes
        return self.rows * self.piece_bytes

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
        side_by_side = self.run_bytes == _LANES * self.piece_bytes
        spread = max(to for _, to in self.places()) + self.piece_bytes
        defines: dict[str, int | str] = {
            "BYTES": self.piece_bytes,
            "RUN": self.run_bytes,
            "STRIDE": _STRIDE,
            "NEXT": _STRIDE if side_by_side else self.run_bytes,
            "PART": self.part_bytes or 1,
            "PLANE": self.plane,
            "PITCH": self.pitch,
            "TURNED": int(self.turned),
            "STEP": self.step,
            "COPIES": _COPIES,
            "THREADS": _LANES * _WARPS,
            "WARP_BYTES": _WARP_BYTES,
            "WARP_APART": self.rows * _STRIDE,
            "BLOCK_APART": self.run_bytes * _COPIES,
            "DATA_BYTES": _DATA_BYTES,
        }
        shared = (_WARPS - 1) * _WARP_BYTES + spread + _COPIES * self.step
        return Source(kernel_text("copies.cu"), defines, "loop", dynamic_shared_bytes=shared)


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


def run(device: Device, emit: Callable[[Row], None], seconds: float) -> None:
    """Measure every pattern; see `Experiment`."""
    assert isinstance(device, CUDADevice)
    budget = Budget(seconds)
    floats = (_DATA_BYTES + _BEHIND_BYTES) // 4
    with LoopTimer(device, floats) as timer:
        for pattern in patterns():
            if budget.spent:
                return
            row: Row = {**asdict(pattern), "line_pairs": pattern.line_pairs()}
            with emitting(row, emit):
                row |= measured(timer, pattern)


def measured(timer: LoopTimer, pattern: Pattern) -> Row:
    """Return what one pattern takes."""
    source = pattern.source()
    cubin = timer.device.compile(source).handle.cubin
    check(cubin.code)
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


def check(code: bytes) -> None:
    """Refuse a compiled text whose loop has other copies than those of a trip.

    Raises
    ------
    LoopRejectedError
        If no loop has as many.
    """
    kernel = read_cubin(code).kernel()
    loops = find_loops(decode(kernel.code, kernel.arch))
    copies = [sum(i.mnemonic == "LDGSTS" for i in loop.instructions) for loop in loops]
    if _COPIES not in copies:
        raise LoopRejectedError(f"loops have {copies} copies and none {_COPIES}; use another NVRTC")


COPIES = register(
    Experiment(
        "copies",
        "asynchronous copies to shared memory, bytes a cycle by how pieces lie in both memories",
        ("cuda",),
        run,
    )
)
