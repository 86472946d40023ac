"""Configs that tuning tries first, and what serves where nothing was tuned.

What each takes is measured and fitted (`tilewright.portfolio`).
"""

from __future__ import annotations

from tilewright.stencil.base import Variant
from tilewright.stencil.wgmma.arithmetic import FLOAT_BITS, Arithmetic
from tilewright.stencil.wgmma.small import SMALL

__all__ = ["batch_starts", "starts"]

_NAMES = (
    "block_m", "block_n", "instruction_m", "consumers", "pingpong", "row_bytes", "stages",
    "promote_k", "partials", "min_blocks", "cluster_m", "cluster_n", "swizzle_rows",
    "multiprocessors", "parallel_split_k",
)  # fmt: skip


# Products of two parts, whose sums are promoted every 32 steps: what a Triton kernel of the same
# products needed for errors below single precision's.  Of 107 timed of fp16x3 on 50 products and
# triangles these lose least together, 1 % in the mean; of ten that were repeated for 0.35 s at 4096
# to 16384 none took 1 % less than the first.  The last three serve where roundings of promotions
# are made up for (H200, 2026-11-29).
_PROMOTED: tuple[tuple[int, ...], ...] = (
    (256, 128, 128, 2, 0, 128, 2, 32, 1, 1, 1, 1, 8, 132),
    (128, 192, 64, 3, 0, 128, 2, 32, 1, 1, 1, 1, 8, 132),
    (128, 128, 128, 2, 0, 128, 3, 32, 2, 1, 1, 1, 8, 132),
    (128, 128, 64, 2, 0, 128, 3, 32, 1, 1, 1, 1, 8, 132),
    (64, 192, 64, 3, 0, 128, 3, 32, 2, 1, 1, 1, 8, 132),
    (64, 128, 64, 2, 0, 128, 4, 32, 2, 1, 1, 1, 8, 132),
    (64, 64, 64, 1, 0, 128, 3, 32, 2, 2, 1, 1, 8, 132),
    (128, 64, 64, 1, 0, 128, 2, 32, 2, 2, 1, 1, 8, 132),
    (64, 128, 64, 2, 1, 128, 4, 32, 2, 1, 1, 1, 8, 132),
    (64, 64, 64, 1, 0, 128, 3, 32, 1, 2, 1, 1, 8, 132),
)

# The same of three parts, of 90 of bf16x6: 1 % in the mean.
_PROMOTED_OF_THREE: tuple[tuple[int, ...], ...] = (
    (128, 128, 128, 2, 0, 128, 2, 32, 2, 1, 1, 1, 8, 132),
    (64, 192, 64, 3, 0, 128, 2, 32, 2, 1, 1, 1, 8, 132),
    (64, 128, 64, 2, 0, 128, 3, 32, 2, 1, 1, 1, 8, 132),
    (64, 64, 64, 1, 0, 128, 2, 32, 2, 2, 1, 1, 8, 132),
    (96, 192, 96, 3, 0, 128, 2, 32, 1, 1, 1, 1, 8, 132),
    (64, 128, 64, 2, 0, 128, 3, 32, 1, 1, 1, 1, 8, 132),
    (64, 64, 64, 1, 0, 128, 2, 32, 1, 2, 1, 1, 8, 132),
)

# With an epilogue: few, because their code is long, and such as multiply while another consumer
# computes what follows.
_FOLLOWED: tuple[tuple[int, ...], ...] = (
    (128, 128, 128, 2, 1, 128, 6, 0, 1, 1, 1, 1, 8, 132),
    (64, 128, 64, 2, 0, 128, 8, 0, 1, 1, 1, 1, 8, 0),
)
# The same of FP8.
_FOLLOWED_FP8: tuple[tuple[int, ...], ...] = (
    (128, 128, 128, 2, 1, 128, 6, 128, 1, 1, 1, 1, 8, 132),
    (64, 128, 64, 2, 0, 128, 8, 128, 1, 1, 1, 1, 8, 0),
)

