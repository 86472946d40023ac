"""Sizes at which accuracy="fp32" is served in single precision because that is faster."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.problem import Problem
from tilewright.serve.routes.split.serve import why_ieee
from tilewright.serve.routes.split.worth import is_worth
from tilewright.serve.unproved import serve_unproved

H100 = replace(architecture_spec("sm_90a"), multiprocessors=132, name="H100")


def worth(m, n, k, letter="s"):
    return is_worth(Problem(m, n, k, letter), H100)


@pytest.mark.parametrize("n", [896, 1024, 2048, 4096, 8192, 16384])
def test_whatever_was_measured_in_parts_is_served_so(n):
    assert worth(n, n, n)
    assert worth(n, n, n, "c")


@pytest.mark.parametrize(
    "size", [(256, 256, 256), (512, 512, 512), (64, 64, 65536), (128, 128, 4096), (4096, 64, 64)]
)
def test_small_products_and_few_tiles_are_single_precisions(size):
    assert not worth(*size)


def test_a_named_scheme_is_served_and_a_report_says_why_another_is_not():
    live = SimpleNamespace(spec=H100, dialect="cuda", id="cuda:0")
    small, large = (Problem(n, n, n, "s") for n in (512, 1024))

    def why(arithmetic, problem):
        call = SimpleNamespace(alpha=1, beta=0)
        return why_ieee(live, problem, call, arithmetic)

    assert why("fp32", small) == "single precision is faster at this size"
    assert not why("fp32", large)
    for named in ("fp16x3", "bf16x6"):
        assert not why(named, small)
    with serve_unproved():  # to measure it, and its guard
        assert not why("fp32", small)
