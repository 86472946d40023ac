"""How a product in residues is best cut, and whether it is faster than the native kernel."""

from __future__ import annotations

from functools import lru_cache

from tilewright.backend import GemmCall, LiveDevice
from tilewright.hardware import DeviceSpec
from tilewright.problem import Problem
from tilewright.serve.routes.realigned import expected_ns, way_of
from tilewright.serve.routes.residues.cuts import Cut, cuts_of, passes_of, workspace_bytes
from tilewright.serve.routes.residues.options import Residues
from tilewright.serve.triangle import LEAST_SIDE

__all__ = ["best_cut", "is_worth", "least_bytes"]

# All of an H100 SXM (2026-11-26), unless it says so.
# Seconds of calls from 2048 to 8192 that bytes and products do not explain: ten launches.
_LAUNCHES = 110e-6
# Seconds of each further launch, which more tiles and pieces take.
_LAUNCH = 4e-6
# What passes read and write together at 8192: from 1.9 TB/s (putting results together) to 3.0.
_BYTES_PER_SECOND = 2.5e12
# Products of residues at 8192 took 9.83 ms for 14 moduli, a bound in FP8 took 0.76 ms.
_INT8_PER_SECOND, _FP8_PER_SECOND = 14 * 2 * 8192**3 / 9.83e-3, 2 * 8192**3 / 0.76e-3
_TILE_M, _TILE_N, _MULTIPROCESSORS = 256, 128, 132
# DGEMM and ZGEMM from 2048 on, and double-double's, where nothing is known of a kernel's time.
_NATIVE_PER_SECOND, _NATIVE_PAIRS_PER_SECOND = 54e12, 1.48e12
# What native kernels take for a triangle, of a whole product's time: D from 4096 on (H200).
_NATIVE_TRIANGLE = 0.55
# Calls from 3072 to 16384 took up to 8 % more than is expected here, and may take more moduli.
_SURELY = 1.05


@lru_cache(maxsize=256)
def best_cut(
    device: DeviceSpec, problem: Problem, asked: Residues, triangle: bool = False
) -> Cut | None:
    """Return the cut of which the shortest time is expected; None where no workspace is enough.

    With `triangle` one of C is all that is computed, which is not cut into tiles.
    """
    most, cuts = asked.max_workspace, _cuts(problem, triangle)
    if most is None or workspace_bytes(problem, cuts[0], asked.certify) <= most:
        return cuts[0]
    able = [cut for cut in cuts if workspace_bytes(problem, cut, asked.certify) <= most]
    return min(able, key=lambda cut: _residue_seconds(device, problem, cut), default=None)


def least_bytes(problem: Problem, asked: Residues, triangle: bool = False) -> int:
    """Return the bytes of the cut that takes least."""
    cuts = _cuts(problem, triangle)
    return min(workspace_bytes(problem, cut, asked.certify) for cut in cuts)


def _cuts(problem: Problem, triangle: bool) -> list[Cut]:
    """Return all cuts, the one of fewest parts first."""
    whole = problem.m, problem.n
    return [one for one in cuts_of(problem) if not triangle or (one.m, one.n) == whole]


def is_worth(
    live: LiveDevice, problem: Problem, call: GemmCall, cut: Cut, together: bool = False,
    triangle: bool = False,
) -> bool:  # fmt: skip
    """Whether the usual moduli are expected to take less time than the native kernel.

    With `together`, for a batch, the native kernel counts at its best rate, as one launch computes
    all products.  With `triangle` one of C is all that is computed.
    """
    seconds = _residue_seconds(live.spec, problem, cut, triangle)
    native = _native_seconds(live, problem, call, together)
    # Kernels of pairs take no groups: a triangle of one block is a whole product.
    whole = problem.precision.parts == 2 and problem.n <= LEAST_SIDE
    return _SURELY * seconds < (_NATIVE_TRIANGLE * native if triangle and not whole else native)


def _native_seconds(
    live: LiveDevice, problem: Problem, call: GemmCall, together: bool = False
) -> float:
    """Return what the native kernel takes: as its portfolio has it, or else at its best."""
    ns = None if together else expected_ns(live, way_of(live, problem, call))
    if ns is not None:
        return ns * 1e-9
    flops = (8 if problem.precision.is_complex else 2) * problem.m * problem.n * problem.k
    rate = _NATIVE_PER_SECOND if problem.precision.parts == 1 else _NATIVE_PAIRS_PER_SECOND
    return flops / (rate * _share(live.spec))


def _residue_seconds(
    device: DeviceSpec, problem: Problem, cut: Cut, triangle: bool = False
) -> float:
    """Return what all passes and products take, with the usual number of moduli.

    With `triangle` B is A, whose residues serve for both but of complex pairs' conjugates.
    """
    p, of = problem, passes_of(problem).moduli
    planes, element = of.planes * of.usual, p.precision.element_bytes
    along_m, along_n, pieces = -(-p.m // cut.m), -(-p.n // cut.n), -(-p.k // cut.k)
    # Residues of A stay for the tiles of a row, where k is in one piece, those of B for a column.
    passed = p.m * (along_n if pieces > 1 else 1) + p.n * (along_m if pieces * along_n > 1 else 1)
    measured, computed = p.m + p.n, float(p.m * p.n)
    tiles = -(-cut.m // _TILE_M) * -(-cut.n // _TILE_N)
    if triangle:
        is_one = p.precision.parts == 1 or p.trans_a.conjugated == p.trans_b.conjugated
        passed = p.m if is_one else p.m + p.n
        measured, computed = p.m, computed / 2
        down = -(-p.n // _TILE_M)
        tiles = down * (down + 1) // 2 * (_TILE_M // _TILE_N)
    operands = ((element + 1) * measured + (element + planes) * passed) * p.k
    results = (planes * (3 * pieces - 2) + element + 4) * computed
    wave, products = 2 * _TILE_M * _TILE_N * p.k * _MULTIPROCESSORS, 0.0
    for many, rate in ((planes * tiles, _INT8_PER_SECOND), (tiles, _FP8_PER_SECOND)):
        products += along_m * along_n * wave * -(-many // device.multiprocessors) / rate
    launches = _LAUNCHES + _LAUNCH * (along_m * along_n * (3 + 3 * pieces) - 6)
    return launches + (operands + results) / (_BYTES_PER_SECOND * _share(device)) + products


def _share(device: DeviceSpec) -> float:
    return device.multiprocessors / _MULTIPROCESSORS
