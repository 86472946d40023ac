"""Schemes: which parts stand for a number, and which of their products are added up."""

from __future__ import annotations

from tilewright.dataclass import dataclass
from tilewright.stencil.wgmma import ARITHMETICS

__all__ = ["PART_NUMBERS", "SCHEMES", "Scheme", "part_bytes", "scheme"]

# The names of numbers.h.
PART_NUMBERS = {"fp16": 1, "bf16": 2, "tf32": 3}

# An instruction of Hopper's takes 32 bytes of k.
_INSTRUCTION_BYTES = 32


def part_bytes(part: str) -> int:
    """Return how many bytes of memory a part of this kind takes."""
    return {"fp16": 2, "bf16": 2, "tf32": 4}[part]


@dataclass(frozen=True)
class Scheme:
    """One way to compute a product in single precision on a tensor core.

    Parameters
    ----------
    name : str
        Such as ``"fp16x3"``.
    part : str
        ``"fp16"``, ``"bf16"`` or ``"tf32"``.
    parts : int
        Numbers that an element is the sum of.
    products : tuple of tuple of int
        Parts of A and of B that are multiplied, in the order in which they are added: the
        small ones first, so that the unit cuts few sums at the size of the large one.
    promote_k : int
        Steps along k after which a sum leaves the unit; 0 for never.
    """

    name: str
    part: str
    parts: int
    products: tuple[tuple[int, int], ...]
    promote_k: int = 32

    @property
    def instruction_k(self) -> int:
        """Products that the unit adds to a sum at once."""
        return _INSTRUCTION_BYTES // part_bytes(self.part)

    @property
    def word(self) -> int:
        """The products as kernels take them: four bits each, 4 p + q, the first lowest."""
        return sum((4 * p + q) << 4 * i for i, (p, q) in enumerate(self.products))

    def __str__(self) -> str:
        return self.name


SCHEMES: dict[str, Scheme] = {
    name: Scheme(name, part, ARITHMETICS[name].parts, ARITHMETICS[name].products)
    for name, part in (
        ("fp16x3", "fp16"),
        ("tf32x3", "tf32"),
        ("bf16x6", "bf16"),
        ("bf16x9", "bf16"),
    )
}


def scheme(name: str) -> Scheme:
    """Return a scheme by name.

    Raises
    ------
    ValueError
        If there is none of that name.
    """
    found = SCHEMES.get(name)
    if found is None:
        raise ValueError(f"scheme={name!r} is unknown; use one of {', '.join(SCHEMES)}")
    return found
