"""What a kernel of this stencil multiplies and adds: element types, parts and products."""

from __future__ import annotations

from dataclasses import field, replace
from functools import cached_property
from typing import Any, Literal, get_args

from tilewright.dataclass import dataclass
from tilewright.precision import SHORT, Precision, precision
from tilewright.problem import Trans
from tilewright.stencil.base import Variant

__all__ = [
    "ARITHMETICS",
    "FLOAT_BITS",
    "NAMED",
    "Arithmetic",
    "Element",
    "Result",
    "TensorVariant",
    "named",
    "of_triangle",
    "operands_of",
    "plain",
    "variant_named",
]

Element = Literal["float16", "bfloat16", "tf32", "int8", "float8_e4m3fn", "float8_e5m2"]
Result = Literal["float32", "float16", "bfloat16", "int32", "residues"]

_BYTES: dict[Element, int] = {
    "int8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1, "float16": 2, "bfloat16": 2, "tf32": 4,
}  # fmt: skip

# What sums of integers are stored as.
WHOLE_RESULTS = ("int32", "residues")

# Of a float's significand: most sums have as many and more.
FLOAT_BITS = 24

# A product's parts are two bits each in the macro PRODUCTS, sixteen products in all.
_MOST_PARTS = 4
_MOST_PRODUCTS = 16


@dataclass(frozen=True)
class Arithmetic:
    """Elements, and the products of parts that make up a product.

    Parameters
    ----------
    element : str
        What the tensor core multiplies: a type's name, or ``"tf32"``, which is stored as float32,
        the low 13 bits of which are not looked at.
    result : {"float32", "float16", "bfloat16", "int32", "residues"}
        What C is; of integers ``"int32"``, or ``"residues"``: bytes, of a batch's products modulo a
        number of each (residues.cuh).
    products : tuple of (int, int)
        Parts of A and of B, in the order in which they are added: smallest first.
    scaled : bool
        Whether rows of op(A) and columns of op(B) come with exponents of two.
    routed : bool
        Whether a number in device memory decides if the launch computes anything.
    epilogue : bool
        Whether scales, a bias and an activation may follow the product (epilogue.cuh).
    triangle : bool
        Whether one triangle of a square C is computed, and nothing of the other written
        (triangle.cuh).

    Raises
    ------
    ValueError
        If a product names a part that cannot be, or element and result do not go together.
    """

    element: Element
    result: Result = "float32"
    products: tuple[tuple[int, int], ...] = ((0, 0),)
    scaled: bool = False
    routed: bool = False
    epilogue: bool = False
    triangle: bool = False

    def __post_init__(self) -> None:
        for name, known in (("element", Element), ("result", Result)):
            if getattr(self, name) not in get_args(known):
                raise ValueError(
                    f"{name}={getattr(self, name)!r} is unknown; use {', '.join(get_args(known))}"
                )
        whole = self.element == "int8" and not self.epilogue  # what follows is no integer
        if whole != (self.result in WHOLE_RESULTS):
            raise ValueError(
                f"result={self.result!r} is no result of {self.element}; integers give int32 or"
                " residues, other elements anything else"
            )
        if self.scaled and self.element == "int8":
            raise ValueError("scaled=True needs floating-point sums; scale integers afterwards")
        if self.epilogue and (self.scaled or self.routed or len(self.products) > 1):
            raise ValueError("epilogue=True is for operands in one part; leave the others out")
        parts = [part for product in self.products for part in product]
        if not 0 < len(self.products) <= _MOST_PRODUCTS or not set(parts) <= set(
            range(_MOST_PARTS)
        ):
            raise ValueError(
                f"products={self.products!r}: give 1 to {_MOST_PRODUCTS} pairs of parts"
                f" 0 to {_MOST_PARTS - 1}"
            )
        if self.triangle and self.epilogue:
            raise ValueError("triangle=True has no epilogue; leave either out")

    @cached_property
    def parts(self) -> int:
        """Parts that each operand has."""
        return 1 + max(part for product in self.products for part in product)

    @property
    def element_bytes(self) -> int:
        """Bytes of one element of a part."""
        return _BYTES[self.element]

    @property
    def result_bytes(self) -> int:
        """Bytes of one element of C."""
        return {"residues": 1, "float16": 2, "bfloat16": 2}.get(self.result, 4)

    def reads(self, k_fast: tuple[bool, bool]) -> bool:
        """Whether kernels read A and B that are contiguous along k, or along m and n.

        What those of the elements' precision read, but that of 32 bits parts lie along k.
        """
        along_k = self.element_bytes == 4 and not self.is_plain
        return all(k_fast) if along_k else operands_of(self).reads(k_fast)

    @property
    def either_order(self) -> bool:
        """Whether kernels read all orders."""
        return self.reads((False, False))

    def rows_of_a(self, k_fast: tuple[bool, bool]) -> bool:
        """Whether an instruction's rows run along m, not n: those that registers have are A's."""
        return self.element_bytes == 4 and not k_fast[0]

    def rows_in_registers(self, k_fast: tuple[bool, bool]) -> bool:
        """Whether lanes read an instruction's rows out of shared memory."""
        return self.element_bytes == 4 and not all(k_fast)

    @property
    def is_plain(self) -> bool:
        """Whether it is a product of whole operands, with alpha and beta alone."""
        return self.parts == 1 and not (
            self.scaled or self.routed or self.epilogue or self.triangle
        )

    @property
    def any_alignment(self) -> bool:
        """Whether threads can bring operands, in place of TMA: whole ones of 16 or 32 bits."""
        return self.is_plain and self.element_bytes > 1

    @property
    def kept_bits(self) -> int:
        """Bits that the tensor core's sums keep from the largest product's first on."""
        return 14 if self.element.startswith("float8") else FLOAT_BITS


