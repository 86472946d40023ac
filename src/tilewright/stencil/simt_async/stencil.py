"""The stencil fed by asynchronous copies: CUDA C++ for compute capability 8.0 and later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from tilewright.hardware import DeviceSpec
from tilewright.space import Config
from tilewright.stencil.asynchronous.resources import BARRIER_BYTES, CHUNK_BYTES, shared_bytes
from tilewright.stencil.base import Resources, Stencil, Variant
from tilewright.stencil.call import GemmCall
from tilewright.stencil.geometry import MODES, PLAIN, Geometry, Mode, SplitK
from tilewright.stencil.simt_async.resources import SECTOR_BYTES, longer, registers, threads
from tilewright.stencil.simt_async.tma import maps
from tilewright.stencil.source import Dialect, Source
from tilewright.stencil.source_files import read_source, read_sources

if TYPE_CHECKING:
    from tilewright.space import Constraint, Space

__all__ = ["STAGED_K", "SimtAsync", "layers"]

# Copies from device memory to shared memory came with this compute capability, times ten.
_ASYNCHRONOUS_COPIES_SINCE = 80

# Beyond so many steps along k results are stored as they are: on an H100 an element of C whose
# columns are not aligned costs 5 ps more, or 11 with lanes_m 4 (docs/hopper.md), an eighth at most
# of what 2048 multiply-adds take; and another source of a kernel may be a few per cent slower, by
# its registers.
STAGED_K = 2048
# Operands that TMA brings leave the loop its registers whatever comes behind it.
_ANY_K = 2**63 - 1

# Parameters of blocks that stay, or share tiles.
_SHARED_BY_BLOCKS = frozenset(("persistent", "stream_k", "tree_reduction"))

# Multiply-adds of a multiprocessor in a cycle, of floats, and of doubles on tensor cores.
_A_CYCLE = 128

# Blocks of the reduction kernel (parallel_split_k.cuh) for each block of the first, and their
# threads: a multiprocessor that had one block of the first has 1024 threads, two or three chunks
# each.
_SECOND_BLOCKS, _SECOND_THREADS = 4, 256

# By how many cycles slices must be shorter than whole tiles: 2 us on an H100, where a second
# launch costs skinny kernels 2.4 to 2.8 us (fitted costs of the shipped portfolios).
_SECOND_CYCLES = 4000.0


class SimtAsync(Stencil):
    """GEMM whose tiles are copied to shared memory while others are multiplied.

    Copies pass no register, so that threads have them for their part of C, and the loop
    holds little beside multiply-adds.  Small results share a tile of C among the blocks of
    a cluster (compute capability 9.0).
    """

    name: ClassVar[str] = "simt_async"
    # Where its parameters, constraints and starts are.
    package: ClassVar[str] = "tilewright.stencil.simt_async"
    version: ClassVar[int] = 2
    # What multiplies; kernel.cuh is the same for all.
    multiplier: ClassVar[str] = "simt_async/simt.cuh"
    # Whether operands along k are copied 16 bytes at once, too.
    vector_along_k: ClassVar[bool] = False
    # By TMA: the bytes of a line that the copy engine swizzles, and what a stage's barriers take.
    line_bytes: ClassVar[int] = 0
    barrier_bytes: ClassVar[int] = BARRIER_BYTES
    # What the text asks for besides parameters.
    macros: ClassVar[Mapping[str, int]] = {}

    def suits(self, device: DeviceSpec) -> bool:
        """Whether the device runs CUDA and copies asynchronously."""
        return (device.compute_capability or 0) >= _ASYNCHRONOUS_COPIES_SINCE

    def computes(self, variant: Variant) -> bool:
        """Whether an element has at most 16 bytes, the most that is copied at once."""
        precision = variant.precision
        return precision.element_bytes <= CHUNK_BYTES and not precision.is_short

    def _beside(self, name: str) -> Any:
        """Return a module of the stencil's package.

        Imported where points are asked for: calls of a portfolio take 10 ms less to begin.
        """
        return import_module(f"{self.package}.{name}")

    def space(self, variant: Variant, device: DeviceSpec) -> Space:
        """Return the parameters and constraints for a variant on a device.

        Raises
        ------
        ValueError
            If there are no kernels for the variant.
        """
        if not self.computes(variant):
            letter = variant.precision.letter
            raise ValueError(f"precision={letter!r} is not of {self.name}; use another stencil")
        from tilewright.space import Space

        rules = self._beside("constraints").constraints(variant, device)
        return Space(self.name, self._beside("parameters").parameters(), rules)

    def starts(self, variant: Variant, device: DeviceSpec) -> tuple[Config, ...]:
        """Return what is likely fast, the likeliest first."""
        return tuple(Config(self.name, one) for one in self._beside("starts").starts(variant))

    def batch_configs(self, variant: Variant) -> tuple[Config, ...]:
        """Return small tiles, and tiles of persistent blocks."""
        return tuple(Config(self.name, one) for one in self._beside("starts").batch_starts(variant))

    def batches(self, config: Config, variant: Variant) -> bool:
        """Whether blocks compute whole tiles, of operands that their threads copy."""
        return not any(config.get(name, 0) for name in ("tma", "stream_k", "parallel_split_k"))

    def grouped_config(self, config: Config, variant: Variant) -> Config | None:
        """Return a config without what blocks share; None of operands that come in boxes."""
        if config.get("tma", 0) or config.get("parallel_split_k", 0):
            return None
        values = {name: x for name, x in config.items() if name not in _SHARED_BY_BLOCKS}
        return Config(self.name, {**values, "cluster_k": 1})

    def triangles(self, config: Config, variant: Variant) -> bool:
        """Whether blocks are persistent, and both operands run along k, or neither."""
        alike = len(set(variant.k_fast)) == 1 and variant.precision.parts == 1
        return alike and bool(config.get("persistent", 0))

    def triangle_source(
        self, config: Config, variant: Variant, dialect: Dialect, mode: Mode = PLAIN
    ) -> Source:
        """Return the source whose blocks take the tiles of one triangle (triangle.cuh).

        Threads store what they have: results are not staged.
        """
        one = self.source(config, variant, dialect, replace(mode, staged=False))
        products, triangle = map(
            read_source, ("simt_async/products.cuh", "simt_async/triangle.cuh")
        )
        assert products in one.text
        defines = {**one.defines, "TRIANGLE": 1}
        return replace(one, text=one.text.replace(products, triangle), defines=defines)

    def resources(self, config: Config, variant: Variant) -> Resources:
        """Return threads and shared memory, exact, and an estimate of registers."""
        ring = ("block_m", "block_n", "block_k", "stages", "cluster_k")
        shared = shared_bytes(
            **{name: config.integer(name) for name in ring},
            stream_k=int(config.get("stream_k", 0)),
            warps_k=layers(config),
            tma=int(config.get("tma", 0)),
            barrier_bytes=self.barrier_bytes,
            precision=variant.precision,
            longer=self.longer(config, variant),
        )
        return Resources(self.threads(config), int(shared), self.registers(config, variant))

    def longer(self, config: Config, variant: Variant) -> int:
        """Return by how many elements rows of both tiles exceed the block's sides."""
        run_bytes = int(config.get("run_bytes", SECTOR_BYTES))
        block_k = config.integer("block_k")
        return int(longer(block_k, run_bytes, variant.precision, variant.k_fast))

    def registers(self, config: Config, variant: Variant) -> int:
        """Return the estimated registers of a thread."""
        return int(
            registers(
                tile_m=config.integer("tile_m"),
                tile_n=config.integer("tile_n"),
                tma=int(config.get("tma", 0)),
                precision=variant.precision,
                k_fast=variant.k_fast,
            )
        )

    def mode_constraints(self, variant: Variant) -> Mapping[str, tuple[Constraint, ...]]:
        """Return by launch mode what a point of the space needs to be compiled in it.

        A mode is missing that no operand of the variant asks for.
        """
        from tilewright.stencil.asynchronous.constraints import cp_async_alone, staged_results

        rules = self._beside("constraints")
        found: dict[str, tuple[Constraint, ...]] = {"clamped": (cp_async_alone(),)}
        if variant.precision.element_bytes < CHUNK_BYTES:
            found["staged"] = staged_results(variant.precision, rules.threads)
            if scalar := rules.scalar_copies(variant):
                found["scalar"] = (*scalar, cp_async_alone())
        return found

    def modes(self, config: Config, variant: Variant, device: DeviceSpec) -> tuple[Mode, ...]:
        """Return the launch modes that a config's kernel can be compiled in, plain first."""
        space, by_mode = _spaces(self, variant, device)
        if config not in space:
            return (PLAIN,)
        able = [name for name, one in by_mode.items() if config in one]
        return tuple(mode for mode in MODES if set(mode.names) <= set(able))

    def operand_alignment(self, config: Config) -> int:
        """Return the bytes that addresses and leading dimensions of A and B are multiples of."""
        return CHUNK_BYTES if config.get("tma", 0) else 1

    def common_arguments(self, config: Config) -> bool:
        """Whether there are no tensor maps among them."""
        return not config.get("tma", 0)

    def arguments(self, config: Config, variant: Variant, call: GemmCall) -> tuple[Any, ...]:
        """Return the common arguments, and tensor maps of operands that come in boxes.

        Raises
        ------
        ValueError
            If columns of one of these are not aligned to 16 bytes.
        """
        found = call.arguments()
        if not config.get("tma", 0):
            return found
        return (*found, *maps(config, variant, call, self.line_bytes))

    def geometry(self, config: Config) -> Geometry:
        """Return tiles in one dimension, blocks of a cluster side by side."""
        value, tma = config.integer, bool(config.get("tma", 0))
        split_k = self._split_k(config) if config.get("parallel_split_k", 0) else None
        stages_k = 0 if split_k else _ANY_K if tma else STAGED_K
        return Geometry(
            value("block_m"),
            value("block_n"),
            (self.threads(config), 1),
            tile_k=value("block_k"),
            stages=value("stages"),
            resident=value("min_blocks"),
            cluster_k=value("cluster_k"),
            persistent=bool(config.get("persistent", 0)),
            stream_k=int(config.get("stream_k", 0)),
            tree=bool(config.get("tree_reduction", 0)),
            split_k=split_k,
            tma=tma,
            tma_line_bytes=self.line_bytes if tma else 0,
            vector_along_k=self.vector_along_k,
            stages_k=stages_k,
            early=True,
        )

    def _split_k(self, config: Config) -> SplitK:
        """Return how launches are cut along k."""
        area, depth = config.integer("block_m") * config.integer("block_n"), "block_k"
        step = area * config.integer(depth) * config.integer("min_blocks") / _A_CYCLE
        # Bytes of floats; what larger elements take besides, their multiply-adds take, too.
        return SplitK(
            step, 4 * area, _SECOND_BLOCKS, _SECOND_THREADS, reduction_cycles=_SECOND_CYCLES
        )

    def threads(self, config: Config) -> int:
        """Return the threads of a block."""
        sides = {name: config.integer(name) for name in ("block_m", "block_n", "tile_m", "tile_n")}
        return int(threads(**sides, warps_k=layers(config)))

    def source(
        self, config: Config, variant: Variant, dialect: Dialect, mode: Mode = PLAIN
    ) -> Source:
        """Return dialect, prelude and kernel as one source, with its macros.

        Raises
        ------
        ValueError
            For any dialect but CUDA.
        """
        if dialect != "cuda":
            raise ValueError(f"dialect={dialect!r} has no asynchronous copies; use portable")
        defines: dict[str, int | str] = {**variant.macros, **self.macros}
        # A config need not name these.
        grid = ("PERSISTENT", "STREAM_K", "TREE_REDUCTION", "PARALLEL_SPLIT_K")
        defines |= dict.fromkeys((*grid, "SPECIALISED_EPILOGUE", "TMA"), 0) | {"WARPS_K": 1}
        modes = (one.name for one in fields(Mode))
        defines |= {name.upper(): int(getattr(mode, name)) for name in modes}
        if config.get("parallel_split_k", 0):
            defines |= {"SECOND_BLOCKS": _SECOND_BLOCKS, "SECOND_THREADS": _SECOND_THREADS}
        defines |= {name.upper(): value for name, value in config.items()}
        shared = self.resources(config, variant).shared_bytes
        part = config.integer("block_m") * config.integer("block_n")
        leaves = config.get("stream_k", 0) or config.get("parallel_split_k", 0)
        part *= variant.precision.element_bytes if leaves else 0
        text = read_sources(
            "prelude/dialect_cuda.h",
            f"prelude/{variant.precision.letter}.h",
            self.multiplier,
            "simt_async/kernel.cuh",
        )
        return Source(
            text,
            defines,
            dynamic_shared_bytes=shared,
            part_bytes=part,
            second="add_parts_of_slices" if config.get("parallel_split_k", 0) else "",
            unit=f"{self.name} {self.version}",
            in_turn=bool(config.get("persistent", 0)),
        )


def layers(config: Config) -> int:
    """Return `warps_k`: 1 in configs stored before it."""
    return int(config.get("warps_k", 1))


@lru_cache(maxsize=32)
def _spaces(
    stencil: SimtAsync, variant: Variant, device: DeviceSpec
) -> tuple[Space, dict[str, Space]]:
    """Return a stencil's space, and by launch mode that of what is compiled in it.

    To compose them takes milliseconds, and a search asks for each candidate's modes.
    """
    from tilewright.space import Space

    space = stencil.space(variant, device)
    rules = stencil.mode_constraints(variant).items()
    return space, {name: Space(stencil.name, space.parameters, one) for name, one in rules}
