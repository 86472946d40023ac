"""Numbers that are the sum of two doubles: arithmetic, an exact oracle, conversions.

A double-double (hi, lo) stands for hi + lo, about 32 decimal digits, with the range of a
double.  This floor works on pairs of arrays; `tilewright.DoubleDouble` is the type for
people, and kernels compute in `stencil/prelude/pair.h`.
"""

from tilewright.double_double.arithmetic import add, divide, multiply, normalised, root, two_sum
from tilewright.double_double.exact import error_of_product
from tilewright.double_double.structured import joined, random, words

__all__ = [
    "add",
    "divide",
    "error_of_product",
    "joined",
    "multiply",
    "normalised",
    "random",
    "root",
    "two_sum",
    "words",
]
