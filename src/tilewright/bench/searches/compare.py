"""Strategies on recorded spaces, a row for each pair: what `tilewright bench strategies` writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tilewright.bench.searches.kernel_tuner import STRATEGIES as PEERS
from tilewright.bench.searches.kernel_tuner import KernelTuner
from tilewright.bench.searches.score import budget_candidates, progress, score
from tilewright.tuning.budget import Budget
from tilewright.tuning.recorded import Recording
from tilewright.tuning.recorded.known import background_of
from tilewright.tuning.recorded.simulate import Trajectory, simulate
from tilewright.tuning.strategies import STRATEGIES

__all__ = ["PEER", "TAUGHT", "compared", "means", "names_of"]

PEER = "kernel_tuner "
"""What Kernel Tuner's strategies are named by, before their own name."""

TAUGHT = "learned with lessons"
"""The learned strategy with all other recordings of the same kernel as its lessons."""

# Shares of the optimum's speed of which rows say after how many candidates they were reached.
_SHARES = (0.95, 0.98, 0.99)

# Candidates after which rows say how far the best is from the optimum.
_AFTER = (10, 25, 50, 100, 200)

# Moments of the budget of which rows keep the standing.
_KEPT = 25


def names_of(asked: str) -> list[str]:
    """Return strategies by name: some with commas, ``all`` of ours, ``kernel_tuner`` for its own.

    Raises
    ------
    ValueError
        If there is none of a name.
    """
    ours = [name for name in STRATEGIES if name != "exhaustive"]
    groups = {"all": [*ours, TAUGHT], "kernel_tuner": [PEER + name for name in PEERS]}
    known = {*STRATEGIES, TAUGHT, *groups["kernel_tuner"]}
    found: dict[str, None] = {}
    for name in (part.strip() for part in asked.split(",")):
        if name not in groups and name not in known:
            raise ValueError(
                f"strategies={name!r} is none; use all, kernel_tuner, or some of {', '.join(ours)}"
            )
        found |= dict.fromkeys(groups.get(name, [name]))
    return list(found)


def compared(
    recordings: Sequence[Recording], names: Sequence[str], seeds: int, known: Sequence[Any] = ()
) -> Iterator[dict[str, Any]]:
    """Yield a row for each strategy and space; spaces inside.

    Parameters
    ----------
    recordings : sequence of Recording
        The spaces.
    names : sequence of str
        As `names_of` gives them.
    seeds : int
        Runs of each.
    known : sequence
        Rows of an earlier run, which are not made again.
    """
    done = {(row["strategy"], row["space"]) for row in known}
    peers: dict[str, KernelTuner] = {}
    for name in names:
        for recording in recordings:
            if (name, recording.name) in done:
                continue
            if name.startswith(PEER) and recording.name not in peers:
                peers[recording.name] = KernelTuner(recording)
            others = [one for one in recordings if one is not recording]
            yield _row(recording, name, seeds, others, peers)


def _row(
    recording: Recording,
    name: str,
    seeds: int,
    others: Sequence[Recording],
    peers: dict[str, KernelTuner],
) -> dict[str, Any]:
    """Return what a strategy did on a space."""
    end = budget_candidates(recording)
    most = min(len(recording), max(end, _AFTER[2]))
    known = background_of(recording, others if name == TAUGHT else ())
    ours = TAUGHT.split()[0] if name == TAUGHT else name
    runs = [
        peers[recording.name].run(name.removeprefix(PEER), seed, most)
        if name.startswith(PEER)
        else simulate(recording, ours, seed, Budget(candidates=most), background=known)
        for seed in range(seeds)
    ]
    away = {}
    for tries in _AFTER:
        if tries <= most:
            best = (run.best_so_far(recording)[:tries] for run in runs if len(run))
            away[str(tries)] = [float(one[-1] / recording.best) for one in best]
    moments, standing = progress(recording, runs)
    kept = np.linspace(0, len(moments) - 1, _KEPT).astype(int)
    return {
        "space": recording.name,
        "strategy": name,
        "seeds": seeds,
        "points": len(recording),
        "budget_candidates": end,
        "score": score(recording, runs),
        "score_over_seconds": score(recording, runs, clock=True),
        "thinking_seconds": float(np.mean([run.thinking.mean() for run in runs if len(run)])),
        "times_of_best": away,
        "candidates_until": {
            str(share): [_until(recording, run, share) for run in runs] for share in _SHARES
        },
        "moments": moments[kept].round(2).tolist(),
        "standing": standing[kept].round(4).tolist(),
    }


def _until(recording: Recording, run: Trajectory, share: float) -> int | None:
    """Return after how many candidates a run had that share of the optimum's speed."""
    reached = np.flatnonzero(run.best_so_far(recording) <= recording.best / share)
    return int(reached[0]) + 1 if len(reached) else None


def means(rows: Sequence[dict[str, Any]]) -> list[tuple[str, int, float, float, float, float]]:
    """Return for each strategy what its rows come to, the best mean score first.

    Returns
    -------
    list of tuple
        Name, spaces, mean scores over candidates and over seconds, median over spaces and runs of
        the best after 50 candidates as a multiple of the optimum, mean seconds that it thinks for
        a candidate.
    """
    found = []
    for name in dict.fromkeys(row["strategy"] for row in rows):
        own = [row for row in rows if row["strategy"] == name]
        away = [x for row in own for x in row["times_of_best"].get("50", [])] or [np.nan]
        tries, clock = (
            float(np.mean([row[key] for row in own])) for key in ("score", "score_over_seconds")
        )
        thinking = float(np.mean([row["thinking_seconds"] for row in own]))
        found.append((name, len(own), tries, clock, float(np.median(away)), thinking))
    return sorted(found, key=lambda line: -line[2])