# One triangle of C, which has fewer tiles than the product, so that smaller ones leave less of the
# last wave: of 35 timed of 16 bits, TF32 and int8 on 25 triangles each these lose least together,
# 1 % in the mean.  A stage more would leave no room for results to pass through shared memory
# (H200, 2026-11-29).
_TRIANGLES: tuple[tuple[int, ...], ...] = (
    (128, 256, 128, 2, 0, 128, 4, 0, 1, 1, 1, 1, 4, 132),
    (192, 192, 192, 3, 0, 128, 4, 0, 1, 1, 1, 1, 4, 132),
    (128, 192, 128, 3, 0, 128, 5, 0, 1, 1, 1, 1, 4, 132),
    (128, 128, 128, 2, 1, 128, 6, 0, 1, 1, 1, 1, 4, 132),
    (128, 128, 128, 2, 0, 128, 6, 0, 1, 1, 1, 1, 4, 132),
    (96, 192, 96, 3, 0, 128, 5, 0, 1, 1, 1, 1, 8, 132),
    (64, 192, 64, 3, 0, 128, 6, 0, 1, 1, 1, 1, 8, 132),
    (64, 128, 64, 3, 1, 128, 8, 0, 1, 1, 1, 1, 8, 132),
    (64, 128, 64, 2, 0, 128, 8, 0, 1, 1, 1, 1, 8, 132),
    (64, 64, 64, 1, 0, 128, 6, 0, 1, 2, 1, 1, 8, 132),
)

# The same of FP8, whose sums are promoted, of 50: 0.2 % in the mean.
_TRIANGLES_FP8: tuple[tuple[int, ...], ...] = (
    (256, 128, 128, 2, 0, 128, 4, 128, 1, 1, 1, 1, 4, 132),
    (128, 192, 64, 3, 0, 128, 5, 128, 1, 1, 1, 1, 4, 132),
    (128, 128, 64, 2, 0, 128, 6, 128, 2, 1, 1, 1, 4, 132),
    (96, 192, 96, 3, 0, 128, 5, 128, 1, 1, 1, 1, 8, 132),
    (64, 192, 64, 3, 0, 128, 6, 128, 1, 1, 1, 1, 8, 132),
    (64, 64, 64, 1, 0, 128, 6, 128, 1, 2, 1, 1, 8, 132),
)

