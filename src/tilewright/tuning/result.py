"""What a tuning run says while it runs, and what it found."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.tuning.measurement import Measurement
from tilewright.tuning.runner import Spent

__all__ = ["Progress", "TuningResult"]


@dataclass(frozen=True)
class Progress:
    """Where a tuning run stands.

    Parameters
    ----------
    stage : str
        ``"search"``, ``"final"`` or ``"certify"``.
    tried, failed : int
        Candidates of this run that ended, and those of them that failed.
    best : Measurement or None
        The fastest right candidate so far, stored ones included.
    elapsed, budget : float
        Seconds.
    places : dict
        On a cluster the candidates of each worker, by its name.
    """

    stage: str
    tried: int
    failed: int
    best: Measurement | None
    elapsed: float
    budget: float
    places: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class TuningResult:
    """What a tuning run found.

    Parameters
    ----------
    winner : Measurement
        The fastest candidate of the final race that passed every check.
    finalists : tuple of Measurement
        All that raced, fastest first.
    tried, failed : int
        Candidates of this run.
    resumed : int
        Candidates of earlier runs that this one started from.
    seconds : float
        How long the run took.
    search_seconds : float
        How long it searched: without the race and the certificate.
    served : Measurement or None
        The fastest that `gemm` may use: the winner, unless that is rescheduled code which
        nobody has proved on such a device.
    noise : tuple of str
        What makes the final race's times doubtful, a line each; nothing on a quiet machine.
    spent : Spent or None
        Where the search's time went.
    """

    winner: Measurement
    finalists: tuple[Measurement, ...]
    tried: int
    failed: int
    resumed: int
    seconds: float
    search_seconds: float
    served: Measurement | None = None
    noise: tuple[str, ...] = ()
    spent: Spent | None = None

    @property
    def candidates_per_second(self) -> float:
        """The tuner's throughput while it searched, from its workers' start on."""
        return self.tried / self.search_seconds
