"""``tilewright tune``: find the fastest right kernel for a problem."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli.output import (
    BudgetOption,
    DeviceOption,
    JsonOption,
    PrecisionOption,
    SizeOption,
    StencilOption,
    TransOption,
    emit_json,
    gigaflops,
    parse_size,
    progress_bar,
    say,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tilewright.tuning.tuner import Progress, TuningResult

__all__ = ["command", "describe", "tuning_bar"]


# What a device is asked, and a file of times has decided.
_NOT_SIMULATED = ("precision", "trans", "size", "device", "stencil", "resume", "cluster",
                  "unproved_schedules", "pruning")  # fmt: skip


def command(
    context: typer.Context,
    precision: PrecisionOption = "s",
    trans: TransOption = "NN",
    size: SizeOption = "1024",
    device: DeviceOption = None,
    budget: BudgetOption = "120s",
    strategy: Annotated[
        str | None,
        typer.Option(
            "--strategy",
            help="learned, guided, climb, evolutionary, random or exhaustive; learned, or climb"
            " where scikit-learn is not installed.",
        ),
    ] = None,
    stencil: StencilOption = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Makes choices repeatable.")] = 0,
    resume: Annotated[
        bool, typer.Option("--resume/--afresh", help="Start from stored results, or from none.")
    ] = True,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", help="A Dask scheduler's address: its workers try candidates."),
    ] = None,
    unproved_schedules: Annotated[
        bool,
        typer.Option(
            "--unproved-schedules",
            help="Try rescheduled machine code where nobody has proved it; gemm() does not use it.",
        ),
    ] = False,
    pruning: Annotated[
        str,
        typer.Option(
            "--pruning",
            help="thresholds; none: all that a device allows; learned: of what thresholds leave"
            " the tenth that a model of the store's measurements of other problems ranks best.",
        ),
    ] = "thresholds",
    simulate: Annotated[
        Path | None,
        typer.Option(
            "--simulate",
            metavar="FILE",
            help="Search a recorded space, without a device: T4 results, Kernel Tuner's caches.",
        ),
    ] = None,
    lessons: Annotated[
        list[Path] | None,
        typer.Option(
            "--lessons", metavar="FILE", help="Recorded spaces to learn from, besides the store."
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Find the fastest right kernel for a problem; go on from the results that are stored."""
    if simulate is not None:
        from tilewright.cli.simulate import simulated

        _refuse_of_devices(context)
        simulated(simulate, lessons or [], strategy=strategy, budget=budget, seed=seed, json=json)
        return
    from tilewright.backend import device as find_device
    from tilewright.microbench.peak import measured_peak
    from tilewright.portfolio.tuned import tune
    from tilewright.problem import Problem, pair_of
    from tilewright.tuning.alone import alone_on

    m, n, k = parse_size(size)
    trans_a, trans_b = pair_of(trans)
    problem = Problem(m, n, k, precision, trans_a, trans_b)  # type: ignore[arg-type]
    with ExitStack() as held:
        peak = None
        if cluster is None:
            live = find_device(device)
            held.enter_context(alone_on(live, f"tilewright tune, {problem}"))
            # Of multiply-add units, also where the kernels run on tensor cores.
            peak = measured_peak(live, problem.precision)
        observer = held.enter_context(tuning_bar(peak, quiet=json))
        found = tune(
            problem,
            device,
            budget=budget,
            strategy=strategy,
            stencil=stencil,
            seed=seed,
            resume=resume,
            observer=observer,
            unproved_schedules=unproved_schedules,
            cluster=cluster,
            pruning=pruning,
            lessons=lessons or (),
        )
    if json:
        emit_json(to_json(found, peak))
    else:
        describe(found, peak)


def _refuse_of_devices(context: typer.Context) -> None:
    """Refuse options beside --simulate that it would ignore."""
    for option in context.command.params:
        source = context.get_parameter_source(option.name or "")
        if option.name in _NOT_SIMULATED and source is not None and source.name == "COMMANDLINE":
            value = context.params[option.name]
            flag = option.secondary_opts[0] if value is False else option.opts[0]
            given = flag if isinstance(value, bool) else f"{flag}={value!r}"
            raise ValueError(
                f"{given} is not for --simulate, which has a file's times; leave it out"
            )


