"""GEMM by blocks, one source for OpenCL C and CUDA C++."""

from tilewright.stencil.portable.stencil import Portable

__all__ = ["Portable"]
