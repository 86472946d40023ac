"""``tilewright db``: what was measured: list, show, export, import, prune, reproduce."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli.db_view import (
    measurement_facts,
    show_failures,
    show_measurement,
    show_summaries,
    summary_facts,
)
from tilewright.cli.output import PRECISIONS, JsonOption, emit_json, output_option, say
from tilewright.text import plain

if TYPE_CHECKING:
    from tilewright.stencil import Launch, Source
    from tilewright.tuning.measurement import Measurement
    from tilewright.tuning.store import Filters, Store

__all__ = ["app"]

app = typer.Typer(name="db", help="Stored results of tuning.", no_args_is_help=True)

StoreOption = Annotated[
    Path | None, typer.Option("--store", help="The store's file; your own by default.")
]
DeviceOption = Annotated[
    str | None, typer.Option("--device", help="A device's fingerprint or part of its name.")
]
PrecisionOption = Annotated[str | None, typer.Option("--precision", help=f"{PRECISIONS}.")]
TransOption = Annotated[
    str | None, typer.Option("--trans", help="Transposes of A and B, such as NT.")
]
StencilOption = Annotated[str | None, typer.Option("--stencil", help="Name of a stencil.")]
IdArgument = Annotated[int, typer.Argument(help="A number that `tilewright db list` shows.")]


@app.command("list")
def list_(
    failed: Annotated[
        bool, typer.Option("--failed", help="List the candidates that failed, with reasons.")
    ] = False,
    device: DeviceOption = None,
    precision: PrecisionOption = None,
    trans: TransOption = None,
    stencil: StencilOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Most rows to print.")] = 50,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """List what was tuned, the newest first: one row a problem and device, with its winner."""
    with _open(store) as opened:
        filters = _filters(opened, device, precision, trans, stencil)
        if failed:
            failures = list(_failures(opened, filters, limit))
            if json:
                emit_json([measurement_facts(one) for one in failures])
            else:
                show_failures(failures)
            return
        summaries = opened.summaries(**filters)[:limit]
    if json:
        emit_json([summary_facts(one) for one in summaries])
    else:
        show_summaries(summaries)


@app.command()
def show(id: IdArgument, store: StoreOption = None, json: JsonOption = False) -> None:
    """Show everything that is known of one measurement."""
    with _open(store) as opened:
        measurement = opened.get(id)
    if json:
        emit_json(measurement_facts(measurement))
        return
    show_measurement(measurement)
    if measurement.detail:
        say("\n" + plain(measurement.detail))


@app.command("export")
def export(
    output: Annotated[
        Path | None,
        output_option("File to write; else standard output.", rb'\{\s*"schema_version"'),
    ] = None,
    device: DeviceOption = None,
    precision: PrecisionOption = None,
    trans: TransOption = None,
    stencil: StencilOption = None,
    stage: Annotated[
        str | None, typer.Option("--stage", help="screen, final or winner only.")
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Export results as T4 JSON, which Kernel Tuner's tools read."""
    from tilewright.tuning.measurement import Stage
    from tilewright.tuning.t4 import t4_results, write_t4

    with _open(store) as opened:
        filters = _filters(opened, device, precision, trans, stencil)
        if stage is not None:
            filters["stage"] = Stage(stage)
        if output is None:
            emit_json(t4_results(opened.query(**filters)))
            return
        written = write_t4(output, opened.query(**filters))
    if json:
        emit_json({"results": written, "file": str(output)})
    else:
        say(f"{written} results in {output}")


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="A file that `tilewright db export` wrote.")],
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Import results: all of a file's or, if anything in it is wrong, none."""
    from tilewright.tuning.store import Store
    from tilewright.tuning.t4 import read_t4

    measurements = read_t4(file)
    with Store(store) as opened:
        new = opened.add_imported(measurements)
    if json:
        emit_json({"results": len(measurements), "new": new})
    else:
        say(f"{len(measurements)} results read, {new} of them new")
        if new:
            say("they start the next tuning of these problems, which measures them on this device")


