"""What LU factorisations launch beside products: panels, exchanges of rows, inverses of blocks."""

from tilewright.stencil.lu.sources import (
    BLOCKS,
    CLUSTER,
    SHARED_BYTES,
    TOP_OF_PIVOTS,
    LUKernels,
    Way,
)

__all__ = ["BLOCKS", "CLUSTER", "SHARED_BYTES", "TOP_OF_PIVOTS", "LUKernels", "Way"]
