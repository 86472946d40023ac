"""One device's part of a sweep: what is known is kept, what fails is a row with a reason."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from tilewright.backend import BackendError, DeviceLostError, LiveDevice
from tilewright.bench.bounded import bound_of, bound_record
from tilewright.bench.document import Document, find_row, is_complete, options_record
from tilewright.bench.peers import Peer, UnavailableError, peer
from tilewright.bench.profile import ProfileError, Profiler
from tilewright.bench.record import row_record
from tilewright.bench.sweep import Method, sweep
from tilewright.problem import Problem
from tilewright.tuning.tuner import TuningError, check_memory, tune

__all__ = ["Session", "peers_for"]

# What may go wrong with one problem and leave the others a chance.
_FAILURES = (BackendError, TuningError, UnavailableError, MemoryError, ValueError)


def peers_for(
    names: Sequence[str], devices: Sequence[LiveDevice]
) -> list[tuple[list[Peer], dict[str, str]]]:
    """Return, for each device, its peers and why others do not serve it.

    Raises
    ------
    ValueError
        If there is no peer of a name.
    UnavailableError
        If a peer serves none of the devices.
    """
    found: list[tuple[list[Peer], dict[str, str]]] = []
    for live in devices:
        peers, missing = [], {}
        for name in names:
            try:
                peers.append(peer(name, live))
            except UnavailableError as reason:
                missing[name] = str(reason)
        found.append((peers, missing))
    for name in names:
        if all(name in missing for _, missing in found):
            raise UnavailableError(found[0][1][name])
    return found


class Session:
    """Measures problems on one device into a document.

    Parameters
    ----------
    document : Document
        Where rows go; it is saved after each.
    live : LiveDevice
        The device.
    peers : sequence of Peer
        Whom we are timed beside.
    missing : dict
        Why others are not.
    method : Method
        How times are taken.
    budget : str, optional
        Tune each problem first, for so long.
    profiler : Profiler, optional
        Counts what limits each product.

    Attributes
    ----------
    failures : list of str
        One line for each thing that went wrong.
    """

    def __init__(
        self,
        document: Document,
        live: LiveDevice,
        peers: Sequence[Peer],
        missing: dict[str, str],
        method: Method,
        budget: str | None = None,
        profiler: Profiler | None = None,
    ) -> None:
        self.live, self.peers = live, peers
        self.failures: list[str] = []
        self._document, self._method, self._budget = document, method, budget
        self._missing, self._profiler = missing, profiler
        self._device = document.device(live, peers)
        self._options = options_record(method, peers, budget, profile=profiler is not None)

    def known(self, problem: Problem) -> dict[str, Any] | None:
        """Return the row that an earlier run has left for a problem, if nothing in it failed."""
        row = find_row(self._device, row_record(problem, None, {}), self._options)
        return row if row is not None and is_complete(row) else None

    def measure(self, problem: Problem) -> dict[str, Any]:
        """Measure a problem, store its row and return it.

        Raises
        ------
        DeviceLostError
            If the device can do no more in this process.
        """
        extra: dict[str, Any] = {
            "options": self._options,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        try:
            row = self._measured(problem, extra)
        except _FAILURES as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            row = row_record(problem, None, extra | {"error": reason})
            self.failures.append(f"{problem} on {self.live.id}: {reason}")
            self._store(problem, row)
            if isinstance(error, DeviceLostError):
                raise
        self._store(problem, row)
        return row

    def _measured(self, problem: Problem, extra: dict[str, Any]) -> dict[str, Any]:
        check_memory(problem, self.live)
        if self._budget:
            extra = extra | self._tuned(problem, self._budget)
        (row,) = sweep(self.live, [problem], self.peers, self._method)
        row.missing.update(self._missing)
        limit = bound_of(self.live, problem, warm_cache=self._method.cache == "warm")
        record = row_record(problem, row, extra | {"bound": bound_record(limit)})
        if self._options["profile"]:
            # The times are worth keeping whatever becomes of the counters.
            self._store(problem, record | {"profile": {"error": "interrupted"}})
            names = [one.name for one in self.peers if one.name in row.seconds and not one.on_host]
            try:
                assert self._profiler is not None
                record["profile"] = self._profiler.profile(problem, row.choice, names)
            except ProfileError as error:
                record["profile"] = {"error": str(error)}
            self._note_profile(record["profile"])
        return record

    def _note_profile(self, profile: dict[str, Any]) -> None:
        """Remember what Nsight Compute refused, the same reason once."""
        reasons = [profile.get("error")]
        reasons += [one.get("error") for one in profile.get("libraries", {}).values()]
        for reason in reasons:
            if reason and reason not in self.failures:
                self.failures.append(reason)

    def _tuned(self, problem: Problem, budget: str) -> dict[str, Any]:
        result = tune(problem, self.live, budget=budget)
        names = ("tried", "failed", "resumed", "candidates_per_second")
        told = {name: getattr(result, name) for name in names}
        return {"tuning": told | {"eta": result.winner.error}}

    def _store(self, problem: Problem, row: dict[str, Any]) -> None:
        """Put a row in the place of an earlier one that failed, or at the end; save."""
        rows = self._device["results"]
        earlier = find_row(self._device, row_record(problem, None, {}), self._options)
        if earlier is None:
            rows.append(row)
        else:
            rows[rows.index(earlier)] = row
        self._document.save()
