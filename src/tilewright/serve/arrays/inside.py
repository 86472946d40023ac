"""Where CuPy's arrays and PyTorch's tensors have what the core looks at (core/native/seen.c).

Their attributes tell the same, and make objects for it, which is most of what a call on many arrays
takes.  What lies where differs between versions: it is looked for in arrays whose attributes are
known, and found where one place alone holds what each of them has.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

__all__ = ["of_cupy", "of_torch"]

# What any object begins with: how many keep it, and its type.
_HEAD = struct.calcsize("PP")

# PyTorch's functions in C++, whose names hold the types of their arguments, and their libraries.
_IS_NEG = "libtorch_cpu.so", "_ZN2at6native6is_negERKNS_6TensorE"
_IS_CONJ = "libtorch_cpu.so", "_ZN2at6native7is_conjERKNS_6TensorE"
_REQUIRES_GRAD = "libc10.so", "_ZNK3c1010TensorImpl13requires_gradEv"

# What is raised where a library is another one than is known here, or stands in for it.
_UNLIKE = AttributeError, OSError, RuntimeError, TypeError, ValueError, struct.error

Held = Callable[[bytes, int], bool]
"""Whether an object's memory holds something at a place."""


def of_cupy(cupy: Any) -> tuple[int, ...] | None:
    """Return places in CuPy's arrays, as seen.h has them; None where they are not to be found."""
    try:
        return _places_in(_arrays(cupy))
    except _UNLIKE:
        return None


def of_torch(torch: Any) -> tuple[int, ...] | None:
    """Return a place in PyTorch's tensors and functions, as seen.h has them; None without them."""
    try:
        zeros = partial(torch.zeros, 2, device="cpu")
        conjugate = zeros(dtype=torch.complex64).conj()
        tensors = zeros(), zeros(requires_grad=True), conjugate, conjugate.imag
        at = _place(tensors, [_number(x._cdata) for x in tensors])
        functions = [_function(*one) for one in (_IS_NEG, _IS_CONJ, _REQUIRES_GRAD)]
    except _UNLIKE:
        return None
    for x in tensors:
        given = id(x) + at, id(x) + at, x._cdata
        told = [function(one) for function, one in zip(functions, given, strict=True)]
        if told != [x.is_neg(), x.is_conj(), x.requires_grad]:
            return None
    return at, *(ctypes.cast(one, ctypes.c_void_p).value or 0 for one in functions)


def _arrays(cupy: Any) -> list[Any]:
    """Return arrays that differ in all that is looked for, without a device."""
    made = []
    for number, shape in enumerate(((3, 5), (7, 2, 4), (6, 9, 8, 2))):
        memory = cupy.cuda.UnownedMemory(number + 1001 << 20, 1 << 20, None, 1001 + number)
        pointer = cupy.cuda.MemoryPointer(memory, 512 << number)
        strides = tuple(1 << 14 - 2 * at - number for at in range(len(shape)))
        made.append(cupy.ndarray(shape, np.dtype(f"f{2 << number}"), pointer, strides))
    return made


def _places_in(arrays: Sequence[Any]) -> tuple[int, ...]:
    pointers = [x.data for x in arrays]
    return (
        _place(arrays, [_number(id(x)) for x in pointers]),
        _place(arrays, [_number(id(x.dtype)) for x in arrays]),
        _place(arrays, [_vector(x.shape) for x in arrays]),
        _place(arrays, [_vector(x.strides) for x in arrays]),
        _place(pointers, [_number(x.ptr) for x in pointers]),
        _place(pointers, [_number(x.device_id, "i") for x in pointers]),
    )


def _place(objects: Sequence[Any], wanted: Sequence[Held]) -> int:
    """Return how many bytes from where it begins each object holds its own; one place must do."""
    memory = [ctypes.string_at(id(x), object.__sizeof__(x)) for x in objects]
    places: Sequence[int] = range(_HEAD, min(map(len, memory)), struct.calcsize("i"))
    # In every object, before the next one's memory is followed.
    for held, is_held in zip(memory, wanted, strict=True):
        places = [at for at in places if is_held(held, at)]
    [found] = places
    return found


def _number(value: int, kind: str = "P") -> Held:
    packed = struct.pack(kind, value)
    return lambda held, at: held.startswith(packed, at)


def _vector(sizes: Sequence[int]) -> Held:
    """Look for a C++ vector, which begins with where its elements begin and end."""
    packed = struct.pack(f"{len(sizes)}q", *sizes)

    def is_held(held: bytes, at: int) -> bool:
        if at % struct.calcsize("P") or at + _HEAD > len(held):
            return False
        first, end = struct.unpack_from("PP", held, at)
        return (
            first and end - first == len(packed) and ctypes.string_at(first, end - first) == packed
        )

    return is_held


def _function(library: str, name: str) -> Any:
    """Return a function of a library that is loaded: a truth value of an address."""
    found = getattr(ctypes.PyDLL(library, mode=os.RTLD_NOLOAD), name)
    found.restype, found.argtypes = ctypes.c_bool, [ctypes.c_void_p]
    return found
