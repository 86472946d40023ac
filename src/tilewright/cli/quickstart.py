"""``tilewright quickstart``: from nothing to a tuned kernel and a solved system."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli.output import (
    BudgetOption,
    DeviceOption,
    PrecisionOption,
    SizeOption,
    emit_table,
    gigaflops,
    parse_size,
    say,
)

if TYPE_CHECKING:
    from tilewright.backend import LiveDevice
    from tilewright.problem import Problem
    from tilewright.tuning.tuner import TuningResult

__all__ = ["command"]

# Searching for this long on a second run refines what the first one found.
_AGAIN_SECONDS = 20.0

# OpenBLAS's threads spin before they sleep: on a 2.7 GHz Xeon a product 50 ms after NumPy's
# took twice its time, one 500 ms after it did not.
_SPIN_SECONDS = 0.25


def command(
    size: SizeOption = "1024",
    precision: PrecisionOption = "s",
    budget: BudgetOption = "75s",
    system: Annotated[int, typer.Option("--system", min=1, help="n of the system solved.")] = 3000,
    device: DeviceOption = None,
    report: Annotated[Path, typer.Option("--report", help="HTML file to write last.")] = Path(
        "report.html"
    ),
) -> None:
    """Find the best device, tune GEMM on it, compare with NumPy, solve a system, report."""
    from tilewright.backend import device as find_device
    from tilewright.backend import devices
    from tilewright.microbench.peak import measured_peak
    from tilewright.problem import Problem

    m, n, k = parse_size(size)
    live = find_device(device)
    # The library multiplies row-major arrays as column-major ones with A and B exchanged.
    problem = Problem(n, m, k, precision)  # type: ignore[arg-type]
    if problem.precision.parts == 2:
        raise ValueError(f"precision={precision!r} has no NumPy to compare with; use s, d, c, z")
    say(f"1. Device: {live} through {live.platform.split(',')[0]})")
    others = [d.id for d in devices() if d.id != live.id]
    if others:
        say(f"   also here: {', '.join(others)} (choose with --device)")
    say(f"\n2. What can be tuned for {problem}")
    _show_space(problem, live)
    say("3. Tuning")
    peak = measured_peak(live, problem.precision)
    result = _tune(problem, live, budget, peak)
    say("\n4. The winner beside NumPy, same data, same process, in turns")
    _compare(problem, live, result)
    say("\n5. A linear system, LINPACK-style, whose products are tw.gemm")
    _solve(problem, system, live)
    say("\n6. Everything that was measured, as one page")
    _report(report)


def _report(path: Path) -> None:
    """Write the report; what it needs beyond the package is an extra."""
    from tilewright.cli.report import write_report

    try:
        write_report(path)
    except RuntimeError as problem:
        say(f"   no report: {problem}")
        return
    say(f"   {path.resolve()}")


def _show_space(problem: Problem, live: LiveDevice) -> None:
    from tilewright.cli.space import show_funnel, show_parameters
    from tilewright.stencil import Variant, stencils_for

    space = stencils_for(live.spec, problem.precision)[0].space(Variant.of(problem), live.spec)
    show_parameters(space)
    show_funnel(space.funnel())


def _tune(problem: Problem, live: LiveDevice, budget: str, peak: float) -> TuningResult:
    from tilewright.cli.tune import describe, progress_bar
    from tilewright.portfolio import reload
    from tilewright.portfolio.tuned import tune
    from tilewright.tuning.store import Store
    from tilewright.tuning.tuner import seconds_of

    seconds = seconds_of(budget)
    with Store() as store:
        known = store.count(device=live.fingerprint, problem=problem)
        if known:
            seconds = min(seconds, _AGAIN_SECONDS)
            say(f"   {known} results are stored from before: starting from them ({store.path})")
        with progress_bar(peak) as observer:
            result = tune(problem, live, budget=seconds, store=store, observer=observer)
    reload()  # so that this process is served by what was found, too
    describe(result, peak)
    return result


def _compare(problem: Problem, live: LiveDevice, result: TuningResult) -> None:
    """Time tw.gemm and NumPy in turns on the same arrays, and compare their errors."""
    import numpy as np
    from rich.table import Table

    from tilewright.library.gemm import gemm

    rng = np.random.default_rng(0)
    dtype = problem.precision.dtype
    a = rng.standard_normal((problem.n, problem.k)).astype(dtype)
    b = rng.standard_normal((problem.k, problem.m)).astype(dtype)
    ours, theirs = np.empty((2, problem.n, problem.m), dtype)
    runs: dict[str, list[float]] = {"tilewright": [], "numpy": []}

    def timed(name: str, call: Any) -> None:
        call()  # wakes this library's threads up; what follows is its steady state
        started = time.perf_counter()
        call()
        runs[name].append(time.perf_counter() - started)

    for _ in range(16):
        timed("tilewright", lambda: gemm(a, b, ours, device=live))
        timed("numpy", lambda: np.matmul(a, b, out=theirs))
        # OpenBLAS's threads spin for a while after their work, on the cores we need.
        time.sleep(_SPIN_SECONDS)
    size = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    table = Table("", "median time", "rate", "largest error / (|A||B|)")
    errors: dict[str, float] = {}
    for name, x in (("tilewright", ours), ("numpy", theirs)):
        seconds = float(np.median(runs[name]))
        errors[name] = float(np.max(np.abs(x - exact) / size))
        label = "tw.gemm, tuned" if name == "tilewright" else f"NumPy {np.__version__}"
        table.add_row(
            label,
            f"{1e3 * seconds:.2f} ms",
            gigaflops(problem.flops / seconds),
            f"{errors[name]:.1e}",
        )
    emit_table(table)
    rate = result.winner.flops_per_second
    say(f"   (kernel alone, by the device's clock: {gigaflops(rate)})")
    _keep(problem, live, runs, errors)


def _keep(
    problem: Problem, live: LiveDevice, runs: dict[str, list[float]], errors: dict[str, float]
) -> None:
    """Say how we compare with NumPy and with the bound, and store it for reports."""
    from datetime import UTC, datetime
    from json import dumps

    import numpy as np

    from tilewright.bench.bounded import bound_of, bound_record
    from tilewright.bench.peers import peer
    from tilewright.bench.record import device_record, environment_record, row_record
    from tilewright.bench.sweep import Row
    from tilewright.cli.report import own_results
    from tilewright.library.kernels import ready
    from tilewright.paths import private_directory, write_atomically

    limit = bound_of(live, problem)
    ours, theirs = (float(np.median(times)) for times in runs.values())
    told = f"   {theirs / ours:.2f} times NumPy's rate"
    if not isinstance(limit, str):
        share = problem.flops / ours / limit.limit
        told += f", {100 * share:.0f} % of the bound: {gigaflops(limit.limit)}, "
        told += limit.limiting.name
    say(told)
    row = row_record(problem, Row(problem, runs, ready(live, problem)[0]), {
        "bound": bound_record(limit),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "errors": {name: {"eta": eta} for name, eta in errors.items()},
    })  # fmt: skip
    device = device_record(live, [peer("numpy", live)]) | {"results": [row]}
    document = {"benchmark": "quickstart", "environment": environment_record(), "devices": [device]}
    path = private_directory(own_results()) / f"quickstart-{live.fingerprint}.json"
    write_atomically(path, (dumps(document, indent=1) + "\n").encode())


def _solve(problem: Problem, n: int, live: LiveDevice) -> None:
    from tilewright.cli.solve import ACCEPTED, describe, random_system, solve_timed

    a, b = random_system(n, problem.precision.letter, 0)
    _, facts = solve_timed(a, b, live.id)
    say("   " + describe(facts))
    if not facts["accepted"]:
        raise ArithmeticError(f"scaled residual {facts['residual']:.3g} is not below {ACCEPTED:g}")
