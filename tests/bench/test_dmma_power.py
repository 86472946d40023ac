"""Matrix units for doubles alone: the loop holds what is counted, and the table tells it."""

from __future__ import annotations

import sys

import pytest

from tests.library.test_shipped import script
from tilewright.backend.cuda.compiler import compile_cubin, nvrtc
from tilewright.sass import decode, main_loop, read_cubin
from tilewright.stencil import Source


@pytest.fixture
def power():
    return script("dmma_power")


@pytest.mark.skipif(nvrtc() is None, reason="NVRTC is not here")
@pytest.mark.parametrize("order", range(4))
@pytest.mark.parametrize("steps", [4, 8, 16])
def test_the_loop_multiplies_what_a_round_counts(power, steps, order):
    """A warp's instructions of a round, 16 rows by 8 columns each; nothing spilled, no reads."""
    source = Source(power.TEXT.read_text(), {"STEPS": steps, "ORDER": order}, "dmma")
    (kernel,) = read_cubin(compile_cubin(source, "sm_90a").code).kernels
    names = main_loop(decode(kernel.code, kernel.arch)).names()
    count = names[f"DMMA.16x8x{steps}"]
    assert count * 2 * 16 * 8 * steps * power.WARPS * power.ROUNDS == power.flops(1)
    assert not [name for name in names if name.startswith(("LD", "ST"))]


def test_every_length_runs_in_every_order_and_on_zeros(power):
    found = list(power.loads())
    assert len(found) == len(set(found)) == len(power.STEPS) * (len(power.ORDERS) + 1)
    assert {steps for steps, _, numbers in found if numbers == "zeros"} == set(power.STEPS)


def test_the_table_prints_the_committed_file(power, monkeypatch, capsys):
    path = power.Path(__file__).parents[2] / "benchmarks/results/h100/dmma_power.json"
    monkeypatch.setattr(sys, "argv", ["dmma_power.py", "--table", "--json", str(path)])
    power.main()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(list(power.loads()))
    assert lines[0] == " 4 steps, by rows    , normal: 65.6 TFLOP/s at 1.965 GHz and 669 W"


def test_a_file_that_is_not_there_is_a_line(power, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["dmma_power.py", "--table", "--json", "nowhere"])
    with pytest.raises(SystemExit):
        power.main()
    assert "argument --json: nowhere cannot be read" in capsys.readouterr().err
