"""Problems and precisions: BLAS's words, checked where they enter."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.precision import PRECISIONS, precision, precision_of
from tilewright.problem import Problem, Trans, transposes_of


def test_leading_dimensions_default_to_the_least_that_blas_allows():
    p = Problem(10, 20, 30, "d", "T", "N")
    assert (p.lda, p.ldb, p.ldc) == (30, 30, 10)
    assert Problem(10, 20, 30, "d", "N", "T", lda=64).lda == 64


def test_conjugation_is_dropped_on_real_elements():
    assert Problem(1, 1, 1, "s", "C", "C").trans == "TT"
    assert Problem(1, 1, 1, "c", "C", "C").trans == "CC"


def test_flops_are_counted_as_blas_does():
    assert Problem(2, 3, 5, "s").flops == 60
    assert Problem(2, 3, 5, "z").flops == 240


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1, 1, 1), "m=-1"),
        ((1, 1.5, 1), "n=1.5"),
        ((1, 1, 1, "q"), "precision='q'"),
        ((1, 1, 1, "s", "X"), "trans_a='X'"),
        ((9, 1, 1, "s", "N", "N", 8), "lda=8 is too small; give at least 9"),
        (("a", 1, 1), "m='a' is not a size"),
        ((1, None, 1), "n=None is not a size"),
        ((1, 1, float("inf")), "k=inf is not a size"),
        ((3, 3, 3, "s", "N", "N", 3.5), "lda=3.5 is not a size"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        Problem(*arguments)


def test_batches_lie_behind_each_other_unless_told_otherwise():
    p = Problem(3, 4, 5, "s", "T", "N", ldb=8, batch=7)
    assert (p.step_a, p.step_b, p.step_c) == (15, 32, 12)
    assert p.flops == 7 * p.one.flops
    assert p.one == Problem(3, 4, 5, "s", "T", "N", ldb=8)
    assert str(p) == "SGEMM TN 7 * 3x4x5"
    same_b = Problem(3, 4, 5, batch=7, step_b=0)
    assert same_b.elements == (7 * 15, 20, 7 * 12)


@pytest.mark.parametrize("wrong", [{"batch": 0}, {"batch": -1}, {"batch": 2, "step_c": 0}])
def test_batches_that_are_none_are_refused(wrong):
    with pytest.raises(ValueError, match=f"{list(wrong)[-1]}="):
        Problem(3, 4, 5, **wrong)


def test_26_transpose_cases():
    assert sum(len(transposes_of(p)) for p in PRECISIONS.values()) == 26


@pytest.mark.parametrize("trans", list(Trans))
def test_trans_is_its_two_properties(trans):
    assert Trans.of(trans.transposed, trans.conjugated) is trans


def test_precisions_know_their_types():
    for row in PRECISIONS.values():
        assert precision(row.letter.upper()) is precision(row) is row
        assert precision_of(row.dtype) is row
        assert row.element_bytes == row.words * row.real_bytes
        assert row.unit_roundoff == np.finfo(row.real_dtype).eps / 2
    for other in ("i4", "f2", ">f4"):
        with pytest.raises(ValueError, match="has no GEMM here"):
            precision_of(other)
