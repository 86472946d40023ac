"""The stencil protocol: a parametrised kernel family, its space and its costs.

A stencil is a folder: one kernel source, its parameters and constraints, and what
a config uses of the device.  Whoever launches a kernel asks `Stencil.arguments` for its
argument list and needs to know nothing else about its stencil.  That list is the same for
every stencil but those that say otherwise::

    gemm(long m, long n, long k,
         real alpha_re, real alpha_im, A, long offset_a, long lda,
         B, long offset_b, long ldb,
         real beta_re, real beta_im, C, long offset_c, long ldc)

A ``real`` is what an element's real part is: a float, a double, or in double-double a
pair of doubles (16 bytes, passed by value).
Matrices are column-major; offsets and leading dimensions count elements.  With
k = 0 the kernel reads neither A nor B and still scales C; with beta = 0 it never
reads C.

A source that asks for a `Workspace` (`Source.part_bytes`) takes its address as one more
argument, the last; whoever launches it adds that.

A source may have a second function, which adds up what blocks of the first left in the workspace
(`Source.second`).  Both take the same arguments; a live device launches them as one.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import numpy as np

from tilewright.dataclass import dataclass
from tilewright.hardware import DeviceSpec
from tilewright.precision import Precision
from tilewright.problem import Problem, Trans
from tilewright.space import Config
from tilewright.space.aliases import oldest_macros
from tilewright.stencil.geometry import PLAIN, Geometry, Launch, Mode
from tilewright.stencil.source_files import read_source
from tilewright.stencil.table import PROBLEMS, Part, Table, grouped_source, row

if TYPE_CHECKING:
    from tilewright.space import Space

__all__ = [
    "ELEMENTS",
    "OUTPUTS",
    "STATIC_SHARED_BYTES",
    "Call",
    "Dialect",
    "Launch",
    "Resources",
    "Source",
    "Stencil",
    "TensorMap",
    "Variant",
    "Workspace",
]

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


@dataclass(frozen=True)
class Variant:
    """What a kernel is compiled for: precision and the two operations."""

    precision: Precision
    trans_a: Trans
    trans_b: Trans

    @classmethod
    def of(cls, problem: Problem) -> Variant:
        """Return the variant that a problem needs."""
        return cls(problem.precision, problem.trans_a, problem.trans_b)

    @property
    def arithmetic_name(self) -> str:
        """What its arithmetic is called, where that is not the precision's own."""
        return ""

    @property
    def k_fast(self) -> tuple[bool, bool]:
        """Whether A's and B's memory runs along k."""
        return self.trans_a.transposed, not self.trans_b.transposed

    @property
    def macros(self) -> dict[str, int]:
        """What tells a kernel source about the two operations."""
        return {
            "TRANS_A": int(self.trans_a.transposed),
            "CONJ_A": int(self.trans_a.conjugated),
            "TRANS_B": int(self.trans_b.transposed),
            "CONJ_B": int(self.trans_b.conjugated),
        }

    def __str__(self) -> str:
        return f"{self.precision.letter}{self.trans_a}{self.trans_b}".lower()


