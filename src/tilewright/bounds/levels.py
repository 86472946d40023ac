"""Equation 1 of Nakasato at every level of the memory hierarchy: what the limit asks of each."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import inf
from typing import Any

from tilewright.bounds import nakasato
from tilewright.bounds.terms import Term
from tilewright.hardware.catalogue import CatalogueDevice
from tilewright.problem import Problem

__all__ = ["Level", "levels"]


@dataclass(frozen=True)
class Level:
    """What a rate asks of one level.

    Parameters
    ----------
    name : str
        What is read from where.
    b : float
        Blocking factor; for a block of p x q elements 2 p q / (p + q).
    required : float
        Equation 1, bytes a second.
    available : float or None
        What the level delivers; None where it is unknown.
    """

    name: str
    b: float
    required: float
    available: float | None

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return asdict(self)


def levels(
    problem: Problem,
    device: CatalogueDevice,
    rate: float,
    terms: tuple[Term, ...],
    element_bytes: int,
) -> tuple[Level, ...]:
    """Return the levels at the blocking that the terms chose.

    Parameters
    ----------
    problem : Problem
        Its sizes and precision.
    device : CatalogueDevice
        Whose bandwidths are compared.
    rate : float
        F in FLOP/s.
    terms : tuple of Term
        The blocking factors are among their inputs.
    element_bytes : int
        Of A and B as they are read.
    """
    chosen = {q.name: q.value for t in terms for q in t.inputs}
    found = []
    if "thread tile rows" in chosen and "shared_load_lanes" in chosen:
        # 32 threads as 4 x 8, or 64 as 8 x 8, read each element once: the rest is broadcast.
        warp = device.needs("warp_size")
        p = 4 if warp == 32 else 8
        tile = _mean(chosen["thread tile rows"] * p, chosen["thread tile columns"] * warp / p)
        found.append(("a warp's tile from shared memory", tile, _shared(device)))
    elif "B_R" in chosen:
        found.append(("a thread's tile from shared memory", chosen["B_R"], _shared(device)))
        memory = device.value("memory_bytes_per_s")
        found.append(("a block from device memory", chosen["B_Sh"], memory))
    elif "b" in chosen and device.get("cache_bytes_per_s") is not None:
        cache = _product(device, "cache_bytes_per_s", "multiprocessors")
        found.append(("a thread's tile from the read cache", chosen["b"], cache))
    if "b" in chosen and device.value("async_copy") == 1:
        whole = device.value("l2_bytes_per_s") or _product(device, "l2_bytes_per_cycle", "clock_hz")
        found.append(("a block as large as registers hold from L2", chosen["b"], whole))
    p_, flops = problem, problem.precision.flops
    a, b, c = p_.elements
    once = 2 * p_.batch * p_.m * p_.n * p_.k / (a + b + 2 * c)
    found.append(("the problem from device memory", once, device.value("memory_bytes_per_s")))
    return tuple(
        Level(name, b, nakasato.required_bandwidth(rate, b, element_bytes, flops), available)
        for name, b, available in found
        if rate < inf
    )


def _mean(p: float, q: float) -> float:
    """Return the b of a p x q block."""
    return 2 * p * q / (p + q)


def _shared(device: CatalogueDevice) -> float | None:
    words = _product(device, "shared_load_lanes", "multiprocessors", "clock_hz")
    return None if words is None else 4 * words


def _product(device: CatalogueDevice, *names: str) -> float | None:
    """Return a product of quantities, or None where one is unknown."""
    total = 1.0
    for name in names:
        value = device.value(name)
        if value is None:
            return None
        total *= value
    return total
