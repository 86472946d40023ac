"""A checker is worth what it catches: each mutant of a right kernel must be refused."""

from __future__ import annotations

import pytest

from tilewright.precision import PRECISIONS
from tilewright.problem import Trans
from tilewright.stencil import Source, Variant
from tilewright.stencil.packed import Packed
from tilewright.tuning.verify import WrongResultError, certify, error_bound, screen

PACKED = Packed()

# What is changed in the kernel's source, and whether the short check already sees it.
MUTANTS = {
    "reads C though beta is 0": (
        "if (beta_re == 0)\n                    STORE_GLOBAL(x, at);\n                else",
        "",
        "screen",
    ),
    "drops the last step in k": (
        "l < kc; ++l) {\n                    EACH",
        "l < kc - 1; ++l) {\n EACH",
        "screen",
    ),
    "writes one row too many": (
        "local const real *tile, global real *c, const long ldc,\n"
        "                              const int rows,",
        "local const real *tile, global real *c, const long ldc,\n const int rows_,",
        "screen",
    ),
    "ignores alpha": ("const vector x = alpha_re *", "const vector x =", "screen"),
    "forgets beta when k is empty": ("at[0] = beta_re == 0 ? 0 : beta_re * at[0];", "", "certify"),
    # 1.5 * 2^23 leaves no bits behind the point; what converts or truncates sixteen numbers makes
    # the LLVM of some CPU devices abort.
    "rounds to whole numbers": (
        "const vector x = alpha_re * ((local const vector *)tile)[v + j * MICRO_VECTORS];",
        "const vector x = alpha_re * ((((local const vector *)tile)[v + j * MICRO_VECTORS]"
        " + 12582912.0f) - 12582912.0f);",
        "certify",
    ),
}


@pytest.fixture
def live(cpu):
    """Packed is for CPUs."""
    return cpu


def build(live, change):
    variant = Variant(PRECISIONS["s"], Trans.N, Trans.T)
    config = PACKED.default(variant, live.spec).replace(
        vector=16, micro_vectors=1, micro_n=4, block_m=32, block_n=32, block_k=64
    )
    source = PACKED.source(config, variant, "opencl")
    text = source.text
    if change is not None:
        old, new = change
        assert old in text, "the mutant no longer applies: adapt it to the kernel's source"
        text = text.replace(old, new)
        if "rows_" in new:  # store a row that lies outside the matrix
            text = text.replace(
                "const scalar beta_im)\n{\n#if WORDS == 1\n    if (rows == MICRO_M)",
                "const scalar beta_im)\n{\n    const int rows = rows_ + "
                "(rows_ < MICRO_M);\n#if WORDS == 1\n    if (rows == MICRO_M)",
            )
    kernel = live.compile(Source(text, source.defines))
    return live, kernel, PACKED, config, variant


def test_the_original_passes(live):
    screen(*build(live, None))
    assert 0 < certify(*build(live, None)) < 1e-6


@pytest.mark.parametrize("name", [n for n, m in MUTANTS.items() if m[2] == "screen"])
def test_screening_refuses(live, name):
    with pytest.raises(WrongResultError):
        screen(*build(live, MUTANTS[name][:2]))


@pytest.mark.parametrize("name", [n for n, m in MUTANTS.items() if m[2] == "certify"])
def test_only_the_certificate_refuses(live, name):
    candidate = build(live, MUTANTS[name][:2])
    screen(*candidate)
    with pytest.raises(WrongResultError):
        certify(*candidate)


def test_bound_grows_with_k():
    assert error_bound(100, 2.0**-24, False) == pytest.approx(102 * 2.0**-24, rel=1e-4)
    assert error_bound(100, 2.0**-24, True) == pytest.approx(204 * 2.0**-24, rel=1e-4)
