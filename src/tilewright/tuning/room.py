"""How much memory and time candidates for a problem get."""

from __future__ import annotations

import os

from tilewright.backend import LiveDevice
from tilewright.problem import Problem
from tilewright.tuning.runner import Limits

__all__ = ["check_memory", "limits_for", "memory_gib"]


def _sizes(problem: Problem) -> tuple[int, int, int]:
    """Return the bytes of A, B and C."""
    (a, b, c), of = problem.stored, problem.precision
    return a * of.element_bytes, b * of.element_bytes, c * of.result_bytes


def check_memory(problem: Problem, live: LiveDevice, *, checked: bool = False) -> None:
    """Refuse a problem that no candidate could be timed on.

    `checked` says that there are also an A and a B of integers (`tuning.checked`).

    Raises
    ------
    ValueError
        Saying how much there is.
    """
    a, b, c = _sizes(problem)
    total = a + b + c + checked * (a + b)
    limits = [memory_gib() * 2**30 / 2]  # one more copy is made of each while it is drawn
    if live.spec.memory_bytes is not None:
        limits.append(live.spec.memory_bytes)
    most = live.max_allocation
    if total > min(limits) or (most is not None and max(a, b, c) > most):
        raise ValueError(
            f"problem={problem} takes {total / 2**30:.1f} GiB in"
            f" {'five' if checked else 'three'} matrices; {live.id} and this machine allow"
            f" {min(limits) / 2**30:.1f} GiB in all"
            + (f" and {most / 2**30:.1f} GiB for one" if most is not None else "")
        )


def limits_for(problem: Problem, peak: float, finalists: int) -> Limits:
    """Return time-outs that leave a large problem time to be drawn and computed.

    A candidate may be twenty times slower than `peak`, the device's in FLOP/s; random numbers are
    drawn at some 100 MB/s, and integers laid down.
    """
    run = 20 * problem.flops / peak
    drawing = 2 * sum(_sizes(problem)) / 1e8
    plain = Limits()
    # Screening runs a candidate two or three times, the race each finalist four times or more.
    return Limits(
        plain.prepare,
        plain.time + drawing + 3 * run,
        plain.final + drawing + finalists * run,
    )


def memory_gib() -> float:
    """Return three quarters of the machine's memory, in GiB."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return 0.75 * float(total) / 2**30
