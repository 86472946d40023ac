"""Whether a guarded chain is expected to be faster than one launch in single precision."""

from __future__ import annotations

from tilewright.hardware import DeviceSpec
from tilewright.precision import precision
from tilewright.problem import Problem, Trans
from tilewright.serve.routes.split.promise import is_compensated
from tilewright.serve.tensor_cores import expected_ns
from tilewright.stencil.split import SCHEMES
from tilewright.stencil.wgmma import ARITHMETICS, TensorVariant

__all__ = ["is_worth", "is_worth_together"]

# All of an H100 SXM (2026-11-21).
# What is left of the chain's 37.6 us at 1024 without bytes and product, of which the fitted costs
# have the launch: five more, three of which return at once.  Of 48 products of 288 to 2900 rows
# eight were left to SGEMM with 12 us that took 5 to 20 % longer; with 7 us five are, and none the
# other way (H200, 2026-11-29).
_LAUNCHES = 7e-6
# Either pass reads an element of A or B, the second writes it in two parts of FP16; at 2.8 TB/s,
# which the passes reach at 8192.  Where the L2 holds both operands a pass is no faster: it is
# too short for its launch.
_BYTES, _BYTES_PER_SECOND = 12, 2.8e12
_MULTIPROCESSORS = 132
# SGEMM: 12 us at 512, 49 at 1024 and 50 to 55 TFLOP/s from 2048 on.
_IEEE_LAUNCH, _IEEE_PER_SECOND = 7e-6, 52e12


def is_worth(problem: Problem, device: DeviceSpec) -> bool:
    """Whether splitting and multiplying parts is expected to take less time than SGEMM.

    By terms that were measured at 1024, 2048, 4096 and 8192; smaller products and other shapes
    were not measured in parts.  Squares are worth it from about 900 on.  Results of few tiles
    are not, however long their sums: single precision divides k among multiprocessors, and a
    product of parts does not.

    Parameters
    ----------
    problem : Problem
        As the caller has it: a complex one is multiplied as a real one of 2m x n x 2k.
    device : DeviceSpec
        A Hopper GPU.
    """
    twice = 2 if problem.precision.is_complex else 1
    size = twice * problem.m, problem.n, twice * problem.k
    return _chain_seconds(device, *size) < _ieee_seconds(device, *size)


def is_worth_together(problem: Problem, products: int, device: DeviceSpec) -> bool:
    """Whether one chain of all products of a batch is expected to take the least time.

    Less than a chain a product, and than SGEMM of all.  What fills no more than the device stays a
    chain a product: one of so few tiles was not measured.

    Parameters
    ----------
    problem : Problem
        One of them, of real numbers.
    products : int
        Of the batch.
    device : DeviceSpec
        A Hopper GPU.
    """
    size = problem.m, problem.n, problem.k
    if is_compensated(SCHEMES["fp16x3"], problem.m, problem.n, device, products):
        return False
    alone = products * _chain_seconds(device, *size)
    return _chain_seconds(device, *size, products) < min(
        alone, _ieee_seconds(device, *size, products)
    )


def _chain_seconds(device: DeviceSpec, m: int, n: int, k: int, products: int = 1) -> float:
    """Return what a guarded chain that ends in products of FP16 takes, in seconds.

    Of a batch it is one chain of all products.
    """
    variant = TensorVariant(
        precision("s"), Trans.T, Trans.N, arithmetic=ARITHMETICS["fp16x3"]
    )  # either order is as fast
    scheme = SCHEMES["fp16x3"]
    compensated = is_compensated(scheme, m, n, device, products)
    ns = expected_ns(variant, device, m, n, k, scheme.promote_k, compensated, products)
    product = ns * 1e-9
    passes = _BYTES * (m + n) * k * products / _BYTES_PER_SECOND
    return _LAUNCHES + passes + product


def _ieee_seconds(device: DeviceSpec, m: int, n: int, k: int, products: int = 1) -> float:
    """Return what SGEMM takes, in seconds, of a batch in one launch."""
    share = device.multiprocessors / _MULTIPROCESSORS
    return _IEEE_LAUNCH + 2 * m * n * k * products / (_IEEE_PER_SECOND * share)
