"""Configs that tuning tries first, and what serves where nothing was tuned."""

from __future__ import annotations

from typing import NamedTuple

from tilewright.stencil.wgmma.arithmetic import Arithmetic

__all__ = ["Pace", "paces", "starts"]

_NAMES = (
    "block_m", "block_n", "instruction_m", "consumers", "pingpong", "row_bytes", "stages",
    "promote_k", "partials", "min_blocks", "cluster_m", "cluster_n", "swizzle_rows",
    "multiprocessors", "stream_k", "parallel_split_k",
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
# 8-bit integers, at the paces of BF16: only the third was timed, 1256 TFLOP/s at 4096.
_INTEGERS: tuple[_Row, ...] = (
    ((256, 128, 256, 2, 0, 128, 4, 0, 1, 1, 1, 2, 8, 132), 1.0, 680),
    ((128, 256, 128, 2, 0, 128, 4, 0, 1, 1, 2, 1, 8, 132), 0.995, 670),
    ((256, 128, 256, 2, 0, 128, 4, 0, 1, 1, 1, 1, 8, 132), 0.985, 490),
    ((128, 128, 128, 2, 1, 128, 6, 0, 1, 1, 1, 1, 8, 132), 0.975, 810),
    ((128, 128, 128, 2, 0, 128, 6, 0, 1, 1, 1, 1, 4, 132), 0.936, 620),
    ((128, 64, 128, 1, 0, 128, 8, 0, 1, 1, 1, 1, 4, 0), 0.64, 870),
    ((64, 128, 64, 2, 0, 128, 8, 0, 1, 1, 1, 1, 8, 0), 0.593, 780),
)
# TF32, of which a row of 128 bytes is 32 steps: 27.1, 50.8, 338.6;  27.3, 52.1, 339.6;
# 25.3, 48.9, 346.0;  15.4, 54.1, 429.6 us; at 1024 the last two take 12.0 and 11.4.
_TF32: tuple[_Row, ...] = (
    ((256, 128, 256, 2, 0, 128, 4, 0, 1, 1, 1, 2, 4, 132), 1.0, 480),
    ((128, 256, 128, 2, 0, 128, 4, 0, 1, 1, 2, 1, 8, 132), 1.0, 550),
    ((256, 128, 256, 2, 0, 128, 4, 0, 1, 1, 1, 1, 4, 132), 0.969, 310),
    ((128, 128, 128, 2, 0, 128, 6, 0, 1, 1, 1, 1, 8, 132), 0.767, 40),
    ((64, 128, 64, 2, 0, 128, 8, 0, 1, 1, 1, 1, 8, 0), 0.54, 270),
    ((128, 64, 128, 1, 0, 128, 8, 0, 1, 1, 1, 1, 4, 0), 0.505, 120),
)
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


# 16 bits: those that lose least together in a search on an H100 over layers of language models and
# squares.  What each takes is measured and fitted (`tilewright.portfolio`).
_SHORT: tuple[tuple[int, ...], ...] = (
    (256, 128, 256, 2, 0, 128, 4, 0, 1, 1, 1, 1, 4, 132, 0),
    (256, 128, 256, 2, 0, 128, 4, 0, 1, 1, 1, 2, 4, 132, 0),
    (128, 256, 128, 2, 0, 128, 4, 0, 1, 1, 1, 1, 4, 132, 0),
    (192, 256, 192, 2, 0, 128, 4, 0, 1, 1, 1, 1, 4, 132, 0),
    (128, 128, 128, 2, 1, 128, 7, 0, 1, 1, 1, 1, 4, 132, 0),
    (128, 128, 128, 2, 1, 128, 7, 0, 1, 1, 1, 2, 4, 132, 0),
    (192, 128, 192, 2, 0, 128, 5, 0, 1, 1, 1, 1, 8, 132, 0),
    (128, 192, 128, 2, 1, 128, 5, 0, 1, 1, 1, 1, 4, 132, 0),
    (128, 192, 128, 3, 0, 128, 5, 0, 1, 1, 1, 1, 8, 132, 0),
    (128, 256, 128, 2, 0, 128, 4, 0, 1, 1, 1, 1, 8, 132, 1),
    (192, 256, 192, 2, 0, 128, 4, 0, 1, 1, 1, 1, 8, 132, 1),
    (128, 128, 128, 2, 0, 128, 7, 0, 1, 1, 1, 1, 8, 132, 1),
    (256, 64, 256, 1, 0, 128, 5, 0, 1, 1, 1, 1, 8, 0, 0),
    (192, 64, 192, 1, 0, 128, 7, 0, 1, 1, 1, 1, 8, 0, 0),
    (64, 256, 64, 2, 0, 128, 5, 0, 1, 1, 1, 1, 8, 132, 0),
    (128, 64, 128, 1, 0, 128, 8, 0, 1, 1, 1, 1, 8, 132, 0),
    (128, 64, 128, 1, 0, 128, 4, 0, 1, 2, 1, 1, 8, 132, 0),
    (64, 128, 64, 2, 0, 128, 8, 0, 1, 1, 1, 1, 8, 132, 0),
    (64, 128, 64, 2, 0, 128, 8, 0, 1, 1, 1, 2, 8, 0, 0),
    (64, 128, 64, 2, 0, 128, 8, 0, 1, 1, 1, 1, 8, 132, 1),
    (64, 64, 64, 1, 0, 128, 6, 0, 1, 2, 1, 1, 8, 0, 0),
    (64, 64, 64, 1, 0, 128, 6, 0, 1, 2, 1, 1, 8, 132, 1),
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
    shapes = _SHORT if _is_short(arithmetic) else [shape for shape, _, _ in _rows(arithmetic)]
    for shape in shapes:
        values = dict(zip(_NAMES, shape, strict=False))  # shapes with a pace share no tile
        for name in ("stream_k", "parallel_split_k"):
            if not values.get(name, 0):
                values.pop(name, None)
        values["block_k"] = values.pop("row_bytes") // arithmetic.element_bytes
        if values["multiprocessors"] and multiprocessors > 1:
            values["multiprocessors"] = multiprocessors
        found.append(values)
    return tuple(found)


def paces(arithmetic: Arithmetic) -> tuple[Pace, ...]:
    """Return the pace of each of `starts`; none of products whose time is fitted."""
    if _is_short(arithmetic):
        return ()
    return tuple(Pace(speed, fill) for _, speed, fill in _rows(arithmetic))


def _is_short(arithmetic: Arithmetic) -> bool:
    """Whether operands are 16-bit numbers in one part."""
    return arithmetic.element_bytes == 2 and arithmetic.parts == 1


def _rows(arithmetic: Arithmetic) -> tuple[_Row, ...]:
    if len(arithmetic.products) > 1:
        return _PROMOTED
    return _TF32 if arithmetic.element == "tf32" else _INTEGERS
