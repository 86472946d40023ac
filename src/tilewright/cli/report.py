"""``tilewright report``: one HTML file that shows everything that was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tilewright.cli.output import PAGE, JsonOption, emit_json, output_option, progress_bar, say
from tilewright.paths import data_dir

__all__ = ["RESULTS", "command", "own_results", "write_report"]

# Where `tilewright bench -o` and the scripts in benchmarks/ write, from a checkout's root.
RESULTS = Path("benchmarks") / "results"


def own_results() -> Path:
    """Return the folder of what commands measure beside the store: it belongs to the user."""
    return data_dir() / "results"


def command(
    output: Annotated[Path, output_option("HTML file to write.", PAGE)] = Path("report.html"),
    results: Annotated[
        Path | None,
        typer.Option(
            "--results", help="Folder of results files; by default benchmarks/results and your own."
        ),
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", help="A device's fingerprint or part of its name.")
    ] = None,
    store: Annotated[
        Path | None, typer.Option("--store", help="The store's file; your own by default.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Write one self-contained HTML file from the store and the results files."""
    if results is not None and not results.is_dir():
        raise ValueError(f"results={str(results)!r} is no folder; name one that holds JSON files")
    facts = write_report(output, results, device, store, quiet=json)
    if json:
        emit_json(facts)
        return
    empty = [one["title"] for one in facts["sections"] if not one["figures"] + one["tables"]]
    if empty:
        say(f"no data yet for: {', '.join(empty)}; the report says which command makes it")
    say(f"written to {output}")


def write_report(
    output: Path,
    results: Path | None = None,
    device: str | None = None,
    store: Path | None = None,
    *,
    quiet: bool = False,
) -> dict[str, Any]:
    """Write the report and return what is in it.

    Parameters
    ----------
    output : Path
        The HTML file, which is replaced as a whole.
    results : Path, optional
        Folder of results files; `RESULTS` where that exists, and `own_results`.
    device : str, optional
        Only devices with this fingerprint or part of a name.
    store : Path, optional
        The store's file, which must exist; the user's own by default.
    quiet : bool
        No progress bar.
    """
    from tilewright.backend import devices
    from tilewright.paths import write_atomically
    from tilewright.report import gather, make_page, make_sections
    from tilewright.tuning.store import Store

    folders = [own_results(), RESULTS] if results is None else [results]
    with progress_bar(quiet=quiet) as bar:
        task = bar.add_task("reading", total=None)
        with Store(store, create=store is None) as opened:
            data = gather(opened, folders, devices(), device)
        sections = make_sections(data)
        bar.update(task, description="drawing", total=sum(len(s.figures) for s in sections))
        page = make_page(sections, data.newest, lambda _: bar.advance(task))
    write_atomically(output, page.encode())
    return {
        "file": str(output),
        "bytes": len(page.encode()),
        "newest": data.newest,
        "sections": [
            {"id": s.id, "title": s.title, "tables": len(s.tables), "figures": len(s.figures)}
            for s in sections
        ],
        "left_out": data.results.left_out,
    }
