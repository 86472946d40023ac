"""GEMM with a short side: the long operand is read once, straight to registers."""

from tilewright.stencil.skinny.stencil import Skinny

__all__ = ["Skinny"]
