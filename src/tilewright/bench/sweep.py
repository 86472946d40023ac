"""Sweeps over problems: ours and the peers' in turns, in one process, on one device."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.backend import LiveDevice
from tilewright.bench.peers import Peer, UnavailableError
from tilewright.library.choose import choose
from tilewright.precision import PRECISIONS, precision
from tilewright.problem import Problem, transposes_of
from tilewright.stencil import Variant
from tilewright.tuning.measure import Workload

__all__ = ["Row", "parse_cases", "parse_sizes", "problems_of", "sweep"]

# Turns of A B A B: an odd number, so that the median is a time that was measured.
ROUNDS = 15

# OpenBLAS's threads spin before they sleep, on the cores that a CPU device needs: 50 ms
# after a product they still do on a 2.7 GHz Xeon.
_SPIN_SECONDS = 0.25


@dataclass(frozen=True)
class Row:
    """One problem on one device.

    Parameters
    ----------
    problem : Problem
        What was computed.
    seconds : dict
        For ``"tilewright"`` and each peer, the times of all turns.
    config : dict
        Stencil and values of our config.
    tuned_on : str
        The problem our config won; empty for a default.
    missing : dict
        Why a peer has no times.
    """

    problem: Problem
    seconds: dict[str, list[float]]
    config: dict[str, Any]
    tuned_on: str
    missing: dict[str, str] = field(default_factory=dict)

    def rate(self, name: str) -> float | None:
        """Return FLOP/s at the median time, or None if there is none."""
        taken = self.seconds.get(name)
        return self.problem.flops / float(np.median(taken)) if taken else None


def parse_sizes(text: str) -> list[tuple[int, int, int]]:
    """Return the sizes of a list such as ``512:8192,1000,8192x8192x1024``.

    ``A:B`` doubles from A up to B, ``A:B:S`` steps by S; ``MxNxK`` is one problem.

    Raises
    ------
    ValueError
        If a part is none of these.
    """
    sizes: list[tuple[int, int, int]] = []
    for part in text.lower().split(","):
        numbers = part.replace("x", ":").split(":")
        if not all(n.isdecimal() and int(n) > 0 for n in numbers):
            raise ValueError(f"sizes={part!r} is not a size; write 512:8192, 1000 or 512x512x64")
        values = [int(n) for n in numbers]
        if "x" in part:
            if len(values) != 3 or ":" in part:
                raise ValueError(f"sizes={part!r} is not m x n x k; write 512x512x64")
            sizes.append((values[0], values[1], values[2]))
        elif len(values) == 1:
            sizes.append((values[0],) * 3)
        elif len(values) == 3:
            sizes += [(n, n, n) for n in range(values[0], values[1] + 1, values[2])]
        elif len(values) == 2:
            doublings = max(0, values[1] // values[0]).bit_length()
            sizes += [(values[0] << i,) * 3 for i in range(doublings)]
        else:
            raise ValueError(f"sizes={part!r} has too many parts; write A:B or A:B:STEP")
    return sizes


def parse_cases(precisions: str, trans: str) -> list[tuple[str, str, str]]:
    """Return (precision, trans_a, trans_b) for lists such as ``s,d`` and ``NN,NT`` or ``all``.

    Raises
    ------
    ValueError
        If a letter is unknown.
    """
    cases = []
    letters = list(PRECISIONS) if precisions == "all" else precisions.split(",")
    for letter in letters:
        row = precision(letter)
        if trans == "all":
            cases += [(row.letter, str(a), str(b)) for a, b in transposes_of(row)]
            continue
        for pair in trans.upper().split(","):
            if len(pair) != 2 or any(c not in "NTC" for c in pair):
                raise ValueError(f"trans={pair!r} is not a pair of N, T and C, or 'all'")
            cases.append((row.letter, pair[0], pair[1]))
    return cases


def problems_of(precisions: str, trans: str, sizes: str) -> list[Problem]:
    """Return every problem of a sweep."""
    shapes = parse_sizes(sizes)
    return [
        Problem(m, n, k, letter, a, b)  # type: ignore[arg-type]
        for letter, a, b in parse_cases(precisions, trans)
        for m, n, k in shapes
    ]


def sweep(
    live: LiveDevice, problems: Sequence[Problem], peers: Sequence[Peer], rounds: int = ROUNDS
) -> Iterator[Row]:
    """Measure problem after problem, warm cache, random data.

    Each problem's matrices are made once and used by everybody; ours and the peers' calls
    come in turns, so that clocks and neighbours disturb all alike.  On a CPU device each
    call that counts follows one that does not: it wakes the library's threads.
    """
    for problem in problems:
        workload = Workload(live, problem)
        try:
            yield _measure(live, problem, workload, peers, rounds)
        finally:
            workload.close()


def _measure(
    live: LiveDevice, problem: Problem, workload: Workload, peers: Sequence[Peer], rounds: int
) -> Row:
    chosen = choose(live, problem)
    source = chosen.stencil.source(chosen.config, Variant.of(problem), live.dialect)
    kernel = live.compile(source)
    shared = live.spec.kind == "cpu"

    def ours() -> int:
        started = time.perf_counter_ns()
        taken = workload.run(kernel, chosen.stencil, chosen.config)
        # Beside peers on the host's clock, ours is on it too.
        return time.perf_counter_ns() - started if shared else taken

    calls: dict[str, Callable[[], int]] = {"tilewright": ours}
    missing: dict[str, str] = {}
    for one in peers:
        try:
            one.check(problem)
            calls[one.name] = one.prepare(workload)
        except UnavailableError as reason:
            missing[one.name] = str(reason)
    for call in calls.values():
        call()
        call()
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            if shared:
                call()
            seconds[name].append(call() * 1e-9)
            if shared:
                time.sleep(_SPIN_SECONDS)
    config = {"stencil": chosen.config.stencil, **chosen.config}
    return Row(problem, seconds, config, chosen.tuned_on, missing)
