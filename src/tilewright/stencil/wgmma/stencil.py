"""The stencil of Hopper's tensor cores: CUDA C++ for sm_90a."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from tilewright.hardware import DeviceSpec
from tilewright.space import Config, Space
from tilewright.stencil.base import Resources, Stencil, Variant
from tilewright.stencil.call import GemmCall, TensorMap
from tilewright.stencil.geometry import PLAIN, Geometry, Launch, Mode, SplitK
from tilewright.stencil.source import ELEMENTS, OUTPUTS, Dialect, Source
from tilewright.stencil.source_files import read_source, read_sources
from tilewright.stencil.table import MAPS, PROBLEMS, Part, Table, grouped_source, row
from tilewright.stencil.wgmma import small
from tilewright.stencil.wgmma.arithmetic import Arithmetic, TensorVariant, plain
from tilewright.stencil.wgmma.call import (
    ALIGNMENT,
    BatchOfParts,
    TensorCall,
    arguments,
    operand_maps,
    stage_bytes,
    whole_call,
)
from tilewright.stencil.wgmma.constraints import constraints
from tilewright.stencil.wgmma.parameters import parameters
from tilewright.stencil.wgmma.registers import register_lists
from tilewright.stencil.wgmma.resources import (
    OTHER_REGISTERS,
    compensates,
    consumer_registers,
    producer_registers,
    shared_bytes,
    staged_bytes,
    sums,
    threads,
)
from tilewright.stencil.wgmma.small import is_small
from tilewright.stencil.wgmma.starts import batch_starts, starts

__all__ = ["Wgmma"]

# Of sm_90a, whose instructions wgmma and setmaxnreg no later architecture has.
_CAPABILITY = 90

_SUM_BYTES = 4  # of an accumulator, float or int
_SUMS = (
    "block_m", "block_n", "block_k", "instruction_m", "consumers", "pingpong", "promote_k",
    "partials",
)  # fmt: skip


# Blocks of the reduction kernel (parallel_split_k.cuh) for each block of the first, and their
# threads: a multiprocessor that had one block of the first has 1024 threads.
_SECOND_BLOCKS, _SECOND_THREADS = 4, 256

# By how many cycles slices must be shorter than whole tiles: 2 us on an H100, as for simt_async.
_SECOND_CYCLES = 4000.0

# Bytes of a stage's rows, of m or n: its usual block_k.  While all multiprocessors want theirs one
# gets half of the 64 bytes a cycle that L2 gives it alone; tensor cores take less time.
_ROW_BYTES, _BYTES_A_CYCLE = 128, 32


def _by_tma(config: Config) -> bool:
    """Whether TMA copies operands, not the producer's threads."""
    return bool(config.get("tma", 1))


def _in_turn(config: Config, arithmetic: Arithmetic) -> bool:
    """Whether blocks go through the tiles of all products of a batch.

    Those of residues have a product each, whose number says what remains of it.
    """
    return bool(config.get("multiprocessors", 0)) and arithmetic.result != "residues"


