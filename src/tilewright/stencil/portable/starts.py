"""Configs that tuning tries first, those for batches, and what serves where nothing was tuned."""

from __future__ import annotations

from tilewright.hardware import DeviceSpec
from tilewright.space import Value
from tilewright.stencil.base import Variant

__all__ = ["DEFAULTS", "batch_starts", "square", "starts"]

# Defaults from the largest to those that most devices run: block_m = block_n, the threads
# along each side, block_k.  The last is for devices of few threads in a block.
DEFAULTS = ((128, 16, 8), (64, 16, 8), (64, 8, 8), (32, 16, 8), (16, 8, 8), (16, 4, 4))

# What all shapes here have.
_SAME: dict[str, Value] = {"pad": 1, "swizzle_rows": 8}

# For single precision on NVIDIA's GPUs: block_m, block_n, block_k, threads_m, threads_n,
# read_vector, shared_buffers.  128 elements of C in a thread are the most that leave its 255
# registers room for fragments, so the machine code for sm_90a has the largest share of
# multiply-adds.  The first has two resident blocks, so that one works while the other waits at
# a barrier, and blocks enough for small results; those that read single elements follow the
# winners on an H100.
_FAST_SINGLE = (
    (128, 128, 16, 8, 16, 4, 2),
    (256, 128, 16, 16, 16, 4, 2),
    (128, 256, 16, 16, 16, 4, 2),
    (256, 128, 8, 16, 16, 4, 2),
    (256, 128, 16, 16, 16, 4, 1),
    (256, 128, 16, 16, 16, 1, 1),
    (128, 128, 8, 8, 16, 1, 1),
)


# Blocks that fit sizes from 1024 to 2048 more evenly on 132 multiprocessors than the larger ones
# below: with these the worst size has 83 % of the rate by the count of whole blocks, in waves of
# two, instead of 72 %.
_EVENLY = ((32, 40, 16, 16, 8, 4, 2, 1), (24, 80, 16, 8, 16, 4, 2, 1), (32, 48, 16, 16, 8, 4, 2, 1))

# For real double-double on NVIDIA's GPUs: block_m, block_n, block_k, threads_m, threads_n,
# unroll_k, shared_buffers, prefetch.  A multiply-add is 12 or 21 instructions, so what counts
# is that the double-precision pipe never waits: 4 x 4 elements give a warp 16 chains, and
# leave room for two or more blocks.  These are the best for sm_90 by the cycle model; the last
# have half the tile and twice the warps.  The first, which untuned calls run, was the fastest of
# them on an H100 at n = 1024 in either accuracy and every transpose.
_FAST_PAIRS = (
    (32, 64, 16, 8, 16, 4, 2, 1),
    (32, 64, 8, 8, 16, 8, 2, 1),
    (64, 32, 16, 16, 8, 4, 2, 0),
    (32, 32, 16, 8, 8, 8, 1, 0),
    (64, 32, 8, 16, 8, 4, 1, 1),
    (64, 32, 16, 16, 16, 8, 2, 0),
    (64, 32, 8, 16, 16, 1, 2, 1),
    *_EVENLY,
)

# The same for complex ones, whose elements take twice the registers.
_FAST_COMPLEX_PAIRS = ((32, 32, 8, 8, 16, 1, 2, 1), (32, 32, 8, 16, 16, 1, 2, 1))


def starts(variant: Variant, device: DeviceSpec) -> tuple[dict[str, Value], ...]:
    """Return values of what is likely fast on a device, in its space or not; often none."""
    if "nvidia" not in device.vendor.lower():
        return ()
    if variant.precision.parts == 2:
        shapes = _FAST_COMPLEX_PAIRS if variant.precision.is_complex else _FAST_PAIRS
        return tuple(_fast_pairs(shape, variant) for shape in shapes)
    if variant.precision.letter != "s":
        return ()
    return tuple(_fast(shape, variant) for shape in _FAST_SINGLE)


