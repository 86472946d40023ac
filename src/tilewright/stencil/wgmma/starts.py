"""Configs that tuning tries first, and what serves where nothing was tuned."""

from __future__ import annotations

from tilewright.stencil.wgmma.arithmetic import Arithmetic

__all__ = ["speeds", "starts"]

_NAMES = (
    "block_m", "block_n", "instruction_m", "consumers", "turns", "row_bytes", "stages", "promote_k",
    "partials", "resident", "cluster_m", "cluster_n", "raster_rows", "multiprocessors",
)  # fmt: skip

_Shape = tuple[int, ...]

# With each shape its speed beside the first one's: 4096 x 4096 x 4096 on an H100 SXM of 132
# multiprocessors, 2026-11-21, NT (TN where elements want k contiguous).  In TFLOP/s the first is
# 726 in BF16, 705 in FP16, 380 in TF32 and 1256 in INT8.  The speeds are BF16's; those of the
# others lie within 0.07 of them.
_PLAIN: tuple[tuple[_Shape, float], ...] = (
    ((256, 128, 256, 2, 0, 128, 4, 0, 1, 1, 1, 1, 8, 132), 1.0),
    ((128, 128, 128, 2, 0, 128, 6, 0, 1, 1, 1, 1, 8, 132), 0.97),
    ((128, 128, 128, 2, 0, 128, 3, 0, 1, 1, 1, 1, 8, 0), 0.69),
    ((256, 128, 256, 2, 0, 128, 4, 0, 1, 1, 1, 2, 8, 132), 0.64),
    ((128, 64, 128, 1, 0, 128, 4, 0, 1, 2, 1, 1, 8, 0), 0.55),
    ((256, 128, 256, 2, 0, 128, 4, 0, 1, 1, 2, 1, 8, 132), 0.43),
    ((128, 256, 128, 2, 0, 128, 4, 0, 1, 1, 2, 1, 8, 132), 0.41),
    ((128, 128, 128, 2, 1, 128, 6, 0, 1, 1, 2, 1, 8, 132), 0.26),
    ((256, 64, 256, 2, 1, 128, 4, 0, 1, 1, 2, 1, 8, 132), 0.26),
    # Not measured.
    ((256, 192, 256, 3, 0, 128, 3, 0, 1, 1, 1, 1, 8, 132), 0.0),
)
# Sums promoted every 32 steps: what a Triton kernel of the same products needed for errors
# below single precision's.  The first is 242 TFLOP/s in FP16x3, 136 in BF16x6, 94 in BF16x9; the
# speeds are FP16x3's.  Those of BF16x6 fall more slowly (0.96, 0.90 and 0.65 for the last three
# of one block without a cluster); TF32x3 begins with the third (120).
_PROMOTED: tuple[tuple[_Shape, float], ...] = (
    ((256, 128, 128, 2, 0, 64, 3, 32, 1, 1, 1, 1, 8, 132), 1.0),
    ((128, 128, 128, 2, 0, 64, 6, 64, 1, 1, 1, 1, 8, 132), 0.93),
    ((256, 128, 128, 2, 0, 128, 2, 32, 1, 1, 1, 2, 8, 132), 0.91),
    ((128, 128, 64, 2, 0, 64, 3, 32, 2, 1, 1, 1, 8, 0), 0.90),
    ((256, 128, 128, 2, 0, 64, 4, 32, 1, 1, 1, 2, 8, 132), 0.75),
    ((64, 128, 64, 2, 0, 64, 4, 32, 1, 1, 1, 1, 8, 0), 0.74),
    ((256, 128, 64, 2, 0, 64, 4, 32, 2, 1, 1, 2, 8, 132), 0.74),
    ((128, 128, 128, 2, 0, 128, 3, 32, 1, 1, 1, 2, 8, 132), 0.66),
    ((64, 64, 64, 1, 0, 64, 4, 32, 1, 2, 1, 1, 8, 0), 0.60),
)


def starts(arithmetic: Arithmetic, multiprocessors: int = 1) -> tuple[dict[str, int], ...]:
    """Return values of all parameters, the fastest for large results first.

    Parameters
    ----------
    arithmetic : Arithmetic
        Whose element says how many a row has.
    multiprocessors : int
        Of the device, which blocks that stay fill; 1 of an architecture without a device leaves
        what was measured.
    """
    found = []
    for shape, _ in _shapes(arithmetic):
        values = dict(zip(_NAMES, shape, strict=True))
        values["block_k"] = values.pop("row_bytes") // arithmetic.element_bytes
        if values["multiprocessors"] and multiprocessors > 1:
            values["multiprocessors"] = multiprocessors
        found.append(values)
    return tuple(found)


def speeds(arithmetic: Arithmetic) -> tuple[float, ...]:
    """Return how fast each of `starts` multiplies matrices that fill the device, beside the first.

    0 stands for one that was never measured.
    """
    return tuple(speed for _, speed in _shapes(arithmetic))


def _shapes(arithmetic: Arithmetic) -> tuple[tuple[_Shape, float], ...]:
    return _PROMOTED if len(arithmetic.products) > 1 else _PLAIN
