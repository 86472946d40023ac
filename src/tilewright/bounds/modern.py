"""What bounds GEMM since blocks reach shared memory past the registers (Ampere and later).

The questions are Lai & Seznec's; what changed is that thread tiles need not be square, loads are
128 bits wide, prefetching takes no registers, one instruction a scheduler and cycle serves both
multiply-adds and loads, and blocks may split k.  Every search here keeps the best of all
choices and ignores loop overhead: a kernel of this kind cannot be faster, but for what a finer
division of the work than 32 parts of k could win back of the tail.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from tilewright.hardware.catalogue import CatalogueDevice
from tilewright.hardware.quantity import Mix
from tilewright.problem import Problem

__all__ = [
    "MIX_NEEDS",
    "SPLITS",
    "Compiled",
    "Tile",
    "best_tile",
    "cache_rate",
    "table_of",
    "tabulated_mix",
    "tail_efficiency",
    "tiles",
]

# What `best_tile` needs of a device beside the lanes that multiply.
MIX_NEEDS = (
    "multiprocessors",
    "warp_size",
    "issue_lanes",
    "shared_load_lanes",
    "max_registers_per_thread",
    "registers_per_multiprocessor",
)
_LOAD_WORDS = 4  # a load of 128 bits brings a thread four 32-bit registers
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)  # finer ones change the last wave by under 1 %
# Tensor cores take tiles of 16 x 8 (mma.sync of every type, PTX ISA); larger ones are multiples.
_MATRIX_ROWS, _MATRIX_COLUMNS = 16, 8


@dataclass(frozen=True)
class Compiled:
    """What was found in a compiled kernel's machine code; either share may be unknown.

    Parameters
    ----------
    useful_share : float, optional
        Multiply-adds among the instructions of the main loop.
    port_share : float, optional
        Share of the multiply-add rate that register ports and operand reuse allow.

    Raises
    ------
    ValueError
        If a share is not above 0 and at most 1.
    """

    useful_share: float | None = None
    port_share: float | None = None

    def __post_init__(self) -> None:
        for name in ("useful_share", "port_share"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= 1:
                raise ValueError(f"{name}={value} is no share; give a number above 0, at most 1")


@dataclass(frozen=True)
class Tile:
    """A thread's tile, the block around it, and the shares of the peak that they leave.

    Parameters
    ----------
    rows, columns : int
        Elements of C that a thread holds.
    block_m, block_n : int
        Elements of C that a block holds.
    split_k : int
        Parts of k that different blocks take.
    share : float
        Multiply-adds among the instructions of the main loop.
    mix : float
        Share of the peak that issue slots and shared memory allow.
    tail : float
        Share of the multiprocessors' time that computes elements of C.
    resource : str
        What sets `mix`.
    """

    rows: int
    columns: int
    block_m: int
    block_n: int
    split_k: int
    share: float
    mix: float
    tail: float
    resource: str

    @property
    def efficiency(self) -> float:
        """Share of the peak that is left."""
        return self.mix * self.tail


def tail_efficiency(
    problem: Problem, multiprocessors: int, bm: int, bn: int, split_k: int
) -> float:
    """Return the share of time that is left by whole blocks on whole multiprocessors.

    The fullest multiprocessor takes ceil(blocks / multiprocessors) blocks, which may be parts
    of k; its time counts, with the padding at the edges.

    Parameters
    ----------
    problem : Problem
        Its m, n and batch.
    multiprocessors : int
        Multiprocessors.
    bm, bn, split_k : int
        Elements of a block and parts of k.
    """
    blocks = -(-problem.m // bm) * -(-problem.n // bn) * problem.batch * split_k
    most = -(-blocks // multiprocessors) / split_k
    return problem.batch * problem.m * problem.n / (most * multiprocessors * bm * bn)


def tiles(
    device: CatalogueDevice, lane: str, words: int, instructions: float
) -> Iterator[tuple[int, int, float, float, str]]:
    """Yield (rows, columns, share, mix, resource) of every thread tile that registers hold.

    Parameters
    ----------
    device : CatalogueDevice
        Its `MIX_NEEDS` and `lane` must be known.
    lane : str
        Quantity of the lanes that multiply.
    words : int
        32-bit registers of an element.
    instructions : float
        Instructions of one multiply-add of elements.
    """
    r_max = int(device.needs("max_registers_per_thread"))
    issue, load = device.needs("issue_lanes"), device.needs("shared_load_lanes")
    lanes, warp = device.needs(lane), int(device.needs("warp_size"))
    divisors = [p for p in range(1, warp + 1) if warp % p == 0]
    for rows, columns in product(range(1, r_max), repeat=2):
        if rows * columns * words >= r_max:  # nearly all: told apart at once
            continue
        # C's tile, one operand's line and one load's worth of the other's.
        if (rows * columns + min(rows, columns)) * words + max(words, _LOAD_WORDS) > r_max:
            continue
        useful = rows * columns * instructions
        loads = -(-rows * words // _LOAD_WORDS) + -(-columns * words // _LOAD_WORDS)
        # Of a warp of p x q threads, rows p + columns q elements differ; the rest is broadcast.
        distinct = min(rows * p + columns * (warp // p) for p in divisors) * words / warp
        cycles = {
            "issue slots": (useful + loads) / issue,
            "multiply-add units": useful / lanes,
            "load/store units": distinct / load,
        }
        resource = max(cycles, key=lambda name: cycles[name])
        mix = cycles["multiply-add units"] / cycles[resource]
        yield rows, columns, useful / (useful + loads), mix, resource


def best_tile(
    problem: Problem,
    device: CatalogueDevice,
    lane: str,
    instructions: float,
    *,
    tabulated: bool = False,
) -> Tile:
    """Return the tile, block and split of k that leave most of the peak.

    Parameters
    ----------
    problem : Problem
        Sizes and precision.
    device : CatalogueDevice
        Its `MIX_NEEDS` and `lane` must be known.
    lane : str
        Quantity of the lanes that multiply: ``"fma_lanes.s"`` or ``"fma_lanes.d"``, or
        ``"tensor..."``: tensor cores, which other instructions do not hold up.
    instructions : float
        Instructions of one multiply-add of elements.

    Raises
    ------
    ValueError
        If a number of the device is unknown.
    """
    words = max(1, problem.precision.element_bytes // 4)
    held = int(device.needs("registers_per_multiprocessor")) // words
    best: Tile | None = None
    if lane.startswith("tensor"):
        shapes: Iterable[tuple[int, int, float, float, str]] = (
            (_MATRIX_ROWS, _MATRIX_COLUMNS, 1.0, 1.0, "tensor cores"),
        )
        sides: Iterable[tuple[int, int]] = product(range(1, 33), range(1, 65))
    else:
        every = tiles(device, lane, words, instructions)
        shapes = sorted(_derated(device, lane, every) if tabulated else every, key=lambda t: -t[3])
        sides = [
            (p, q) for p, q in product([1 << i for i in range(11)], repeat=2) if 32 <= p * q <= 1024
        ]
    sides = list(sides)
    count = int(device.needs("multiprocessors"))
    for rows, columns, share, mix, resource in shapes:
        if best is not None and mix <= best.efficiency:
            break  # sorted: no later tile can be better, tails are at most 1
        for p, q in sides:
            bm, bn = rows * p, columns * q
            if bm * bn > held:
                continue
            # What edges leave is the most that a tail can, however k is split.
            padded = -(-problem.m // bm) * bm * -(-problem.n // bn) * bn
            if best is not None and mix * problem.m * problem.n <= best.efficiency * padded:
                continue
            for split in SPLITS:
                if split > max(1, problem.k):
                    break
                tail = tail_efficiency(problem, count, bm, bn, split)
                if best is None or mix * tail > best.efficiency:
                    best = Tile(rows, columns, bm, bn, split, share, mix, tail, resource)
    assert best is not None
    return best


def _derated(
    device: CatalogueDevice, lane: str, every: Iterable[tuple[int, int, float, float, str]]
) -> Iterator[tuple[int, int, float, float, str]]:
    """Yield tiles as `tiles` does, their mixes as the device's table leaves them."""
    known: dict[tuple[float, float], float] = {}  # few ratios are different
    for rows, columns, share, mix, resource in every:
        if (share, mix) not in known:
            known[share, mix] = tabulated_mix(device, lane, share, mix)
        yield rows, columns, share, known[share, mix], resource


