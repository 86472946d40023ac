"""What a tuner is asked for is refused with what to do instead."""

from types import SimpleNamespace

import pytest

from tests.portfolio.examples import Hopper
from tilewright.hardware.catalogue import catalogue_device
from tilewright.problem import Problem
from tilewright.tuning.asked import family_of


def test_a_stencil_that_computes_no_such_product_is_refused_with_what_does():
    of_bytes = Problem(64, 64, 64, "int8", "T", "N")
    with pytest.raises(ValueError, match=r"'outer' has no INT8 GEMM TN; use one of wgmma, skinny$"):
        family_of(Hopper(), "outer", of_bytes)
    cpu = SimpleNamespace(id="opencl:0", spec=catalogue_device("avx2").spec)
    with pytest.raises(ValueError, match=r"use other transposes, or another device$"):
        family_of(cpu, "outer", of_bytes)