@dataclass(frozen=True)
class Resources:
    """What one thread block of a config uses of a device.

    Parameters
    ----------
    threads : int
        Threads in the block.
    shared_bytes : int
        Shared memory of the block.
    registers : int
        Estimated 32-bit registers of a thread, from the tiles it holds; the
        compiler has the last word.
    """

    threads: int
    shared_bytes: int
    registers: int


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
    """

    text: str
    defines: Mapping[str, int | str]
    entry: str = "gemm"
    dynamic_shared_bytes: int = 0
    part_bytes: int = 0
    second: str = ""
    unit: str = ""

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

    def run_if(self, value: int) -> Source:
        """Return this kernel with one more argument: it runs where that int has this value.

        A pointer to an int in device memory; elsewhere the kernel returns at once and writes
        nothing.  Every stencil's kernels can be held back so (prelude/run_if.h).  For batches each
        product has an int of its own: behind the pointer comes how many ints on the next one's is
        (prelude/batched_run_if.h).
        """
        many, each = read_source("prelude/batched.h"), read_source("prelude/batched_run_if.h")
        text = self.text.replace(many, each)
        return replace(self, text=text, defines={**self.defines, "RUN_IF": value})

    def batched(self) -> Source:
        """Return this kernel for batches: with steps of A, B and C as arguments behind the others.

        Blocks in z compute matrices of their own (prelude/batched.h, in place of prelude/run_if.h,
        so that the text of other kernels stays as it was compiled).

        Raises
        ------
        ValueError
            If it is none of a stencil's kernels.
        """
        alone, many = read_source("prelude/run_if.h"), read_source("prelude/batched.h")
        text = self.text.replace(alone, many)
        if text == self.text and "BATCHED" not in text:
            raise ValueError(f"unit={self.unit!r} takes no batches; use a stencil's kernel")
        return replace(self, text=text, defines={**self.defines, "BATCHED": 1})


@dataclass(frozen=True)
class TensorMap:
    """A kernel's argument that tells a copy engine about an array in device memory.

    CUDA's tensor map (`cuTensorMapEncodeTiled`), of compute capability 9.0 and later: 128
    bytes that are made when the launch is prepared.  What a copy finds outside the array is
    zero.

    Parameters
    ----------
    memory : object
        The backend's handle of the device memory.
    offset : int
        Bytes before the first element; with the memory's address a multiple of 16.
    element : str
        NumPy's name of the element type, or ``"bfloat16"``.
    sizes : tuple of int
        Elements in each dimension, the contiguous one first; one to five, each at least 1.
    strides : tuple of int
        Bytes between neighbours in the second dimension, the third, ...; multiples of 16.
    box : tuple of int
        Elements that one copy takes in each dimension, at most 256.
    swizzle : int
        Span in bytes (128, 64 or 32) within which 16-byte pieces are exchanged in shared
        memory, the box's contiguous side at most; 0: none are.
    """

    memory: Any
    offset: int
    element: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int = 0

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return 2 if self.element == "bfloat16" else np.dtype(self.element).itemsize


class Matrix(Protocol):
    """An operand of a call: a handle of memory, elements before the first one, and ld."""

    @property
    def memory(self) -> Any:
        """Return the backend's handle."""

    @property
    def offset(self) -> int:
        """Return the elements before the first one."""

    @property
    def ld(self) -> int:
        """Return the leading dimension in elements."""


class Call(Protocol):
    """One product to launch; `tilewright.backend.GemmCall` is one."""

    @property
    def m(self) -> int:
        """Return the rows of C."""

    @property
    def n(self) -> int:
        """Return the columns of C."""

    @property
    def k(self) -> int:
        """Return how many products an element sums up."""

    @property
    def alpha(self) -> Any:
        """Return the product's factor."""

    @property
    def beta(self) -> Any:
        """Return the factor of C's old values."""

    @property
    def a(self) -> Matrix:
        """Return A."""

    @property
    def b(self) -> Matrix:
        """Return B."""

    @property
    def c(self) -> Matrix:
        """Return C."""

    def arguments(self) -> tuple[Any, ...]:
        """Return the argument list that most stencils share."""


