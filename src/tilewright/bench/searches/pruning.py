"""What pruning keeps of the best: a stencil's thresholds beside a model of other problems."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.space import Config
from tilewright.stencil import Variant
from tilewright.tuning.learned_space import KEPT
from tilewright.tuning.recorded import Recording
from tilewright.tuning.recorded.known import about_of, background_of, whole_config
from tilewright.tuning.strategies.base import Lesson
from tilewright.tuning.strategies.lessons import Experience
from tilewright.tuning.strategies.pool import Pool

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BEST", "pruned"]

BEST = 10
"""How many of the fastest points pruning should keep."""

# Parts of the configs: each is judged by a model that saw none of it, on any problem.
_FOLDS = 5


def pruned(recordings: Sequence[Recording]) -> Iterator[dict[str, Any]]:
    """Yield for each recorded space what stays of its ten fastest points.

    The model learns from the other recordings of the stencil: from all their configs, as a store
    would have them that was filled by one list of candidates; and, in a second row of numbers,
    only from configs other than those that it judges.

    Parameters
    ----------
    recordings : sequence of Recording
        Of our stencils, on devices of the catalogue; others are left out.
    """
    for recording in recordings:
        about = about_of(recording)
        others = [one for one in recordings if one is not recording]
        same = [one for one in others if one.space.stencil_name == recording.space.stencil_name]
        if about is None or not same:
            continue
        family, problem, spec = about
        configs = [whole_config(recording, one) for one in recording.space.configs]
        inside = np.array(family.space(Variant.of(problem), spec).contained(configs))
        timed = np.where(np.isfinite(recording.seconds), recording.seconds, np.inf)
        best = np.argsort(timed, kind="stable")[:BEST]
        known, alone = _scores(recording, same), _scores(recording, same, apart=True)
        size = int(inside.sum())
        yield {
            "space": recording.name,
            "points": len(recording),
            "thresholds": {
                "kept": size,
                "of_best": int(inside[best].sum()),
                "fastest_share": float(recording.best / timed[inside].min()) if size else 0.0,
            },
            **{
                f"{name}_{what}": _kept(scores, count, best, timed)
                for name, scores in (("learned", known), ("learned_apart", alone))
                for what, count in (("tenth", int(KEPT * len(recording))), ("as_many", size))
            },
        }


def _kept(
    scores: NDArray[np.float64], count: int, best: NDArray[np.intp], timed: NDArray[np.float64]
) -> dict[str, Any]:
    """Return how many of the best are among the `count` points that a model ranks first.

    And among how many all are, and what share of the fastest's speed those have that are not.
    """
    order = np.argsort(scores, kind="stable")
    first, places = order[:count], np.argsort(order)[best]
    return {
        "kept": count,
        "of_best": int((places < count).sum()),
        "fastest_share": float(timed.min() / timed[first].min()) if count else 0.0,
        "all_best_in": int(places.max()) + 1,
        "lost_shares": (timed.min() / timed[best[places >= count]]).round(4).tolist(),
    }


def _scores(
    recording: Recording, others: Sequence[Recording], *, apart: bool = False
) -> NDArray[np.float64]:
    """Return what a model of other recordings expects of each point."""
    background = background_of(recording, others)
    pool = Pool(recording.space, 0, background)
    lessons, everything = background.lessons(), np.arange(len(recording))
    if not apart:
        return Experience(lessons, pool, 0).scores(everything)
    part = np.array([_fold(one) for one in recording.space.configs])
    scores = np.zeros(len(recording))
    for fold in range(_FOLDS):
        judged = np.flatnonzero(part == fold)
        if len(judged):
            scores[judged] = Experience([_without(x, fold) for x in lessons], pool, 0).scores(
                judged
            )
    return scores


def _fold(config: Config) -> int:
    """Return a config's part; the same on every problem, whatever does not vary there."""
    text = "".join(str(config.get(name)) for name in ("block_m", "block_n", "block_k", "stages"))
    return sum(text.encode()) % _FOLDS


def _without(lesson: Lesson, fold: int) -> Lesson:
    rows = np.array([at for at, one in enumerate(lesson.configs) if _fold(one) != fold], np.intp)
    kept = [lesson.configs[at] for at in rows.tolist()]
    return Lesson(kept, np.asarray(lesson.seconds)[rows], lesson.features[rows])
