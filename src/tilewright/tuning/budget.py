"""Budget: when a search ends, in seconds, in candidates, or where nothing gets better any more."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from tilewright.space import Config
from tilewright.tuning.strategies.base import Strategy

__all__ = ["Budget", "Within", "budget_of", "seconds_of"]

_WORDS = re.compile(r"([1-9]\d*)\s*candidates?|converged(?:\s+([1-9]\d*))?")

# Candidates in a row that improve nothing before a search counts as converged, where none are
# given: after so many random search improves with a chance of 1 in 100 at most.
PATIENCE = 100


@dataclass(frozen=True)
class Budget:
    """When a search ends: at whichever comes first.

    Parameters
    ----------
    seconds : float
        Of the clock.
    candidates : int or None
        Tried.
    patience : float
        Candidates in a row that improve nothing.
    """

    seconds: float = math.inf
    candidates: int | None = None
    patience: float = math.inf


def seconds_of(budget: str | float, name: str = "budget") -> float:
    """Return a duration in seconds.

    Parameters
    ----------
    budget : str or float
        Seconds, or a number with ``s``, ``m`` or ``h``, such as ``"120s"``.
    name : str
        The argument that it is of, for the error.

    Raises
    ------
    ValueError
        If it is not a positive duration.
    """
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    text = str(budget).strip().lower()
    scale = units.get(text[-1:], 0.0)
    try:
        seconds = float(text[:-1]) * scale if scale else float(text)
    except ValueError:
        seconds = float("nan")
    if not 0 < seconds < float("inf"):
        raise ValueError(f"{name}={budget!r} is not a duration; write it like 90s, 10m or 2h")
    return seconds


def budget_of(text: str | float) -> Budget:
    """Return a budget as it is written: ``90s``, ``10m``, ``500 candidates``, ``converged``.

    Several with commas end at whichever comes first; ``converged 50`` ends after 50 candidates
    in a row that improve nothing.

    Raises
    ------
    ValueError
        If a part is none of these.
    """
    budget = Budget()
    for part in str(text).lower().split(","):
        words = _WORDS.fullmatch(part.strip())
        if words is not None and words[1]:
            budget = replace(budget, candidates=int(words[1]))
        elif words is not None:
            budget = replace(budget, patience=float(words[2] or PATIENCE))
        else:
            try:
                budget = replace(budget, seconds=seconds_of(part))
            except ValueError:
                raise ValueError(
                    f"budget={text!r} is not a duration or a number of candidates; write it like"
                    " 90s, 10m, 500 candidates or converged, several with commas"
                ) from None
    return budget


class Within(Strategy):
    """A strategy that proposes no more once a budget's candidates, or its patience, are spent.

    Parameters
    ----------
    inner : Strategy
        Proposes, and learns every time.
    budget : Budget
        Its seconds are the tuner's concern.
    """

    def __init__(self, inner: Strategy, budget: Budget) -> None:
        super().__init__(inner.space, inner.seed, inner.start)
        self._inner, self._budget = inner, budget
        self._mine: set[Config] = set()
        self._best = math.inf
        self._since = 0

    def propose(self) -> Config | None:
        """Return what the strategy proposes, while the budget lasts."""
        spent = self._budget.candidates is not None and len(self._mine) >= self._budget.candidates
        if spent or self._since >= self._budget.patience:
            return None
        found = self._inner.propose()
        if found is not None:
            self._mine.add(found)
        return found

    def observe(self, config: Config, seconds: float | None) -> None:
        """Learn a time, and count where it was proposed here and improved nothing."""
        self._inner.observe(config, seconds)
        better = seconds is not None and seconds < self._best
        if better:
            self._best, self._since = float(seconds or 0.0), 0
        elif config in self._mine:
            self._since += 1