def _fast_pairs(shape: tuple[int, ...], variant: Variant) -> dict[str, Value]:
    """Return a shape read in single elements of 16 bytes, the widest load there is, or 32."""
    block_m, block_n, block_k, threads_m, threads_n, unroll_k, buffers, prefetch = shape
    number = threads_m * threads_n

    def along(side: int, k_fast: bool) -> int:
        # Of a side that is no power of two, the largest that divides it.
        return min(max(1, number // block_k), side) if k_fast else min(side & -side, number)

    return _SAME | {
        "block_m": block_m, "block_n": block_n, "block_k": block_k,
        "threads_m": threads_m, "threads_n": threads_n, "fragment_vector": 1, "strided": 1,
        "read_a_m": along(block_m, variant.trans_a.transposed),
        "read_b_n": along(block_n, not variant.trans_b.transposed),
        "read_vector": 1, "shared_buffers": buffers, "prefetch": prefetch, "unroll_k": unroll_k,
    }  # fmt: skip


def _fast(shape: tuple[int, ...], variant: Variant) -> dict[str, Value]:
    """Return a shape read so that a warp reads whole sectors and writes each bank once."""
    block_m, block_n, block_k, threads_m, threads_n, vector, buffers = shape
    number = threads_m * threads_n
    # Eight elements, a sector of 32 bytes, along k: a warp then writes 8 rows of 4 elements,
    # which the pad of 16 bytes puts on 32 banks.
    across = number * vector // 8

    def along(side: int, k_fast: bool) -> int:
        # 128 is the most the space has.
        return min(across, side, 128) if k_fast else min(side // vector, number, 128)

    return _SAME | {
        "block_m": block_m, "block_n": block_n, "block_k": block_k,
        "threads_m": threads_m, "threads_n": threads_n, "fragment_vector": 4, "strided": 1,
        "read_a_m": along(block_m, variant.trans_a.transposed),
        "read_b_n": along(block_n, not variant.trans_b.transposed),
        "read_vector": vector, "shared_buffers": buffers, "prefetch": 1, "unroll_k": block_k,
    }  # fmt: skip


def square(
    side: int, threads: int, block_k: int, variant: Variant, device: DeviceSpec
) -> dict[str, Value]:
    """Return a square block, read with the longest runs that one element a read allows."""
    number = threads * threads
    size = variant.precision.element_bytes
    # 16 bytes, the widest read of shared memory on every GPU, and 4 elements, the space's most.
    vector = max(1, min(4, 16 // size))
    while vector > 1 and (vector * size > device.vector_bytes or side % (threads * vector)):
        vector //= 2
    along_m = min(side, number)
    along_k = number // min(block_k, number)
    return _SAME | {
        "block_m": side, "block_n": side, "block_k": block_k,
        "threads_m": threads, "threads_n": threads, "fragment_vector": vector,
        # With a single chunk a side both layouts are one, and the space keeps 0.
        "strided": int(side > threads * vector),
        "read_a_m": along_k if variant.trans_a.transposed else along_m,
        "read_b_n": along_m if variant.trans_b.transposed else along_k,
        "read_vector": 1, "shared_buffers": 1, "prefetch": 1, "unroll_k": block_k,
    }  # fmt: skip


# What a thread reads at once, in bytes.
_CHUNK_BYTES = 16

# Sides of a tile, steps of k of one, and threads along each side.
_BATCHED = ((16, 16, 8, 4), (32, 16, 8, 8))


def batch_starts(variant: Variant) -> tuple[dict[str, int], ...]:
    """Return values of those for batches: tiles of a warp or two, of all but short numbers."""
    if variant.precision.is_short:
        return ()
    return tuple(_batched(variant, *shape) for shape in _BATCHED)


def _batched(
    variant: Variant, side: int, depth: int, threads_m: int, threads_n: int
) -> dict[str, int]:
    """Return values of a square tile that is read in chunks, whole columns (or rows) of it."""
    vector = max(1, _CHUNK_BYTES // variant.precision.element_bytes)
    threads = threads_m * threads_n

    def threads_side(k_fast: bool) -> int:
        along = depth if k_fast else side
        each = min(threads, along // vector)
        return threads // each if k_fast else each

    a, b = (threads_side(k_fast) for k_fast in variant.k_fast)
    fragment = min(vector, side // threads_m, side // threads_n)
    return {
        "block_m": side, "block_n": side, "block_k": depth, "threads_m": threads_m,
        "threads_n": threads_n, "fragment_vector": fragment, "strided": 0, "read_a_m": a,
        "read_b_n": b, "read_vector": vector, "pad": 1, "shared_buffers": 1, "prefetch": 1,
        "unroll_k": min(16, depth), "swizzle_rows": 0,
    }  # fmt: skip
