"""Configs that tuning tries first, and what serves where nothing was tuned."""

from __future__ import annotations

from typing import NamedTuple

from tilewright.stencil.wgmma.arithmetic import FLOAT_BITS, Arithmetic

__all__ = ["Pace", "paces", "starts"]

_NAMES = (
    "block_m", "block_n", "instruction_m", "consumers", "pingpong", "row_bytes", "stages",
    "promote_k", "partials", "min_blocks", "cluster_m", "cluster_n", "swizzle_rows",
    "multiprocessors", "parallel_split_k",
)  # fmt: skip


class Pace(NamedTuple):
    """How fast a start multiplies.

    Every wave of its tiles takes the time of k steps, and a launch that of `fill` steps more.

    Parameters
    ----------
    speed : float
        Of steps, beside the first start's.
    fill : int
        Steps that starting, the first copies and the last stores take the time of.
    """

    speed: float
    fill: int


_Row = tuple[tuple[int, ...], float, int]

# With each shape its pace on an H100 SXM of 132 multiprocessors, from the rows "tried" of
# benchmarks/tensor_starts/data/tensor.json (2026-11-21; geometric means over the transposes).  A
# pace goes through two times: at 2048 and 4096 of the large blocks, at 1024 and 2048 of the small
# ones, which only small results want.
#
# Sums promoted every 32 steps: what a Triton kernel of the same products needed for errors
# below single precision's.  Paces are FP16x3's: 40.3, 77.2, 540.6 us of the first, 23.1, 84.6,
# 597.4 of 128 x 128 in two parts, 16.9, 106.7, 761.3 of 64 x 128.  Small blocks lose less in
# BF16x6, which multiplies twice as long between two copies (67.6, 135.4, 983.5 and 22.2, 148.0,
# 1133.8 us), but the best at 1024, 2048 and 4096 are the same.
_PROMOTED: tuple[_Row, ...] = (
    ((256, 128, 128, 2, 0, 64, 3, 32, 1, 1, 1, 1, 8, 132), 1.0, 340),
    ((256, 128, 128, 2, 0, 64, 3, 32, 1, 1, 1, 2, 8, 132), 0.995, 420),
    ((256, 128, 128, 2, 0, 128, 2, 32, 1, 1, 1, 2, 8, 132), 0.995, 420),
    ((128, 128, 128, 2, 0, 64, 4, 64, 1, 1, 1, 1, 8, 132), 0.959, 570),
    ((128, 128, 64, 2, 0, 64, 3, 32, 2, 1, 1, 1, 8, 0), 0.904, 640),
    ((64, 128, 64, 2, 0, 64, 4, 32, 1, 1, 1, 1, 8, 0), 0.645, 330),
    ((64, 64, 64, 1, 0, 64, 4, 32, 1, 2, 1, 1, 8, 0), 0.506, 150),
)


# With an epilogue, at the paces of BF16 without one: few, because their code is long, and such as
# multiply while another consumer computes what follows.
_FOLLOWED: tuple[_Row, ...] = (
    ((128, 128, 128, 2, 1, 128, 6, 0, 1, 1, 1, 1, 8, 132), 1.0, 810),
    ((64, 128, 64, 2, 0, 128, 8, 0, 1, 1, 1, 1, 8, 0), 0.608, 780),
)
# The same of FP8.
_FOLLOWED_FP8: tuple[_Row, ...] = (
    ((128, 128, 128, 2, 1, 128, 6, 128, 1, 1, 1, 1, 8, 132), 1.0, 810),
    ((64, 128, 64, 2, 0, 128, 8, 128, 1, 1, 1, 1, 8, 0), 0.608, 780),
)


# One part: those that lose least together in 16 bits, in a search on an H100 over layers of
# language models and squares; and in slices of k those of 13 that do so over 28 products with a
# short side or long sums, 3 % at most where slices win.  Of 8-bit integers and TF32 stages have as
# many bytes, and take half and twice the time.  What each takes is measured and fitted
# (`tilewright.portfolio`).
_PLAIN: tuple[tuple[int, ...], ...] = (
    (256, 128, 256, 2, 0, 128, 4, 0, 1, 1, 1, 1, 4, 132),
    (256, 128, 256, 2, 0, 128, 4, 0, 1, 1, 1, 2, 4, 132),
    (128, 256, 128, 2, 0, 128, 4, 0, 1, 1, 1, 1, 4, 132),
    (192, 256, 192, 2, 0, 128, 4, 0, 1, 1, 1, 1, 4, 132),
    (128, 128, 128, 2, 1, 128, 7, 0, 1, 1, 1, 1, 4, 132),
    (128, 128, 128, 2, 1, 128, 7, 0, 1, 1, 1, 2, 4, 132),
    (192, 128, 192, 2, 0, 128, 5, 0, 1, 1, 1, 1, 8, 132),
    (128, 192, 128, 2, 1, 128, 5, 0, 1, 1, 1, 1, 4, 132),
    (128, 192, 128, 3, 0, 128, 5, 0, 1, 1, 1, 1, 8, 132),
    (256, 64, 256, 1, 0, 128, 5, 0, 1, 1, 1, 1, 8, 0),
    (192, 64, 192, 1, 0, 128, 7, 0, 1, 1, 1, 1, 8, 0),
    (64, 256, 64, 2, 0, 128, 5, 0, 1, 1, 1, 1, 8, 132),
    (128, 64, 128, 1, 0, 128, 8, 0, 1, 1, 1, 1, 8, 132),
    (128, 64, 128, 1, 0, 128, 4, 0, 1, 2, 1, 1, 8, 132),
    (64, 128, 64, 2, 0, 128, 8, 0, 1, 1, 1, 1, 8, 132),
    (64, 128, 64, 2, 0, 128, 8, 0, 1, 1, 1, 2, 8, 0),
    (64, 64, 64, 1, 0, 128, 6, 0, 1, 2, 1, 1, 8, 0),
    (64, 128, 64, 2, 0, 128, 8, 0, 1, 1, 1, 1, 8, 0, 1),
    (128, 64, 128, 1, 0, 128, 8, 0, 1, 1, 1, 1, 8, 0, 1),
    (128, 128, 128, 2, 0, 128, 7, 0, 1, 1, 1, 1, 8, 0, 1),
    (64, 64, 64, 1, 0, 128, 6, 0, 1, 2, 1, 1, 8, 0, 1),
)

