"""Tiles in lines that TMA swizzles, for tensor cores: bits, as compiled, and their maps."""

from __future__ import annotations

import numpy as np
import pytest

from tests.stencil.contract import compiled
from tests.stencil.emulator import EmulatedDevice, compiler
from tests.stencil.portable_harness import variant
from tests.stencil.ways import MMA, small_mma
from tilewright.backend import GemmCall, Operand
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.backend.cuda.compiler import nvrtc
from tilewright.precision import precision
from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.stencil import TensorMap, Variant
from tilewright.stencil.geometry import PLAIN
from tilewright.tuning.inspection import inspect_config

HOPPER = architecture_spec("sm_90a")

needs_compiler = pytest.mark.skipif(compiler() is None, reason="needs g++ or clang++")
needs_nvrtc = pytest.mark.skipif(nvrtc() is None, reason="needs NVRTC: tilewright[tune]")


@pytest.mark.every(3)
@needs_compiler
@pytest.mark.parametrize("name", ["dNT", "dTN", "zNN"])
def test_bits_are_those_of_tiles_that_threads_copy(emulated: EmulatedDevice, name: str) -> None:
    """Which rows a lane has changes nothing in an element's chain of whole tiles."""
    of = variant(name)
    bits = [bits_of_a_product(emulated, small_mma(of, emulated, tma=tma), of) for tma in (0, 1)]
    assert bits[0] == bits[1]


