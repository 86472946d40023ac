"""The arguments of a launch of this stencil.

::

    gemm(long m, long n, long k, scalar alpha, tensor_map a, tensor_map b,
         scalar beta, C, long ldc, int *exponents_a, int *exponents_b,
         int *run_if, int run_value)

and where the arithmetic has an epilogue (epilogue.cuh), behind these::

         float *scale_m, float *scale_n, void *bias_m, void *bias_n, int flags

where it is one triangle of C (triangle.cuh), one number::

         int lower

A ``scalar`` is a float, for integer results an int.  Memory handles are CUDA's addresses: what
adds bytes to one gives another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.dataclass import dataclass
from tilewright.stencil.call import GemmCall, TensorMap
from tilewright.stencil.wgmma.arithmetic import WHOLE_RESULTS, Arithmetic

__all__ = [
    "ACTIVATIONS",
    "BatchOfParts",
    "Following",
    "Parts",
    "TensorCall",
    "arguments",
    "operand_maps",
    "square",
    "stage_bytes",
    "whole_call",
]

# Bytes that the copy engine's addresses and strides are multiples of.
ALIGNMENT = 16

# What the copy engine, which looks at no bits, is told of types that it does not know.
_COPIED = {"tf32": "float32", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}

# Coordinates of a copy are signed 32-bit integers.
_MOST_SIZE = 2**31

# Bytes of m or n side by side in shared memory where operands lie along them.
_LINE = 128


def square(element_bytes: int) -> int:
    """Return the elements of m or n side by side where operands lie along them."""
    return _LINE // element_bytes


@dataclass(frozen=True)
class Parts:
    """An operand in one or more parts, matrices of one shape and order.

    Parameters
    ----------
    memory : object
        The backend's handle.
    offset, ld, stride : int
        Elements before the first one, between columns, and between parts; all multiples of
        16 bytes, and `stride` of `ld`, but for a batch's matrices.
    count : int
        Matrices of a batch, `stride` apart, in the place of the one part; 0: there are parts.
    """

    memory: Any
    offset: int
    ld: int
    stride: int = 0
    count: int = 0


# What epilogue.cuh calls activations, and the flag of bias vectors that have C's type.
ACTIVATIONS = {None: 0, "relu": 1, "gelu": 2, "gelu_tanh": 3}
_BIAS_IS_OUTPUT = 4


@dataclass(frozen=True)
class Following:
    """What follows a product, along the kernel's m and n.

    Parameters
    ----------
    scale_m, scale_n : object, optional
        Memory of m and of n floats.
    bias_m, bias_n : object, optional
        Memory of m and of n numbers.
    bias_is_output : bool
        Whether those have C's type; else they are floats.
    activation : str, optional
        One of `ACTIVATIONS`.
    """

    scale_m: Any = None
    scale_n: Any = None
    bias_m: Any = None
    bias_n: Any = None
    bias_is_output: bool = False
    activation: str | None = None

    def arguments(self) -> tuple[Any, ...]:
        """Return the kernel's last arguments."""
        flags = ACTIVATIONS[self.activation] + _BIAS_IS_OUTPUT * self.bias_is_output
        return self.scale_m, self.scale_n, self.bias_m, self.bias_n, np.int32(flags)


@dataclass(frozen=True)
class TensorCall:
    """One product of operands in parts.

    Parameters
    ----------
    m, n, k : int
        Sizes.
    alpha, beta : float or int
        Scalars.
    a, b : Parts
        Operands.
    c : object
        Anything with `memory`, `offset` and `ld` in elements.
    exponents_a, exponents_b : object, optional
        Memory of m and of n 32-bit integers, where the arithmetic is scaled.
    run_if : object, optional
        Memory of one 32-bit integer, where the arithmetic is routed.
    run_value : int
        The launch computes something if that integer equals it.
    then : Following, optional
        Where the arithmetic has an epilogue.
    moduli : object, optional
        Where it has residues: memory of two 32-bit integers for each matrix (residues.cuh).
    lower : bool, optional
        Where it computes one triangle of C: which, as memory has it column-major.
    exchanged : bool
        Whether B's matrix 2 z is multiplied with A's 2 z + 1, and the other way round: of residues
        of a triangle.
    """

    m: int
    n: int
    k: int
    alpha: Any
    a: Parts
    b: Parts
    beta: Any
    c: Any
    exponents_a: Any = None
    exponents_b: Any = None
    run_if: Any = None
    run_value: int = 0
    then: Following | None = None
    moduli: Any = None
    lower: bool | None = None
    exchanged: bool = False

    def arguments(self) -> tuple[Any, ...]:
        """Refuse: only the stencil knows the boxes that its copies take."""
        raise TypeError("a TensorCall has no arguments of its own; ask Wgmma.arguments")


@dataclass(frozen=True)
class BatchOfParts:
    """Products of parts of equal sizes in one launch (batch_of_parts.cuh).

    Parameters
    ----------
    products : int
        How many.
    step_parts : int
        From a product's first part to the next one's, in units of `Parts.stride`.
    step_c : int
        Elements from a C to the next one.
    step_exponents, step_run_if : int
        32-bit integers from exponents of a product, and from what it is held back by, to the next.
    """

    products: int
    step_parts: int
    step_c: int
    step_exponents: int
    step_run_if: int


def whole_call(call: GemmCall | TensorCall) -> TensorCall:
    """Return a call of whole operands as one of operands in one part."""
    if isinstance(call, TensorCall):
        return call
    a, b = (Parts(x.memory, x.offset, x.ld) for x in (call.a, call.b))
    alpha, beta = (complex(x).real for x in (call.alpha, call.beta))
    return TensorCall(call.m, call.n, call.k, alpha, a, b, beta, call.c)


