"""Throughput of multiply-adds mixed with shared loads: Lai & Seznec's Figure 2 on this device.

Every loop is one period of `ratio` multiply-adds and a load, repeated as often as it fits.  Loads
and multiply-adds do not depend on each other, so what is measured is what the units take.  Rows
vary in five things:

- the load's width, and ``multiply_add``: FFMA or DFMA;
- ``ratio``: multiply-adds to one load; 0 is loads alone, None multiply-adds alone;
- ``lane_pattern``: which shared addresses lanes read (`STRIDES`);
- ``bank_pattern``: which banks the multiply-adds' registers lie in (`operands`);
- warps a multiprocessor.

`mixes_of` turns rows into the ``[[mixes]]`` tables of a device's TOML.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial

from tilewright.backend import LiveDevice
from tilewright.backend.cuda.device import LoadedKernel
from tilewright.microbench.experiment import Experiment, Row
from tilewright.microbench.loops import Slot, Template, loop_source, template
from tilewright.microbench.points import Point
from tilewright.microbench.timing import WARP, LoopTimer, time_loops
from tilewright.sass import wavefronts

__all__ = ["EXPERIMENT", "Mixture", "mixes_of", "mixture", "points", "run"]

SLOTS = 512
# 32 warps may have 64 registers each: 36 sums and twice 4 factors leave room for addresses.
THREADS, ACCUMULATORS, FACTORS = 1024, 36, 4

RATIOS: tuple[int | None, ...] = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
WIDTHS = {32: "LDS", 64: "LDS.64", 128: "LDS.128"}
WARPS = (4, 8, 16, 32)

# Bytes between neighbouring lanes' addresses, in units of what one lane reads.
STRIDES = {"broadcast": 0, "conflict_free": 1, "conflicting": 2}
OPERANDS = ("kept", "two_banks", "one_bank")

# Multiply-adds that a multiprocessor issues in a cycle at most, in threads: only to guess how
# many trips to run, and what a share of the peak is of (CUDA C++ Programming Guide, arithmetic
# instructions, compute capability 9.0).
_LANES = {"FFMA": 128, "DFMA": 64}
_BANK_CYCLES = {"kept": 1, "two_banks": 1.5, "one_bank": 3}


@dataclass(frozen=True)
class Mixture:
    """What a loop consists of; see the module's text."""

    multiply_add: str
    load_bits: int | None
    ratio: int | None
    bank_pattern: str = "kept"

    @property
    def period(self) -> int:
        """Instructions of one period."""
        return 1 if self.ratio is None else self.ratio + 1


