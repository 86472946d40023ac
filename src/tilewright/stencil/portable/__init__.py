"""GEMM by blocks, one text for OpenCL C and CUDA C++."""

from tilewright.stencil.portable.constraints import Thresholds
from tilewright.stencil.portable.stencil import Portable

__all__ = ["Portable", "Thresholds"]