def arguments(
    call: TensorCall, arithmetic: Arithmetic, config: Mapping[str, Any], k_fast: tuple[bool, bool]
) -> tuple[Any, ...]:
    """Return the argument list, with tensor maps for A and B.

    Raises
    ------
    ValueError
        If an operand is not aligned, or what the arithmetic needs is not given.
    """
    for name, needed in (
        ("exponents_a", arithmetic.scaled),
        ("exponents_b", arithmetic.scaled),
        ("run_if", arithmetic.routed),
        ("then", arithmetic.epilogue),
        ("moduli", arithmetic.result == "residues"),
        ("lower", arithmetic.triangle),
    ):
        if needed != (getattr(call, name) is not None):
            wanted = "give it" if needed else "leave it out"
            raise ValueError(f"{name} and the kernel's arithmetic do not go together; {wanted}")
    if call.exchanged and not (arithmetic.triangle and arithmetic.result == "residues"):
        raise ValueError("exchanged=True is for residues of a triangle; leave it out")
    scalar = np.int32 if arithmetic.result in WHOLE_RESULTS else np.float32
    long = np.int64
    k = 0 if call.alpha == 0 else call.k
    a, b = operand_maps(call, arithmetic, config, k_fast)
    c = call.c.memory + call.c.offset * arithmetic.result_bytes
    return (
        long(call.m), long(call.n), long(k), scalar(call.alpha), a, b, scalar(call.beta),
        c, long(call.c.ld), call.moduli or call.exponents_a, call.exponents_b, call.run_if,
        np.int32(call.run_value), *(() if call.then is None else call.then.arguments()),
        *(() if call.lower is None else (np.int32(call.lower),)),
    )  # fmt: skip


def operand_maps(
    call: TensorCall, arithmetic: Arithmetic, config: Mapping[str, Any], k_fast: tuple[bool, bool]
) -> tuple[TensorMap, TensorMap]:
    """Return the tensor maps of A and B.

    Raises
    ------
    ValueError
        If an operand is not aligned.
    """
    # With nothing to sum the maps are never used, but have to be maps.
    k = 0 if call.alpha == 0 else call.k
    sides, rows = (call.m, call.n), _rows(call, config)
    a, b = (
        _map(name, parts, arithmetic, along, side, k, (own, config["block_k"]))
        for name, parts, along, side, own in zip(
            "ab", (call.a, call.b), k_fast, sides, rows, strict=True
        )
    )
    return a, b


def stage_bytes(
    call: TensorCall, arithmetic: Arithmetic, config: Mapping[str, Any], k_fast: tuple[bool, bool]
) -> int:
    """Return what copies bring into a stage, as produce.cuh's `bytes_of_stage` counts it.

    Of a kernel for groups, whose blocks share nothing.
    """
    blocks = config["block_m"], config["block_n"]
    rows = sum(
        own if along else block
        for along, own, block in zip(k_fast, _rows(call, config), blocks, strict=True)
    )
    return int(arithmetic.parts * rows * config["block_k"] * arithmetic.element_bytes)


def _rows(call: TensorCall, config: Mapping[str, Any]) -> tuple[int, int]:
    """Return the rows along k of A's and B's boxes, as produce.cuh's `bytes_of_box` counts them.

    Rows outside an operand take the copy engine as long as rows inside: by tiles of 64, the weights
    of a layer (11008 x 4096, bfloat16) took 32.6 us for one token with them, 24.4 without (H200).
    """
    rows_a, rows_b = (
        block // shares if shares > 1 else max(1, min(side, block))
        for side, block, shares in (
            (call.m, config["block_m"], config["cluster_n"]),
            (call.n, config["block_n"], config["cluster_m"]),
        )
    )
    return rows_a, rows_b


def _map(
    name: str,
    parts: Parts,
    arithmetic: Arithmetic,
    k_fast: bool,
    side: int,
    k: int,
    box: tuple[int, int],
) -> TensorMap:
    """Return the map of an operand, with boxes of so many rows along k, and columns; or squares."""
    rows, block_k = box
    size = arithmetic.element_bytes
    for what, number in (("offset", parts.offset), ("ld", parts.ld), ("stride", parts.stride)):
        if number * size % ALIGNMENT:
            raise ValueError(
                f"{what}={number} of {name} is no multiple of {ALIGNMENT} bytes; copy it first"
            )
    ld = parts.ld or ALIGNMENT // size  # an operand without elements may have none
    if parts.stride % ld and not parts.count:
        raise ValueError(
            f"stride={parts.stride} of {name} is no multiple of ld={ld}; let parts follow"
            " each other after whole columns"
        )
    if max(side, k) >= _MOST_SIZE:
        raise ValueError(f"{name} is {side} x {k}; sizes are below {_MOST_SIZE}, split it")
    inner, outer = (k, side) if k_fast else (side, k)
    element = _COPIED.get(arithmetic.element, arithmetic.element)
    return TensorMap(
        parts.memory,
        parts.offset * size,
        element,
        (max(inner, 1), max(outer, 1), parts.count or arithmetic.parts),
        # One part has no distance to the next, but the driver wants one that could be.
        (ld * size, (parts.stride or ld * max(outer, 1)) * size),
        (block_k, rows, 1) if k_fast else (square(size), block_k, 1),
        block_k * size if k_fast else _LINE,
    )
