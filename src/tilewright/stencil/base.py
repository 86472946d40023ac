"""The stencil protocol: a parametrised kernel family, its space and its costs.

A stencil is a folder: one kernel text, its parameters and constraints, and what
a config uses of the device.  The argument list of every kernel is the same, so
whoever launches one needs to know nothing about its stencil::

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

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from tilewright.hardware import DeviceSpec
from tilewright.precision import Precision
from tilewright.problem import Problem, Trans
from tilewright.space import Config, Space
from tilewright.stencil.schedule import Schedule

__all__ = [
    "STATIC_SHARED_BYTES",
    "Dialect",
    "Launch",
    "Resources",
    "Source",
    "Stencil",
    "Variant",
]

Dialect = Literal["opencl", "cuda"]

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


@dataclass(frozen=True)
class Launch:
    """Thread blocks in the grid and threads in a block, two dimensions each."""

    grid: tuple[int, int]
    block: tuple[int, int]


@dataclass(frozen=True)
class Source:
    """A kernel text with everything the compiler needs to specialise it.

    Parameters
    ----------
    text : str
        The whole text: includes are already resolved.
    defines : Mapping
        Macros, in the order they are passed.
    entry : str
        Name of the kernel function.
    schedule : Schedule, optional
        How the compiled main loop is rescheduled; left out, it is the compiler's.  The text
        is the same either way.
    dynamic_shared_bytes : int
        Shared memory of a block that is asked for at launch, besides arrays in the text:
        CUDA's way beyond `STATIC_SHARED_BYTES`.  OpenCL C has no such arrays.
    """

    text: str
    defines: Mapping[str, int | str]
    entry: str = "gemm"
    schedule: Schedule | None = dataclasses.field(default=None, kw_only=True)
    dynamic_shared_bytes: int = 0


class Stencil(ABC):
    """A parametrised kernel family.

    Attributes
    ----------
    name : str
        Folder name; first part of every config's identity.
    version : int
        Raised whenever the text or the meaning of a parameter changes, so that
        measurements of an older text are not taken for this one's.
    """

    name: ClassVar[str]
    version: ClassVar[int]

    @abstractmethod
    def suits(self, device: DeviceSpec) -> bool:
        """Whether configs of this stencil are worth tuning on this device."""

    def computes(self, precision: Precision) -> bool:
        """Whether there are kernels for this precision."""
        return True

    @abstractmethod
    def space(self, variant: Variant, device: DeviceSpec) -> Space:
        """Return the parameters and constraints for a variant on a device."""

    @abstractmethod
    def default(self, variant: Variant, device: DeviceSpec) -> Config:
        """Return the config to use where nothing was tuned."""

    def starts(self, variant: Variant, device: DeviceSpec) -> tuple[Config, ...]:
        """Return the configs that tuning tries first, the likeliest first.

        Some may lie outside the space that the device leaves.
        """
        return (self.default(variant, device),)

    @abstractmethod
    def resources(self, config: Config, variant: Variant) -> Resources:
        """Return what a thread block of the config uses."""

    @abstractmethod
    def launch(self, config: Config, m: int, n: int) -> Launch:
        """Return the launch that covers an m x n result."""

    @abstractmethod
    def source(self, config: Config, variant: Variant, dialect: Dialect) -> Source:
        """Return the text specialised for a config and a variant."""
