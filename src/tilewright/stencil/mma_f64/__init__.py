"""GEMM on tensor cores that multiply doubles: compute capability 8.0 on."""

from tilewright.stencil.mma_f64.stencil import MmaF64

__all__ = ["MmaF64"]
