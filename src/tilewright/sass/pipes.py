"""Execution pipes of one scheduler: which instruction takes which, and for how long.

Throughputs are those of the CUDA C++ Programming Guide's table "Throughput of Native Arithmetic
Instructions": lanes of a multiprocessor, a quarter of them a scheduler's.
"""

from __future__ import annotations

from tilewright.sass.instruction import Instruction

__all__ = ["Pipes", "pipe_of"]

WARP = 32
SCHEDULERS = 4
_FP32_LANES = {70: 64, 75: 64, 80: 64}
_FP64_LANES = {70: 32, 80: 32, 90: 64, 100: 64, 103: 64}
_INTEGER_LANES = 64
_MEMORY = frozenset(
    ("LDS", "LDSM", "STS", "LDG", "STG", "LDGSTS", "LDL", "STL", "LDC", "ATOMG", "SHFL")
)
_UNIFORM = frozenset(("UIADD3", "UIMAD", "ULEA", "ULOP3", "USHF", "UISETP", "UMOV", "ULDC"))
_CONTROL = frozenset(("BRA", "BAR", "NOP", "BSSY", "BSYNC", "EXIT", "DEPBAR", "LDGDEPBAR"))

# Multiplies of a warpgroup: each of its warps sits on a scheduler of its own, whose tensor core
# takes half a cycle a column for 64 rows and 32 bytes of k, in every type: 128 cycles for 256
# columns as measured (docs/microbenchmarks.md, "Rates of every unit").
_WARPGROUP = frozenset(("HGMMA", "IGMMA"))


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
    if name in _WARPGROUP:
        return "tensor", _columns(instruction) / 2
    if name in _MEMORY:
        return "memory", 0.0
    if name in _UNIFORM:
        return "uniform", 2.0
    if name in _CONTROL:
        return "control", 0.0
    return "alu", WARP * SCHEDULERS / _INTEGER_LANES


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
