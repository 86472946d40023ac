"""The kernel sources of this folder, specialised, with the launches that cover a product."""

from __future__ import annotations

import math
from functools import cached_property

from tilewright.dataclass import dataclass
from tilewright.stencil.geometry import Launch
from tilewright.stencil.residues.moduli import COMPLEX, COMPLEX_PAIR, PAIR, REAL, WORD_BITS, Moduli
from tilewright.stencil.source import Dialect, Source
from tilewright.stencil.source_files import read_sources

__all__ = [
    "ALIGNED_K",
    "DECISION_WORDS",
    "MOST_K",
    "PIECE_K",
    "REPORT_WORDS",
    "SEED",
    "UNCERTIFIED",
    "Passes",
]

# tiles.h: threads of a block, sides of a tile, its steps of k where elements are real; ints before
# the table of a decision, which a report has; which of them say what is not certified, and what
# random numbers come from (the first of two).
_THREADS, _SIDES, _KS = 256, 32, 128
REPORT_WORDS, UNCERTIFIED, SEED = 8, 5, 6

# modulo.h: partial sums of u X v.
_TOTALS = 64

# fold.cl: bytes of a thread.
_FOLDED = 16

# measure.cl: tiles of k whose sums are one.
_CHUNK = 8

# judge.cl: columns of C of a block.
_COLUMNS = 16

# Elements of a column that a thread judges, or puts together.
_FOUR = 4

# Raised when what these kernels compute changes.
VERSION = 4

# Sums of so many products of residues, at most 2^14 each, stay below 2^29 (residues.cuh); longer
# ones are summed in pieces, with a multiple of `ALIGNED_K` products each.
PIECE_K = 2**15
ALIGNED_K = 128

# Up to here roundings of the bound's sums are below `_LOW_ROUNDING`: they leave the tensor cores
# every 128 steps, 2^15 times.
MOST_K = 2**22

# What measure.cl's bytes, their sum in FP32 and its rounding to BF16 may add to |A| |B|.
_LOW_ROUNDING = 1 - 2.0**-7


# The ints of a decision with its table.
DECISION_WORDS = REPORT_WORDS + 2 * max(
    of.planes * len(of.numbers) for of in (REAL, COMPLEX, COMPLEX_PAIR)
)