# One part: those that lose least together in 16 bits, in a search on an H100 over layers of
# language models and squares; of 96, 160, 176 and 208 rows, and 192 x 192, what fills the last wave
# where all others leave much of it empty; and in slices of k those of 13 that lose least over 28
# products with a short side or long sums, 3 % at most where slices win.  Of 8-bit integers and TF32
# stages have as many bytes, and take half and twice the time.
_PLAIN: tuple[tuple[int, ...], ...] = (
    (256, 128, 256, 2, 0, 128, 4, 0, 1, 1, 1, 1, 4, 132),
    (256, 128, 256, 2, 0, 128, 4, 0, 1, 1, 1, 2, 4, 132),
    (128, 256, 128, 2, 0, 128, 4, 0, 1, 1, 1, 1, 4, 132),
    (192, 256, 192, 2, 0, 128, 4, 0, 1, 1, 1, 1, 4, 132),
    (192, 128, 192, 2, 0, 128, 5, 0, 1, 1, 1, 1, 8, 132),
    (128, 192, 128, 2, 1, 128, 5, 0, 1, 1, 1, 1, 4, 132),
    (128, 192, 128, 3, 0, 128, 5, 0, 1, 1, 1, 1, 8, 132),
    (192, 192, 192, 3, 0, 128, 4, 0, 1, 1, 1, 1, 8, 132),
    (160, 192, 160, 3, 0, 128, 5, 0, 1, 1, 1, 1, 8, 132),
    (160, 128, 160, 2, 0, 128, 6, 0, 1, 1, 1, 1, 4, 132),
    (176, 256, 176, 2, 0, 128, 4, 0, 1, 1, 1, 1, 4, 132),
    (208, 128, 208, 2, 0, 128, 5, 0, 1, 1, 1, 1, 4, 132),
    (96, 128, 96, 2, 0, 128, 8, 0, 1, 1, 1, 1, 8, 132),
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

# In slices of k within a cluster; the last number is cluster_k.  Of 28 timed on 123 layers and
# squares these six lose 0.1 % in the mean beside all; without any the loss is 2 to 5 %, by
# precision (H200, 2026-11-29).
_IN_CLUSTERS: tuple[tuple[int, ...], ...] = (
    (64, 64, 64, 1, 0, 128, 6, 0, 1, 2, 1, 1, 8, 0, 2),
    (64, 64, 64, 1, 0, 128, 6, 0, 1, 2, 1, 1, 8, 0, 4),
    (64, 128, 64, 2, 0, 128, 8, 0, 1, 1, 1, 1, 8, 0, 2),
    (64, 128, 64, 2, 0, 128, 8, 0, 1, 1, 1, 1, 8, 0, 4),
    (128, 128, 128, 2, 0, 128, 7, 0, 1, 1, 1, 1, 8, 0, 2),
    (128, 64, 128, 1, 0, 128, 8, 0, 1, 1, 1, 1, 8, 0, 2),
)

# Ping-pong besides: of 16-bit elements; and of 8-bit integers and TF32, where a stage less leaves
# room for results to pass through shared memory, in 2 to 13 % less time of layers of 2048 tokens in
# 8-bit integers, up to 4 % in TF32 (H100 SXM, 2026-11-27).
_PLAIN_OF_16_BITS: tuple[tuple[int, ...], ...] = (
    (128, 128, 128, 2, 1, 128, 7, 0, 1, 1, 1, 1, 4, 132),
    (128, 128, 128, 2, 1, 128, 7, 0, 1, 1, 1, 2, 4, 132),
)
_PLAIN_OF_OTHERS: tuple[tuple[int, ...], ...] = (
    (128, 128, 128, 2, 1, 128, 6, 0, 1, 1, 1, 1, 4, 132),
    (128, 128, 128, 2, 1, 128, 6, 0, 1, 1, 1, 2, 4, 132),
    (192, 128, 192, 2, 1, 128, 5, 0, 1, 1, 1, 2, 4, 132),
    (160, 128, 160, 2, 1, 128, 5, 0, 1, 1, 1, 2, 8, 132),
)

# 16-bit operands that TMA does not take, brought by threads: small tiles, since each stage waits
# for device memory once.
_BY_THREADS: tuple[tuple[int, ...], ...] = (
    (128, 128, 128, 1, 0, 128, 4, 0, 1, 1, 1, 1, 8, 0),
    (128, 64, 128, 1, 0, 128, 4, 0, 1, 1, 1, 1, 8, 0),
    (64, 128, 64, 2, 0, 128, 4, 0, 1, 1, 1, 1, 8, 0),
    (64, 64, 64, 1, 0, 128, 4, 0, 1, 2, 1, 1, 8, 0),
    (128, 128, 128, 1, 0, 128, 4, 0, 1, 1, 1, 1, 8, 0, 1),
    (128, 64, 128, 1, 0, 128, 4, 0, 1, 1, 1, 1, 8, 0, 1),
    (64, 128, 64, 2, 0, 128, 4, 0, 1, 1, 1, 1, 8, 0, 1),
    (64, 64, 64, 1, 0, 128, 4, 0, 1, 2, 1, 1, 8, 0, 1),
)

# 32-bit ones, whose copies are under way in all stages but two.
_BY_CP_ASYNC: tuple[tuple[int, ...], ...] = (
    (128, 128, 128, 2, 0, 128, 6, 0, 1, 1, 1, 1, 8, 0),
    (256, 64, 256, 1, 0, 128, 5, 0, 1, 1, 1, 1, 8, 0),
    (128, 64, 128, 1, 0, 128, 8, 0, 1, 1, 1, 1, 8, 0),
    (128, 64, 128, 1, 0, 128, 4, 0, 1, 2, 1, 1, 8, 0),
    (64, 128, 64, 2, 0, 128, 8, 0, 1, 1, 1, 1, 8, 0),
    (64, 256, 64, 2, 0, 128, 5, 0, 1, 1, 1, 1, 8, 0),
    (64, 64, 64, 1, 0, 128, 6, 0, 1, 2, 1, 1, 8, 0),
    (128, 128, 128, 2, 0, 128, 6, 0, 1, 1, 1, 1, 8, 0, 1),
    (128, 64, 128, 1, 0, 128, 8, 0, 1, 1, 1, 1, 8, 0, 1),
    (128, 64, 128, 1, 0, 128, 4, 0, 1, 2, 1, 1, 8, 0, 1),
    (64, 128, 64, 2, 0, 128, 8, 0, 1, 1, 1, 1, 8, 0, 1),
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
    (176, 128, 176, 2, 0, 128, 5, 128, 1, 1, 1, 1, 4, 132),
    (160, 128, 160, 2, 0, 128, 6, 128, 1, 1, 1, 1, 4, 132),
    (96, 256, 96, 2, 0, 128, 5, 128, 1, 1, 1, 1, 4, 132),
    (96, 192, 96, 3, 0, 128, 6, 128, 1, 1, 1, 1, 8, 132),
    (96, 128, 96, 2, 0, 128, 8, 128, 1, 1, 1, 1, 8, 132),
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

# For batches; block_k in bytes.  Blocks of the first two compute a tile and go.  Others are
# persistent: a tile's first loads and its store, which take as long as the multiplies of a short
# sum, pass beside the multiplies of other tiles, of up to three consumers in turn or of two blocks
# more on the multiprocessor.
_BATCHED: tuple[tuple[int, ...], ...] = (
    (64, 64, 64, 1, 0, 64, 2, 2, 0),
    (64, 64, 64, 1, 0, 128, 3, 2, 0),
    (128, 128, 128, 2, 0, 128, 6, 1, 132),
    (64, 256, 64, 2, 0, 128, 5, 1, 132),
    (128, 64, 128, 2, 1, 128, 8, 1, 132),
    (64, 128, 64, 2, 1, 128, 8, 1, 132),
    (128, 128, 128, 2, 1, 128, 7, 1, 132),
    (256, 128, 256, 2, 0, 128, 4, 1, 132),
    (192, 192, 192, 3, 0, 128, 4, 1, 132),
    (64, 64, 64, 2, 1, 128, 8, 1, 132),
    (64, 64, 64, 3, 1, 128, 6, 1, 132),
    (64, 64, 64, 1, 0, 128, 3, 3, 132),
    (64, 128, 64, 3, 1, 128, 7, 1, 132),
    (128, 64, 128, 3, 1, 128, 7, 1, 132),
)
# The same of 16-bit operands that TMA does not take.  A thread reads what it brings into registers,
# so that a block waits for device memory in every step: persistent blocks at least do while others
# multiply and store.  Those that took least of 17 on 19 batches of odd sides, and two of 80 and 96
# rows (H200, 2026-11-29).
_BATCHED_BY_THREADS: tuple[tuple[int, ...], ...] = (
    (64, 64, 64, 1, 0, 128, 3, 2, 0),
    (64, 64, 64, 1, 0, 128, 4, 2, 132),
    (96, 64, 96, 1, 0, 128, 3, 2, 0),
    (96, 64, 96, 1, 0, 128, 3, 2, 132),
    (128, 64, 128, 1, 0, 128, 4, 1, 132),
    (64, 128, 64, 2, 0, 128, 6, 1, 132),
    (192, 64, 192, 1, 0, 128, 4, 1, 132),
    (80, 128, 80, 2, 0, 128, 4, 1, 132),
    (96, 128, 96, 2, 0, 128, 4, 1, 132),
    (128, 128, 128, 1, 0, 128, 4, 1, 132),
    (128, 128, 128, 2, 0, 128, 4, 1, 132),
    (128, 128, 128, 2, 0, 128, 4, 1, 0),
)
_BATCHED_NAMES = (
    "block_m", "block_n", "instruction_m", "consumers", "pingpong", "block_k", "stages",
    "min_blocks", "multiprocessors",
)  # fmt: skip
_SMALL_NAMES = "block_m", "block_n", "block_k", "matrices", "min_blocks"
_SAME = {"partials": 1, "cluster_m": 1, "cluster_n": 1, "swizzle_rows": 8}

# Elements of 16 bits along a side of a square.
_SQUARE = 64

# FP8's sums, of which tensor cores keep 14 bits, are promoted as often as elsewhere.
_PROMOTE_K = 128


def starts(
    arithmetic: Arithmetic, multiprocessors: int = 1, *, rows_of_a: bool = False
) -> tuple[dict[str, int], ...]:
    """Return values of all parameters, the fastest for large results first.

    Parameters
    ----------
    arithmetic : Arithmetic
        Whose element says how many a row has.
    multiprocessors : int
        Of the device, which persistent blocks fill; 1 of an architecture without a device leaves
        what was measured.
    rows_of_a : bool
        Whether an instruction's rows run along m: then m and n change places.
    """
    found = []
    rows: list[tuple[tuple[int, ...], dict[str, int]]] = [(x, {}) for x in _shapes(arithmetic)]
    if arithmetic.is_plain:
        often = {"promote_k": _PROMOTE_K} if arithmetic.kept_bits < FLOAT_BITS else {}
        rows += [(x[:-1], often | {"cluster_k": x[-1]}) for x in _IN_CLUSTERS]
    if arithmetic.any_alignment:
        shapes = _BY_THREADS if arithmetic.element_bytes == 2 else _BY_CP_ASYNC
        rows += [(x, {"tma": 0}) for x in shapes]
    for shape, more in rows:
        values = dict(zip(_NAMES, shape, strict=False)) | more  # most cut no tile
        values["block_k"] = values.pop("row_bytes") // arithmetic.element_bytes
        if values["multiprocessors"] and multiprocessors > 1:
            values["multiprocessors"] = multiprocessors
        if rows_of_a:
            values |= {name: values[other] for name, other in _OTHER_SIDE.items()}
        found.append(values)
    return tuple(found)


# What m and n exchange.
_OTHER_SIDE = {
    "block_m": "block_n", "block_n": "block_m", "cluster_m": "cluster_n", "cluster_n": "cluster_m",
}  # fmt: skip


def _shapes(arithmetic: Arithmetic) -> tuple[tuple[int, ...], ...]:
    promoted = arithmetic.kept_bits < FLOAT_BITS
    if arithmetic.result == "residues":
        return _RESIDUES
    if arithmetic.epilogue:
        return _FOLLOWED_FP8 if promoted else _FOLLOWED
    if arithmetic.parts > 1:
        return _PROMOTED if arithmetic.parts == 2 else _PROMOTED_OF_THREE
    if arithmetic.triangle:
        return _TRIANGLES_FP8 if promoted else _TRIANGLES
    if promoted:
        return _FP8
    return _PLAIN + (_PLAIN_OF_16_BITS if arithmetic.element_bytes == 2 else _PLAIN_OF_OTHERS)


def batch_starts(variant: Variant) -> tuple[dict[str, int], ...]:
    """Return values of those for batches; none of a precision that tensor cores do not take."""
    of = variant.precision
    if not of.is_short:
        return ()
    promote_k = _PROMOTE_K if of.dtype_name.startswith("float8") else 0
    same = _SAME | {"promote_k": promote_k}
    found = []
    for shape in _BATCHED:
        named = dict(zip(_BATCHED_NAMES, shape, strict=True))
        named["block_k"] //= of.element_bytes
        found.append(same | named)
    if of.element_bytes == 2:
        found += [dict(zip(_SMALL_NAMES, shape, strict=True)) for shape in SMALL]
        for shape in _BATCHED_BY_THREADS:
            named = dict(zip(_BATCHED_NAMES, shape, strict=True))
            named["block_k"] //= of.element_bytes
            # Along m shared memory has squares, which instructions read whole.
            if variant.k_fast[0] or named["instruction_m"] % _SQUARE == 0:
                found.append(same | named | {"tma": 0})
    return tuple(found)
