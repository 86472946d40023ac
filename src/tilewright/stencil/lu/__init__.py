"""What LU factorisations launch beside products: panels, exchanges of rows, inverses of blocks."""

from tilewright.stencil.lu.sources import LEAST_CAPABILITY, TOP, TOP_OF_PIVOTS, LUKernels, Way

__all__ = ["LEAST_CAPABILITY", "TOP", "TOP_OF_PIVOTS", "LUKernels", "Way"]
