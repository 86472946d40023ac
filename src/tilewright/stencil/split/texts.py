"""The kernel texts of this folder, specialised, with the launches that cover a matrix."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.problem import Trans
from tilewright.stencil.base import Dialect, Launch, Source
from tilewright.stencil.split.scheme import PART_NUMBERS, Scheme
from tilewright.stencil.text import read_text

__all__ = ["Stored", "Texts"]

# tiles.h: threads of a block, and elements of its tile along memory and across it.
_THREADS = 256
_INNER, _OUTER = 128, 64

# model.cl.
_MODEL_THREADS = 64

# A sum that never leaves the matrix unit: longer than any k.
_NEVER = 1 << 30

# Bits below single precision's last that Hopper keeps while it adds, by the literature.
EXTRA_BITS = 2


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
    def launch(self) -> Launch:
        """Blocks that cover the operand in either pass."""
        blocks = -(-self.inner // _INNER) * -(-self.outer // _OUTER)
        return Launch(grid=(blocks, 1), block=(_THREADS, 1))


@dataclass(frozen=True)
class Texts:
    """Sources in one dialect."""

    dialect: Dialect

    def _source(self, name: str, defines: dict[str, int | str]) -> Source:
        parts = (f"prelude/dialect_{self.dialect}.h", f"split/{name}.cl")
        return Source("\n".join(read_text(part) for part in parts), defines, name)

    def clear(self) -> Source:
        """Return the kernel that writes zeros: ``(count, words)``."""
        return self._source("clear", {})

    def clear_launch(self, words: int) -> Launch:
        """Return the blocks for so many words."""
        return Launch(grid=(-(-words // _THREADS), 1), block=(_THREADS, 1))

    def largest(self, operand: Stored) -> Source:
        """Return the first pass: ``(inner, outer, x, offset, ld, sides, first_side)``."""
        return self._source("largest", {"PART": 1, "SIDE_INNER": int(not operand.k_fast)})

    def split(
        self,
        operand: Stored,
        scheme: Scheme,
        *,
        counted: bool,
        transpose: bool = False,
        scaled: bool = True,
        run_if: int | None = None,
    ) -> Source:
        """Return the second pass.

        ``(inner, outer, x, offset, ld, parts, stride, ld_parts, sides, all, first_side)``, and
        with `run_if` a pointer to the int that has to be equal to it.

        Parameters
        ----------
        operand : Stored
            What is split.
        scheme : Scheme
            Into which parts.
        counted : bool
            Whether the guard's counts are made.
        transpose : bool
            Whether parts are stored in the other order.
        scaled : bool
            Whether sides are divided by powers of two.
        run_if : int, optional
            The route for which the pass is made.
        """
        defines: dict[str, int | str] = {
            "PART": PART_NUMBERS[scheme.part],
            "PARTS": scheme.parts,
            "SIDE_INNER": int(not operand.k_fast),
            "TRANSPOSE": int(transpose),
            "SCALED": int(scaled),
            "COUNTED": int(counted),
        }
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

    def decide(self) -> Source:
        """Return the guard: ``(m, n, k, sides, decision, report)``, one block."""
        return self._source("decide", {"PART": 1})

    def model(
        self,
        scheme: Scheme,
        trans_a: Trans,
        trans_b: Trans,
        *,
        promote_k: int | None = None,
        extra_bits: int = EXTRA_BITS,
    ) -> Source:
        """Return the product of parts as a matrix unit computes it; see model.cl.

        Parameters
        ----------
        scheme : Scheme
            Parts and products.
        trans_a, trans_b : Trans
            What is done to the parts as they are stored.
        promote_k : int, optional
            Another interval than the scheme's.
        extra_bits : int
            Bits below single precision's last that the unit keeps while it adds.
        """
        interval = scheme.promote_k if promote_k is None else promote_k
        defines: dict[str, int | str] = {
            "PART": PART_NUMBERS[scheme.part],
            # A number beyond 32 bits has to say so in both dialects.
            "PRODUCTS": f"{scheme.word}L",
            "PRODUCT_COUNT": len(scheme.products),
            "TRANS_A": int(trans_a.transposed),
            "TRANS_B": int(trans_b.transposed),
            "INSTRUCTION_K": scheme.instruction_k,
            "EXTRA_BITS": extra_bits,
            "PROMOTE_K": interval or _NEVER,
            "RESULT": 0,
        }
        return self._source("model", defines)

    def model_launch(self, m: int, n: int) -> Launch:
        """Return a thread for every element of C."""
        return Launch(grid=(-(-m * n // _MODEL_THREADS), 1), block=(_MODEL_THREADS, 1))
