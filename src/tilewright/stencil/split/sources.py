"""The kernel sources of this folder, specialised, with the launches that cover a matrix."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

from tilewright.dataclass import dataclass
from tilewright.problem import Trans
from tilewright.stencil.geometry import Launch
from tilewright.stencil.source import Dialect, Source
from tilewright.stencil.source_files import read_sources
from tilewright.stencil.split.scheme import PART_NUMBERS, Scheme

__all__ = ["PARTS_OF_PRODUCT", "Exponents", "Operands", "Sources", "Stored"]

# tiles.h: threads of a block, elements of its tile along memory and across it, and what numbers
# of sides are rounded up to.
_THREADS = 256
_INNER, _OUTER = 128, 32
_VECTOR = 4

# Blocks a multiprocessor of a pass that may not be wanted: enough of them to keep the memory
# busy, and few to start for nothing.
_RESIDENT = 4

# guard.h: ints before the tops; counts of a side; marks, and what they are rounded up to.
_BEFORE_TOPS, _COUNTS, _MARKS = 4, 3, 4

# Raised when what these kernels compute changes.
VERSION = 2

# Of an operand of a batch, as routes are decided product by product: those of bf16x6.
PARTS_OF_PRODUCT = 3

# model.cl.
_MODEL_THREADS = 64

# A sum that never leaves the tensor core: longer than any k.
_NEVER = 1 << 30

# Bits below single precision's last that Hopper keeps while it adds, by the literature.
EXTRA_BITS = 2

# split.cl.
Exponents = Literal["of tops", "known"]
_EXPONENTS: dict[Exponents, int] = {"of tops": 1, "known": 2}


@dataclass(frozen=True)
class Stored:
    """An operand as memory has it.

    Parameters
    ----------
    side, k : int
        Rows of op(A), or columns of op(B), and the length of the sums.
    k_fast : bool
        Whether memory runs along k.
    """

    side: int
    k: int
    k_fast: bool

    @property
    def inner(self) -> int:
        """Elements along memory."""
        return self.k if self.k_fast else self.side

    @property
    def outer(self) -> int:
        """Elements across it."""
        return self.side if self.k_fast else self.k

    @property
    def tiles(self) -> int:
        """Blocks that cover the operand in either pass."""
        return -(-self.inner // _INNER) * -(-self.outer // _OUTER)


@dataclass(frozen=True)
class Operands:
    """Both operands of a product as memory has them, and where numbers of their sides are.

    Parameters
    ----------
    a, b : Stored
        Operands; one with no elements is passed over.
    products : int
        Of a batch, each of operands that lie so.
    """

    a: Stored
    b: Stored
    products: int = 1

    @cached_property
    def first_b(self) -> int:
        """Number of op(B)'s first column among the sides; op(A)'s first row is number 0."""
        return -(-self.a.side // _VECTOR) * _VECTOR

    @cached_property
    def sides(self) -> int:
        """Rows of op(A) and columns of op(B), and what these are rounded up by."""
        return self.first_b + -(-self.b.side // _VECTOR) * _VECTOR

    @property
    def words_of_tops(self) -> int:
        """Ints of each product that are zero between calls (guard.h)."""
        return _BEFORE_TOPS + self.sides

    @property
    def words_of_sides(self) -> int:
        """Ints of each product's exponents, and behind them `words_of_counts`."""
        return self.sides + self.words_of_counts

    @property
    def words_of_counts(self) -> int:
        """Ints of each product that the guard counts in."""
        return _COUNTS * self.sides + _MARKS

    @property
    def launch(self) -> Launch:
        """A block for each tile, for the first pass."""
        return self._launch(early=False)

    @property
    def second_launch(self) -> Launch:
        """The same for the second pass, which waits for the one before it."""
        return self._launch(early=True)

    def small_launch(self, multiprocessors: int) -> Launch:
        """Return as many blocks as stay on a device, for a second pass that may not be wanted."""
        each = _RESIDENT * multiprocessors // self.products
        return self._launch(early=True, most=max(1, each))

    def _launch(self, *, early: bool, most: int | None = None) -> Launch:
        blocks = self.a.tiles + self.b.tiles
        grid = blocks if most is None else min(blocks, most), 1
        return Launch(grid, (_THREADS, 1), early=early, batch=self.products)


