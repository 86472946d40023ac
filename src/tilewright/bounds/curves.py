"""The papers' figures as numbers, for any device: what a drawing needs, and nothing drawn.

A curve is a list of (x, y); where a device's number is unknown, a ValueError names it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.bounds import lai_seznec, modern, nakasato
from tilewright.bounds.units import units_of
from tilewright.hardware.catalogue import CatalogueDevice
from tilewright.precision import Precision
from tilewright.problem import Problem

__all__ = ["blocking_curves", "share_curves", "throughput_curves", "transfer_curve"]

Curve = list[tuple[float, float]]
_RATIOS = range(65)  # multiply-adds to one load: Figure 2 goes to 32, its modern form to 64
_FACTORS = range(1, 17)  # 16 x 16 single-precision accumulators are more than any thread has


def _name(width: int) -> str:
    return f"{width}-bit loads"


def share_curves(precision: Precision) -> dict[str, Curve]:
    """Return Figure 1 of Lai & Seznec: multiply-adds in the main loop against B_R."""
    return {
        _name(width): [(b, lai_seznec.ffma_share(b, width, precision)) for b in _FACTORS]
        for width in lai_seznec.WIDTHS
    }


def throughput_curves(device: CatalogueDevice) -> tuple[dict[str, Curve], dict[str, Curve]]:
    """Return Figure 2 of Lai & Seznec: instructions a cycle against multiply-adds a load.

    Returns
    -------
    modelled : dict of str to list
        Equation 9 as `lai_seznec.throughput` has it, by the load's width.
    known : dict of str to list
        The device's tabulated points.

    Raises
    ------
    ValueError
        If a unit's rate is unknown.
    """
    modelled: dict[str, Curve] = {}
    known: dict[str, Curve] = {}
    for width in lai_seznec.WIDTHS:
        modelled[_name(width)] = [(r, lai_seznec.throughput(device, r, width)[0]) for r in _RATIOS]
        points = sorted(
            (m.ratio, m.throughput)
            for m in device.mixes
            if m.width_bits == width and m.lanes == "conflict_free"
        )
        if points:
            known[_name(width)] = points
    return modelled, known


def blocking_curves(device: CatalogueDevice, precision: Precision) -> dict[str, Curve]:
    """Return the bound in FLOP/s against the register blocking factor.

    By the model that fits the device, as in `tilewright.bound`: equation 12 for each
    width of load, the read cache's equation 1, or the mix of square tiles, also derated where
    the device has a table of mixes.

    Raises
    ------
    ValueError
        If a number of the device is unknown.
    """
    problem = Problem(1, 1, 1, precision)
    units = units_of(problem, device, "ieee", None)
    peak = units.peak(device)
    if peak.value is None:
        raise ValueError(peak.reason)
    if device.get("wave_registers") is not None:
        return {"read cache (eq. 1)": _cache_curve(device, precision, peak.value)}
    if device.value("async_copy") == 1:
        if units.lane.startswith("tensor"):
            return {units.label: [(b, peak.value) for b in _FACTORS]}
        words = precision.element_bytes // 4
        square = [
            (float(rows), share, mix)
            for rows, columns, share, mix, _ in modern.tiles(
                device, units.lane, words, units.instructions
            )
            if rows == columns
        ]
        found = {"square tiles, 128-bit loads": [(x, peak.value * mix) for x, _, mix in square]}
        if units.lane == "fma_lanes.s" and modern.table_of(device):
            found["the same, as the table says"] = [
                (x, peak.value * modern.tabulated_mix(device, units.lane, share, mix))
                for x, share, mix in square
            ]
        return found
    best: dict[str, dict[int, float]] = {}
    for one in lai_seznec.blockings(device, precision, peak.value):
        by_factor = best.setdefault(_name(one.width_bits), {})
        by_factor[one.b_r] = max(by_factor.get(one.b_r, 0.0), one.p_potential)
    return {name: [(float(x), y) for x, y in sorted(c.items())] for name, c in best.items()}


def _cache_curve(device: CatalogueDevice, precision: Precision, peak: float) -> Curve:
    """Return min(peak, equation 1) for every b that leaves two wavefronts."""
    bandwidth = device.needs("cache_bytes_per_s") * device.needs("multiprocessors")
    most = nakasato.largest_cache_block(device, precision)
    size, flops = precision.element_bytes, precision.flops
    return [
        (b, min(peak, nakasato.attainable(bandwidth, b, size, flops))) for b in range(1, most + 1)
    ]


def transfer_curve(precision: Precision, link: float, rate: float, sizes: Sequence[int]) -> Curve:
    """Return Figure 7 of Nakasato: FLOP/s with transfer against N (equations 3 to 5).

    Parameters
    ----------
    precision : Precision
        Of the square problems.
    link, rate : float
        B_PCIe in bytes a second and F in FLOP/s.
    sizes : sequence of int
        N.
    """
    return [(n, nakasato.transfer_rate(Problem(n, n, n, precision), link, rate)) for n in sizes]