def _products(parts: int, most: int) -> tuple[tuple[int, int], ...]:
    """Return the pairs of parts whose numbers add up to `most` at most, smallest first."""
    pairs = [(p, q) for p in range(parts) for q in range(parts) if p + q <= most]
    return tuple(sorted(pairs, key=lambda pair: (-sum(pair), -pair[0])))


# Single precision from short formats: scaled by sides, so that nothing leaves FP16's range.
ARITHMETICS: dict[str, Arithmetic] = {
    "fp16x3": Arithmetic("float16", products=_products(2, 1), scaled=True),
    "tf32x3": Arithmetic("tf32", products=_products(2, 1), scaled=True),
    "bf16x6": Arithmetic("bfloat16", products=_products(3, 2), scaled=True),
    "bf16x9": Arithmetic("bfloat16", products=_products(3, 4), scaled=True),
}


def plain(precision: Precision) -> Arithmetic | None:
    """Return the arithmetic of a precision whose elements tensor cores take as they are."""
    if not precision.is_short:
        return None
    element: Any = "tf32" if precision.letter == "tf32" else precision.dtype_name
    result: Any = precision.result_name
    return Arithmetic(element, result)


# What products with an epilogue, and triangles of products, are called: the letter of a precision,
# and this.
_FOLLOWED, _TRIANGLE = "-epilogue", "-triangle"

# Arithmetics whose times files of times and portfolios hold by name.
NAMED = (
    *ARITHMETICS,
    *(f"{letter}{_FOLLOWED}" for letter in ("bf16", "e4m3", "int8")),
    *(f"{letter}{_TRIANGLE}" for letter in ("bf16", "bf16_f32", "e4m3", "int8", "tf32")),
)


def named(name: str) -> Arithmetic:
    """Return the arithmetic of one of `NAMED`, as it is served.

    Raises
    ------
    ValueError
        If the name is none.
    """
    if name in ARITHMETICS:
        return replace(ARITHMETICS[name], routed=True)
    if name not in NAMED:
        raise ValueError(f"arithmetic={name!r} is unknown; use {', '.join(NAMED)}")
    of = precision(name.partition("-")[0])
    if name.endswith(_TRIANGLE):
        return of_triangle(of)
    result = "bfloat16" if of.is_whole else of.result_name
    return Arithmetic(of.dtype_name, result, epilogue=True)  # type: ignore[arg-type]


def of_triangle(precision: Precision) -> Arithmetic:
    """Return the arithmetic of one triangle of a product, of a precision of tensor cores."""
    whole = plain(precision)
    assert whole is not None
    return replace(whole, triangle=True)


def operands_of(arithmetic: Arithmetic) -> Precision:
    """Return the precision whose operands lie as an arithmetic's parts do."""
    element = "float32" if arithmetic.element == "tf32" else arithmetic.element
    return next(one for one in SHORT.values() if one.dtype_name == element)


@dataclass(frozen=True)
class TensorVariant(Variant):
    """A variant that says which arithmetic; `precision` is the problem's."""

    arithmetic: Arithmetic = field(kw_only=True)

    @property
    def arithmetic_name(self) -> str:
        """The one of `NAMED`; empty where it has none."""
        return next((name for name in NAMED if named(name) == self.arithmetic), "")

    def __str__(self) -> str:
        return f"{super().__str__()}-{self.arithmetic.element}x{len(self.arithmetic.products)}"


def variant_named(name: str) -> TensorVariant:
    """Return the variant of a name in the order of operands that every element is read in."""
    return TensorVariant(precision("s"), Trans.T, Trans.N, arithmetic=named(name))
