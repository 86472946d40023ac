"""Tuned kernels for other people's projects: as cubins, as fatbins, as a C library.

Lai & Seznec (2012, section 3) bring a kernel of their own into a CUDA runtime project in
seven steps; here it is one call.
"""

from tilewright.export.kernel_set import ExportedKernel, KernelSet, collect
from tilewright.export.target import Target, find_target
from tilewright.export.variants import variants_of
from tilewright.export.writing import FORMATS, check, write

__all__ = [
    "FORMATS",
    "ExportedKernel",
    "KernelSet",
    "Target",
    "check",
    "collect",
    "find_target",
    "variants_of",
    "write",
]
