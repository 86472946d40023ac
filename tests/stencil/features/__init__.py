"""What `test_contract` asks of each feature of the kernels that copy asynchronously.

None of the planted faults writes beyond C: the emulator runs in this process's memory.
"""

from tests.stencil.features.base import Drawn, Fault, Feature
from tests.stencil.features.division import PERSISTENT, SLICED_K, SPLIT_K
from tests.stencil.features.edges import CLAMPED, REMAINDER
from tests.stencil.features.epilogues import SPECIALISED, STAGED
from tests.stencil.features.families import COPIES, DOUBLES_ONE_BY_ONE, ELEMENTS, PAIRS, UNITS
from tests.stencil.features.tma import BOXES, LINES

__all__ = ["FEATURES", "Drawn", "Fault", "Feature"]

FEATURES = {
    "asynchronous copies": COPIES,
    "elements and long runs": ELEMENTS,
    "pairs of doubles": PAIRS,
    "tensor cores for doubles": UNITS,
    "doubles one by one": DOUBLES_ONE_BY_ONE,
    "sliced-K": SLICED_K,
    "parallel split-K": SPLIT_K,
    "persistent": PERSISTENT,
    "clamped": CLAMPED,
    "remainder of k": REMAINDER,
    "staged": STAGED,
    "specialised epilogue": SPECIALISED,
    "TMA boxes": BOXES,
    "TMA lines": LINES,
}