@contextmanager
def tuning_bar(peak: float | None, *, quiet: bool = False) -> Iterator[Callable[[Progress], None]]:
    """Yield an observer that draws a live bar: best so far, percent of peak, time left."""
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[best]}"),
        TextColumn("{task.fields[left]}"),
        TimeElapsedColumn(),
    )
    stages = {"search": "searching", "final": "racing finalists", "certify": "checking winner"}
    with progress_bar(*columns, quiet=quiet) as bar:
        task = bar.add_task("starting workers", total=1.0, best="", left="")

        def observe(now: Progress) -> None:
            best = ""
            if now.best is not None:
                rate = now.best.flops_per_second
                best = f"best {gigaflops(rate)}"
                best += f" = {100 * rate / peak:.0f} % of peak" if peak else ""
            each = ", ".join(f"{name} {count}" for name, count in sorted(now.places.items()))
            places = f" ({each})" if each else ""
            left = max(0.0, now.budget - now.elapsed)
            ends = f"{left:.0f} s left" if isfinite(left) else ""
            bar.update(
                task,
                description=f"{stages[now.stage]}: {now.tried} tried, {now.failed} failed{places}",
                completed=min(1.0, now.elapsed / now.budget),
                best=best,
                left=ends,
            )

        yield observe


def to_json(result: TuningResult, peak: float | None) -> dict[str, Any]:
    """Return a tuning result as plain data."""
    from dataclasses import asdict

    from tilewright.tuning.baselines import gain

    winner, served = result.winner, result.served
    counted = ("tried", "failed", "resumed", "seconds", "candidates_per_second")
    return {
        "problem": str(winner.problem),
        "device": winner.device_name,
        "stencil": winner.config.stencil,
        "config": dict(winner.config),
        "config_id": winner.stored_config.id,
        "mode": str(winner.mode),
        **{name: getattr(winner, name) for name in ("median_ns", "flops_per_second", "error")},
        "peak_flops_per_second": peak,
        "gain_by_schedule": gain(winner),
        "served_config_id": None if served is None else served.stored_config.id,
        "noise": list(result.noise),
        "spent": None if result.spent is None else asdict(result.spent),
        **{name: getattr(result, name) for name in counted},
    }


def describe(result: TuningResult, peak: float | None) -> None:
    """Print a tuning result for people."""
    from tilewright.tuning.baselines import gain

    winner = result.winner
    if result.resumed:
        say(f"started from {result.resumed} stored results")
    fate = f"{result.failed} failed (see: tilewright db list --failed)"
    if not result.failed:
        fate = "none failed"
    say(
        f"{result.tried} candidates in {result.search_seconds:.0f} s"
        f" ({result.candidates_per_second:.1f} a second), {fate};"
        f" {result.seconds:.0f} s with the final race and the winner's checks"
    )
    if result.spent is not None:
        say(f"  {result.spent}")
    speed = winner.flops_per_second
    # What is measured is the peak of multiply-add units, which tensor cores are none of.
    share = ""
    if peak is not None and not winner.problem.precision.is_short:
        share = f" {100 * speed / peak:.0f} % of the measured peak ({gigaflops(peak)});"
    say(
        f"winner for {winner.problem}: {gigaflops(speed)};{share} every check passed,"
        f" largest error {winner.error:.1e} |A||B|"
    )
    for line in result.noise:
        say(f"  noisy: {line}")
    values = ", ".join(f"{name} {value}" for name, value in winner.config.items())
    say(f"  {winner.config.stencil}, launch mode {winner.mode}: {values}")
    saved = gain(winner)
    if saved is not None:
        say(f"  rescheduled: {100 * saved:.1f} % faster than the compiler's own in the same race")
    if result.served is not winner:
        other = "a default" if result.served is None else f"config {result.served.stored_config.id}"
        say(f"  not proved on such a device: gemm() uses {other} (see docs/scheduling.md)")
