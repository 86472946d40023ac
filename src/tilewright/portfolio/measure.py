"""Times of a portfolio's kernels on shapes as users have them: what costs are fitted to besides."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import numpy as np

from tilewright.backend import Kernel
from tilewright.backend.base import BackendError
from tilewright.backend.cuda.device import CUDADevice
from tilewright.portfolio.kernel import PortfolioKernel
from tilewright.portfolio.plan import drawn_sides
from tilewright.portfolio.portfolio import Portfolio
from tilewright.problem import Problem
from tilewright.stencil import Variant, stencil
from tilewright.tuning.measure import Workload, random_matrix

__all__ = ["measure", "text_of"]

# Of a matrix at most: 512 MB of complex doubles, drawn once and used by every problem.
_MOST_ELEMENTS = 1 << 25

_RUNS = 3  # after one that does not count


def measure(
    live: CUDADevice,
    portfolio: Portfolio,
    count: int,
    seed: int,
    seconds: float,
    observer: Callable[[int, int], None] = lambda done, of: None,
) -> dict[str, Any]:
    """Return times, as `tilewright.portfolio.measured.read_measured` takes them.

    Parameters
    ----------
    live : CUDADevice
        Of the portfolio's architecture.
    portfolio : Portfolio
        Of a precision; conjugates are not measured, whose loops are as long.
    count, seed : int
        Shapes of each pair of transposes; the same for the same seed.
    seconds : float
        After which no further shape begins.
    observer : callable
        Called with the number of shapes that are done, and how many there are.
    """
    until = time.monotonic() + seconds
    shapes = list(_shapes(seed, count))
    variants = [one for one in _variants(portfolio) if portfolio.of_variant(one)]
    cases: dict[str, Any] = {}
    precision = variants[0].precision
    rng = np.random.default_rng(seed)
    whole = random_matrix(rng, _MOST_ELEMENTS, Problem(1, 1, 1, precision))
    memory = {name: live.upload(whole) for name in "abc"}
    try:
        for number, variant in enumerate(variants):
            kernels = portfolio.of_variant(variant)
            loaded: dict[str, Kernel] = {}
            found = {"shapes": [], "configs": [dict(one.config) for one in kernels], "ns": [],
                     "won": []}  # type: dict[str, Any]  # fmt: skip
            for done, sides in enumerate(shapes):
                if time.monotonic() >= until:
                    break
                problem = Problem(*sides, precision, variant.trans_a, variant.trans_b)
                workload = Workload(live, problem, memory)
                found["shapes"].append(list(sides))
                found["ns"].append(
                    [_timed(live, portfolio, one, workload, loaded) for one in kernels]
                )
                observer(number * len(shapes) + done + 1, len(variants) * len(shapes))
            cases[f"{variant.trans_a}{variant.trans_b}"] = found
    finally:
        for handle in memory.values():
            live.free(handle)
    spec = live.spec
    return {
        "precision": portfolio.name,
        "stencil": portfolio.kernels[0].config.stencil,
        "device": spec.name,
        "compute_capability": spec.compute_capability,
        "multiprocessors": spec.multiprocessors,
        "driver": live.driver,
        "date": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
        "method": f"single launches, held, warm cache, medians of {_RUNS}; machine code as served",
        "cases": cases,
        "rescheduled": [],
    }


def _variants(portfolio: Portfolio) -> Iterator[Variant]:
    for one in dict.fromkeys(kernel.variant for kernel in portfolio.kernels):
        if not one.trans_a.conjugated and not one.trans_b.conjugated:
            yield one


def _shapes(seed: int, count: int) -> Iterator[tuple[int, int, int]]:
    found = 0
    for m, n, k in drawn_sides(seed):
        if max(m * n, m * k, k * n) <= _MOST_ELEMENTS:
            yield m, n, k
            found += 1
            if found == count:
                return


def _timed(
    live: CUDADevice,
    portfolio: Portfolio,
    kernel: PortfolioKernel,
    workload: Workload,
    loaded: dict[str, Kernel],
) -> int | None:
    """Return nanoseconds; None where the kernel is not for the problem."""
    problem = workload.problem
    digest = kernel.modes.get(kernel.geometry.mode(problem))
    if digest is None or not kernel.geometry.takes(problem):
        return None
    family, config = stencil(kernel.config.stencil), kernel.config
    try:
        if digest not in loaded:
            code = portfolio.codes[digest]
            loaded[digest] = live.load(code, portfolio.machine_code(digest))
        runs = [workload.run(loaded[digest], family, config) for _ in range(1 + _RUNS)]
    except BackendError:
        return None
    return round(median(runs[1:]))


def text_of(times: dict[str, Any]) -> str:
    """Return a file of times, a line a row."""

    def short(value: Any) -> str:
        return json.dumps(value, separators=(",", ":"))

    head = {key: x for key, x in times.items() if key not in ("cases", "rescheduled")}
    cases = []
    for trans, found in times["cases"].items():
        rows = ",\n".join(
            f'"{key}": [\n' + ",\n".join(map(short, found[key])) + "\n]"
            for key in ("shapes", "configs", "ns", "won")
        )
        cases.append(f'"{trans}": {{\n{rows}\n}}')
    text = json.dumps(head)[:-1] + ',\n"cases": {\n' + ",\n".join(cases) + "\n},\n"
    return text + '"rescheduled": ' + short(times["rescheduled"]) + "}\n"
