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
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tilewright.dataclass import dataclass
from tilewright.hardware import DeviceSpec
from tilewright.precision import Precision
from tilewright.problem import Problem, Trans
from tilewright.space import Config
from tilewright.stencil.call import GemmCall
from tilewright.stencil.geometry import PLAIN, Geometry, Launch, Mode
from tilewright.stencil.source import Dialect, Source
from tilewright.stencil.table import PROBLEMS, Part, Table, grouped_source, row

if TYPE_CHECKING:
    from tilewright.space import Space

__all__ = ["Resources", "Stencil", "Variant"]


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
    shapes : tuple of str
        Of a stencil for some problems only their kinds (`tilewright.portfolio.drawn.KINDS`):
        its space is small, and all of it is timed on them.  Empty where it serves any.
    """

    name: ClassVar[str]
    version: ClassVar[int]
    only_on: ClassVar[str] = ""
    shapes: ClassVar[tuple[str, ...]] = ()

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

    def default(self, variant: Variant, device: DeviceSpec) -> Config:
        """Return the config to use where nothing was tuned: the first of `starts` in the space.

        Raises
        ------
        ValueError
            If the device runs none.
        """
        space = self.space(variant, device)
        for config in self.starts(variant, device):
            if config in space:
                return config
        raise ValueError(
            f"device={device.name!r} runs no default of {self.name}; use another stencil"
        )

    def starts(self, variant: Variant, device: DeviceSpec) -> tuple[Config, ...]:
        """Return the configs that tuning tries first, the likeliest first.

        Some may lie outside the space that the device leaves.  Who defines `default` need not
        define these.
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

    def takes(self, config: Config, problem: Problem) -> bool:
        """Whether the config's kernel reads operands that begin aligned as they lie."""
        return self.geometry(config).takes(problem)

    def operand_alignment(self, config: Config) -> int:
        """Return the bytes that addresses and leading dimensions of A and B are multiples of."""
        return 1

    def common_arguments(self, config: Config) -> bool:
        """Whether the argument list is the common one, where addresses may be put in place."""
        return True

    def arguments(self, config: Config, variant: Variant, call: GemmCall) -> tuple[Any, ...]:
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
        self,
        config: Config,
        variant: Variant,
        call: GemmCall,
        batch: int,
        steps: tuple[int, int, int],
    ) -> tuple[Any, ...]:
        """Return the arguments of a launch of a batch.

        Parameters
        ----------
        config, variant, call
            Of the first product.
        batch : int
            Products, whose number persistent blocks are told, which go through all of them.
        steps : tuple of int
            Elements from A, B and C of a product to those of the next; A's or B's may be 0.
        """
        found = (*self.arguments(config, variant, call), *map(np.int64, steps))
        return (*found, np.int32(batch)) if self.geometry(config).persistent else found

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
        geometry, rows = self.geometry(config), []
        for part in parts:
            call = part.whole
            a, b, c = call.a, call.b, part.c
            down = part.row * (a.ld if variant.trans_a.transposed else 1)
            right = part.column * (1 if variant.trans_b.transposed else b.ld)
            tiles = math.prod(geometry.tiles(part.m, part.n))
            rows += [
                row(a.memory + (a.offset + down) * size, part.m, part.n),
                row(b.memory + (b.offset + right) * size, 0 if call.alpha == 0 else call.k, tiles),
                row(c.memory + c.offset * result, c.ld),
                row(None, a.ld, b.ld),
            ]
        return (*self.arguments(config, variant, parts[0].whole), Table((), rows, 0, 4 * PROBLEMS))

    def triangles(self, config: Config, variant: Variant) -> bool:
        """Whether blocks can compute one triangle of a product of a matrix and its transpose."""
        return False

    def triangle_source(
        self, config: Config, variant: Variant, dialect: Dialect, mode: Mode = PLAIN
    ) -> Source:
        """Return the source that computes one triangle of C, where a config `triangles`.

        Raises
        ------
        ValueError
            If the stencil has none.
        """
        raise ValueError(f"stencil={self.name!r} computes no triangles; use simt_async or mma_f64")

    def triangle_arguments(
        self, config: Config, variant: Variant, call: GemmCall, *, lower: bool
    ) -> tuple[Any, ...]:
        """Return the arguments of a launch for the lower triangle, or for the upper one.

        Its n is negative then; else they are a product's.
        """
        m, n, *others = self.arguments(config, variant, call)
        return (m, n if lower else -n, *others)

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
