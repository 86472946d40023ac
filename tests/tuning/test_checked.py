"""The run that warms up multiplies integers on the problem itself, and its result is compared."""

from __future__ import annotations

from dataclasses import replace

import pytest

import tests.tuning.faulty
from tilewright.problem import Problem
from tilewright.stencil import Variant, stencils_for
from tilewright.tuning.checked import CheckedWorkload
from tilewright.tuning.verify import WrongResultError

FAULTY = tests.tuning.faulty.Faulty()

# Longer than what repeats, in both directions, with gaps between columns.
SIDES = {"m": 523, "n": 307, "k": 45, "lda": 600, "ldb": 700, "ldc": 530}


@pytest.mark.parametrize("name", ["sNN", "dTN", "zCT", "vNC"])
def test_a_right_kernel_passes(cpu, name):
    letter, trans_a, trans_b = name
    problem = Problem(**SIDES, precision=letter, trans_a=trans_a, trans_b=trans_b)
    variant = Variant.of(problem)
    family = stencils_for(cpu.spec, variant)[0]
    config = family.default(variant, cpu.spec)
    kernel = cpu.compile(family.source(config, variant, cpu.dialect))
    workload = CheckedWorkload(cpu, problem)
    try:
        for _ in range(2):
            assert workload.first_run(kernel, family, config) > 0
        assert workload.busy_ns > 0
    finally:
        workload.close()


def test_a_single_wrong_element_and_one_left_out_are_seen(cpu):
    problem = Problem(**SIDES, precision="s")
    variant = Variant.of(problem)
    configs = list(FAULTY.space(variant, cpu.spec))
    right, wrong = (next(x for x in configs if x["fault"] == fault) for fault in (0, 2))
    source = FAULTY.source(right, variant, "opencl")
    made = cpu.compile(source)
    silent = cpu.compile(replace(source, text=source.text.replace("i >= m", "i >= m || j == 299")))
    workload = CheckedWorkload(cpu, problem)
    try:
        workload.first_run(made, FAULTY, right)
        with pytest.raises(WrongResultError, match=r"C\(522, \d+\).*m=523 n=307 k=45"):
            workload.first_run(cpu.compile(FAULTY.source(wrong, variant, "opencl")), FAULTY, wrong)
        workload.first_run(made, FAULTY, right)
        with pytest.raises(WrongResultError, match=r"C\(\d+, 299\)"):
            workload.first_run(silent, FAULTY, right)
    finally:
        workload.close()
