"""A climb as plain data: rates, shares of the library and of the bound, and what limits each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.bench.bounded import bound_record
from tilewright.bench.ladder.race import Result
from tilewright.bounds import Bound
from tilewright.problem import Problem

__all__ = ["climb_record"]


def climb_record(
    problem: Problem,
    limit: Bound | str,
    results: Sequence[Result],
    peers: Sequence[str],
    what: str = "",
) -> dict[str, Any]:
    """Return one problem's climb, as ``tilewright ladder --json`` prints it.

    Parameters
    ----------
    problem : Problem
        As measured, column-major; its ``size`` here is the row-major one.
    limit : Bound or str
        From `tilewright.bench.bounded.bound_of`.
    results : sequence of Result
        From `tilewright.bench.ladder.climb.climb`.
    peers : sequence of str
        Names among the results that are libraries; the first that ran is the hundred of
        ``percent_of_library``.
    what : str
        Name of the product; BLAS's for the problem's precision without it.
    """
    rates = {
        one.name: problem.flops / float(np.median(one.seconds)) if one.seconds else None
        for one in results
    }
    library = next((name for name in peers if rates.get(name)), None)
    size = [problem.n, problem.m, problem.k]
    what = what or f"{problem.precision.name} NN"
    told: dict[str, Any] = {
        "problem": f"{what} {size[0]}x{size[1]}x{size[2]}, row-major",
        "precision": problem.precision.letter,
        "size": size,
        "library": library,
        "bound": bound_record(limit),
    }
    rungs = []
    for one in results:
        rate = rates[one.name]
        rungs.append(
            {
                "name": one.name,
                "title": one.title,
                "idea": one.idea,
                "reason": one.reason,
                "flops_per_second": rate,
                "kernel_seconds": float(np.median(one.seconds)) if one.seconds else None,
                "total_seconds": float(np.median(one.total_seconds)) if one.total_seconds else None,
                "max_error": one.max_error,
                "eta": one.eta,
                "percent_of_library": _percent(rate, rates.get(library or "")),
                "percent_of_bound": _percent(rate, told["bound"].get("flops_per_second")),
                "limits": one.code["bound_by"] if one.code else "",
                "machine_code": one.code,
                "config": one.config,
                "seconds": one.seconds,
                "total_seconds_of_rounds": one.total_seconds,
            }
        )
    return {**told, "rungs": rungs}


def _percent(rate: float | None, hundred: float | None) -> float | None:
    return 100 * rate / hundred if rate and hundred else None
