"""Kernels compiled for one triangle of a square result, which leave the other one as it was."""

from __future__ import annotations

import pytest

from tests.stencil.emulator import EmulatedDevice, compiler
from tests.stencil.portable_harness import variant
from tilewright.backend.base import LaunchError
from tilewright.portfolio.verify_triangle import check_triangle
from tilewright.space import Config
from tilewright.stencil import Stencil, Variant, stencil
from tilewright.stencil.geometry import Mode
from tilewright.tuning.verify import Bench, WrongResultError

needs_compiler = pytest.mark.skipif(compiler() is None, reason="needs g++ or clang++")


def staying(family: Stencil, of: Variant, stream_k: int) -> Config:
    """Return a config of blocks that stay, and share tiles of the last wave or do not."""
    found = next(one for one in family.batch_configs(of) if one.get("persistent", 0))
    return found.replace(stream_k=stream_k)


@pytest.mark.every(2)
@needs_compiler
@pytest.mark.parametrize(
    ("name", "stream_k"),
    [
        ("simt_async sNT", 2), ("mma_f64 dNT", 0), ("mma_f64 dTN", 1), ("mma_f64 zNC", 0),
        ("simt_async cCN", 1), ("mma_f64 zTN", 2),
    ],
)  # fmt: skip
def test_a_triangle_is_written_and_nothing_else(
    emulated: EmulatedDevice, name: str, stream_k: int
) -> None:
    family, of = stencil(name.split()[0]), variant(name.split()[1])
    config = staying(family, of, stream_k)
    kernel = emulated.compile(family.triangle_source(config, of, emulated.dialect))
    check_triangle(Bench(emulated, kernel, family, config, of, blocks=3))


@needs_compiler
@pytest.mark.parametrize(
    ("kept", "planted"),
    [
        ("in_triangle(c.lower, 0, right)", "true"),
        ("beyond                         ? NO_ELEMENTS", "false ? NO_ELEMENTS"),
        ("on_diagonal ? elem_scalar(real_of(v, 0), 0)", "false ? v"),
        ("p.i.before - row", "0 - row"),
        (
            "store_one_way(c, sum, first, count, true, true)",
            "store_one_way(c, sum, first, count, true, 0)",
        ),
    ],
)
def test_a_planted_fault_is_found(emulated: EmulatedDevice, kept: str, planted: str) -> None:
    family, of = stencil("simt_async"), variant("cNC")
    config = staying(family, of, 0)
    source = family.triangle_source(config, of, emulated.dialect)
    assert kept in source.text
    wrong = source.__class__(**{**vars(source), "text": source.text.replace(kept, planted)})
    bench = Bench(emulated, emulated.compile(wrong), family, config, of, blocks=3)
    with pytest.raises((WrongResultError, LaunchError)):
        check_triangle(bench)


def test_blocks_that_stay_compute_triangles_of_operands_that_lie_alike() -> None:
    family, of = stencil("simt_async"), variant("sNT")
    config = staying(family, of, 0)
    assert family.triangles(config, of)
    assert not family.triangles(config.replace(persistent=0), of)
    assert not family.triangles(config, variant("sNN"))
    assert not stencil("portable").triangles(stencil("portable").batch_configs(of)[0], of)
    with pytest.raises(ValueError, match="stencil='portable' computes no triangles"):
        stencil("portable").triangle_source(config, of, "cuda")


def test_a_kernel_for_triangles_is_another() -> None:
    family, of = stencil("mma_f64"), variant("dTN")
    config = staying(family, of, 1)
    whole, one = family.source(config, of, "cuda"), family.triangle_source(config, of, "cuda")
    assert whole.identity != one.identity
    assert whole.digest != one.digest
    assert one.part_bytes == whole.part_bytes > 0


def test_threads_store_what_they_have() -> None:
    family, of = stencil("simt_async"), variant("sNT")
    made = family.triangle_source(staying(family, of, 0), of, "cuda", Mode(True, staged=True))
    assert (made.defines["SCALAR"], made.defines["STAGED"]) == (1, 0)
