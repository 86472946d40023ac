"""What a sweep records: precisions and transposes on an architecture, and their configs."""

from __future__ import annotations

import random
import time
from functools import lru_cache
from inspect import Parameter, Signature
from math import prod
from typing import Any

from tilewright.backend.cache import KernelCache
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.backend.cuda.arranging import arranged
from tilewright.backend.cuda.compiler import cached_cubin
from tilewright.precision import precision
from tilewright.problem import Problem, Trans
from tilewright.sass import read_cubin
from tilewright.sass.occupancy import occupancy
from tilewright.sass.resources import resources
from tilewright.space import Config, Constraint, Space
from tilewright.stencil import Variant, stencil

__all__ = ["SHAPES", "Case", "case_of", "compiled"]

FAMILIES = {"s": "simt_async", "c": "simt_async", "d": "mma_f64", "z": "mma_f64"}
SHAPES = ((4096, 4096, 4096), (1000, 3000, 2200), (6248, 340, 1256), (520, 648, 8200))
# Timed with tilings, too.
SQUARES = ((2048, 2048, 2048), (3072, 3072, 3072))
ARCH = "sm_90a"

# What is no tiling is as in the kernels that serve squares of 4096.
FIXED = {
    "warps_k": 1, "cluster_k": 1, "persistent": 1, "stream_k": 2, "tree_reduction": 0,
    "parallel_split_k": 0, "tma": 0, "specialised_epilogue": 0, "run_bytes": 32,
    "serpentine_rows": 0, "b_first": 0, "copy_groups": 2, "swizzle_rows": 8,
}  # fmt: skip
# Two of ASTRA's three thresholds (Kurzak et al. 2012, Figure 2), set as there so that some thousand
# are left of a case; the third, blocks of a multiprocessor, plays no role there either.
LEAST_REUSE, LEAST_THREADS = 4, 256


def _equals(name: str, value: int) -> Constraint:
    def holds(**values: Any) -> Any:
        return values[name] == value

    holds.__signature__ = Signature([Parameter(name, Parameter.KEYWORD_ONLY)])  # type: ignore[attr-defined]
    return Constraint(f"{name} {value}", holds, "no tiling: as in what serves 4096", "heuristic")


TILINGS = (
    *(_equals(name, value) for name, value in FIXED.items()),
    Constraint(
        "whole tiles unrolled", lambda block_k, unroll_k: block_k == unroll_k,
        "no tiling: a loop's trip is a tile", "heuristic",
    ),
    Constraint(
        "register reuse",
        lambda tile_m, tile_n: tile_m * tile_n >= LEAST_REUSE * (tile_m + tile_n),
        f"at least {LEAST_REUSE} multiply-adds for each number read from shared memory",
        "heuristic",
    ),
    Constraint(
        "occupancy",
        lambda block_m, block_n, tile_m, tile_n, min_blocks: (
            block_m * block_n * min_blocks >= LEAST_THREADS * tile_m * tile_n
        ),
        f"at least {LEAST_THREADS} threads on a multiprocessor", "heuristic",
    ),
)  # fmt: skip


@lru_cache
def case_of(letter: str, trans: str, tilings: bool) -> Case:
    return Case(letter, trans, tilings)


class Case:
    """What is recorded: a precision and transposes on an architecture."""

    def __init__(self, letter: str, trans: str, tilings: bool) -> None:
        self.key = letter, trans, tilings
        self.family = stencil(FAMILIES[letter])
        self.variant = Variant(precision(letter), Trans(trans[0]), Trans(trans[1]))
        self.spec = architecture_spec(ARCH)
        space = self.family.space(self.variant, self.spec)
        allowed = [rule for rule in space.constraints if rule.kind in ("divisibility", "hardware")]
        rules = (*space.constraints, *TILINGS) if tilings else allowed
        self.space = Space(space.stencil_name, space.parameters, rules)
        self.problems = [
            Problem(*shape, precision(letter), Trans(trans[0]), Trans(trans[1]))
            for shape in (*SHAPES, *SQUARES * tilings)
        ]
        self.name = f"{letter}gemm_{trans.lower()}" + "_tilings" * tilings

    def source(self, config: Config, problem: Problem) -> Any:
        """Return a config's source in the launch mode that a problem asks for."""
        wanted = self.family.geometry(config).mode(problem)
        mode = self.family.nearest_mode(config, self.variant, self.spec, wanted)
        return self.family.source(config, self.variant, "cuda", mode)

    def configs(self) -> list[Config]:
        """Return what is to be recorded, in random order."""
        if not self.key[2]:
            return self.space.sample(5000, 1)
        every = list(self.space.enumerate())
        random.Random(1).shuffle(every)
        return every


def compiled(key: tuple[str, str, bool], config: Config) -> tuple[dict[str, float], str]:
    """Compile into the disk cache; return what the machine code says, or why there is none."""
    case, started, cache = case_of(*key), time.perf_counter(), KernelCache()
    found: dict[str, float] = {}
    try:
        sources = {one.digest: one for one in (case.source(config, p) for p in case.problems)}
        for source in sources.values():
            cubin = arranged(cached_cubin(source, ARCH, cache), cache)
            if found:
                continue
            kernel = max(read_cubin(cubin.code).kernels, key=lambda one: len(one.code))
            taken = resources(kernel)
            shared = taken.shared_bytes + source.dynamic_shared_bytes
            threads = prod(case.family.launch(config, *SHAPES[0]).block)
            fits = occupancy(kernel.arch, threads, taken.registers, shared)
            found = {
                "registers": taken.registers, "shared_bytes": shared, "threads": threads,
                "blocks": fits.blocks, "stack_bytes": taken.stack_bytes,
                "local_loads": taken.local_loads, "local_stores": taken.local_stores,
                "instructions": taken.instructions,
            }  # fmt: skip
    except Exception as error:
        return {"seconds": time.perf_counter() - started}, f"{type(error).__name__}: {error}"
    return {**found, "seconds": time.perf_counter() - started}, ""
