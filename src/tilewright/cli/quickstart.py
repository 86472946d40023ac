"""``tilewright quickstart``: from nothing to a tuned kernel and a solved system."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli.output import (
    PAGE,
    DeviceOption,
    JsonOption,
    PrecisionOption,
    SizeOption,
    emit_json,
    emit_lines,
    gigaflops,
    output_option,
    parse_size,
    say,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilewright.backend import LiveDevice
    from tilewright.problem import Problem
    from tilewright.tuning.tuner import TuningResult

__all__ = ["command"]

# Searching for this long on a second run refines what the first one found.
_AGAIN_SECONDS = 20.0

# Of Tilewright and NumPy: odd, so that the median is a time that was measured.
_ROUNDS = 9


def command(
    size: SizeOption = "1024",
    precision: PrecisionOption = "s",
    budget: Annotated[str, typer.Option("--budget", help="Time to spend: 90s, 10m, 2h.")] = "75s",
    system: Annotated[int, typer.Option("--system", min=1, help="n of the system solved.")] = 3000,
    device: DeviceOption = None,
    report: Annotated[Path, output_option("HTML file to write last.", PAGE, "--report")] = Path(
        "report.html"
    ),
    json: JsonOption = False,
) -> None:
    """Find the best device, tune GEMM on it, compare with NumPy, solve a system, report."""
    from tilewright.backend import device as find_device
    from tilewright.backend import devices
    from tilewright.cli.solve import ACCEPTED
    from tilewright.cli.solve import describe as describe_system
    from tilewright.cli.tune import to_json
    from tilewright.microbench.peak import measured_peak
    from tilewright.problem import Problem
    from tilewright.tuning.alone import alone_on
    from tilewright.tuning.tuner import seconds_of

    # What is wrong is said before minutes of work.
    m, n, k = parse_size(size)
    if 0 in (m, n, k):
        raise ValueError(f"size={size!r} is empty; tune a problem with m, n and k above 0")
    # The library multiplies row-major arrays as column-major ones with A and B exchanged.
    problem = Problem(n, m, k, precision)  # type: ignore[arg-type]
    if problem.precision.letter not in "sdcz":
        raise ValueError(f"precision={precision!r} has no NumPy to compare with; use s, d, c, z")
    seconds = seconds_of(budget)
    live = find_device(device)
    # Machines are told everything at the end.
    tell: Callable[[str], None] = (lambda text: None) if json else say
    tell(f"1. Device: {live} through {live.platform.split(',')[0]})")
    others = [d.id for d in devices() if d.id != live.id]
    if others:
        tell(f"   also here: {', '.join(others)} (choose with --device)")
    tell(f"\n2. What can be tuned for {problem}")
    if not json:
        _show_space(problem, live)
    tell("\n3. Tuning")
    with alone_on(live, "tilewright quickstart"):
        peak = measured_peak(live, problem.precision)
        tuned = _tune(problem, live, seconds, peak, json=json)
        tell("\n4. The winner beside NumPy, same data, same process, interleaved")
        beside = _compare(problem, live)
    if not json:
        _show_beside(beside, tuned)
        if live.spec.kind == "cpu":
            say("   tw.gemm takes NumPy's BLAS where the tuner saw no kernel beat it")
    tell("\n5. A linear system, LINPACK-style, whose products are tw.gemm")
    system_facts = _solve(problem, system, live)
    tell("   " + describe_system(system_facts))
    tell("\n6. Everything that was measured, as one page")
    page = _report(report, tell)
    if json:
        emit_json(
            {
                "device": live.id,
                "tuned": to_json(tuned, peak),
                "beside": beside,
                "solved": system_facts,
                "report": page,
            }
        )
    if not system_facts["accepted"]:
        residual = system_facts["residual"]
        raise ArithmeticError(f"scaled residual {residual:.3g} is not below {ACCEPTED:g}")


def _report(path: Path, tell: Callable[[str], None]) -> str | None:
    """Write the report, whose needs beyond the package are an extra; return where it is."""
    from tilewright.cli.report import write_report

    try:
        write_report(path)
    except RuntimeError as problem:
        tell(f"   no report: {problem}")
        return None
    tell(f"   {path.resolve()}")
    return str(path.resolve())


def _show_space(problem: Problem, live: LiveDevice) -> None:
    from tilewright.cli.space import show_funnel, show_parameters
    from tilewright.stencil import Variant, stencils_for

    variant = Variant.of(problem)
    space = stencils_for(live.spec, variant)[0].space(variant, live.spec)
    show_parameters(space)
    show_funnel(space.funnel())


def _tune(
    problem: Problem, live: LiveDevice, seconds: float, peak: float, *, json: bool
) -> TuningResult:
    from tilewright.cli.tune import describe, tuning_bar
    from tilewright.portfolio import reload
    from tilewright.portfolio.tuned import tune
    from tilewright.tuning.store import Store

    with Store() as store:
        known = store.count(device=live.fingerprint, problem=problem)
        if known:
            seconds = min(seconds, _AGAIN_SECONDS)
            if not json:
                say(f"   {known} results are stored from before: starting from them ({store.path})")
        with tuning_bar(peak, quiet=json) as observer:
            result = tune(problem, live, budget=seconds, store=store, observer=observer)
    reload()  # so that this process is served by what was found, too
    if not json:
        describe(result, peak)
    return result


def _compare(problem: Problem, live: LiveDevice) -> dict[str, Any]:
    """Time our kernel and NumPy interleaved on the same arrays, and compare their errors.

    Returns
    -------
    dict
        A row of a sweep (`tilewright.bench.record.row_record`), of ``"tilewright"`` and
        ``"numpy"``.
    """
    import numpy as np

    from tilewright.bench.sweep import interleaved_calls
    from tilewright.serve.gemm import gemm
    from tilewright.serve.host_blas import left_out

    rng = np.random.default_rng(0)
    dtype = problem.precision.dtype
    a = rng.standard_normal((problem.n, problem.k)).astype(dtype)
    b = rng.standard_normal((problem.k, problem.m)).astype(dtype)
    ours, theirs = np.empty((2, problem.n, problem.m), dtype)

    def timed(call: Callable[[], object]) -> Callable[[], int]:
        def run() -> int:
            started = time.perf_counter_ns()
            call()
            return time.perf_counter_ns() - started

        return run

    def by_kernel() -> None:
        with left_out():
            gemm(a, b, ours, device=live)

    calls = {
        "tilewright": timed(by_kernel),
        "numpy": timed(lambda: np.matmul(a, b, out=theirs)),
    }
    runs = interleaved_calls(calls, _ROUNDS, shared=True)
    wide = np.result_type(dtype, np.float64)
    size = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
    exact = a.astype(wide) @ b.astype(wide)
    errors = {
        name: float(np.max(np.abs(x - exact) / size))
        for name, x in (("tilewright", ours), ("numpy", theirs))
    }
    return _kept(problem, live, runs, errors)


def _kept(
    problem: Problem, live: LiveDevice, runs: dict[str, list[float]], errors: dict[str, float]
) -> dict[str, Any]:
    """Store how we compare with NumPy and with the bound for reports; return it."""
    from datetime import UTC, datetime

    from tilewright.bench.bounded import bound_of, bound_record
    from tilewright.bench.peers import peer
    from tilewright.bench.record import device_record, environment_record, row_record
    from tilewright.bench.sweep import Row
    from tilewright.cli.report import own_results
    from tilewright.paths import private_directory, write_json
    from tilewright.serve.kernels import ready

    row = row_record(problem, Row(problem, runs, ready(live, problem)[0]), {
        "bound": bound_record(bound_of(live, problem)),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "errors": {name: {"eta": eta} for name, eta in errors.items()},
    })  # fmt: skip
    device = device_record(live, [peer("numpy", live)]) | {"results": [row]}
    document = {"benchmark": "quickstart", "environment": environment_record(), "devices": [device]}
    path = private_directory(own_results()) / f"quickstart-{live.fingerprint}.json"
    write_json(path, document)
    return row


def _show_beside(row: dict[str, Any], result: TuningResult) -> None:
    """Print a row of a sweep beside NumPy, whose seconds are of whole calls."""
    from statistics import median

    from numpy import __version__ as numpy_version

    lines = []
    rates = row["flops_per_second"]
    for name, label in (("tilewright", "the tuned kernel"), ("numpy", f"NumPy {numpy_version}")):
        taken = f"{1e3 * median(row['seconds'][name]):.2f} ms"
        eta = f"{row['errors'][name]['eta']:.1e}"
        lines.append((label, taken, gigaflops(rates[name]), eta))
    emit_lines(("", "median time", "rate", "largest error / (|A||B|)"), lines)
    say(f"   (kernel alone, by the device's clock: {gigaflops(result.winner.flops_per_second)})")
    told = f"   {rates['tilewright'] / rates['numpy']:.2f} times NumPy's rate"
    limit = row["bound"]
    if "flops_per_second" in limit:
        share = rates["tilewright"] / limit["flops_per_second"]
        told += f", {100 * share:.0f} % of the bound: {gigaflops(limit['flops_per_second'])}, "
        told += limit["limiting"]
    say(told)


def _solve(problem: Problem, n: int, live: LiveDevice) -> dict[str, Any]:
    from tilewright.cli.solve import random_system, solve_timed

    a, b = random_system(n, problem.precision.letter, 0)
    return solve_timed(a, b, live.id)[1]