class Wgmma(Stencil):
    """GEMM by warpgroup multiplies, fed through a ring by the copy engine.

    Variants are `TensorVariant`; a plain `Variant` of a precision of tensor cores stands for
    its own arithmetic.  Single precision from short formats needs operands that were
    split before.
    """

    name: ClassVar[str] = "wgmma"
    version: ClassVar[int] = 2
    only_on: ClassVar[str] = "sm_90a"

    def suits(self, device: DeviceSpec) -> bool:
        """Whether the device has these tensor cores and runs CUDA."""
        return device.compute_capability == _CAPABILITY

    def computes(self, variant: Variant) -> bool:
        """Whether it names an arithmetic, or tensor cores take its elements as they are."""
        return isinstance(variant, TensorVariant) or plain(variant.precision) is not None

    @staticmethod
    def arithmetic(variant: Variant) -> Arithmetic:
        """Return a variant's arithmetic.

        Raises
        ------
        ValueError
            If there is none, or its elements cannot be read in the order they have.
        """
        own = variant.arithmetic if isinstance(variant, TensorVariant) else None
        found = own or plain(variant.precision)
        if found is None:
            raise ValueError(
                f"precision={variant.precision.letter!r} is none of tensor cores;"
                " use another stencil, or name an arithmetic such as fp16x3"
            )
        if not found.reads(variant.k_fast):
            raise ValueError(
                f"trans_a={variant.trans_a} trans_b={variant.trans_b}: tensor cores do not read"
                f" {found.element} in that order; transpose first, and use T and N"
            )
        return found

    def space(self, variant: Variant, device: DeviceSpec) -> Space:
        """Return the parameters and constraints for a variant on a device."""
        made = self.arithmetic(variant)
        of = parameters(made, device.multiprocessors, rows_of_a=made.rows_of_a(variant.k_fast))
        return Space(self.name, of, constraints(variant, made, device))

    def starts(self, variant: Variant, device: DeviceSpec) -> tuple[Config, ...]:
        """Return what is likely fast, the likeliest first."""
        made = self.arithmetic(variant)
        found = starts(made, device.multiprocessors, rows_of_a=made.rows_of_a(variant.k_fast))
        return tuple(Config(self.name, values) for values in found)

    def batch_configs(self, variant: Variant) -> tuple[Config, ...]:
        """Return small tiles."""
        return tuple(Config(self.name, values) for values in batch_starts(variant))

    def resources(self, config: Config, variant: Variant) -> Resources:
        """Return threads and shared memory, exact, and an estimate of a consumer's registers."""
        if is_small(config):
            return small.resources(config, self.arithmetic(variant))
        take = config.integer
        held = sums(**{name: take(name) for name in _SUMS})
        return Resources(
            threads=threads(consumers=take("consumers")),
            shared_bytes=sum(self._shared_bytes(config, variant)),
            registers=int(held) + OTHER_REGISTERS,
        )

    def _shared_bytes(self, config: Config, variant: Variant) -> tuple[int, int]:
        """Return a block's shared memory, and what results pass through besides.

        Those of 4 bytes do where there is room, because of columns that are not aligned; those of 2
        bytes where blocks stay, if columns are aligned.  Others of these are shifted in registers:
        from shared memory by words of two they took 1.1 to 1.9 times as long (H100, best kernels).
        Slices are added up elsewhere.
        """
        made, take = self.arithmetic(variant), config.integer
        ring = {name: take(name) for name in ("block_m", "block_n", "block_k", "stages")}
        used = int(shared_bytes(**ring, arithmetic=made))
        stay = take("multiprocessors") > 0 and not (made.scaled or made.epilogue)
        pass_through = made.result_bytes == 4 or (stay and made.result_bytes == 2)
        if not pass_through or config.get("parallel_split_k", 0):
            return used, 0
        of = {name: take(name) for name in ("consumers", "min_blocks")}
        return used, staged_bytes(used=used, **of)

    def compensates(self, config: Config, variant: Variant) -> bool:
        """Whether a config makes up for the roundings of promoted sums.

        Of products in parts only: what an infinity loses of a sum is NaN, and others may have one.
        """
        if is_small(config):
            return False
        several = len(self.arithmetic(variant).products) > 1
        return several and compensates(**{name: config.integer(name) for name in _SUMS})

    def geometry(self, config: Config) -> Geometry:
        """Return tiles in one dimension, blocks of a cluster side by side."""
        if is_small(config):
            return small.geometry(config)
        take = config.integer
        sides = take("block_m"), take("block_n")
        split_k = None
        if config.get("parallel_split_k", 0):
            step = _ROW_BYTES * sum(sides) * take("min_blocks") / _BYTES_A_CYCLE
            area = sides[0] * sides[1]
            split_k = SplitK(
                step, _SUM_BYTES * area, _SECOND_BLOCKS, _SECOND_THREADS,
                reduction_cycles=_SECOND_CYCLES,
            )  # fmt: skip
        return Geometry(
            *sides,
            (threads(consumers=take("consumers")), 1),
            tile_k=take("block_k"),
            stages=take("stages"),
            resident=take("min_blocks"),
            cluster_m=take("cluster_m"),
            cluster_n=take("cluster_n"),
            cluster_k=config.integer("cluster_k", 1),
            persistent=take("multiprocessors") > 0,
            split_k=split_k,
            tma=_by_tma(config),
            vector_along_k=not _by_tma(config),
            any_alignment=not _by_tma(config),
            early=True,
        )

    def batches(self, config: Config, variant: Variant) -> bool:
        """Whether blocks compute whole tiles, of operands in one part."""
        made = self.arithmetic(variant)
        cut = config.get("parallel_split_k", 0) or config.integer("cluster_k", 1) > 1
        whole = not cut and not made.triangle
        return whole and made.parts == 1

    def batched_arguments(
        self,
        config: Config,
        variant: Variant,
        call: GemmCall | TensorCall,
        batch: int,
        steps: tuple[int, int, int],
    ) -> tuple[Any, ...]:
        """Return the argument list with maps of all matrices of a batch, or without them steps."""
        if isinstance(call, GemmCall) and not _by_tma(config):
            return super().batched_arguments(config, variant, call, batch, steps)
        whole, made_of = whole_call(call), self.arithmetic(variant)
        a, b = (
            replace(x, stride=step, count=batch if step else 1)
            for x, step in zip((whole.a, whole.b), steps[:2], strict=True)
        )
        whole = replace(whole, a=a, b=b)
        if is_small(config):
            return small.small_arguments(config, variant, made_of, whole, batch, steps)
        made = arguments(whole, made_of, config, variant.k_fast)
        many = int(steps[0] != 0), int(steps[1] != 0) + whole.exchanged
        found = (*made, *map(np.int32, many), np.int64(steps[2]))
        return (*found, np.int32(batch)) if _in_turn(config, made_of) else found

    def source_for_batch_of_parts(self, config: Config, variant: Variant) -> Source:
        """Return the source that multiplies the parts of all products of a batch."""
        one = self.source(config, variant, "cuda")
        alone, many = read_source("wgmma/kernel.cuh"), read_source("wgmma/batch_of_parts.cuh")
        text = one.text.replace(alone, many)
        return replace(one, text=text, defines={**one.defines, "BATCHED": 1})

    def launch_of_batch_of_parts(
        self, config: Config, variant: Variant, call: TensorCall, batch: BatchOfParts
    ) -> tuple[Launch, tuple[Any, ...]]:
        """Return grid and arguments of a batch of products of parts, the first of them `call`."""
        made = self.arithmetic(variant)
        a, b = (replace(x, count=batch.products * batch.step_parts) for x in (call.a, call.b))
        launch = self.launch(config, call.m, call.n)
        return replace(launch, grid=(launch.grid[0] * batch.products, 1)), (
            *arguments(replace(call, a=a, b=b), made, config, variant.k_fast),
            np.int32(batch.products), np.int32(batch.step_parts), np.int64(batch.step_c),
            np.int32(batch.step_exponents), np.int32(batch.step_run_if),
        )  # fmt: skip

    def grouped_config(self, config: Config, variant: Variant) -> Config | None:
        """Return a config whose blocks are alone, and go; None where consumers take turns."""
        made = self.arithmetic(variant)
        if not made.is_plain or is_small(config) or config.get("parallel_split_k", 0):
            return None
        if config.integer("pingpong"):
            return None
        alone = {"cluster_m": 1, "cluster_n": 1, "multiprocessors": 0}
        return Config(self.name, {k: x for k, x in config.items() if k != "cluster_k"} | alone)

    def grouped_source(
        self, config: Config, variant: Variant, dialect: Dialect, mode: Mode = PLAIN
    ) -> Source:
        """Return the source of a `grouped_config`."""
        one = self.source(config, variant, dialect, mode)
        return grouped_source(one, "wgmma/kernel.cuh", "wgmma/grouped.cuh")

    def grouped_arguments(
        self, config: Config, variant: Variant, parts: Sequence[Part]
    ) -> tuple[Any, ...]:
        """Return scalars, and a table; where TMA copies, with a map of each operand of parts."""
        made, k_fast = self.arithmetic(variant), variant.k_fast
        whole = whole_call(parts[0].whole)
        scalar = np.int32 if made.result == "int32" else np.float32
        scalars = scalar(whole.alpha), scalar(whole.beta)
        if not _by_tma(config):
            return *scalars, super().grouped_arguments(config, variant, parts)[-1]
        maps: dict[TensorMap, int] = {}
        geometry, rows = self.geometry(config), []
        for part in parts:
            call = whole_call(part.whole)
            of_a, of_b = (
                maps.setdefault(one, len(maps)) for one in operand_maps(call, made, config, k_fast)
            )
            arriving = stage_bytes(call, made, config, k_fast)
            k = 0 if call.alpha == 0 else call.k
            tiles = math.prod(geometry.tiles(part.m, part.n))
            rows += [
                row(part.c.memory + part.c.offset * made.result_bytes, part.m, part.n),
                row(None, part.c.ld, k | tiles << 32),
                row(None, of_a | of_b << 16, arriving, part.row, part.column),
            ]
        return *scalars, Table(tuple(maps), rows, MAPS, 3 * PROBLEMS)

    def common_arguments(self, config: Config) -> bool:
        """Whether there are no tensor maps among them."""
        return not _by_tma(config)

    def operand_alignment(self, config: Config) -> int:
        """Return the bytes that addresses and leading dimensions of A and B are multiples of."""
        return ALIGNMENT if _by_tma(config) else 1

    def arguments(
        self, config: Config, variant: Variant, call: GemmCall | TensorCall
    ) -> tuple[Any, ...]:
        """Return the argument list of `tilewright.stencil.wgmma.call`.

        Raises
        ------
        ValueError
            If an operand is not aligned to 16 bytes.
        """
        if not _by_tma(config):
            return call.arguments()
        made = self.arithmetic(variant)
        return arguments(whole_call(call), made, config, variant.k_fast)

    def source(
        self, config: Config, variant: Variant, dialect: Dialect, mode: Mode = PLAIN
    ) -> Source:
        """Return dialect and kernel as one source, with its macros.

        Raises
        ------
        ValueError
            For any dialect but CUDA.
        """
        if dialect != "cuda":
            raise ValueError(f"dialect={dialect!r} has no tensor cores; use portable")
        made = self.arithmetic(variant)
        numbers = [4 * p + q for p, q in made.products]
        split = {
            name: int(config.get(name, small.DEFINES.get(name.upper(), 1)))
            for name in ("consumers", "min_blocks")
        }
        split["tma"] = int(_by_tma(config))
        defines: dict[str, int | str] = {
            "ELEMENT": ELEMENTS[made.element],
            "OUTPUT": OUTPUTS[made.result],
            "TRANS_A": int(variant.trans_a.transposed),
            "TRANS_B": int(variant.trans_b.transposed),
            "PARTS": made.parts,
            "PRODUCTS": hex(sum(number << 4 * i for i, number in enumerate(numbers))) + "ull",
            "PRODUCT_COUNT": len(numbers),
            "SCALED": int(made.scaled),
            "ROUTED": int(made.routed),
            "PRODUCER_REGISTERS": int(producer_registers(**split)),
            "CONSUMER_REGISTERS": int(consumer_registers(**split)),
        }
        if self.compensates(config, variant):
            defines["COMPENSATED"] = 1
        if made.epilogue:
            defines["EPILOGUE"] = 1
        if made.triangle:
            defines["TRIANGLE"] = 1
        if made.result == "residues":
            defines["BATCHED"] = 1
        defines |= {name.upper(): config[name] for name in config if name != "multiprocessors"}
        kernel = "kernel"
        if is_small(config):
            kernel, defines = "small", defines | small.DEFINES | {"BATCHED": 1}
        defines |= register_lists(int(defines["INSTRUCTION_M"]))
        if not is_small(config):
            defines["STAGED"] = int(self._shared_bytes(config, variant)[1] > 0)
        text = read_sources("prelude/dialect_cuda.h", f"wgmma/{kernel}.cuh")
        shared = self.resources(config, variant).shared_bytes
        part = config.integer("block_m") * config.integer("block_n") * _SUM_BYTES
        split_k = int(config.get("parallel_split_k", 0)) > 0
        part *= split_k
        if split_k:
            defines |= {"SECOND_BLOCKS": _SECOND_BLOCKS, "SECOND_THREADS": _SECOND_THREADS}
        return Source(
            text,
            defines,
            dynamic_shared_bytes=shared,
            part_bytes=part,
            second="add_parts_of_slices" if split_k else "",
            unit=f"{self.name} {self.version}",
            in_turn=_in_turn(config, made),
        )
