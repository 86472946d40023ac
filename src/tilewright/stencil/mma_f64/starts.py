"""Configs that tuning tries first, ranked by the cycle model, an H100 alike; and for batches."""

from __future__ import annotations

from tilewright.stencil.base import Variant

__all__ = ["batch_starts", "starts"]

_NAMES = (
    "block_m", "block_n", "warp_m", "warp_n", "min_blocks", "mma_m", "mma_k", "block_k", "stages",
    "interleave", "cluster_k",
)  # fmt: skip
_SAME = {"serpentine_rows": 0, "swizzle_rows": 8}

_Shape = tuple[int, ...]

# Sums of 64 doubles a lane, the most that leave room for fragments: the fewest reads of shared
# memory for a multiply-add.  Two resident blocks, so that one multiplies while the other waits
# at its barrier; then one of twice the size, which copies a third less.  At 4096 on an H100 they
# reach 56 TFLOP/s; persistent ones of 128 x 128 reach 58 to 61, but spill a few registers outside
# of the loop, so they are for tuning to find, and in the table that is shipped.
_TALL: _Shape = (128, 64, 64, 32, 2, 16, 8, 16, 3, 8, 1)
_WIDE: _Shape = (64, 128, 32, 64, 2, 16, 8, 16, 3, 4, 1)
_DEEP: _Shape = (128, 64, 64, 32, 2, 16, 8, 32, 2, 8, 1)
_SHORT: _Shape = (128, 64, 64, 32, 2, 16, 4, 16, 3, 8, 1)
# By whether A and B are transposed: their memory's order decides what is read how.
_LARGE = {
    (False, False): (_TALL, _DEEP, _WIDE),
    (False, True): (_WIDE, _DEEP, _TALL),
    (True, False): (_DEEP, _WIDE, _TALL),
    (True, True): (_WIDE, _TALL, _SHORT),
}
# Blocks of a cluster are for small results.  Instructions of 8 rows come last: for where there
# is nothing else.
_OTHER: tuple[_Shape, ...] = (
    (64, 128, 32, 64, 2, 16, 4, 16, 3, 8, 1),
    (128, 128, 64, 32, 1, 16, 4, 16, 3, 8, 1),
    (64, 64, 32, 32, 2, 16, 8, 16, 3, 8, 2),
    (64, 64, 32, 32, 2, 16, 8, 16, 3, 8, 4),
    (64, 64, 32, 32, 2, 8, 4, 16, 3, 4, 1),
)
_DOUBLE_COMPLEX: tuple[_Shape, ...] = (
    (64, 64, 32, 32, 2, 16, 4, 8, 3, 8, 1),
    (64, 64, 32, 32, 2, 16, 4, 8, 3, 2, 1),
    (64, 128, 32, 32, 1, 16, 4, 8, 3, 8, 1),
    (64, 64, 32, 32, 2, 16, 4, 8, 3, 8, 2),
    (64, 64, 32, 32, 1, 8, 4, 8, 3, 4, 1),
)
# Timed for batches: small tiles.
_BATCHED: dict[str, tuple[_Shape, ...]] = {
    "d": (
        (32, 32, 16, 16, 6, 16, 4, 16, 3, 4, 1),
        (32, 32, 32, 16, 8, 16, 4, 16, 3, 4, 1),
        (64, 32, 32, 32, 6, 16, 8, 16, 3, 4, 1),
        (64, 64, 32, 32, 3, 16, 8, 16, 3, 4, 1),
        (128, 64, 64, 32, 2, 16, 8, 16, 3, 4, 1),
    ),
    "z": (
        (32, 32, 16, 16, 4, 16, 4, 8, 3, 4, 1),
        (32, 32, 32, 16, 6, 16, 4, 8, 3, 4, 1),
        (64, 32, 16, 32, 4, 16, 4, 8, 3, 4, 1),
        (64, 64, 32, 32, 2, 16, 4, 8, 3, 8, 1),
    ),
}
# And tiles of which persistent blocks copy the next while they store one: the fastest of batches
# of 128 to 512 on an H200.
_IN_TURN: dict[str, tuple[_Shape, ...]] = {
    "d": (
        (64, 64, 32, 32, 3, 16, 8, 16, 3, 4, 1),
        (128, 64, 64, 32, 2, 16, 8, 16, 3, 4, 1),
        (128, 64, 64, 32, 2, 16, 4, 8, 4, 4, 1),
    ),
    "z": (
        (32, 64, 32, 32, 4, 16, 4, 8, 3, 4, 1),
        (64, 64, 32, 32, 2, 16, 4, 8, 3, 8, 1),
    ),
}


def starts(variant: Variant) -> tuple[dict[str, int], ...]:
    """Return values of all parameters, the likeliest for large results first."""
    shapes = _DOUBLE_COMPLEX
    if not variant.precision.is_complex:
        shapes = _LARGE[variant.trans_a.transposed, variant.trans_b.transposed] + _OTHER
    return _named(shapes)


def batch_starts(variant: Variant) -> tuple[dict[str, int], ...]:
    """Return values of those for batches; none of a precision that has none."""
    letter = variant.precision.letter
    in_turn = _named(_IN_TURN.get(letter, ()))
    return _named(_BATCHED.get(letter, ())) + tuple(one | {"persistent": 1} for one in in_turn)


def _named(shapes: tuple[_Shape, ...]) -> tuple[dict[str, int], ...]:
    return tuple(dict(zip(_NAMES, shape, strict=True)) | _SAME for shape in shapes)