def bits_of_a_product(live: EmulatedDevice, config: Config, of: Variant) -> bytes:
    """Return those of a 70 x 50 one over 40 steps, of numbers whose sums are rounded."""
    drawn, size = np.random.default_rng(3), of.precision.element_bytes
    a, b = (live.upload(drawn.standard_normal(80 * 80 * size // 8)) for _ in "ab")
    c = live.allocate(70 * 50 * size)
    call = GemmCall(
        of.precision, 70, 50, 40, 1, Operand(a, 0, 80), Operand(b, 0, 80), 0, Operand(c, 0, 70)
    )
    kernel = compiled(live, MMA, config, of)
    live.launch(kernel, MMA.launch(config, 70, 50), MMA.arguments(config, of, call)).wait()
    found = np.empty(70 * 50 * size, np.uint8)
    live.download(c, found)
    return found.tobytes()


# -- as compiled ---------------------------------------------------------------------------

LARGE = {
    "block_m": 128, "block_n": 128, "block_k": 16, "warp_m": 64, "warp_n": 32, "mma_m": 16,
    "mma_k": 8, "stages": 3, "interleave": 8, "serpentine_rows": 0,
    "min_blocks": 1, "cluster_k": 1,
    "swizzle_rows": 8, "persistent": 1, "tma": 1,
}  # fmt: skip
COMPLEX = LARGE | {"block_m": 64, "block_k": 8, "warp_m": 32, "mma_k": 4}


@pytest.mark.every(3)
@needs_nvrtc
@pytest.mark.parametrize("name", ["dNN", "dNT", "dTT", "zNC", "zTN"])
def test_no_two_lanes_meet_in_a_bank(name: str) -> None:
    """Nor does any register spill where a warp has 64 x 32 doubles."""
    config = LARGE if name[0] == "d" else COMPLEX
    made = inspect_config(config, stencil="mma_f64", precision=name[0], trans=name[1:])
    kernel = made.kernel
    assert kernel.loop is not None
    assert kernel.resources.local_loads == 0
    reads = [i for i in kernel.loop.instructions if i.mnemonic == "LDS" and not i.guard.never]
    assert reads
    for i in reads:
        assert kernel.wavefronts[i.address] == (i.access_bits or 0) // 32


# -- maps, and what they ask of operands ---------------------------------------------------


def call(letter: str, *, n: int = 60, lda: int = 100, ldb: int = 60, k: int = 30) -> GemmCall:
    """Return a product of 100 rows."""
    a, b = Operand("A", 2, lda), Operand("B", 0, ldb)
    return GemmCall(precision(letter), 100, n, k, 1, a, b, 0, Operand("C", 0, 100))


def shape(name: str, **changes: int) -> Config:
    return MMA.default(variant(name), HOPPER).replace(tma=1, **changes)


def test_a_box_is_a_line_wide() -> None:
    """Its other side is the tile's; sizes count what is contiguous first."""
    config = shape("dNN", block_m=64, block_n=128, block_k=16)
    *_, a, b = MMA.arguments(config, variant("dNN"), call("d", ldb=30))
    assert a == TensorMap("A", 16, "float64", (100, 30, 1), (800, 128), (16, 16, 1), swizzle=128)
    assert b == TensorMap("B", 0, "float64", (30, 60), (240,), (16, 128), swizzle=128)
    *_, a, b = MMA.arguments(shape("zTC", block_k=8), variant("zTC"), call("z", lda=31))
    assert a == TensorMap("A", 32, "float64", (60, 100), (496,), (16, 64), swizzle=128)
    assert b.sizes == (120, 30, 1)


def test_lines_of_a_side_that_is_whole_lines_are_one_box() -> None:
    """60 columns are not; 48 are three lines of doubles, of which a tile has four."""
    config = shape("dNT", block_m=64, block_n=64, block_k=16)
    *_, b = MMA.arguments(config, variant("dNT"), call("d", n=48))
    assert b == TensorMap("B", 0, "float64", (16, 30, 3), (480, 128), (16, 16, 4), swizzle=128)
    *_, b = MMA.arguments(config, variant("dNT"), call("d", n=48, k=0))
    assert b.sizes == (16, 1, 3)  # no side of a map may be zero
    *_, b = MMA.arguments(config, variant("dNT"), call("d", n=0))
    assert b.sizes == (1, 30, 1)


def test_a_line_along_k_needs_steps_to_fill_it() -> None:
    def broken(name: str, **changes: int) -> list[str]:
        space = MMA.space(variant(name), HOPPER)
        found = space.violated(shape(name, **changes))
        return [one.name for one in found if one.kind in ("divisibility", "hardware")]

    assert broken("dTN") == []
    assert broken("dTN", block_k=8, mma_k=4) == ["whole lines along k"]
    assert broken("dNT", block_k=8, mma_k=4) == []
    assert broken("dNT", warp_n=16, mma_k=8) == ["columns of B one by one"]
    able = MMA.modes(shape("dTN"), variant("dTN"), HOPPER)
    assert [str(mode) for mode in able] == ["plain", "staged"]
    older = MMA.space(variant("dNT"), architecture_spec("sm_80"))
    assert "TMA" in [one.name for one in older.violated(shape("dNT", mma_m=8, mma_k=4))]


def test_stages_begin_where_the_engine_counts_lines_from() -> None:
    """Eight lines of 128 bytes: what is behind a stage's tiles keeps the next one so."""
    of = variant("dNN")
    config = shape("dNN", stages=3)
    ring = 3 * config.integer("block_k") * (config.integer("block_m") + config.integer("block_n"))
    assert MMA.resources(config, of).shared_bytes == 8 * ring + 3 * 1024


@pytest.mark.parametrize(
    ("lda", "ldb", "taken"), [(64, 48, True), (65, 48, False), (64, 49, False)]
)
def test_odd_leading_dimensions_are_for_others(lda: int, ldb: int, taken: bool) -> None:
    problem = Problem(60, 44, 40, "d", "T", "N", lda, ldb)
    assert MMA.takes(shape("dTN"), problem) is taken
    odd = Problem(60, 44, 41, "d", "T", "N", 64, 48)
    assert MMA.geometry(shape("dTN")).mode(odd) == PLAIN


@pytest.mark.parametrize(
    ("name", "m", "n", "taken"),
    [
        ("dNT", 64, 48, True),
        ("dNT", 64, 40, False),  # a line is 16 doubles
        ("dNT", 72, 48, False),
        ("dNN", 64, 41, True),  # B lies along k
        ("dTN", 61, 41, True),
        ("zNT", 40, 48, True),  # or 8 complex elements
        ("zNT", 40, 44, False),
        ("zCN", 41, 47, True),
    ],
)
def test_sides_that_are_no_whole_lines_are_for_others(
    name: str, m: int, n: int, taken: bool
) -> None:
    """They can be read, a box for each line, but copies by threads are faster then."""
    problem = Problem(m, n, 40, name[0], name[1], name[2], 80, 80, 80)
    assert MMA.takes(shape(name), problem) is taken
    assert MMA.takes(shape(name).replace(tma=0), problem)
