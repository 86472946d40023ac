"""``tilewright bench strategies FILE...`` and ``bench pruning FILE...``: on recorded spaces."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli.output import SEARCHES, JsonOption, emit_json, emit_lines, output_option, say

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["command", "pruning", "show"]


def _row(second: str) -> bytes:
    """Return what rows begin with whose second entry is of a name, or that there are none."""
    return rb'\s*(\]|\{"space": "(\\.|[^"\\])*", "%s")' % second.encode()


def command(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="T4 results, or Kernel Tuner's caches.")
    ],
    strategies: Annotated[
        str,
        typer.Option(
            "--strategies",
            help="With commas; all: ours, also learned with lessons, which are the other"
            " recordings; kernel_tuner: all of Kernel Tuner's.",
        ),
    ] = "all",
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Runs of each.")] = 5,
    output: Annotated[
        Path | None,
        output_option(
            "JSON file to write, and to go on from where it is.", SEARCHES + _row("strategy")
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Compare strategies over their budget against random search, on recorded spaces.

    No device is needed.  0 is what random search is expected to have at each moment, 1 the
    optimum; the mean over the budget is the score.
    """
    from tilewright.bench.record import environment_record
    from tilewright.bench.searches.compare import compared, names_of
    from tilewright.paths import write_atomically
    from tilewright.tuning.recorded import read_recordings

    document = _earlier(output) or {"environment": environment_record(), "results": []}
    rows = document["results"]
    recordings = [one for file in files for one in read_recordings(file)]
    for row in compared(recordings, names_of(strategies), seeds, rows):
        rows.append(row)
        if output is not None:
            write_atomically(output, _text(document))
        if not json:
            say(f"{row['strategy']}, {row['space']}: {row['score']:.3f}")
    if json:
        emit_json(document)
    else:
        show(rows)


def pruning(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Recorded spaces of our stencils.")
    ],
    output: Annotated[
        Path | None, output_option("JSON file to write.", SEARCHES + _row("points"))
    ] = None,
    json: JsonOption = False,
) -> None:
    """Say how many of the ten fastest points pruning keeps: by thresholds, and learned.

    What is learned comes from the other recordings that are given, never from the one judged.
    """
    from tilewright.bench.record import environment_record
    from tilewright.bench.searches.pruning import pruned
    from tilewright.paths import write_atomically
    from tilewright.tuning.recorded import read_recordings

    found = list(pruned([one for file in files for one in read_recordings(file)]))
    document = {"environment": environment_record(), "results": found}
    if output is not None:
        write_atomically(output, _text(document))
    if json:
        emit_json(document)
        return
    parts = ("thresholds", "learned_tenth", "learned_as_many", "learned_apart_tenth")
    lines = [
        (row["space"], row["points"],
         *(f"{row[part]['of_best']} of {row[part]['kept']}" for part in parts))
        for row in found
    ]  # fmt: skip
    heads = ("space", "points", *(part.replace("_", " ") for part in parts))
    emit_lines(heads, lines, title="Of the ten fastest, kept among so many")


def _earlier(path: Path | None) -> dict[str, Any] | None:
    """Return the document that a run before left, if there is one."""
    import json

    if path is None or not (path.exists() and path.stat().st_size):
        return None
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def _text(document: dict[str, Any]) -> bytes:
    import json

    head = json.dumps({**document, "results": []}, indent=1).removesuffix("[]\n}")
    rows = ",\n".join("  " + json.dumps(row) for row in document["results"])
    return f"{head}[\n{rows}\n ]\n}}\n".encode()


def show(rows: Sequence[dict[str, Any]]) -> None:
    """Print what strategies come to, the best first."""
    from tilewright.bench.searches.compare import means

    heads = (
        "strategy", "spaces", "score", "score over seconds", "best after 50 / optimum",
        "thinking a candidate",
    )  # fmt: skip
    emit_lines(
        heads,
        [
            (name, spaces, f"{tries:.3f}", f"{clock:.3f}", f"{away:.3f}", f"{1e3 * thought:.1f} ms")
            for name, spaces, tries, clock, away, thought in means(rows)
        ],
        title="Strategies on recorded spaces",
    )
