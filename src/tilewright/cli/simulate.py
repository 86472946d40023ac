"""``tilewright tune --simulate FILE``: a strategy on a recorded space, without a device."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.cli.output import emit_json, emit_lines, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilewright.tuning.recorded import Recording
    from tilewright.tuning.recorded.simulate import Trajectory

__all__ = ["simulated"]


def simulated(
    file: Path, lessons: Sequence[Path], *, strategy: str | None, budget: str, seed: int, json: bool
) -> None:
    """Run a strategy on each recorded space of a file, and print what it would have found.

    Raises
    ------
    ValueError
        If a file is no recorded space, or the strategy or the budget none.
    """
    from tilewright.tuning.budget import budget_of
    from tilewright.tuning.recorded import read_recordings
    from tilewright.tuning.recorded.known import background_of
    from tilewright.tuning.recorded.simulate import simulate
    from tilewright.tuning.strategies import usual_strategy

    strategy = usual_strategy() if strategy is None else strategy
    recordings = read_recordings(file)
    taught = [one for path in lessons for one in read_recordings(path)]
    found = []
    for one in recordings:
        # Of the file that is searched, the other problems teach where it is among the lessons.
        others = [other for other in taught if (other.name, other.about) != (one.name, one.about)]
        known = background_of(one, others)
        run = simulate(one, strategy, seed, budget_of(budget), background=known)
        found.append(_plain(one, run))
        if not json:
            _describe(one, run)
    if json:
        emit_json(found)


def _plain(recording: Recording, run: Trajectory) -> dict[str, Any]:
    best = run.best_so_far(recording)
    return {
        "space": recording.name,
        "points": len(recording),
        "optimum_seconds": recording.best,
        "tried": [dict(recording.space.configs[row]) for row in run.rows.tolist()],
        "best_seconds": [float(x) if x < float("inf") else None for x in best],
        "spent_seconds": run.spent(recording).round(4).tolist(),
    }


def _describe(recording: Recording, run: Trajectory) -> None:
    """Print where the best so far got better."""
    best, spent = run.best_so_far(recording), run.spent(recording)
    if not len(run):
        say(f"{recording.name}: the budget allowed no candidate")
        return
    better = [at for at in range(len(run)) if at == 0 or best[at] < best[at - 1]]
    lines = [
        (at + 1, f"{spent[at]:.1f} s", f"{1e3 * best[at]:.4g} ms",
         f"{100 * recording.best / best[at]:.1f} %")
        for at in better
    ]  # fmt: skip
    heads = ("candidate", "after", "best so far", "of the optimum's speed")
    emit_lines(heads, lines, title=f"{recording.name}, {len(recording)} points")
    say(f"{len(run)} candidates in {spent[-1]:.1f} s; {run.thinking.sum():.1f} s were the search's")
