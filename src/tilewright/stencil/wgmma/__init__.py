"""GEMM on Hopper's tensor cores: warp-specialised, fed by the copy engine."""

from tilewright.stencil.wgmma.arithmetic import ARITHMETICS, Arithmetic, TensorVariant
from tilewright.stencil.wgmma.call import Following, Parts, TensorCall
from tilewright.stencil.wgmma.named import variant_of
from tilewright.stencil.wgmma.stencil import Wgmma

__all__ = [
    "ARITHMETICS",
    "Arithmetic",
    "Following",
    "Parts",
    "TensorCall",
    "TensorVariant",
    "Wgmma",
    "variant_of",
]