def mixture(loop: Template, mix: Mixture) -> list[Slot]:
    """Return the body of a mixture: whole periods, the load first.

    Raises
    ------
    ValueError
        If the loop leaves too few registers.
    """
    loads, free = _load_registers(loop, mix)
    sums = _multiply_adds(mix, [r for r in loop.registers if r in free])
    body: list[Slot] = []
    for _ in range(SLOTS // mix.period):
        if mix.ratio is not None:
            body.append(next(loads))
        body += itertools.islice(sums, 1 if mix.ratio is None else mix.ratio)
    return body


def _load_registers(loop: Template, mix: Mixture) -> tuple[Iterator[Slot], set[int]]:
    """Return loads into two aligned groups alternately, and the registers that are left."""
    free = set(loop.registers)
    if mix.load_bits is None:
        return itertools.repeat(Slot("LDS", 0)), free
    words = mix.load_bits // 32
    groups = loop.aligned(words)[-2:]
    if len(groups) < 2:
        raise ValueError(f"load_bits={mix.load_bits}: the loop has no registers; use another NVRTC")
    free -= set(itertools.chain(*groups))
    slots = [Slot(WIDTHS[mix.load_bits], group[0]) for group in groups]
    return itertools.cycle(slots), free


def _multiply_adds(mix: Mixture, free: list[int]) -> Iterator[Slot]:
    """Return an endless run of multiply-adds on these registers.

    ``kept``: slot A keeps its register, B and C lie in different banks: two reads a cycle for
    two banks.  ``two_banks``: three different registers, banks alternating, so three reads for two
    banks.  ``one_bank``: all three in one bank.  A double is a register of each bank.
    """
    if mix.multiply_add == "DFMA":
        pairs = [r for r in free if r % 2 == 0 and r + 1 in free]
        a, b, c = pairs[0], pairs[1:5], pairs[5:]
        if len(c) < 8:
            raise ValueError(f"registers={len(free)} are too few for DFMA; use another NVRTC")
        return (
            Slot("DFMA", z, a, y, z, reuse=1)
            for y, z in zip(itertools.cycle(b), itertools.cycle(c), strict=False)
        )
    even, odd = ([r for r in free if r % 2 == bank] for bank in (0, 1))
    if len(even) < 10 or len(odd) < 8:
        raise ValueError(f"registers={len(free)} are too few for FFMA; use another NVRTC")
    if mix.bank_pattern == "kept":
        kept, b, c = even[0], even[1:], odd
        return (
            Slot("FFMA", z, kept, y, z, reuse=1)
            for y, z in zip(itertools.cycle(b), itertools.cycle(c), strict=False)
        )
    if mix.bank_pattern == "one_bank":
        return _three(itertools.cycle(even), itertools.repeat("EEE"), itertools.cycle(odd))
    alternating = itertools.cycle(("EOE", "OEO"))
    return _three(itertools.cycle(even), alternating, itertools.cycle(odd))


def _three(even: Iterator[int], banks: Iterator[str], odd: Iterator[int]) -> Iterator[Slot]:
    """Return multiply-adds of three different registers in these banks."""
    for kind in banks:
        a, b, c = (next(even if bank == "E" else odd) for bank in kind)
        yield Slot("FFMA", c, a, b, c)


def points() -> Iterator[tuple[Mixture, str, int]]:
    """Yield mixture, lane pattern and warps, those that a device's table needs first."""
    for kind in _LANES:
        for warps in WARPS:
            yield Mixture(kind, None, None), "none", warps
    for lanes, kind in itertools.product(("conflict_free", "broadcast", "conflicting"), _LANES):
        for bits, ratio, warps in itertools.product(WIDTHS, RATIOS, WARPS):
            if ratio != 0 or kind == "FFMA":  # loads alone are the same for both
                yield Mixture(kind, bits, ratio), lanes, warps
    for banks in OPERANDS[1:]:
        for warps in WARPS:
            yield Mixture("FFMA", None, None, banks), "none", warps
        for bits, ratio, warps in itertools.product(WIDTHS, (1, 3, 6, 12, 24), (8, 16)):
            yield Mixture("FFMA", bits, ratio, banks), "conflict_free", warps


def _points(timer: LoopTimer) -> Iterator[Point]:
    source = loop_source(THREADS, ACCUMULATORS, FACTORS, SLOTS)
    loop = template(timer.device.compile(source).handle.cubin)

    @lru_cache(maxsize=1)  # points of a mixture come together
    def loaded(mix: Mixture) -> LoadedKernel:
        return timer.load(loop.filled(mixture(loop, mix)))

    def measure(mix: Mixture, lanes: str, warps: int) -> Row:
        return _measured(timer, loaded(mix), mix, lanes, warps)

    for point in points():
        yield _labels(*point), partial(measure, *point)


def run(device: LiveDevice, emit: Callable[[Row], None], seconds: float) -> None:
    """Measure every mixture; see `Experiment`."""
    time_loops(device, emit, seconds, _points)


def _labels(mix: Mixture, lanes: str, warps: int) -> Row:
    return {
        "multiply_add": mix.multiply_add,
        "load_bits": mix.load_bits,
        "ratio": mix.ratio,
        "lane_pattern": lanes,
        "bank_pattern": mix.bank_pattern,
        "warps_per_multiprocessor": warps,
    }


def _measured(timer: LoopTimer, kernel: LoadedKernel, mix: Mixture, lanes: str, warps: int) -> Row:
    periods = SLOTS // mix.period
    multiply_adds = periods * (1 if mix.ratio is None else mix.ratio)
    loads = 0 if mix.ratio is None else periods
    stride, passes = _lanes(mix, lanes)
    port = _BANK_CYCLES[mix.bank_pattern] if mix.multiply_add == "FFMA" else 1
    expected = warps * max(
        multiply_adds * port * WARP / _LANES[mix.multiply_add], loads * passes, SLOTS / 4
    )
    took = timer.time(kernel, warps, expected, stride)
    threads = WARP * warps / took.cycles
    lanes_used = multiply_adds * threads
    return {
        "instructions_per_cycle": round((multiply_adds + loads) * threads, 3),
        "multiply_adds_per_cycle": round(lanes_used, 3),
        "share_of_peak": round(lanes_used / _LANES[mix.multiply_add], 4),
        "loads_per_cycle": round(loads * threads, 3),
        "wavefronts_per_load": passes,
        "wavefronts_per_cycle": round(loads * passes * warps / took.cycles, 4),
        "clock_hz": took.clock_hz,
    }


def _lanes(mix: Mixture, lanes: str) -> tuple[int, int]:
    """Return the stride between lanes in bytes, and the passes that a load takes by the rule."""
    if mix.load_bits is None:
        return 0, 0
    stride = STRIDES[lanes] * mix.load_bits // 8
    return stride, wavefronts([lane * stride for lane in range(WARP)], mix.load_bits)


def mixes_of(
    rows: Iterable[Row], source: str, lane_pattern: str = "conflict_free"
) -> list[dict[str, str | int | float]]:
    """Return rows of FFMA as the ``[[mixes]]`` of a device's TOML, in order of width and ratio.

    Of each width and ratio the occupancy with the highest rate: the table is for an upper bound.

    Parameters
    ----------
    rows : iterable of Row
        What the experiment emitted; failed points are passed over.
    source : str
        Where they are kept, as the TOML's ``source``: a key of its ``[sources]`` and details.
    lane_pattern : str
        The paper's Figure 2 has every lane read words of its own, without conflict.
    """
    best: dict[tuple[int, float], tuple[float, int]] = {}
    for row in rows:
        wanted = (
            row.get("lane_pattern") == lane_pattern
            and row.get("bank_pattern") == "kept"
            and "error" not in row
            # Loads alone are measured once, for FFMA and DFMA.
            and (row.get("multiply_add") == "FFMA" or row.get("ratio") == 0)
        )
        bits, ratio, rate = (row.get(k) for k in ("load_bits", "ratio", "instructions_per_cycle"))
        if not wanted or not isinstance(bits, int) or not isinstance(ratio, int | float):
            continue
        found = float(rate or 0), int(row["warps_per_multiprocessor"] or 0)
        best[bits, ratio] = max(best.get((bits, ratio), found), found)
    return [
        {
            "width_bits": bits,
            "ratio": ratio,
            "throughput": rate,
            "kind": "measured",
            "source": f"{source}, FFMA, {lane_pattern} lanes, {warps} warps",
        }
        for (bits, ratio), (rate, warps) in sorted(best.items())
    ]


EXPERIMENT = Experiment(
    "mixes",
    "multiply-adds mixed with shared loads: rates by width, ratio, lanes, banks, warps",
    ("cuda",),
    run,
)
