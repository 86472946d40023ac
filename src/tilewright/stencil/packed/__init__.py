"""GEMM for CPUs: packed blocks and a register micro-kernel."""

from tilewright.stencil.packed.stencil import Packed

__all__ = ["Packed"]
