"""Recording: a recorded space with what each of its points took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.space import Config
from tilewright.tuning.recorded.space import RecordedSpace

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Recording"]


@dataclass(frozen=True)
class Recording:
    """One kernel's space on one problem and one device.

    Parameters
    ----------
    name : str
        For people: the file's, and what tells its recordings apart.
    space : RecordedSpace
        The points.
    seconds : ndarray, shape (points,)
        What each took; NaN where it failed.
    cost : ndarray, shape (points,)
        Seconds that trying it took: compiling, checking, all runs; NaN where nobody wrote it down.
    reasons : tuple of str, length points
        Why it failed, in the file's words; empty where it did not.
    features : Mapping of str to ndarray, each of shape (points,)
        What else the file says of each point, such as the registers of its machine code; NaN where
        nothing.
    about : Mapping
        What it is of: ``device``; ``fixed``, the parameters that have one value; and of our own
        files ``problem``, as in their records.
    """

    name: str
    space: RecordedSpace
    seconds: NDArray[np.float64]
    cost: NDArray[np.float64]
    reasons: tuple[str, ...] = ()
    features: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.seconds)

    @property
    def best(self) -> float:
        """The least of `seconds`."""
        return float(np.nanmin(self.seconds))

    @cached_property
    def sorted_seconds(self) -> NDArray[np.float64]:
        """What points took that did not fail, fastest first."""
        return np.sort(self.seconds[np.isfinite(self.seconds)])

    @cached_property
    def typical_cost(self) -> float:
        """Median seconds of trying a point; a second where nobody wrote it down."""
        known = self.cost[np.isfinite(self.cost)]
        return float(np.median(known)) if len(known) else 1.0

    def tried(self, config: Config) -> float | None:
        """Return what a config took in seconds; None where it failed."""
        seconds = float(self.seconds[self.space.row(config)])
        return seconds if np.isfinite(seconds) else None
