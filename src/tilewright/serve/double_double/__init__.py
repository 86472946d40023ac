"""The array type for double-double numbers."""

from tilewright.serve.double_double.array import DoubleDouble

__all__ = ["DoubleDouble"]
