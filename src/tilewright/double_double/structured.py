"""Double-double elements in memory: structured arrays, as kernels read them.

A real element is (hi, lo); a complex one is (re, im), each of them (hi, lo).  The words of
complex elements are complex arrays here: sums of pairs work on them part by part.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.double_double.arithmetic import two_sum
from tilewright.precision import DOUBLE_DOUBLE, Precision

__all__ = ["joined", "random", "words"]


def words(x: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return high and low words of a structured array: float64, or complex128."""
    if x.dtype.names == ("hi", "lo"):
        return x["hi"], x["lo"]
    (re, re_low), (im, im_low) = words(x["re"]), words(x["im"])
    return _complex(re, im), _complex(re_low, im_low)


def _complex(re: NDArray[Any], im: NDArray[Any]) -> NDArray[Any]:
    """Return re + i im; multiplying by i would make NaN of an infinity."""
    made = np.empty(re.shape, np.complex128)
    made.real, made.imag = re, im
    return made


def joined(hi: NDArray[Any], lo: NDArray[Any], precision: Precision) -> NDArray[Any]:
    """Return the structured array of a precision with these words."""
    made = np.empty(np.shape(hi), precision.dtype)
    if precision.is_complex:
        for name, part in (("re", np.real), ("im", np.imag)):
            made[name]["hi"], made[name]["lo"] = part(hi), part(lo)
    else:
        made["hi"], made["lo"] = hi, lo
    return made


def random(
    rng: np.random.Generator, shape: tuple[int, ...], precision: Precision, phi: float | None = None
) -> NDArray[Any]:
    """Return random elements whose low words are filled.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of numbers.
    shape : tuple of int
        Of the array.
    precision : Precision
        A double-double one.
    phi : float, optional
        Without it, standard normal numbers.  With it, (U - 0.5) exp(phi N) with U uniform
        in [0, 1) and N standard normal: the spread of exponents that Ozaki, Ogita, Oishi &
        Rump (Numer. Algorithms 59, 2012) test with.
    """

    def real() -> NDArray[Any]:
        if phi is None:
            hi = rng.standard_normal(shape)
        else:
            hi = (rng.random(shape) - 0.5) * np.exp(phi * rng.standard_normal(shape))
        # Less than half a unit in the last place of any double: 2^-54 of it.
        return joined(*two_sum(hi, hi * rng.uniform(-1, 1, shape) * 2.0**-54), _REAL)

    if not precision.is_complex:
        return real()
    made = np.empty(shape, precision.dtype)
    made["re"], made["im"] = real(), real()
    return made


_REAL = DOUBLE_DOUBLE["e"]
