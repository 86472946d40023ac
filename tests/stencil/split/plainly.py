"""What the kernels of `tilewright.stencil.split` compute, said once more in NumPy.

Slow, plain, and independent of the kernel sources: what they are compared with, bit by bit.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tilewright.stencil.split import Scheme

SEEN_BITS, WIDE_BITS, TOP = 10, 16, 14


def rounded(x: NDArray, part: str) -> NDArray:
    """Return float32 numbers rounded to a part's format, still as float32."""
    if part == "fp16":
        with np.errstate(over="ignore"):
            return x.astype(np.float16).astype(np.float32)
    dropped = {"bf16": 16, "tf32": 13}[part]
    bits = x.view(np.uint32).astype(np.uint64)
    even = (bits >> dropped) & 1
    bits = ((bits + (1 << (dropped - 1)) - 1 + even) >> dropped) << dropped
    return bits.astype(np.uint32).view(np.float32)


def exponents(x: NDArray, axis: int) -> NDArray:
    """Return each side's exponent: its largest magnitude is below 2^(exponent + 15)."""
    top = np.abs(x).max(axis=axis, initial=0)
    _, above = np.frexp(top)  # top < 2^above
    return np.where(np.isfinite(top) & (top > 0), above - 1 - TOP, 0).astype(np.int32)


def parts_of(x: NDArray, scheme: Scheme, scale: NDArray) -> list[NDArray]:
    """Return parts of x 2^-scale; `scale` broadcasts."""
    rest = np.ldexp(x, -scale).astype(np.float32)
    made = []
    for _ in range(scheme.parts):
        part = rounded(rest, scheme.part)
        made.append(part)
        rest = rest - part
    return made


def counts(x: NDArray, axis: int) -> NDArray:
    """Return faint, narrow and cut elements of each side, shape (sides, 3)."""
    top = np.abs(x).max(axis=axis, keepdims=True, initial=0)
    faint = np.abs(x) < np.ldexp(top, -SEEN_BITS).astype(np.float32)
    low = (x.view(np.uint32) & ((1 << (24 - WIDE_BITS + 1)) - 1)) == 0
    scaled = np.ldexp(x, -np.expand_dims(exponents(x, axis), axis))
    cut = (x != 0) & (np.abs(scaled) < 0.25)
    return np.stack([which.sum(axis=axis) for which in (faint, faint | low, cut)], axis=1)


def decided(a: NDArray, b: NDArray) -> list[int]:
    """Return the guard's words for op(A) m x k and op(B) k x n."""
    k = a.shape[1]
    most = []
    for x, axis in ((a, 1), (b, 0)):
        sides = counts(x, axis)[np.abs(x).max(axis=axis) > 0]
        most.append(sides.max(axis=0, initial=0) if len(sides) else np.zeros(3, int))
    finite = bool(np.isfinite(a).all() and np.isfinite(b).all())
    short = []
    for x, axis in ((a, 1), (b, 0)):
        y = np.ldexp(x, -np.expand_dims(exponents(x, axis), axis)).astype(np.float32)
        short.append(bool((rounded(y - rounded(y, "fp16"), "fp16") == 0).all()))
    seen, wide = (int(k - most[0][c] - most[1][c]) for c in (0, 1))
    cut = [int(m[2]) for m in most]
    terms = seen if any(short) else wide
    ieee = not finite or seen < 64 or all(short)
    route = 0 if ieee else 1 if terms >= 128 and max(cut) <= seen // 128 else 2
    return [route, int(finite), seen, wide, *cut, *map(int, short)]


def instruction(old: NDArray, products: NDArray, extra: int) -> NDArray:
    """Add products (last axis) to old sums as a tensor core does; everything in float64."""
    terms = np.concatenate([old[..., None], products], axis=-1)
    _, above = np.frexp(terms)
    top = np.where(terms != 0, above - 1, -1000).max(axis=-1)
    unit = np.ldexp(1.0, top - 23 - extra)
    whole = np.trunc(terms / unit[..., None]).sum(axis=-1)
    _, bits = np.frexp(whole)
    step = np.ldexp(1.0, np.maximum(bits - 24, 0))
    return np.where(top == -1000, 0.0, np.trunc(whole / step) * step * unit)


def product_of_parts(
    a: list[NDArray], b: list[NDArray], scheme: Scheme, extra: int = 2, promote: int = 0,
    sums: type[np.floating] = np.float32,
) -> NDArray:  # fmt: skip
    """Return the promoted sums of all products of parts: A m x k, B k x n; sums in that type."""
    m, k = a[0].shape
    n = b[0].shape[1]
    total = np.zeros((m, n), sums)
    window = promote or scheme.promote_k or k
    for start in range(0, k, window):
        within = np.zeros((m, n))
        for p, q in scheme.products:
            for l0 in range(start, min(start + window, k), scheme.instruction_k):
                stop = min(l0 + scheme.instruction_k, start + window, k)
                x, y = a[p][:, l0:stop].astype(float), b[q][l0:stop].astype(float)
                within = instruction(within, x[:, None, :] * y.T[None], extra)
        total = total + within.astype(sums)
    return total


def sequential(a: NDArray, b: NDArray) -> NDArray:
    """Return the product as a plain SGEMM sums it: one fused multiply-add after the other."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for step in range(a.shape[1]):
        total = (total.astype(np.float64) + x[:, step, None] * y[None, step]).astype(np.float32)
    return total


def errors(c: NDArray, a: NDArray, b: NDArray) -> tuple[float, float]:
    """Return eta and the median relative error of a product; where |A||B| is 0, so is C.

    The oracle's own error, below k 2^-53 |A||B|, is far below what is judged.
    """
    x, y = a.astype(np.float64), b.astype(np.float64)
    right, size = x @ y, np.abs(x) @ np.abs(y)
    assert not c[size == 0].any()
    off = np.abs(c - right)
    relative = off[right != 0] / np.abs(right[right != 0])
    eta = (off[size > 0] / size[size > 0]).max(initial=0)
    return float(eta), float(np.median(relative)) if relative.size else 0.0