@dataclass(frozen=True)
class Sources:
    """Sources in one dialect."""

    dialect: Dialect

    def _source(self, name: str, defines: dict[str, int | str]) -> Source:
        text = read_sources(f"prelude/dialect_{self.dialect}.h", f"split/{name}.cl")
        return Source(text, defines, name, unit=f"split {VERSION}")

    def flat_launch(self, elements: int) -> Launch:
        """Return a thread for each element."""
        return Launch(grid=(-(-elements // _THREADS), 1), block=(_THREADS, 1))

    def largest(self, operands: Operands) -> Source:
        """Return the first pass: ``(matrices, tops, sides, all, words)``.

        ``matrices`` stands for ``(inner, outer, x, offset, ld)`` of A and of B and ``first_b``;
        so many words behind the exponents are made zero.  Of a batch ``(step_a, step_b)`` follow,
        from a product's operands to the next one's.
        """
        return self._source("largest", {"PART": 1, **_orders(operands)})

    def split(
        self,
        operands: Operands,
        scheme: Scheme,
        *,
        guarded: bool = False,
        transposed: tuple[bool, bool] = (False, False),
        exponents: Exponents = "of tops",
        run_if: int | None = None,
    ) -> Source:
        """Return the second pass.

        ``(matrices, parts_a, stride_a, ld_a, parts_b, stride_b, ld_b, tops, sides, all)``; where
        it is guarded also ``(k, decision, report)``; of a batch ``(step_a, step_b)``; and with
        `run_if` a pointer to the int that has to be equal to it.  Parts are aligned to 16 bytes,
        and each product of a batch has room for `PARTS_OF_PRODUCT`.

        Parameters
        ----------
        operands : Operands
            What is split.
        scheme : Scheme
            Into which parts.
        guarded : bool
            Whether the guard counts, and the last block decides.
        transposed : tuple of bool
            Whether parts of A and of B are stored in the other order.
        exponents : {"of tops", "known"}
            What sides are divided by: powers of two that the first pass's findings give, which are
            written down; those that were written down.
        run_if : int, optional
            The route for which the pass is made.
        """
        defines: dict[str, int | str] = {
            "PART": PART_NUMBERS[scheme.part],
            "PARTS": scheme.parts,
            **_orders(operands),
            "TRANSPOSE_A": int(transposed[0]),
            "TRANSPOSE_B": int(transposed[1]),
            "EXPONENTS": _EXPONENTS[exponents],
            "GUARDED": int(guarded),
        }
        if operands.products > 1:
            defines["PARTS_OF_PRODUCT"] = PARTS_OF_PRODUCT
        if run_if is not None:
            defines["RUN_IF"] = run_if
        return self._source("split", defines)

    def expand(self, operation: Trans, *, wide: bool, other: Trans = Trans.N) -> Source:
        """Return the copy of a complex operand as a real one.

        ``(rows, columns, x, offset, ld, made, ld_made)``: op(x) is rows x columns, in complex
        elements; so are offset and ld.

        Parameters
        ----------
        operation : Trans
            What is done to the operand.
        wide : bool
            Whether it is A, whose elements become 2 x 2 matrices.
        other : Trans
            For A, what is done to B: where B is conjugated, A takes its signs.
        """
        defines: dict[str, int | str] = {
            "TRANSPOSED": int(operation.transposed),
            "NEGATED_IM": int(operation.conjugated),
            "WIDE": int(wide),
            "NEGATED_SECOND": int(other.conjugated),
        }
        return self._source("expand", defines)

    def model(
        self,
        scheme: Scheme,
        trans_a: Trans,
        trans_b: Trans,
        *,
        extra_bits: int = EXTRA_BITS,
        compensated: bool = False,
        batched: bool = False,
    ) -> Source:
        """Return the product of parts as a tensor core computes it; see model.cl.

        Parameters
        ----------
        scheme : Scheme
            Parts and products.
        trans_a, trans_b : Trans
            What is done to the parts as they are stored.
        extra_bits : int
            Bits below single precision's last that the unit keeps while it adds.
        compensated : bool
            Whether roundings of promoted sums are made up for.
        batched : bool
            Whether blocks in z have a product each: with steps of A, B, C, exponents and of what
            `run_if` points at as arguments behind the others.
        """
        defines: dict[str, int | str] = {
            "PART": PART_NUMBERS[scheme.part],
            # A number beyond 32 bits has to say so in both dialects.
            "PRODUCTS": f"{scheme.word}L",
            "PRODUCT_COUNT": len(scheme.products),
            "TRANS_A": int(trans_a.transposed),
            "TRANS_B": int(trans_b.transposed),
            "INSTRUCTION_K": scheme.instruction_k,
            "EXTRA_BITS": extra_bits,
            "PROMOTE_K": scheme.promote_k or _NEVER,
            "COMPENSATED": int(compensated),
            "RESULT": 0,
        }
        if batched:
            defines["BATCHED"] = 1
        return self._source("model", defines)

    def model_launch(self, m: int, n: int) -> Launch:
        """Return a thread for every element of C."""
        return Launch(grid=(-(-m * n // _MODEL_THREADS), 1), block=(_MODEL_THREADS, 1))


def _orders(operands: Operands) -> dict[str, int | str]:
    """Return in which order either operand is stored, and whether there are many of it."""
    found: dict[str, int | str] = {
        "SIDE_INNER_A": int(not operands.a.k_fast),
        "SIDE_INNER_B": int(not operands.b.k_fast),
    }
    return found | {"BATCHED": 1} if operands.products > 1 else found
