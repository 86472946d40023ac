"""Configs that tuning tries first, and what serves where nothing was tuned."""

from __future__ import annotations

from tilewright.stencil.wgmma.arithmetic import Arithmetic

__all__ = ["starts"]

_NAMES = (
    "block_m", "block_n", "instruction_m", "consumers", "turns", "row_bytes", "stages", "promote_k",
    "partials", "resident", "cluster_m", "cluster_n", "raster_rows", "multiprocessors",
)  # fmt: skip

_Shape = tuple[int, ...]

# Behind each: TFLOP/s on an H100 at 4096 and at 1024 (host's time included there), of BF16 TN.
# Clusters were measured with fences in their loop: no figures.
_PLAIN: tuple[_Shape, ...] = (
    (256, 128, 256, 2, 0, 128, 4, 0, 1, 1, 1, 1, 8, 132),  # 754, 95; TF32 405, 66
    (256, 128, 256, 2, 0, 128, 4, 0, 1, 1, 2, 1, 8, 132),
    (256, 128, 256, 2, 0, 128, 4, 0, 1, 1, 1, 2, 8, 132),
    (128, 256, 128, 2, 0, 128, 4, 0, 1, 1, 2, 1, 8, 132),
    (128, 128, 128, 2, 0, 128, 6, 0, 1, 1, 1, 1, 8, 132),  # 717, 124; TF32 360, 97
    (128, 128, 128, 2, 0, 128, 6, 0, 1, 1, 2, 1, 8, 132),
    (128, 128, 128, 2, 1, 128, 6, 0, 1, 1, 2, 1, 8, 132),
    (256, 64, 256, 2, 1, 128, 4, 0, 1, 1, 2, 1, 8, 132),
    # 1024 x 1024 results are 128 tiles of these, for 132 multiprocessors.  Each needs its
    # operands at 96 bytes a cycle, twice what L2 gives: neighbours share them.
    (128, 64, 128, 1, 0, 128, 6, 0, 1, 1, 1, 2, 8, 0),
    (128, 64, 128, 1, 0, 128, 6, 0, 1, 1, 2, 2, 8, 0),
    (64, 128, 64, 2, 0, 128, 6, 0, 1, 1, 2, 1, 8, 0),
    (128, 64, 128, 1, 0, 128, 8, 0, 1, 1, 1, 1, 8, 0),
    (64, 128, 64, 2, 0, 128, 8, 0, 1, 1, 1, 1, 8, 0),
    (128, 128, 128, 2, 0, 128, 3, 0, 1, 1, 1, 1, 8, 0),  # 507, -; TF32 262
    (128, 64, 128, 1, 0, 128, 4, 0, 1, 2, 1, 1, 8, 0),
)
# Sums promoted every 32 steps: what a Triton kernel of the same products needed for errors
# below single precision's.  Figures of FP16x3 TN without the split, and BF16x6 at 4096.
_PROMOTED: tuple[_Shape, ...] = (
    (256, 128, 128, 2, 0, 64, 3, 32, 1, 1, 1, 1, 8, 132),  # 248, 46; 137
    (256, 128, 128, 2, 0, 64, 3, 32, 1, 1, 1, 2, 8, 132),
    (256, 128, 128, 2, 0, 64, 3, 32, 1, 1, 2, 1, 8, 132),
    (256, 128, 128, 2, 0, 128, 2, 32, 1, 1, 1, 2, 8, 132),  # 224, 41, with fences
    (128, 128, 128, 2, 0, 64, 4, 64, 1, 1, 1, 1, 8, 132),  # 232, 78; TF32x3 136, 50
    (128, 128, 128, 2, 0, 64, 4, 64, 1, 1, 2, 1, 8, 132),
    (128, 128, 64, 2, 0, 64, 3, 32, 2, 1, 1, 1, 8, 0),  # 209, 73; 130
    (256, 128, 64, 2, 0, 64, 4, 32, 2, 1, 1, 2, 8, 132),
    # For small results, as above.
    (64, 128, 64, 2, 0, 64, 5, 32, 1, 1, 1, 1, 8, 0),  # BF16x6 124, 79
    (64, 128, 64, 2, 0, 64, 5, 32, 1, 1, 2, 1, 8, 0),
    (128, 64, 128, 1, 0, 64, 6, 32, 1, 1, 1, 2, 8, 0),
    (128, 64, 128, 1, 0, 64, 6, 64, 1, 1, 1, 2, 8, 0),
    (128, 64, 128, 1, 0, 128, 3, 32, 2, 1, 1, 2, 8, 0),
    (128, 64, 64, 1, 0, 64, 6, 32, 2, 1, 1, 1, 8, 0),
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
