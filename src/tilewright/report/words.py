"""Numbers and configs in the words of the report."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TypeVar

from tilewright.problem import Problem
from tilewright.space import Config

__all__ = [
    "blocks_of",
    "called",
    "grouped",
    "intensity",
    "named",
    "percent",
    "plain_rate",
    "rate_cells",
    "scale_of",
    "scaled",
    "side",
    "tiling",
]


T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


def scale_of(rates: Iterable[float]) -> tuple[float, str]:
    """Return divisor and name of the unit that suits rates in FLOP/s.

    One unit serves a whole figure, so that its numbers can be compared at a glance.
    """
    return (1e12, "TFLOP/s") if max(rates, default=0.0) >= 1e12 else (1e9, "GFLOP/s")


def called(name: str) -> str:
    """Return a library's name as its makers write it."""
    names = {
        "tilewright": "Tilewright", "cublas": "cuBLAS", "numpy": "NumPy", "clblast": "CLBlast",
        "ladder": "the ladder's rungs",
    }  # fmt: skip
    return names.get(name, name)


def named(rates: Iterable[str]) -> list[str]:
    """Return names once each, ours first, then the others by name."""
    return sorted(set(rates), key=lambda name: (name != "tilewright", name))


def scaled(rate: float | None, scale: float) -> float | None:
    """Return a rate in a figure's unit, None where there is none."""
    return None if rate is None else rate / scale


def rate_cells(
    rates: Mapping[str, float], names: Iterable[str], scale: float, decimals: int = 1
) -> list[str]:
    """Return rates in a figure's unit as cells of a table, empty where there is none."""
    return [f"{rates[name] / scale:,.{decimals}f}" if name in rates else "" for name in names]


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Return items by a key, both in their order."""
    found: dict[K, list[T]] = {}
    for one in items:
        found.setdefault(key(one), []).append(one)
    return found


def plain_rate(rate: float) -> str:
    """Return a rate in FLOP/s with its own unit."""
    scale, unit = scale_of([rate])
    return f"{rate / scale:,.1f} {unit}"


def percent(share: float) -> str:
    """Return a share of one as percent."""
    return f"{100 * share:.1f} %"


def tiling(config: Config) -> str:
    """Return a config in ASTRA's notation (Kurzak et al. 2012, Figures 3 to 6).

    The block of C and the step in k, then the shapes of the threads that compute C, read A
    and read B.  Stencils with other parameters show their blocks and what is left.
    """
    shown = [f"{config[side]}" for side in ("block_m", "block_n", "block_k") if side in config]
    text = "×".join(shown)
    if {"threads_m", "threads_n", "read_a_m", "read_b_n"} <= set(config):
        return text + _thread_shapes(config)
    if {"vector", "micro_vectors", "micro_n"} <= set(config):
        rows = config.integer("vector") * config.integer("micro_vectors")
        return f"{text}, registers {rows}×{config['micro_n']}"
    if text:
        return text
    return ", ".join(f"{name} {value}" for name, value in config.items())


def _thread_shapes(config: Config) -> str:
    """Return the shapes of the threads that compute C, read A and read B."""
    threads = config.integer("threads_m") * config.integer("threads_n")
    shapes = [f"C {config['threads_m']}×{config['threads_n']}"]
    for name, along in (("A", "read_a_m"), ("B", "read_b_n")):
        side = config.integer(along)
        shapes.append(f"{name} {side}×{threads // side}" if side else f"{name} through the cache")
    return ", " + ", ".join(shapes)


def blocks_of(config: Config) -> tuple[int, int] | None:
    """Return rows and columns of C that a thread block computes, where a config says so."""
    sides = [config.get(name) for name in ("block_m", "block_n")]
    if all(isinstance(side, int) and side > 0 for side in sides):
        return int(sides[0] or 0), int(sides[1] or 0)
    return None


def side(problem: Problem) -> float:
    """Return the side of the cube that has as many multiply-adds."""
    return float((problem.m * problem.n * problem.k) ** (1 / 3))


def intensity(problem: Problem, blocks: tuple[int, int] | None = None) -> float:
    """Return FLOP per byte.

    Without `blocks` every matrix crosses the memory's border once (and C both ways); with
    them each thread block reads its own rows of A and columns of B, the blocking factor of
    Nakasato's equation 1.
    """
    p, size = problem, problem.precision.element_bytes
    if blocks is None:
        return p.flops / (size * (p.m * p.k + p.k * p.n + 2 * p.m * p.n))
    m, n = min(blocks[0], p.m), min(blocks[1], p.n)
    return p.precision.flops * m * n / (size * (m + n))
