"""Execution pipes of one scheduler: which instruction takes which, and for how long.

Throughputs are those of the CUDA C++ Programming Guide's table "Throughput of Native Arithmetic
Instructions": lanes of a multiprocessor, a quarter of them a scheduler's.  Tensor cores' rates for
doubles are those measured on an H100 (docs/microbenchmarks.md): a multiprocessor's 64 multiply-adds
a cycle in instructions of 8 rows, 128 in those of 16; an A100's 64 are published.
"""

from __future__ import annotations

import math

from tilewright.sass.instruction import Instruction
from tilewright.sass.warpgroups import MULTIPLIES

__all__ = ["Pipes", "pipe_of"]

WARP = 32
SCHEDULERS = 4
_FP32_LANES = {70: 64, 75: 64, 80: 64}
_FP64_LANES = {70: 32, 80: 32, 90: 64, 100: 64, 103: 64}
_INTEGER_LANES = 64
# Multiply-adds a cycle of DMMA by its shape; "884" is the only one before sm_90.
_DMMA_RATE = {"884": 64, "8x8x4": 64, "16x8x4": 128, "16x8x8": 128, "16x8x16": 128}
_MEMORY = frozenset(
    ("LDS", "LDSM", "STS", "LD", "LDG", "STG", "LDGSTS", "LDL", "STL", "LDC", "ATOMG", "SHFL")
)
_UNIFORM = frozenset(("UIADD3", "UIMAD", "ULEA", "ULOP3", "USHF", "UISETP", "UMOV", "ULDC"))
_CONTROL = frozenset(("BRA", "BAR", "NOP", "BSSY", "BSYNC", "EXIT", "DEPBAR", "LDGDEPBAR"))

# Multiplies of a warpgroup: each of its warps sits on a scheduler of its own, whose tensor core
# takes half a cycle a column for 64 rows and 32 bytes of k, in every type: 128 cycles for 256
# columns as measured (docs/microbenchmarks.md, "Rates of every unit").
_CYCLES_A_COLUMN = 0.5


def _columns(instruction: Instruction) -> int:
    """Return N of a warpgroup multiply's shape; 0 where it is not told."""
    shape = next((word for word in instruction.modifiers if word.startswith("64x")), "64x0x0")
    return int(shape.split("x")[1])


def pipe_of(instruction: Instruction, arch: int) -> tuple[str, float]:
    """Return the pipe an instruction takes, and the cycles until the next one may follow there."""
    name = instruction.mnemonic
    if name in ("FFMA", "FMUL", "FADD", "FFMA2"):
        return "fma", WARP * SCHEDULERS / _FP32_LANES.get(arch, 128)
    if name in ("IMAD", "IMAD2"):
        return "imad", WARP * SCHEDULERS / _INTEGER_LANES
    if name in ("DFMA", "DADD", "DMUL"):
        return "fp64", WARP * SCHEDULERS / _FP64_LANES.get(arch, 2)
    if name in MULTIPLIES:
        return "tensor", _columns(instruction) * _CYCLES_A_COLUMN
    if name == "DMMA":
        return "tensor", SCHEDULERS * _dmma(instruction) / _DMMA_RATE[_shape(instruction)]
    if name in _MEMORY:
        return "memory", 0.0
    if name in _UNIFORM:
        return "uniform", 2.0
    if name in _CONTROL:
        return "control", 0.0
    return "alu", WARP * SCHEDULERS / _INTEGER_LANES


def _shape(instruction: Instruction) -> str:
    return instruction.name.split(".")[1]


def _dmma(instruction: Instruction) -> int:
    return math.prod(int(side) for side in _shape(instruction).replace("884", "8x8x4").split("x"))


class Pipes:
    """When each pipe takes its next instruction."""

    def __init__(self) -> None:
        self._free: dict[str, float] = {}

    def free(self, pipe: str) -> float:
        """Return the first cycle in which a pipe takes an instruction."""
        return self._free.get(pipe, 0.0)

    def take(self, pipe: str, when: float, cycles: float) -> None:
        """Occupy a pipe."""
        if cycles:
            self._free[pipe] = when + cycles
