"""Configs that tuning tries first, and what serves where nothing was tuned."""

from __future__ import annotations

from tilewright.stencil.base import Variant

__all__ = ["batch_starts", "starts"]

_NAMES = (
    "block_m", "block_n", "tile_m", "tile_n", "lanes_m", "block_k", "unroll_k", "stages",
    "min_blocks", "cluster_k", "serpentine_rows", "b_first", "copy_groups", "swizzle_rows",
)  # fmt: skip

_Shape = tuple[int, ...]

# Thread tiles of 128 elements, the most that leave room for fragments, so the fewest reads of
# shared memory a multiply-add; walked along the shorter side.  These three were the fastest of
# 778 candidates from 2048 on in a search before blocks could stay; the first is within 3 % of
# the best in all cases.
_TALL: _Shape = (256, 128, 16, 8, 4, 16, 16, 2, 1, 1, 1, 0, 4, 8)
_SQUARE: _Shape = (128, 128, 16, 8, 4, 16, 16, 2, 2, 1, 1, 0, 4, 8)
_WIDE: _Shape = (128, 256, 8, 16, 8, 16, 16, 2, 1, 1, 0, 1, 2, 8)
# By whether A and B are transposed: the first serves where nothing was tuned.
_LARGE = {
    (False, False): (_TALL, _SQUARE, _WIDE),
    (False, True): (_SQUARE, _TALL, _WIDE),
    (True, False): (_TALL, _WIDE, _SQUARE),
    (True, True): (_WIDE, _SQUARE, _TALL),
}
# Blocks of a cluster give small results to all multiprocessors: winners at 1024 and 512 before
# there was sliced-K.  Then the likeliest where clusters are not known, and loops of 8 steps, which
# fit the nearest instruction cache.
_SINGLE: tuple[_Shape, ...] = (
    (64, 64, 8, 8, 8, 8, 8, 5, 4, 2, 0, 0, 2, 8),
    (128, 128, 8, 8, 8, 8, 8, 5, 2, 2, 0, 0, 2, 8),
    (64, 64, 8, 4, 4, 16, 8, 3, 3, 2, 1, 0, 2, 8),
    (64, 64, 8, 4, 4, 8, 8, 5, 3, 2, 1, 0, 2, 8),
    (128, 128, 8, 16, 8, 8, 8, 3, 2, 1, 0, 0, 2, 8),
    (128, 128, 16, 8, 4, 8, 8, 3, 2, 1, 1, 0, 4, 8),
    (128, 128, 8, 8, 8, 8, 8, 3, 2, 1, 0, 0, 2, 8),
)
_DOUBLE: tuple[_Shape, ...] = (
    (64, 64, 8, 8, 8, 16, 8, 2, 2, 1, 0, 0, 2, 8),
    (128, 64, 8, 8, 8, 16, 8, 2, 1, 1, 0, 0, 2, 8),
    (64, 64, 8, 8, 8, 16, 8, 2, 2, 4, 0, 0, 2, 8),
    (64, 64, 4, 8, 8, 16, 8, 2, 2, 1, 0, 0, 2, 8),
)
# The first three are within 3 % of the best of what was tried at 4096, which are persistent blocks
# of the first.
_COMPLEX: tuple[_Shape, ...] = (
    (128, 64, 8, 8, 8, 8, 8, 3, 2, 1, 1, 0, 2, 8),
    (64, 128, 8, 8, 4, 8, 8, 3, 2, 1, 1, 0, 2, 8),
    (64, 64, 8, 4, 4, 16, 8, 2, 1, 2, 1, 0, 2, 8),
    (64, 64, 8, 4, 4, 16, 16, 2, 1, 2, 1, 1, 1, 4),
    (32, 128, 8, 4, 4, 8, 8, 5, 4, 1, 1, 1, 2, 16),
    *_DOUBLE,
)
_DOUBLE_COMPLEX: tuple[_Shape, ...] = (
    (64, 64, 4, 8, 8, 8, 8, 2, 1, 1, 0, 0, 2, 8),
    (32, 64, 4, 8, 8, 8, 8, 2, 4, 1, 0, 0, 2, 8),
    (32, 32, 4, 4, 4, 8, 8, 2, 2, 4, 0, 0, 2, 8),
)
# Double-double: 12 or 21 instructions a multiply-add on a thread's tile of 4 x 4, whose reads of
# shared memory are few beside them.  Blocks of 32 x 64 do not transpose A on the way, those of
# 64 x 32 not B; the small ones fit all.  Clusters that split k end more evenly.
_PAIRS: tuple[_Shape, ...] = (
    (32, 64, 4, 4, 8, 16, 4, 3, 2, 1, 0, 0, 2, 8),
    (64, 32, 4, 4, 8, 16, 4, 3, 2, 1, 0, 0, 2, 8),
    (32, 32, 4, 4, 8, 16, 4, 3, 4, 1, 0, 0, 2, 8),
    (32, 32, 4, 4, 8, 8, 4, 3, 4, 1, 0, 0, 2, 8),
    (32, 64, 4, 4, 8, 16, 4, 2, 3, 1, 0, 0, 2, 8),
    (64, 32, 4, 4, 8, 16, 4, 2, 3, 1, 0, 0, 2, 8),
    (32, 64, 4, 4, 8, 16, 4, 3, 2, 2, 0, 0, 2, 8),
    (64, 32, 4, 4, 8, 16, 4, 3, 2, 2, 0, 0, 2, 8),
    (32, 32, 4, 4, 8, 16, 4, 3, 4, 2, 0, 0, 2, 8),
    (32, 32, 4, 4, 8, 16, 4, 2, 4, 4, 0, 0, 2, 8),
)
_SHAPES = {"e": _PAIRS, "f": _PAIRS, "d": _DOUBLE, "c": _COMPLEX, "z": _DOUBLE_COMPLEX}