# Residues, whose results are bytes: the first took 9.83 ms for 14 products at 8192, the same
# without clusters 10.5 to 10.9, 128 x 256 9.94 (H100 SXM, 2026-11-26).
_RESIDUES: tuple[tuple[int, ...], ...] = (
    (256, 128, 256, 2, 0, 128, 4, 0, 1, 1, 1, 2, 4, 132),
    (128, 256, 128, 2, 0, 128, 4, 0, 1, 1, 1, 1, 4, 132),
)

# FP8, whose sums leave the tensor core every 128 steps (as in DeepSeek-V3): a piece of them is on
# its way, or two where there are registers for them.
_FP8: tuple[tuple[int, ...], ...] = (
    (256, 128, 128, 2, 0, 128, 4, 128, 1, 1, 1, 1, 4, 132),
    (256, 128, 128, 2, 0, 128, 4, 128, 1, 1, 1, 2, 4, 132),
    (256, 128, 64, 2, 0, 128, 4, 128, 2, 1, 1, 1, 4, 132),
    (128, 256, 128, 2, 0, 128, 4, 128, 1, 1, 1, 1, 4, 132),
    (128, 256, 64, 2, 0, 128, 4, 128, 2, 1, 1, 1, 4, 132),
    (192, 128, 192, 2, 0, 128, 5, 128, 1, 1, 1, 1, 8, 132),
    (128, 128, 128, 2, 0, 128, 6, 128, 1, 1, 1, 1, 4, 132),
    (128, 128, 128, 2, 0, 128, 6, 64, 2, 1, 1, 1, 4, 132),
    (128, 128, 128, 2, 1, 128, 6, 128, 1, 1, 1, 1, 4, 132),
    (128, 128, 128, 2, 1, 128, 6, 128, 1, 1, 1, 2, 4, 132),
    (128, 192, 64, 3, 0, 128, 5, 128, 1, 1, 1, 1, 8, 132),
    (256, 64, 128, 1, 0, 128, 5, 128, 1, 1, 1, 1, 8, 0),
    (128, 64, 128, 1, 0, 128, 8, 128, 1, 1, 1, 1, 8, 132),
    (128, 64, 128, 1, 0, 128, 4, 128, 1, 2, 1, 1, 8, 132),
    (64, 256, 64, 2, 0, 128, 5, 128, 1, 1, 1, 1, 8, 132),
    (64, 128, 64, 2, 0, 128, 8, 128, 1, 1, 1, 1, 8, 132),
    (64, 64, 64, 1, 0, 128, 6, 128, 1, 2, 1, 1, 8, 0),
    (128, 128, 128, 2, 0, 128, 6, 128, 1, 1, 1, 1, 8, 0, 1),
    (64, 128, 64, 2, 0, 128, 8, 128, 1, 1, 1, 1, 8, 0, 1),
    (64, 64, 64, 1, 0, 128, 6, 128, 1, 2, 1, 1, 8, 0, 1),
)


def starts(arithmetic: Arithmetic, multiprocessors: int = 1) -> tuple[dict[str, int], ...]:
    """Return values of all parameters, the fastest for large results first.

    Parameters
    ----------
    arithmetic : Arithmetic
        Whose element says how many a row has.
    multiprocessors : int
        Of the device, which persistent blocks fill; 1 of an architecture without a device leaves
        what was measured.
    """
    found = []
    for shape in _shapes(arithmetic):
        values = dict(zip(_NAMES, shape, strict=False))  # shapes with a pace share no tile
        values["block_k"] = values.pop("row_bytes") // arithmetic.element_bytes
        if values["multiprocessors"] and multiprocessors > 1:
            values["multiprocessors"] = multiprocessors
        found.append(values)
    return tuple(found)


def paces(arithmetic: Arithmetic) -> tuple[Pace, ...]:
    """Return the pace of each of `starts`; none of products whose time is fitted."""
    return tuple(Pace(speed, fill) for _, speed, fill in _rows(arithmetic))


def _shapes(arithmetic: Arithmetic) -> tuple[tuple[int, ...], ...]:
    if _rows(arithmetic):
        return tuple(shape for shape, _, _ in _rows(arithmetic))
    if arithmetic.result == "residues":
        return _RESIDUES
    return _PLAIN if arithmetic.kept_bits == FLOAT_BITS else _FP8


def _rows(arithmetic: Arithmetic) -> tuple[_Row, ...]:
    """Return the starts of what is served by paces."""
    if arithmetic.epilogue:
        return _FOLLOWED if arithmetic.kept_bits == FLOAT_BITS else _FOLLOWED_FP8
    return _PROMOTED if arithmetic.parts > 1 else ()
