"""Costs of products in parts and with an epilogue: from a file of times to a portfolio's rows."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.portfolio.arithmetics import kernels_of
from tilewright.portfolio.kernel import PortfolioKernel
from tilewright.portfolio.measured import read_measured
from tilewright.portfolio.model import TERMS, Model
from tilewright.problem import Problem, Trans
from tilewright.stencil.wgmma import NAMED, Wgmma, operands_of, variant_named

FAMILY = Wgmma()
H100 = replace(architecture_spec("sm_90a"), multiprocessors=132)


@pytest.fixture(params=["fp16x3", "e4m3-epilogue"])
def measured(request, tmp_path):
    """Times of two configs by known costs: of a launch, of steps along k, of tiles."""
    variant = variant_named(request.param)
    shapes = [[m, n, k] for m in (128, 1024) for n in (256, 2048) for k in (64, 512, 4096)]
    starts = FAMILY.starts(variant, H100)[:2]
    configs = [dict(one) for one in starts]
    costs = np.zeros((2, len(TERMS)))
    costs[:, [TERMS.index(x) for x in ("launch", "vector steps", "tiles")]] = 5000, 30, 2000
    model = Model([FAMILY.geometry(one) for one in starts], costs)
    problems = [Problem(*x, operands_of(variant.arithmetic), Trans.T, Trans.N) for x in shapes]
    ns = [model.expected(one, 132).tolist() for one in problems]
    document = {
        "precision": operands_of(variant.arithmetic).letter, "arithmetic": request.param,
        "stencil": "wgmma", "device": "H100", "compute_capability": 90, "multiprocessors": 132,
        "cases": {"TN": {"shapes": shapes, "configs": configs, "ns": ns, "won": []}},
        "rescheduled": [],
    }  # fmt: skip
    path = tmp_path / "times.json"
    path.write_text(json.dumps(document))
    return read_measured(path)


def test_costs_are_fitted_and_kept_without_machine_code(measured):
    kernels = kernels_of(measured)
    assert len(kernels) == 2
    for one in kernels:
        assert len(one.costs) == len(TERMS)
        assert not any(one.forms)
        again = PortfolioKernel.from_json(json.loads(json.dumps(one.to_json())))
        assert (again.variant, again.config) == (one.variant, one.config)
    (case,) = measured.cases.values()
    model = Model([one.geometry for one in kernels], np.array([one.costs for one in kernels]))
    for problem, ns in zip(case.problems, case.ns, strict=True):
        assert model.expected(problem, 132) == pytest.approx(ns, rel=0.1)


def test_every_name_is_one_arithmetic():
    found = {name: variant_named(name) for name in NAMED}
    assert {name: one.arithmetic_name for name, one in found.items()} == {x: x for x in NAMED}
