"""The moduli of a product in residues, and what passes know of them: docs/fp64_accurate.md.

An operand's sides (rows of op(A), columns of op(B)) are multiplied by powers of two and rounded to
integers.  Their product is known modulo the product P of some pairwise coprime numbers, so it is
known where its elements lie below P / 2: where sides have norms of at most sqrt(P / 2).
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cached_property

from tilewright.dataclass import dataclass

__all__ = ["COMPLEX", "COMPLEX_PAIR", "PAIR", "REAL", "WORD_BITS", "Moduli"]

# Largest pairwise coprime numbers whose residues a signed byte holds.
_REAL = (256, 255, 253, 251, 247, 241, 239, 233, 229, 227, 223, 217, 211, 199, 197, 193)

# The same of primes that leave 1 modulo 4, and products of two of them: -1 has a square root.
_COMPLEX = (241, 233, 229, 221, 205, 197, 193, 181, 173, 157, 149, 137, 113, 109, 101, 97, 89)

# The same for pairs of doubles, of as many as there are from 65 on (residues.cuh): 3, 5, 7, 11, 13
# and 19 are with the primes that make most of them.  41 numbers have a product of 299 bits.
_PAIR = (
    256, 253, 251, 249, 247, 241, 239, 235, 233, 229, 227, 223, 217, 211, 199, 197, 193, 191, 181,
    179, 173, 167, 163, 157, 151, 149, 139, 137, 131, 127, 113, 109, 107, 103, 101, 97, 89, 79, 73,
    71, 67,
)  # fmt: skip

# Bits of a part of a pair's weights: sums of 41 products with bytes (of complex pairs with sums of
# three), and as large a multiple of P's part beside them, stay below 2^53.
_PART_BITS, _PART_BITS_COMPLEX = 40, 39

# Bits of a word of an integer made of a pair: two such words are below 2^123, three below 2^183.
WORD_BITS = 60

# Of sqrt(P / 2) norms keep 2^-20 away: for roundings of norms and of elements, at most
# sqrt(k) / 2 of 2^54, and so that reconstruct.cl finds its quotient from the first part of a sum.
_KEPT = Fraction(1, 2**20)


@dataclass(frozen=True)
class Moduli:
    """Moduli of real or complex products, of which a call takes the first so many.

    Parameters
    ----------
    numbers : tuple of int
        Pairwise coprime, the largest first.
    first : int
        The least number of them that a call takes, which bounds are measured for.
    is_complex : bool
        Whether elements are complex.
    is_pair : bool
        Whether their parts are pairs of doubles.
    """

    numbers: tuple[int, ...]
    first: int
    is_complex: bool
    is_pair: bool = False

    @property
    def counts(self) -> range:
        """How many of them a call may take."""
        return range(self.first, len(self.numbers) + 1)

    @property
    def planes(self) -> int:
        """Matrices of residues of each modulus."""
        return (3 if self.is_pair else 2) if self.is_complex else 1

    @property
    def doubles(self) -> int:
        """Doubles of an element."""
        return (1 + self.is_complex) * (1 + self.is_pair)

    def product(self, count: int) -> int:
        """Return P of the first so many."""
        return math.prod(self.numbers[:count])

    def most(self, count: int) -> float:
        """Return the largest norm of a side in integers."""
        half = self.product(count) // 2
        return float(math.isqrt(half) * (1 - _KEPT))

    @property
    def usual(self) -> int:
        """How many of them normal numbers take: the least, of pairs three more."""
        return self.first + 3 * self.is_pair

    @property
    def unit(self) -> int:
        """The exponent of `most` of the least number of moduli."""
        return math.frexp(self.most(self.first))[1] - 1

    @cached_property
    def gains(self) -> tuple[int, ...]:
        """Exponents by which sides are multiplied more, at least, than with the least number."""
        least = self.most(self.first)
        return tuple(math.frexp(self.most(count) / least)[1] - 1 for count in self.counts)

    def root(self, p: int) -> int:
        """Return j with j^2 = -1 modulo p."""
        return next(j for j in range(p) if (j * j + 1) % p == 0)

    def words(self, times_root: bool = False, word: int = 0) -> tuple[list[int], list[int]]:
        """Return 256^l modulo each number as signed bytes, four a word: l = 0 to 3, 4 to 7.

        They are multiplied by a root of -1, or by what a pair's word stands for.
        """
        low: list[int] = []
        high: list[int] = []
        for p in self.numbers:
            factor = self.root(p) if times_root else 2 ** (WORD_BITS * word)
            found = [nearest(256**place * factor, p) % 256 for place in range(8)]
            for words, part in ((low, found[:4]), (high, found[4:])):
                words.append(int.from_bytes(bytes(part), "little", signed=True))
        return low, high

    @property
    def narrow(self) -> int:
        """The largest number of moduli at which two words hold a pair's integer."""
        return max(n for n in self.counts if self.most(n) < 2.0 ** (2 * WORD_BITS + 2))

    def parts(self, count: int) -> int:
        """Return how many parts weights have."""
        return -(-self.product(count).bit_length() // self._part_bits) if self.is_pair else 3

    @property
    def _part_bits(self) -> int:
        return _PART_BITS_COMPLEX if self.is_complex else _PART_BITS

    def weights(self, count: int) -> list[tuple[float, ...]]:
        """Return reconstruct.cl's weights in parts: of real and imaginary part in turn."""
        whole = self.product(count)
        made: list[tuple[float, ...]] = []
        for z, p in enumerate(self.numbers):
            divisors = (2, 2 * self.root(p)) if self.is_complex and not self.is_pair else (1,)
            for factor in (pow(divisor, -1, p) for divisor in divisors):
                rest = whole // p
                found = rest * (pow(rest, -1, p) * factor % p) if z < count else 0
                made.append(_parts(nearest(found, whole), self._unit(count), self.parts(count)))
        return made

    def product_parts(self, count: int) -> tuple[float, ...]:
        """Return P in parts, unit^(parts - 1) / P, and the unit."""
        whole, unit, parts = self.product(count), self._unit(count), self.parts(count)
        share = float(Fraction(unit ** (parts - 1), whole))
        return *_parts(whole, unit, parts), share, float(unit)

    def _unit(self, count: int) -> int:
        """Return what parts of weights are multiples of: without pairs near P's third root."""
        return int(
            2 ** (self._part_bits if self.is_pair else -(-self.product(count).bit_length() // 3))
        )


def nearest(x: int, p: int) -> int:
    """Return what is left of x modulo p, nearest to zero."""
    left = x % p
    return left - p if 2 * left >= p else left


def _parts(x: int, unit: int, many: int) -> tuple[float, ...]:
    """Return x as a sum of parts times powers of a unit, of the smallest magnitudes, high first."""
    found: list[float] = []
    for _ in range(many - 1):
        low = nearest(x, unit)
        found.append(float(low))
        x = (x - low) // unit
    return float(x), *reversed(found)


REAL = Moduli(_REAL, 14, False)
COMPLEX = Moduli(_COMPLEX, 15, True)
PAIR = Moduli(_PAIR, 28, False, True)
COMPLEX_PAIR = Moduli(_PAIR, 28, True, True)
