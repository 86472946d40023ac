"""GEMM on Hopper's tensor cores: warp-specialised, fed by the copy engine."""

from tilewright.stencil.wgmma.arithmetic import (
    ARITHMETICS,
    NAMED,
    Arithmetic,
    TensorVariant,
    of_triangle,
    operands_of,
    variant_named,
)
from tilewright.stencil.wgmma.call import BatchOfParts, Following, Parts, TensorCall, whole_call
from tilewright.stencil.wgmma.named import variant_of
from tilewright.stencil.wgmma.stencil import Wgmma

__all__ = [
    "ARITHMETICS",
    "NAMED",
    "Arithmetic",
    "BatchOfParts",
    "Following",
    "Parts",
    "TensorCall",
    "TensorVariant",
    "Wgmma",
    "of_triangle",
    "operands_of",
    "variant_named",
    "variant_of",
    "whole_call",
]
