"""A kernel's source with what the compiler and a launch need to know of it.

A source that asks for a `Workspace` (`Source.part_bytes`) takes its address as one more
argument, the last; whoever launches it adds that.

A source may have a second function, which adds up what blocks of the first left in the workspace
(`Source.second`).  Both take the same arguments; a live device launches them as one.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Literal

from tilewright.dataclass import dataclass
from tilewright.space.aliases import oldest_macros
from tilewright.stencil.source_files import read_source

__all__ = ["ELEMENTS", "OUTPUTS", "STATIC_SHARED_BYTES", "Dialect", "Source", "Workspace"]

Dialect = Literal["opencl", "cuda"]

# Macros that name formats which C has no type of, or which kernels choose at compile time: of A
# and B, and of C.
ELEMENTS = {
    "float16": "ELEMENT_F16",
    "bfloat16": "ELEMENT_BF16",
    "tf32": "ELEMENT_TF32",
    "int8": "ELEMENT_S8",
    "float8_e4m3fn": "ELEMENT_E4M3",
    "float8_e5m2": "ELEMENT_E5M2",
}
OUTPUTS = {
    "float32": "OUTPUT_F32",
    "float16": "OUTPUT_F16",
    "bfloat16": "OUTPUT_BF16",
    "int32": "OUTPUT_S32",
    "residues": "OUTPUT_RESIDUES",
}

# What every CUDA architecture allows a thread block to have in arrays of a size that the
# compiler knows; what goes beyond is asked for at launch (dialect_cuda.h says it too).
STATIC_SHARED_BYTES = 48 * 1024


# What all blocks draw numbers from has a line of the cache to itself; behind it every block has
# a word.  Parts begin at the same place for every grid, so that no launch's parts lie where
# another's words are; blocks of all multiprocessors there are find room before it.
_NUMBER_BYTES, _WORD_BYTES, _PARTS_AT = 128, 4, 16384


@dataclass(frozen=True)
class Workspace:
    """Device memory that the blocks of a launch leave parts of their sums in.

    The kernel takes its address as one more argument, the last; there it finds::

        | number, 128 bytes | a word for each block | to 16384 bytes | a part for each block |

    Number and words are zero before a launch, and the kernel leaves them zero; parts may hold
    anything.  While a launch runs that has it, no other may.

    Parameters
    ----------
    blocks : int
        Of the launch, at most 4064 where they use their words.
    part_bytes : int
        For each of them, a multiple of 16.
    words : bool
        Whether blocks use their words.

    Raises
    ------
    ValueError
        If there are more blocks than words.
    """

    blocks: int
    part_bytes: int
    words: bool = True

    cleared_bytes: ClassVar[int] = _PARTS_AT
    """How much of it, from its start, is zero before and after a launch."""

    def __post_init__(self) -> None:
        most = (_PARTS_AT - _NUMBER_BYTES) // _WORD_BYTES
        if self.words and self.part_bytes and not 0 < self.blocks <= most:
            raise ValueError(f"blocks={self.blocks} share no workspace; launch 1 to {most}")

    @property
    def size(self) -> int:
        """All of it in bytes."""
        return self.cleared_bytes + self.blocks * self.part_bytes


# Of C and C++; no kernel source has either in a string.  `re` compiles it where one is built.
_COMMENTS = r"(?s:/\*.*?\*/)|//[^\n]*"


@dataclass(frozen=True)
class Source:
    """A kernel source with everything the compiler needs to specialise it.

    Parameters
    ----------
    text : str
        The whole text: includes are already resolved.
    defines : Mapping
        Macros, in the order they are passed.
    entry : str
        Name of the kernel function.
    dynamic_shared_bytes : int
        Shared memory of a block that is asked for at launch, besides arrays in the source:
        CUDA's way beyond `STATIC_SHARED_BYTES`.  OpenCL C has no such arrays.
    part_bytes : int
        What each block of a launch needs of a `Workspace`; 0 for none.
    second : str
        Name of the function that is launched behind `entry` with the same arguments, as
        `Launch.second` says; empty for none.
    unit : str
        The source's name and version, such as ``"simt_async 2"``; empty for one that no portfolio
        holds.  The version is raised whenever what it computes or how it is launched changes.
    in_turn : bool
        Whether blocks go through the tiles of all products where it is `batched`.
    """

    text: str
    defines: Mapping[str, int | str]
    entry: str = "gemm"
    dynamic_shared_bytes: int = 0
    part_bytes: int = 0
    second: str = ""
    unit: str = ""
    in_turn: bool = False

    @property
    def identity(self) -> str:
        """What machine code is kept under: a digest of unit, entry and macros, not of the text.

        So that a comment that changes leaves it as it is, and a parameter of another name, too.
        """
        macros = oldest_macros(self.unit.partition(" ")[0], self.defines)
        parts = [self.unit, self.entry, sorted((k, str(v)) for k, v in macros.items())]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]

    @property
    def digest(self) -> str:
        """A digest of `identity` and of the text without comments and white space."""
        bare = "".join(re.sub(_COMMENTS, " ", self.text).split())
        return hashlib.sha256(f"{self.identity}{bare}".encode()).hexdigest()[:12]

    def run_if_zero(self) -> Source:
        """Return this kernel with one more argument: it runs where that int is 0.

        A pointer to an int in device memory; elsewhere the kernel returns at once and writes
        nothing.  Every stencil's kernels can be held back so (prelude/run_if.h).  For batches each
        product has an int of its own: behind the pointer comes how many ints on the next one's is
        (prelude/batched_run_if.h).

        Raises
        ------
        ValueError
            If blocks go through the products of a batch in turn.
        """
        if self.in_turn and "BATCHED" in self.defines:
            raise ValueError("blocks that go through all products are not held back one by one")
        many, each = read_source("prelude/batched.h"), read_source("prelude/batched_run_if.h")
        text = self.text.replace(many, each)
        return replace(self, text=text, defines={**self.defines, "RUN_IF": 0})

    def batched(self) -> Source:
        """Return this kernel for batches: with steps of A, B and C as arguments behind the others.

        Blocks in z compute matrices of their own (prelude/batched.h, in place of prelude/run_if.h,
        so that the text of other kernels stays as it was compiled), and BATCHED is 1.  Blocks that
        go through all products `in_turn` take the number of these as their last argument; BATCHED
        is 2.

        Raises
        ------
        ValueError
            If it is none of a stencil's kernels.
        """
        alone, many = read_source("prelude/run_if.h"), read_source("prelude/batched.h")
        text = self.text.replace(alone, many)
        if text == self.text and "BATCHED" not in text:
            raise ValueError(f"unit={self.unit!r} takes no batches; use a stencil's kernel")
        return replace(self, text=text, defines={**self.defines, "BATCHED": 1 + self.in_turn})
