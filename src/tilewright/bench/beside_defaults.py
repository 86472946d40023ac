"""What serves a device beside the default kernels and the vendor's library, on drawn shapes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import cycle, islice
from statistics import median

from tilewright.backend import LiveDevice
from tilewright.bench.peers import UnavailableError, peer
from tilewright.bench.sweep import OURS, Call, interleaved_calls, our_call, way_call
from tilewright.portfolio.choose import Choice, default_choice
from tilewright.portfolio.drawn import KINDS
from tilewright.precision import precision
from tilewright.problem import Problem
from tilewright.serve.routes.realigned import way_of
from tilewright.stencil import Source, Variant
from tilewright.tuning.measure import Workload

__all__ = ["beside_defaults"]

_TRANSPOSES = ("NN", "NT", "TN", "TT")

# Shapes that are compared; sides of them on a CPU: of shorter ones launches are all that is timed.
_COMPARED, _CPU_SIDES = 24, range(128, 2049)

# Turns of each: an odd number, so that the median is a time that was measured.
_ROUNDS = 5


def beside_defaults(live: LiveDevice, letter: str, until: float) -> Iterator[dict[str, float]]:
    """Yield median seconds of ours, of the default and of the library, shape by shape."""
    of, on_host = precision(letter), live.spec.kind == "cpu"
    transposes = ("TN",) if of.reads_along_k else _TRANSPOSES
    drawn = (sides for sides in KINDS["any"](7, of) if not on_host or set(sides) <= set(_CPU_SIDES))
    problems = [
        Problem(*sides, of, *trans)
        for sides, trans in zip(islice(drawn, _COMPARED), cycle(transposes), strict=False)
    ]
    defaults = {problem: _default(live, problem) for problem in problems}
    if live.backend == "cuda":
        from tilewright.backend.cuda.ahead import compiling_ahead

        with compiling_ahead(live.arch) as ahead:
            every = {one[1].digest: one[1] for one in defaults.values() if one}
            for compiled in [ahead(source) for source in every.values()]:
                compiled()
    for problem in problems:
        if time.monotonic() >= until:
            return
        workload = Workload(live, problem)
        try:
            calls = dict(_calls(live, problem, workload, defaults[problem]))
            for call in calls.values():
                call()
            times = interleaved_calls(calls, _ROUNDS, shared=on_host)
            yield {name: median(row) for name, row in times.items()}
        finally:
            workload.close()


def _default(live: LiveDevice, problem: Problem) -> tuple[Choice, Source] | None:
    """Return the default and what it is compiled from; None where it does not take a problem."""
    variant = Variant.of(problem)
    default = default_choice(variant, live.spec)
    family, config = default.stencil, default.config
    if not family.takes(config, problem):
        return None
    wanted = family.geometry(config).mode(problem)
    mode = family.nearest_mode(config, variant, live.spec, wanted)
    return default, family.source(config, variant, live.dialect, mode)


def _calls(
    live: LiveDevice, problem: Problem, workload: Workload, default: tuple[Choice, Source] | None
) -> Iterator[tuple[str, Call]]:
    """Yield what is compared: ours, the default, if it takes the problem, and the library."""
    yield OURS, way_call(workload, way_of(live, problem, workload.call))
    if default is not None:
        yield "the default", our_call(workload, default[0], live.compile(default[1]))
    name = "numpy" if live.spec.kind == "cpu" else "cublas"
    try:
        library = peer(name, live)
        library.check(problem)
        yield name, library.prepare(workload)
    except UnavailableError:
        return
