"""What is promised of errors, and whose sums are compensated; docs/fp32_accurate.md derives it.

Errors are eta = max |C' - A B| / (|A| |B|).
"""

from __future__ import annotations

from tilewright.hardware import DeviceSpec
from tilewright.stencil.split import Scheme

__all__ = ["FLOOR", "MOST_K", "error_bound", "is_compensated"]

_U = 2.0**-24  # single precision's unit roundoff

# eta of "fp32" is at most the larger of SGEMM's and this.  No less can be promised where one term
# is nearly all of a sum: the others of its instruction are truncated at its size.
FLOOR = 2.0**-19

# Sums longer than this are cut, and the pieces added in C: without compensation 8192 promoted
# parts would be as inexact as a sum of 8192 numbers, where split or blocked SGEMMs are not.
MOST_K = 8192

_TILE = 128  # of the SGEMM kernels that reach a GPU's rate, ours and cuBLAS's

# In units of u: what splitting loses (with 1/2 for elements that FP16 cuts), what an interval
# between promotions loses by truncation, and a compensated sum by rounding.
_SPLIT = {"fp16x3": 8.5, "tf32x3": 8.0, "bf16x6": 1.002, "bf16x9": 0.0}
_TRUNCATED = {"fp16": 21.1, "bf16": 21.5, "tf32": 26.1}
_COMPENSATED = 2


def is_compensated(scheme: Scheme, m: int, n: int, device: DeviceSpec, products: int = 1) -> bool:
    """Whether sums of m x n results make up for the roundings of their promotions.

    They do where all of a batch have fewer tiles than the device has multiprocessors: SGEMM then
    divides k among these, and errs less than in one chain.  The fastest kernels for large results
    have no registers left for it, and need it less: SGEMM, too, has one chain there.  A scheme of
    one product has infinities, of which compensation would make NaN.
    """
    tiles = -(-m // _TILE) * -(-n // _TILE) * products
    return len(scheme.products) > 1 and tiles < device.multiprocessors


def error_bound(scheme: Scheme, m: int, n: int, k: int, device: DeviceSpec) -> float:
    """Return what eta of a product in promoted parts cannot exceed, to first order in u.

    Under the model of the tensor core, and where the guard chose the scheme.  alpha and beta add
    the roundings that they add to any product.

    Parameters
    ----------
    scheme : Scheme
        One that promotes its sums.
    m, n, k : int
        Sizes, of 1 and more.
    device : DeviceSpec
        Whose multiprocessors say whether sums are compensated.
    """
    promoted, pieces = -(-min(k, MOST_K) // scheme.promote_k), -(-k // MOST_K)
    # The first of the promoted sums, and of the pieces, is added to nothing.
    roundings = promoted - 1
    if is_compensated(scheme, m, n, device):
        roundings = min(roundings, _COMPENSATED)
    return (_SPLIT[scheme.name] + _TRUNCATED[scheme.part] + roundings + pieces - 1) * _U
