"""A portfolio for other people's projects: as cubins, as fat binaries, as a C library.

`tilewright.export.preload` makes that library answer in cuBLAS's place.
"""

from tilewright.export.kernel_set import KernelSet, collect
from tilewright.export.target import find_target
from tilewright.export.variants import variants_of
from tilewright.export.writing import check, formats_of, write

__all__ = ["KernelSet", "check", "collect", "find_target", "formats_of", "variants_of", "write"]
