"""Whether a product in residues is expected to be faster than the native kernel."""

from __future__ import annotations

from tilewright.backend import GemmCall, LiveDevice
from tilewright.hardware import DeviceSpec
from tilewright.problem import Problem
from tilewright.serve.realigned import expected_ns, way_of
from tilewright.stencil.residues.sources import Passes

__all__ = ["is_worth", "native_seconds", "residue_seconds"]

# All of an H100 SXM (2026-11-26).
# What is left of calls from 2048 to 8192 without bytes and products: ten launches.
_LAUNCHES = 110e-6
# What passes read and write together at 8192: from 1.9 TB/s (putting results together) to 3.0.
_BYTES_PER_SECOND = 2.5e12
# Products of residues at 8192 took 9.83 ms for 14 moduli, a bound in FP8 0.76 ms.
_INT8_PER_SECOND, _FP8_PER_SECOND = 14 * 2 * 8192**3 / 9.83e-3, 2 * 8192**3 / 0.76e-3
_TILE_M, _TILE_N, _MULTIPROCESSORS = 256, 128, 132
# DGEMM and ZGEMM from 2048 on, where nothing is known of a kernel's time.
_NATIVE_PER_SECOND = 54e12
# Sizes from 3072 to 16384 took up to 8 % more than this says, and a call may take more moduli.
_SURELY = 1.05


def is_worth(live: LiveDevice, problem: Problem, call: GemmCall) -> bool:
    """Whether the fewest moduli are expected to take less time than the native kernel."""
    return _SURELY * residue_seconds(live.spec, problem) < native_seconds(live, problem, call)


def native_seconds(live: LiveDevice, problem: Problem, call: GemmCall) -> float:
    """Return what the native kernel takes: as its portfolio has it, or else at its best."""
    ns = expected_ns(live, way_of(live, problem, call))
    if ns is not None:
        return ns * 1e-9
    flops = (8 if problem.precision.is_complex else 2) * problem.m * problem.n * problem.k
    return flops / (_NATIVE_PER_SECOND * _share(live.spec))


def residue_seconds(device: DeviceSpec, problem: Problem) -> float:
    """Return what all passes and products take, with the fewest moduli."""
    p = problem
    of = Passes(p.m, p.n, p.k, is_complex=p.precision.is_complex)
    planes, element = of.moduli.planes * of.moduli.first, p.precision.element_bytes
    operands = (2 * element + 1 + planes) * (p.m + p.n) * p.k
    results = (planes + element + 4) * p.m * p.n
    tiles = -(-p.m // _TILE_M) * -(-p.n // _TILE_N)
    waves, waves_of_bound = (-(-many // device.multiprocessors) for many in (planes * tiles, tiles))
    wave = 2 * _TILE_M * _TILE_N * p.k * _MULTIPROCESSORS
    products = wave * (waves / _INT8_PER_SECOND + waves_of_bound / _FP8_PER_SECOND)
    return _LAUNCHES + (operands + results) / (_BYTES_PER_SECOND * _share(device)) + products


def _share(device: DeviceSpec) -> float:
    return device.multiprocessors / _MULTIPROCESSORS
