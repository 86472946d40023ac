"""GEMM of short sums: C is written once, straight from registers, in whole vectors."""

from tilewright.stencil.outer.stencil import Outer

__all__ = ["Outer"]
