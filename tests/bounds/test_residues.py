"""The bound of double precision from residues, by hand."""

from __future__ import annotations

import re

import pytest

import tilewright as tw
from tilewright.bounds.residues import FEWEST
from tilewright.hardware.catalogue import catalogue_device
from tilewright.problem import Problem
from tilewright.stencil.residues.moduli import COMPLEX, REAL

N = 8192
PRODUCT = 2 * N**3


def test_the_fewest_moduli_are_the_kernels():
    for of in (REAL, COMPLEX):
        assert FEWEST[of.is_complex] == (of.first, of.planes)


@pytest.mark.parametrize(("letter", "planes", "size"), [("d", 14, 8), ("z", 30, 16)])
def test_every_term_by_hand(letter, planes, size):
    h100 = catalogue_device("h100")
    problem = Problem(N, N, N, letter)
    found = tw.bound(problem, "h100", arithmetic="residues", reads_c=False)
    int8 = 2 * 4096 * 132 * 1.98e9
    share = problem.flops / (planes * PRODUCT)
    assert found.term("arithmetic peak").value == pytest.approx(int8 * share)
    moved = 2 * (2 * size + 1 + planes) * N * N + (2 + 2 + planes + size) * N * N
    seconds = moved / h100.needs("copy_bytes_per_s")
    assert found.term("device memory").value == pytest.approx(problem.flops / seconds)
    products = problem.flops / found.term("warpgroup tiles and tail wave").value
    choice = tw.bound(Problem(N, N, N, "e5m2"), "h100", reads_c=False, warm_cache=True).seconds
    assert found.seconds == pytest.approx(seconds + products + choice)
    assert found.limiting.name == "one after the other"
    more = tw.bound(problem, "h100", arithmetic="residues")
    assert more.limit < found.limit
    assert tw.bound(problem, "h100", accuracy="fp64") == more


def test_what_was_measured_is_below_the_limit():
    """docs/fp64_accurate.md: 83.4 TFLOP/s of D at 8192, 146 of Z."""
    for letter, measured in (("d", 83.4e12), ("z", 146e12)):
        limit = tw.bound(Problem(N, N, N, letter), "h100", accuracy="fp64", reads_c=False).limit
        assert measured < limit < 1.6 * measured


def test_ieee_arithmetic_bounds_where_it_is_faster():
    small, old = Problem(512, 512, 512, "d"), Problem(N, N, N, "d")
    assert tw.bound(small, "h100", accuracy="fp64") == tw.bound(small, "h100")
    assert tw.bound(old, "gtx580", accuracy="fp64") == tw.bound(old, "gtx580")


@pytest.mark.parametrize(
    ("letter", "options", "message"),
    [
        ("s", {"accuracy": "fp64"}, "goes with precision d or z, not s; use precision d"),
        ("c", {"arithmetic": "residues"}, "arithmetic='residues' goes with precision d or z"),
        ("d", {"arithmetic": "bf16x6"}, "arithmetic='bf16x6' goes with precision s or c, not d"),
        ("d", {"accuracy": "fp64", "presplit": True}, "presplit=True means nothing"),
        ("z", {"arithmetic": "residues", "promote_k": 64}, "promote_k=64 means nothing"),
    ],
)
def test_what_means_nothing_is_refused(letter, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        tw.bound(Problem(64, 64, 64, letter), "h100", **options)