# Sliced-K, by `warps_k`: winners at 512 and 1024.
_LAYERED: tuple[tuple[int, _Shape], ...] = (
    (8, (64, 32, 8, 8, 8, 64, 8, 3, 1, 1, 0, 0, 2, 8)),
    (4, (32, 32, 8, 4, 4, 64, 16, 2, 2, 1, 0, 0, 2, 8)),
    (2, (64, 128, 8, 8, 4, 32, 16, 2, 1, 1, 1, 1, 4, 8)),
)
# Tiles that the copy engine brings, of 192 elements a thread, shared by all blocks: the fastest
# from 4096 on where both operands run along m or n and columns are aligned.
_BOXED: tuple[_Shape, ...] = (
    (96, 256, 12, 16, 4, 8, 8, 4, 2, 1, 0, 0, 1, 8),
    (192, 128, 12, 16, 8, 8, 8, 4, 2, 1, 0, 0, 1, 8),
)
_BOXES = {"tma": 1, "persistent": 1, "stream_k": 2}
# Timed for batches: small tiles, the first a single warp's.
_BATCHED: dict[str, tuple[_Shape, ...]] = {
    "s": (
        (16, 32, 4, 4, 4, 16, 8, 2, 16, 1, 0, 0, 2, 8),
        (32, 32, 4, 4, 8, 16, 8, 3, 8, 1, 0, 0, 2, 8),
        (64, 64, 4, 8, 8, 8, 8, 3, 5, 1, 0, 0, 2, 8),
        (128, 64, 8, 8, 8, 8, 8, 4, 3, 1, 0, 0, 1, 8),
        (128, 64, 8, 8, 8, 8, 8, 3, 4, 1, 0, 0, 2, 8),
        (64, 128, 8, 8, 8, 8, 8, 3, 4, 1, 0, 0, 2, 8),
    ),
    "d": ((16, 32, 4, 4, 4, 16, 8, 2, 16, 1, 0, 0, 2, 8),),
    "c": (
        (16, 32, 4, 4, 4, 16, 8, 2, 16, 1, 0, 0, 2, 8),
        (32, 32, 4, 4, 8, 8, 8, 3, 8, 1, 0, 0, 1, 8),
        (64, 32, 4, 4, 8, 8, 8, 3, 6, 1, 0, 0, 1, 8),
        (32, 64, 4, 4, 4, 8, 8, 3, 6, 1, 1, 0, 1, 8),
        (64, 64, 8, 4, 4, 8, 8, 3, 4, 1, 1, 0, 2, 8),
    ),
    "z": ((16, 32, 4, 4, 4, 8, 8, 2, 8, 1, 0, 0, 2, 8),),
}
# And tiles of which persistent blocks copy the next while they store one: the fastest of batches
# of 256 and 512 on an H200.
_IN_TURN: dict[str, tuple[_Shape, ...]] = {
    "s": (
        (64, 64, 4, 8, 8, 8, 8, 3, 5, 1, 0, 0, 2, 8),
        (128, 128, 8, 16, 8, 8, 8, 3, 2, 1, 0, 0, 4, 8),
        (128, 128, 8, 16, 8, 8, 8, 3, 2, 1, 0, 1, 4, 8),
    ),
    "c": (
        (64, 128, 8, 8, 4, 4, 4, 4, 2, 1, 1, 1, 2, 8),
        (128, 64, 8, 8, 8, 4, 4, 4, 2, 1, 1, 1, 2, 8),
    ),
}


def starts(variant: Variant) -> tuple[dict[str, int], ...]:
    """Return values of all parameters, the likeliest for large results first."""
    shapes = _SHAPES.get(variant.precision.letter)
    boxed: tuple[_Shape, ...] = ()
    layered = _LAYERED if shapes is None else ()
    if shapes is None:
        shapes = _LARGE[variant.trans_a.transposed, variant.trans_b.transposed] + _SINGLE
        boxed = () if any(variant.k_fast) else _BOXED
    return tuple(
        dict(zip(_NAMES, shape, strict=True)) | more
        for among, more in (
            (shapes, {}),
            *(((shape,), {"warps_k": many}) for many, shape in layered),
            (boxed, _BOXES),
        )
        for shape in among
    )


def batch_starts(variant: Variant) -> tuple[dict[str, int], ...]:
    """Return values of those for batches; none of a precision that has none."""
    letter = variant.precision.letter
    in_turn = {"persistent": 1, "specialised_epilogue": 1}
    return tuple(
        dict(zip(_NAMES, shape, strict=True)) | more
        for shapes, more in ((_BATCHED, {}), (_IN_TURN, in_turn))
        for shape in shapes.get(letter, ())
    )
