"""What is possible: upper bounds of GEMM from a device's numbers.  Runs nothing.

`assemble` collects named terms in FLOP/s; the smallest is the limit.  `lai_seznec` and `nakasato`
are the papers' equations by their own symbols, `modern` asks the same of later devices.
"""

from tilewright.bounds.assemble import How, assemble
from tilewright.bounds.bound import Bound
from tilewright.bounds.modern import Compiled

__all__ = ["Bound", "Compiled", "How", "assemble"]
