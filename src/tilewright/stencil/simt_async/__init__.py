"""GEMM on ordinary arithmetic units, fed by asynchronous copies: compute capability 8.0 on."""

from tilewright.stencil.simt_async.stencil import SimtAsync

__all__ = ["SimtAsync"]
