"""Few kernels that show every pair of choices: pairwise covering by greedy picking.

Most faults of a parametrised program come from one choice, or from two that meet (Kuhn
et al., IEEE TSE 30(6), 2004); a covering set finds those with tens of kernels.
"""

from __future__ import annotations

import itertools
from functools import cache

from tests.stencil.portable_harness import variant
from tilewright.hardware import DeviceSpec
from tilewright.problem import Trans
from tilewright.space import Config, Parameter, Space
from tilewright.stencil import Variant
from tilewright.stencil.portable import Portable
from tilewright.stencil.portable.constraints import constraints
from tilewright.stencil.portable.parameters import parameters

# A device that forbids little, so that whatever a GPU may run is run somewhere.
ANY = DeviceSpec("any", "nobody", "cpu", 1, 1, 1024, 49152, vector_bytes=64)

VARIANTS = tuple(f"{p}{a}{b}" for p in "sdcz" for a in Trans for b in Trans)

SMALL = {
    "block_m": (16, 32), "block_n": (16, 32), "block_k": (4, 8, 16), "unroll_k": (1, 4, 8),
    "threads_m": (4, 8), "threads_n": (4, 8), "read_a_m": (0, 4, 16), "read_b_n": (0, 4, 16),
}  # fmt: skip


def unpruned(of: Variant, device: DeviceSpec) -> Space:
    """Return the space without heuristics: a kernel need not be fast to be right."""
    return Portable().space(of, device).without("heuristic")


@cache
def small_space(name: str) -> Space:
    """Return the part of the space that compiles in about a second on a CPU."""
    few = [
        Parameter(p.name, tuple(v for v in p.values if v in SMALL.get(p.name, p.values)), "", "")
        for p in parameters()
    ]
    return Space(Portable.name, few, constraints(variant(name), ANY)).without("heuristic")


def cost(config: Config, name: str) -> int:
    """Return roughly how many element operations the unrolled text has.

    A CPU's compiler takes about a second for 100 of them.
    """
    take = config.integer
    threads = take("threads_m") * take("threads_n")
    tile = take("block_m") * take("block_n") // threads
    read = (take("read_a_m") > 0) * take("block_m") + (take("read_b_n") > 0) * take("block_n")
    held = read * take("block_k") // threads
    return variant(name).precision.words * (tile * (take("unroll_k") + 2) + 2 * held)


def _pairs(config: Config, name: str) -> set[tuple[tuple[str, object], tuple[str, object]]]:
    facts = [*config.items(), ("precision", name[0]), ("op_a", name[1]), ("op_b", name[2])]
    return set(itertools.combinations(sorted(facts, key=lambda fact: fact[0]), 2))


@cache
def covering_set(seed: int = 1, draws: int = 100, most_cost: int = 200) -> list[tuple[Config, str]]:
    """Return configs with variants that show nearly all pairs found in a sample."""
    pool = [
        (_pairs(config, name), config, name)
        for name in VARIANTS
        for config in small_space(name).sample(draws, seed)
        if cost(config, name) <= most_cost
    ]
    missing = set().union(*(pairs for pairs, _, _ in pool))
    chosen = []
    while missing:
        pairs, config, name = max(pool, key=lambda entry: len(entry[0] & missing))
        missing -= pairs
        chosen.append((config, name))
    return chosen