@app.command()
def prune(
    older_than: Annotated[
        str | None, typer.Option("--older-than", help="An age, such as 12h, 30d or 8w.")
    ] = None,
    stale: Annotated[
        bool, typer.Option("--stale", help="Only results of stencils that have changed since.")
    ] = False,
    failed: Annotated[
        bool, typer.Option("--failed", help="Only of candidates that failed; they may be retried.")
    ] = False,
    device: DeviceOption = None,
    winners: Annotated[
        bool, typer.Option("--winners", help="Remove winners too, which are kept otherwise.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would go, and leave it.")
    ] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Remove results that meet every criterion given; at least one must be."""
    with _open(store) as opened:
        pruned = opened.prune(
            older_than=None if older_than is None else datetime.now(UTC) - _age(older_than),
            current_versions=_versions(opened.stencils()) if stale else None,
            device=None if device is None else _fingerprints(opened, device),
            failed=failed,
            winners=winners,
            dry_run=dry_run,
        )
    if json:
        names = ("device_name", "stencil", "stencil_version", "results")
        groups = [dict(zip(names, group, strict=True)) for group in pruned.groups]
        counts = {"removed": pruned.removed, "spared_winners": pruned.spared}
        emit_json({**counts, "dry_run": dry_run, "groups": groups})
        return
    for name, family, version, count in pruned.groups:
        say(f"  {count} of {family} version {version} on {plain(name)}")
    verb = "would be removed" if dry_run else "removed"
    say(f"{pruned.removed} results {verb}, {pruned.spared} winners kept")


@app.command()
def reproduce(
    id: IdArgument,
    output: Annotated[
        Path | None,
        output_option("File to write; reproduce_ID.py by default.", rb".*Run it as\s+python "),
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Write one Python file that shows what a measurement recorded."""
    from tilewright.paths import write_atomically
    from tilewright.tuning.reproduce import reproducer

    with _open(store) as opened:
        measurement = opened.get(id)
    target = output or Path(f"reproduce_{id}.py")
    source, launch = _kernel(measurement)
    text = reproducer(measurement, source, launch, filename=target.name).encode()
    if output is None and target.exists() and target.read_bytes() != text:
        raise FileExistsError(f"{target} exists and differs; name a file with -o")
    write_atomically(target, text)
    if json:
        emit_json({"id": id, "status": str(measurement.status), "file": str(target)})
    else:
        say(f"{target} shows result {id} ({measurement.status}); run: python {target}")


def _open(path: Path | None) -> Store:
    """Open a store to look at; one that was named must exist."""
    from tilewright.tuning.store import Store

    return Store(path, create=path is None)


def _filters(
    store: Store, device: str | None, precision: str | None, trans: str | None, stencil: str | None
) -> Filters:
    filters: Filters = {}
    if device is not None:
        filters["device"] = _fingerprints(store, device)
    if precision is not None:
        filters["precision"] = precision
    if trans is not None:
        from tilewright.problem import pair_of

        filters["trans"] = "".join(pair_of(trans))
    if stencil is not None:
        filters["stencil"] = stencil
    return filters


def _fingerprints(store: Store, wanted: str) -> list[str]:
    """Return the fingerprints of the devices that a text means.

    Raises
    ------
    RuntimeError
        If nothing was measured on such a device.
    """
    known = store.devices()
    found = [
        mark for mark, name in known.items() if mark == wanted or wanted.lower() in name.lower()
    ]
    if not found:
        names = ", ".join(f"{plain(name)} ({plain(mark)})" for mark, name in known.items())
        raise RuntimeError(f"nothing was measured on {wanted!r}; there is {names or 'no device'}")
    return found


def _failures(store: Store, filters: Filters, limit: int) -> list[Measurement]:
    """Return the newest measurements that failed."""
    from tilewright.tuning.measurement import Status

    filters = {**filters, "status": [status for status in Status if status is not Status.OK]}
    return list(store.query(newest_first=True, limit=limit, **filters))


def _age(text: str) -> timedelta:
    """Return a duration such as ``30d``.

    Raises
    ------
    ValueError
        If it is not one.
    """
    units = {"h": "hours", "d": "days", "w": "weeks"}
    if text[-1:] not in units or not text[:-1].isdecimal() or len(text) > 6:
        raise ValueError(f"older-than={text!r} is not an age; write 12h, 30d or 8w")
    return timedelta(**{units[text[-1]]: int(text[:-1])})


def _versions(names: set[str]) -> dict[str, int]:
    """Return the current version of each stencil that still exists."""
    from tilewright.stencil.registry import stencil

    versions = {}
    for name in sorted(names):
        try:
            versions[name] = stencil(name).version
        except ValueError:  # of a newer Tilewright, or registered by a module not loaded here
            continue
    return versions


def _kernel(measurement: Measurement) -> tuple[Source | None, Callable[[int, int], Launch]]:
    """Return the source, if its arguments are the common ones, and the launches.

    Raises
    ------
    RuntimeError
        If its stencil or this config of it no longer exists.
    """
    from tilewright.reschedule.levels import baseline_and_level
    from tilewright.stencil import Variant
    from tilewright.stencil.registry import stencil

    config = measurement.config
    try:
        family = stencil(config.stencil)
        if family.version != measurement.stencil_version:
            sys.stderr.write(
                f"tilewright: measured with version {measurement.stencil_version} of "
                f"{config.stencil}; the file holds version {family.version}\n"
            )
        dialect: Any = measurement.backend
        baseline, _ = baseline_and_level(config)
        source = None
        if family.common_arguments(config):
            variant = Variant.of(measurement.problem)
            source = family.source(baseline, variant, dialect, measurement.mode)
    except (LookupError, ValueError) as problem:
        raise RuntimeError(f"the kernel cannot be made any more: {problem}") from problem
    return source, lambda m, n: family.launch(config, m, n)
