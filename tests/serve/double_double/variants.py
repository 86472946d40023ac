"""Variants by name, and two configs of the portable stencil."""

from __future__ import annotations

from tilewright.precision import DOUBLE_DOUBLE
from tilewright.problem import Trans
from tilewright.space import Config
from tilewright.stencil import Variant

# As different as can be: all through shared memory in the plainest way; A in vectors, twice
# buffered, while B comes through the cache.
PLAIN = Config(
    "portable",
    {
        "block_m": 16, "block_n": 16, "block_k": 8, "threads_m": 8, "threads_n": 8,
        "fragment_vector": 1, "strided": 0, "read_a_m": 8, "read_b_n": 8, "read_vector": 1,
        "pad": 0, "shared_buffers": 1, "prefetch": 0, "unroll_k": 1, "swizzle_rows": 1,
    },
)  # fmt: skip
MIXED = PLAIN.replace(
    fragment_vector=2, strided=1, read_a_m=8, read_b_n=0, read_vector=2,
    pad=1, shared_buffers=2, prefetch=1, swizzle_rows=8,
)  # fmt: skip


def variant(name: str) -> Variant:
    return Variant(DOUBLE_DOUBLE[name[0]], Trans(name[1]), Trans(name[2]))