@dataclass(frozen=True)
class Passes:
    """The passes of one product.

    Parameters
    ----------
    m, n, k : int
        Sizes.
    k_fast : tuple of bool
        Whether memory of A and of B runs along k.
    is_complex : bool
        Whether elements are complex.
    is_pair : bool
        Whether they are double-double.
    """

    m: int
    n: int
    k: int
    k_fast: tuple[bool, bool] = (False, False)
    is_complex: bool = False
    is_pair: bool = False

    @property
    def moduli(self) -> Moduli:
        """Which numbers its residues are of."""
        if self.is_pair:
            return COMPLEX_PAIR if self.is_complex else PAIR
        return COMPLEX if self.is_complex else REAL

    @property
    def _ks(self) -> int:
        return _KS // self.moduli.doubles

    @property
    def first_b(self) -> int:
        """Number of op(B)'s first column among the sides."""
        return -(-self.m // _SIDES) * _SIDES

    @property
    def sides(self) -> int:
        """Rows of op(A) and columns of op(B), each rounded up to whole tiles."""
        return self.first_b + -(-self.n // _SIDES) * _SIDES

    @property
    def chunks(self) -> int:
        """Parts of k that norms are summed of."""
        return -(-self.k // (_CHUNK * self._ks))

    @property
    def planes(self) -> int:
        """Matrices of residues, at most."""
        return self.moduli.planes * len(self.moduli.numbers)

    # -- launches --------------------------------------------------------------------------

    @property
    def sample_launch(self) -> Launch:
        """A block for each tile of sides."""
        return Launch((self.sides // _SIDES, 1), (_THREADS, 1))

    @property
    def measure_launch(self) -> Launch:
        """A block for each tile of sides and chunk of k."""
        return Launch((self.sides // _SIDES * self.chunks, 1), (_THREADS, 1))

    @property
    def scales_launch(self) -> Launch:
        """A thread for each side."""
        return _flat(self.sides)

    @property
    def planes_launch(self) -> Launch:
        """A block for each tile of both operands."""
        return Launch((self.sides // _SIDES * -(-self.k // self._ks), 1), (_THREADS, 1))

    @property
    def judge_launch(self) -> Launch:
        """Blocks of a column's part and some columns."""
        blocks = -(-self.m // (_FOUR * _THREADS)) * -(-self.n // _COLUMNS)
        return Launch((blocks, 1), (_THREADS, 1))

    @property
    def reconstruct_launch(self) -> Launch:
        """A thread for four elements of a column."""
        return Launch((-(-self.m // (_FOUR * _THREADS)) * self.n, 1), (_THREADS, 1))

    def fold_launch(self, stride: int) -> Launch:
        """Threads for 16 bytes of each plane of so many."""
        across = -(-stride // (_FOLDED * _THREADS))
        return Launch((across * self.planes, 1), (_THREADS, 1))

    @property
    def draw_launch(self) -> Launch:
        """A thread for each side, and for each word of `sums_words`."""
        return _flat(max(self.sides, self.sums_words))

    @property
    def certify_launch(self) -> Launch:
        """One block."""
        return Launch((1, 1), (_THREADS, 1))

    @property
    def totals_at(self) -> int:
        """The first word of a certificate's sums that the last pass adds to."""
        return 2 * self.moduli.planes * self.k

    @property
    def sums_words(self) -> int:
        """Words of 64 bits that a certificate sums in."""
        return self.totals_at + self.moduli.planes * _TOTALS

    @property
    def model_launch(self) -> Launch:
        """A thread for each element of the product."""
        return _flat(self.m * self.n)

    # -- sources ---------------------------------------------------------------------------

    def _source(
        self, dialect: Dialect, name: str, defines: dict[str, int | str], entry: str = ""
    ) -> Source:
        text = read_sources(f"prelude/dialect_{dialect}.h", f"residues/{name}.cl")
        alone: dict[str, int | str] = {"PARTS": self.moduli.doubles}
        if self.is_pair:
            alone["PAIR"] = 1
        return Source(text, {**alone, **defines}, entry or name, unit=f"residues {VERSION}")

    @cached_property
    def _orders(self) -> dict[str, int | str]:
        return {f"K_FAST_{x}": int(fast) for x, fast in zip("AB", self.k_fast, strict=True)}

    def sample(self, dialect: Dialect) -> Source:
        """Return the first pass: ``(matrices, units, places, decision)``.

        ``matrices`` stands for ``(k, sides, x, offset, ld)`` of A, the same of B without k,
        ``first_a`` and ``first_b``.
        """
        return self._source(dialect, "sample", self._orders)

    def measure(self, dialect: Dialect) -> Source:
        """Return ``(matrices, a, 0, b, 0, ld, units, places, partial, all, chunks)``."""
        return self._source(dialect, "measure", self._orders)

    def scales(self, dialect: Dialect) -> Source:
        """Return the pass over sides.

        ``(partial, all, chunks, units, places, norms, magnitudes, steps, decision)``.
        """
        of = self.moduli
        most, top = (of.most(count).hex() for count in (of.first, len(of.numbers)))
        return self._source(dialect, "scales", {"MOST": most, "TOP_MOST": top, "UNIT": of.unit})

    def judge(self, dialect: Dialect) -> Source:
        """Return the choice of the number of moduli.

        ``(m, n, low, ld, magnitudes, steps, all, first_a, first_b, triangle, limit, blocks,
        decision, report)``; `triangle` as tiles.h has it.

        ``low`` and ``ld`` are aligned to four elements.
        """
        of = self.moduli
        defines: dict[str, int | str] = {
            "CHOICES": len(of.counts),
            "GAINS": _listed(of.gains),
            "COUNTS": _listed(of.counts),
            "NUMBERS": _listed(of.numbers),
            "PLANES_OF_EACH": of.planes,
        }
        return self._source(dialect, "judge", defines)

    def residues(self, dialect: Dialect, certify: bool = False) -> Source:
        """Return the pass that makes integers and their residues.

        ``(matrices, a, stride_a, b, stride_b, ld, norms, exponents, conjugated, decision)``, and
        with a certificate ``(randoms, sums, k of all, first_k, counted)``.
        """
        of = self.moduli
        low, high = of.words()
        defines: dict[str, int | str] = {
            **self._orders,
            "FIRST": of.first,
            "COUNT": len(of.numbers),
            "MOST_OF_COUNTS": _listed(of.most(count).hex() for count in of.counts),
            "NUMBERS": _listed(of.numbers),
            "LOW": _listed(low),
            "HIGH": _listed(high),
        }
        if of.is_pair:
            words = [x for word in range(3) for half in of.words(word=word) for x in half]
            del defines["LOW"], defines["HIGH"]
            defines |= {"WORD_BITS": WORD_BITS, "NARROW": of.narrow, "POWERS": _listed(words)}
        elif of.is_complex:
            low, high = of.words(times_root=True)
            defines |= {"LOW_J": _listed(low), "HIGH_J": _listed(high)}
        if certify:
            defines["CERTIFY"] = 1
        return self._source(dialect, "residues", defines)

    def reconstruct(self, dialect: Dialect, certify: bool = False) -> Source:
        """Return the last pass.

        ``(m, n, residues, stride, ld, exponents, first_a, first_b, triangle, alpha, beta, c,
        offset, ldc, decision)``, of complex elements with ``hermitian`` behind ``triangle``, and
        with a certificate ``(randoms, sums, totals_at)``, which is of all of C.
        """
        of = self.moduli
        parts = [of.parts(count) for count in of.counts]
        weights = (x for count in of.counts for one in of.weights(count) for x in one)
        products = (x for count in of.counts for x in of.product_parts(count))
        defines: dict[str, int | str] = {
            "FIRST": of.first,
            "COUNT": len(of.numbers),
            "WEIGHTS": _listed(x.hex() for x in weights),
            "PRODUCTS": _listed(x.hex() for x in products),
        }
        if of.is_pair:
            defines["PARTS_OF_COUNTS"] = _listed(parts)
            return self._source(dialect, "reconstruct_pair", defines, "reconstruct")
        if certify:
            defines["CERTIFY"] = 1
        return self._source(dialect, "reconstruct", defines)

    def fold(self, dialect: Dialect) -> Source:
        """Return the sum of residues of two pieces of k: ``(made, piece, stride, decision)``."""
        return self._source(dialect, "fold", {})

    def draw(self, dialect: Dialect) -> Source:
        """Return what begins a certificate: ``(sides, randoms, words, sums, report)``."""
        return self._source(dialect, "draw", {})

    def certify(self, dialect: Dialect) -> Source:
        """Return what ends a certificate: ``(k, sums, decision, report)``."""
        return self._source(dialect, "certify", {})

    def multiply(self, dialect: Dialect) -> Source:
        """Return the model of the products of residues.

        ``(m, n, k, a, stride_a, b, stride_b, exchanged, ld, made, stride, ld_made, decision)``.
        """
        return self._source(dialect, "model", {}, "multiply")

    def multiply_bound(self, dialect: Dialect) -> Source:
        """Return the model of the bound's product.

        ``(m, n, k, a, offset_a, b, offset_b, ld, made, ld_made)``.
        """
        return self._source(dialect, "model", {}, "multiply_bound")

    # -- the promise -----------------------------------------------------------------------

    @property
    def limit(self) -> float:
        """The ratio of judge.cl up to which the least number of moduli is enough."""
        return self.allowed / self.error_of_ratio

    @property
    def error_of_ratio(self) -> float:
        """The error that a ratio of judge.cl of 1 stands for, of |A| |B|."""
        parts = math.sqrt(2) if self.is_complex else 1  # both parts of an element are rounded
        return parts / (2.0 ** (1 + self.moduli.unit) * _LOW_ROUNDING)

    @property
    def rounding(self) -> float:
        """What rounding a result changes of it at most."""
        return 3 * 2.0**-106 if self.is_pair else 2.0**-53

    @property
    def allowed(self) -> float:
        """What an element's error may be of |A| |B| before its own rounding.

        Sums of k doubles' products in s chains have a bound of k / s + s - 1 roundings, whose least
        is 2 sqrt(k) - 1, the result's own one included.  Of pairs' products one alone has more than
        u^2 = 2^-106.
        """
        if self.is_pair:
            return 2.0**-106
        return (2 * math.sqrt(self.k) - 2) * 2.0**-53


def _flat(elements: int) -> Launch:
    return Launch((-(-elements // _THREADS), 1), (_THREADS, 1))


def _listed(values: object) -> str:
    return ",".join(map(str, values))  # type: ignore[call-overload]