class Stencil(ABC):
    """A parametrised kernel family.

    Attributes
    ----------
    name : str
        Folder name; first part of every config's identity.
    version : int
        Raised whenever results or the meaning of a parameter change, or times by more than some
        per cent, so that measurements of an older source are not taken for this one's.  A change
        that leaves most kernels as they are to the byte, and makes the others a little faster,
        is none: their stored times are what they take at most.
    only_on : str
        The one architecture that has its instructions, such as ``"sm_90a"``; empty where many do.
    """

    name: ClassVar[str]
    version: ClassVar[int]
    only_on: ClassVar[str] = ""

    @abstractmethod
    def suits(self, device: DeviceSpec) -> bool:
        """Whether configs of this stencil are worth tuning on this device."""

    def computes(self, variant: Variant) -> bool:
        """Whether there are kernels for this variant, on one device or another.

        Of most stencils for all but operands that are shorter than their sums.
        """
        return not variant.precision.is_short

    @abstractmethod
    def space(self, variant: Variant, device: DeviceSpec) -> Space:
        """Return the parameters and constraints for a variant on a device."""

    @abstractmethod
    def default(self, variant: Variant, device: DeviceSpec) -> Config:
        """Return the config to use where nothing was tuned."""

    def first_start(self, variant: Variant, device: DeviceSpec, other: str) -> Config:
        """Return the first of `starts` in the space: for a stencil whose default it is.

        Raises
        ------
        ValueError
            If the device runs none of them; `other` is the stencil to use there.
        """
        space = self.space(variant, device)
        for config in self.starts(variant, device):
            if config in space:
                return config
        raise ValueError(f"device={device.name!r} runs no default of {self.name}; use {other}")

    def starts(self, variant: Variant, device: DeviceSpec) -> tuple[Config, ...]:
        """Return the configs that tuning tries first, the likeliest first.

        Some may lie outside the space that the device leaves.
        """
        return (self.default(variant, device),)

    def batch_configs(self, variant: Variant) -> tuple[Config, ...]:
        """Return the configs that are timed for batches, of which small tiles serve best.

        A batch fills a device by itself, so that there is nothing to share along k.  Some are no
        points of the space, which leaves out what is slow on a large matrix.
        """
        return ()

    @abstractmethod
    def resources(self, config: Config, variant: Variant) -> Resources:
        """Return what a thread block of the config uses."""

    @abstractmethod
    def geometry(self, config: Config) -> Geometry:
        """Return how launches of a config's kernel cover a result."""

    def launch(self, config: Config, m: int, n: int, k: int = 0) -> Launch:
        """Return the launch that covers an m x n result.

        With k it may be cut along k; without it is not.
        """
        return self.geometry(config).launch(m, n, k)

    def takes(self, config: Config, problem: Problem, aligned: bool = True) -> bool:
        """Whether the config's kernel reads a problem's operands as they lie.

        `aligned`: A and B begin at multiples of 16 bytes.
        """
        return self.geometry(config).takes(problem, aligned)

    def operand_alignment(self, config: Config) -> int:
        """Return the bytes that addresses and leading dimensions of A and B are multiples of."""
        return 1

    def common_arguments(self, config: Config) -> bool:
        """Whether the argument list is the common one, where addresses may be put in place."""
        return True

    def arguments(self, config: Config, variant: Variant, call: Call) -> tuple[Any, ...]:
        """Return the arguments of one launch: NumPy scalars, memory handles, tensor maps.

        Raises
        ------
        ValueError
            If the kernel cannot take an operand as it lies.
        """
        return call.arguments()

    def batches(self, config: Config, variant: Variant) -> bool:
        """Whether the config's kernel can be compiled for batches (`Source.batched`)."""
        return self.geometry(config).batches

    def batched_arguments(
        self, config: Config, variant: Variant, call: Call, batch: int, steps: tuple[int, int, int]
    ) -> tuple[Any, ...]:
        """Return the arguments of a launch of a batch.

        Parameters
        ----------
        config, variant, call
            Of the first product.
        batch : int
            Products.
        steps : tuple of int
            Elements from A, B and C of a product to those of the next; A's or B's may be 0.
        """
        return (*self.arguments(config, variant, call), *map(np.int64, steps))

    def grouped_config(self, config: Config, variant: Variant) -> Config | None:
        """Return a config whose blocks compute a tile each of problems of a group, as its own do.

        None where its blocks cannot.
        """
        return config if self.geometry(config).batches else None

    def grouped_source(
        self, config: Config, variant: Variant, dialect: Dialect, mode: Mode = PLAIN
    ) -> Source:
        """Return the source of a `grouped_config`: its last argument is a `Table` of problems."""
        one = self.source(config, variant, dialect, mode)
        return grouped_source(one, "prelude/run_if.h", "prelude/grouped.h")

    def grouped_arguments(
        self, config: Config, variant: Variant, parts: Sequence[Part]
    ) -> tuple[Any, ...]:
        """Return the arguments of a launch of problems, which have their scalars in common."""
        size, result = variant.precision.element_bytes, variant.precision.result_bytes
        rows = []
        for part in parts:
            call = part.whole
            a, b, c = call.a, call.b, part.c
            down = part.row * (a.ld if variant.trans_a.transposed else 1)
            right = part.column * (1 if variant.trans_b.transposed else b.ld)
            tiles = math.prod(self.geometry(config).tiles(part.m, part.n))
            rows += [
                row(a.memory + (a.offset + down) * size, part.m, part.n),
                row(b.memory + (b.offset + right) * size, 0 if call.alpha == 0 else call.k, tiles),
                row(c.memory + c.offset * result, c.ld),
                row(None, a.ld, b.ld),
            ]
        return (*self.arguments(config, variant, parts[0].whole), Table((), rows, 0, 4 * PROBLEMS))

    def modes(self, config: Config, variant: Variant, device: DeviceSpec) -> tuple[Mode, ...]:
        """Return the launch modes that a config's kernel can be compiled in, plain first.

        A stencil whose kernels see by themselves how operands lie has no other.
        """
        return (PLAIN,)

    def nearest_mode(
        self, config: Config, variant: Variant, device: DeviceSpec, wanted: Mode
    ) -> Mode:
        """Return a launch mode, or what is nearest to it of those that a kernel can have."""
        able = self.modes(config, variant, device)
        tried = (wanted, replace(wanted, scalar=False, clamped=False))
        return next((mode for mode in tried if mode in able), PLAIN)

    @abstractmethod
    def source(
        self, config: Config, variant: Variant, dialect: Dialect, mode: Mode = PLAIN
    ) -> Source:
        """Return the source specialised for a config, a variant and a launch mode.

        A stencil that has but the plain mode returns the same source for all.
        """