def table_of(device: CatalogueDevice) -> tuple[Mix, ...]:
    """Return the device's mixes with 128-bit loads that bound a GEMM.

    Where the same word goes to all lanes a load takes one pass, less than any thread tile's: a
    kernel gains nothing over that.  Where those were not measured up to the same ratio, the
    paper's mixes have to do.
    """
    wide = [m for m in device.mixes if m.width_bits == 32 * _LOAD_WORDS and m.ratio > 0]
    broadcast = [m for m in wide if m.lanes == "broadcast"]
    others = [m for m in wide if m.lanes != "broadcast"]
    whole = max((m.ratio for m in broadcast), default=0) >= max(
        (m.ratio for m in others), default=0
    )
    return tuple(sorted(broadcast if whole else others, key=lambda m: m.ratio))


def tabulated_mix(device: CatalogueDevice, lane: str, share: float, mix: float) -> float:
    """Return the share of the peak that the device's table of mixes leaves a tile.

    Multiply-adds a cycle cannot fall when fewer loads come between them.  So a tile has at
    most what is tabulated up to the next ratio at or above its own; beyond the last one,
    the units' rate derated as there.

    Parameters
    ----------
    device : CatalogueDevice
        Its table of mixes, and its `lane`.
    lane : str
        Quantity of the lanes that multiply.
    share : float
        Multiply-adds among the tile's instructions.
    mix : float
        Share of the peak that the units leave, which is not exceeded.
    """
    table, lanes = table_of(device), device.needs(lane)
    if not table:
        return mix
    # Compared as shares, which are rounded like the tile's own.
    above = [m for m in table if m.ratio / (m.ratio + 1) >= share - 1e-9]
    if not above:
        last = table[-1]
        units = min(device.needs("issue_lanes"), lanes * (last.ratio + 1) / last.ratio)
        return mix * min(1.0, last.throughput / units)
    upto = [m for m in table if m.ratio <= above[0].ratio]
    rate = max(m.throughput * m.ratio / (m.ratio + 1) for m in upto)
    return min(mix, rate / lanes)


def cache_rate(problem: Problem, bandwidth: float, b: float, element_bytes: int) -> float:
    """Return the FLOP/s that a shared cache feeds when blocks of b x b elements read it.

    Nakasato's equation 1 at the level of blocks: A is read once for every block of columns
    and B once for every block of rows, each at least once.

    Parameters
    ----------
    problem : Problem
        Its sizes.
    bandwidth : float
        Bytes a second.
    b : float
        Blocking factor.
    element_bytes : int
        Of A and B.
    """
    m, n, k = problem.m, problem.n, problem.k
    # A block as large as b x b, but no wider than the problem, reads least.
    bm, bn = (m, b * b / m) if m < b else (b * b / n, n) if n < b else (b, b)
    traffic = (m * k * max(1.0, n / bn) + k * n * max(1.0, m / bm)) * element_bytes
    return bandwidth * problem.flops / (traffic * problem.batch)
