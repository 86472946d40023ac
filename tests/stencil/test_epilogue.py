"""How results are stored: in other ways the same bits; where they are staged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.stencil.contract import faulty, has_mode, mode_rules
from tests.stencil.emulator import EmulatedDevice, compiler
from tests.stencil.portable_harness import variant
from tests.stencil.ways import SIMT, Way, simt
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.problem import Problem
from tilewright.stencil import Variant, stencil
from tilewright.stencil.simt_async import SimtAsync
from tilewright.stencil.simt_async.stencil import STAGED_K
from tilewright.tuning.matrices import Matrix
from tilewright.tuning.verify import Check, WrongResultError, certify

needs_compiler = pytest.mark.skipif(compiler() is None, reason="needs g++ or clang++")


@needs_compiler
@pytest.mark.parametrize(
    ("way", "m"),
    [
        (simt("sNN", "staged"), 64),
        (simt("sNN", "staged"), 67),
        (simt("sNN", specialised_epilogue=1), 64),
        (simt("sNN", specialised_epilogue=1), 67),
        (simt("cNT", specialised_epilogue=1), 66),
    ],
    ids=str,
)
def test_bits_are_those_of_the_plain_epilogue(emulated: EmulatedDevice, way: Way, m: int) -> None:
    """Where no compiler fuses alpha and beta, how C is stored changes nothing in or beside it."""
    rng, check = np.random.default_rng(m), Check(m, 35, 40, beta=3)
    kind = way.of.precision.dtype

    def drawn(rows: int, columns: int) -> Matrix:
        return Matrix.place(rng.standard_normal((rows, columns)).astype(kind))

    x, y = drawn(m, 40), drawn(40, 35) if way.name[2] == "N" else drawn(35, 40)
    c = rng.standard_normal((m, 35)).astype(kind)
    one, other = (
        each.bench(emulated).run(check, x, y, Matrix.result(c)).tobytes()
        for each in (way, simt(way.name))
    )
    assert one == other


@needs_compiler
def test_the_contract_finds_an_alpha_without_its_imaginary_part(emulated: EmulatedDevice) -> None:
    way = simt("cNT", specialised_epilogue=1)
    wrong = faulty(SimtAsync, "if (real_of(c.alpha, 1) == 0) {", "if (true) {")
    run = way.bench(emulated, family=wrong)
    with pytest.raises(WrongResultError):
        certify(emulated, run.kernel, wrong, run.config, way.of)


def test_staging_is_for_elements_smaller_than_a_chunk_that_have_room() -> None:
    """Two chunks of 16 bytes a thread, in a stage of both tiles."""
    device = architecture_spec("sm_90a")
    for name, sound in {"sNN": True, "cTT": True, "dNT": True, "zNT": False, "eNN": False}.items():
        of = variant(name)
        assert has_mode(SIMT, SIMT.default(of, device), of, device, "staged") is sound
    tight = {"block_m": 64, "block_n": 64, "tile_m": 4, "tile_n": 4, "lanes_m": 8, "unroll_k": 4}
    of = variant("sNT")
    for block_k, sound in ((8, False), (16, True)):
        config = SIMT.default(of, device).replace(**tight, block_k=block_k)
        assert (config in mode_rules(SIMT, of, device, "staged")) is sound


def mode_of(problem: Problem, family: str = "simt_async", **changes: int) -> str:
    """Return the launch mode that a default, so changed, is compiled in for a problem."""
    of = Variant.of(problem)
    config = stencil(family).default(of, architecture_spec("sm_90a"))
    return str(stencil(family).geometry(config.replace(**changes)).mode(problem))


def test_short_sums_into_unaligned_columns_are_staged() -> None:
    """Where the store is a good part of the work; nothing changes where C is aligned."""
    short = Problem(1024, 1024, 128, "s", "N", "N")
    assert "staged" not in mode_of(short)
    assert "staged" in mode_of(replace(short, m=1021, lda=0, ldc=0))
    assert "staged" in mode_of(replace(short, ldc=1025))
    assert "staged" in mode_of(replace(short, m=1021, lda=1024, ldc=1024))
    assert "staged" not in mode_of(replace(short, ldc=1025, k=STAGED_K + 1, ldb=0))
    assert "staged" not in mode_of(Problem(1021, 1024, 128, "z", "N", "N"))
    assert "staged" not in mode_of(Problem(1022, 1024, 128, "c", "N", "N"))
    assert "staged" in mode_of(Problem(1021, 1024, 128, "d", "N", "N"), "mma_f64")
    # Both ways are fitted at once, and one that has no room to stage is not asked to.
    assert mode_of(replace(short, m=1021, lda=0, ldc=0)) == "scalar+staged"
    crowded = {"block_m": 64, "block_n": 64, "tile_m": 4, "tile_n": 4, "block_k": 8, "unroll_k": 8}
    assert "staged" not in mode_of(replace(short, ldc=1025), **crowded)
