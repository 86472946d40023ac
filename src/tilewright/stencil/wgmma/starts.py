"""Configs that tuning tries first, and what serves where nothing was tuned."""

from __future__ import annotations

from tilewright.stencil.wgmma.arithmetic import Arithmetic

__all__ = ["starts"]

_NAMES = (
    "block_m", "block_n", "instruction_m", "consumers", "turns", "row_bytes", "stages", "promote_k",
    "partials", "resident", "cluster_m", "cluster_n", "raster_rows", "multiprocessors",
)  # fmt: skip

_Shape = tuple[int, ...]

# Not yet run on a device.  256 x 128 with two consumers is what holds most sums; published
# kernels for this chip use it with clusters of two (pranjalssh/fast.cu).
_PLAIN: tuple[_Shape, ...] = (
    (256, 128, 256, 2, 0, 128, 4, 0, 1, 1, 1, 2, 8, 132),
    (256, 128, 256, 2, 0, 128, 4, 0, 1, 1, 2, 1, 8, 132),
    (128, 256, 128, 2, 0, 128, 4, 0, 1, 1, 2, 1, 8, 132),
    (256, 128, 256, 2, 0, 128, 4, 0, 1, 1, 1, 1, 8, 132),
    (128, 128, 128, 2, 0, 128, 6, 0, 1, 1, 1, 1, 8, 132),
    (128, 128, 128, 2, 0, 128, 3, 0, 1, 1, 1, 1, 8, 0),
    (128, 64, 128, 1, 0, 128, 4, 0, 1, 2, 1, 1, 8, 0),
    (256, 64, 256, 2, 1, 128, 4, 0, 1, 1, 2, 1, 8, 132),
    (128, 128, 128, 2, 1, 128, 6, 0, 1, 1, 2, 1, 8, 132),
    (256, 192, 256, 3, 0, 128, 3, 0, 1, 1, 1, 1, 8, 132),
)
# Sums promoted every 32 steps: what a Triton kernel of the same products needed for errors
# below single precision's.
_PROMOTED: tuple[_Shape, ...] = (
    (256, 128, 128, 2, 0, 64, 4, 32, 1, 1, 1, 2, 8, 132),
    (256, 128, 128, 2, 0, 128, 2, 32, 1, 1, 1, 2, 8, 132),
    (256, 128, 64, 2, 0, 64, 4, 32, 2, 1, 1, 2, 8, 132),
    (256, 128, 128, 2, 0, 64, 3, 32, 1, 1, 1, 1, 8, 132),
    (128, 128, 128, 2, 0, 128, 3, 32, 1, 1, 1, 2, 8, 132),
    (128, 128, 128, 2, 0, 64, 6, 64, 1, 1, 1, 1, 8, 132),
    (128, 128, 64, 2, 0, 64, 3, 32, 2, 1, 1, 1, 8, 0),
    (64, 128, 64, 2, 0, 64, 4, 32, 1, 1, 1, 1, 8, 0),
    (64, 64, 64, 1, 0, 64, 4, 32, 1, 2, 1, 1, 8, 0),
)


def starts(arithmetic: Arithmetic) -> tuple[dict[str, int], ...]:
    """Return values of all parameters, the likeliest for large results first."""
    shapes = _PROMOTED if len(arithmetic.products) > 1 else _PLAIN
    found = []
    for shape in shapes:
        values = dict(zip(_NAMES, shape, strict=True))
        values["block_k"] = values.pop("row_bytes") // arithmetic.element_bytes
        found.append(values)
    return tuple(found)
