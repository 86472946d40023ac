"""Store: every measurement ever taken, in one SQLite file.

A measurement is committed the moment it is added, so killing the process loses at
most the one in flight.  Several processes may add to one store at once.  Nothing in
it is executable: numbers, text and JSON.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar, Unpack

from tilewright.problem import Problem
from tilewright.tuning.database import StoreError, connect, default_path, translated
from tilewright.tuning.measurement import Measurement, Status
from tilewright.tuning.record import problem_from_json
from tilewright.tuning.rows import Filters, condition, insert, is_stored, measurement_of

T = TypeVar("T")

__all__ = ["Filters", "Pruned", "Store", "StoreError", "Summary", "default_path"]

# What reading a row raises that none of our versions wrote: of other types, or too large a number.
_DAMAGE = (
    AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError,
)  # fmt: skip

# Rows fetched at a time: memory stays constant, and no read transaction stays open
# between pages, which would keep the write-ahead log from being folded in.
_PAGE = 256

# Winners numbered from the fastest, for every device and problem size: a hasty later run
# must not displace a better kernel.  Rescheduled ones are numbered apart: where they may not
# run, the compiler's own code serves.
_FASTEST_WINNERS = """
    SELECT id, row_number() OVER (
        PARTITION BY device, backend, m, n, k, precision, trans_a, trans_b,
            json_extract(parameters, '$.schedule') IS NULL
        ORDER BY median_ns, id) AS place
    FROM result WHERE stage = 'winner' AND status = 'ok'
"""


@dataclass(frozen=True)
class Summary:
    """What a store knows of one problem on one device.

    Parameters
    ----------
    device, device_name, backend : str
        Fingerprint, words, and backend.
    problem : Problem
        What was tuned.
    ok, failed : int
        Measurements that succeeded and that did not.
    newest : str
        When the last of them was taken, ISO time in UTC.
    winner : Measurement or None
        The fastest verified winner.
    """

    device: str
    device_name: str
    backend: str
    problem: Problem
    ok: int
    failed: int
    newest: str
    winner: Measurement | None


@dataclass(frozen=True)
class Pruned:
    """What pruning removed or, in a dry run, would remove.

    Parameters
    ----------
    removed : int
        Measurements.
    spared : int
        Winners that met the criteria and were kept.
    groups : tuple
        ``(device_name, stencil, version, measurements)`` of what was removed.
    """

    removed: int
    spared: int
    groups: tuple[tuple[str, str, int, int], ...]


class Store:
    """Measurements in a SQLite file.

    Parameters
    ----------
    path : path-like, optional
        The file; by default ``results.sqlite`` in the user's data directory.
    create : bool
        Whether to make a file that does not exist.

    Raises
    ------
    StoreError
        Here and from every method: the file is damaged, not a store, newer than
        this program, or locked for too long.  The message is one line.

    Notes
    -----
    Threads of one process may share a store; a process that forks must open its
    own.  Close it, or use it as a context manager.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, create: bool = True) -> None:
        self.path = default_path() if path is None else Path(path).expanduser()
        self._lock = threading.RLock()
        self._connection = connect(self.path, create)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; closing twice does no harm."""
        with self._lock:
            self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Commit what happens inside, or none of it."""
        with self._lock, translated(self.path):
            # IMMEDIATE: a transaction that starts by reading cannot wait for a
            # writer when it comes to write.
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def _all(self, sql: str, values: Collection[Any] = ()) -> list[sqlite3.Row]:
        """Return the rows of a query that has few."""
        with self._lock, translated(self.path):
            return self._connection.execute(sql, tuple(values)).fetchall()

    def _read(self, kind: Callable[[sqlite3.Row], T], row: sqlite3.Row) -> T:
        """Return what a row means; what none of our versions wrote there is damage."""
        try:
            return kind(row)
        except _DAMAGE as problem:
            raise StoreError(
                f"store {self.path} is damaged ({problem}); move it away or put a copy back"
            ) from problem

    def _measured(self, row: sqlite3.Row) -> Measurement:
        return self._read(measurement_of, row)

    # ----------------------------------------------------------------- adding

    def add(self, measurement: Measurement) -> int:
        """Commit a measurement and return its id; one already stored keeps its id."""
        with self._transaction() as connection:
            return insert(connection, measurement)[0]

    def add_imported(self, measurements: Iterable[Measurement]) -> int:
        """Commit what came from a file, all or none of it; return how much was new.

        It is marked, and tuning measures it anew.  What was measured here and comes back is here
        already.
        """
        with self._transaction() as connection:
            return sum(
                insert(connection, one.imported())[1]
                for one in measurements
                if not is_stored(connection, one)
            )

    # ---------------------------------------------------------------- reading

    def get(self, id: int) -> Measurement:
        """Return the measurement with an id.

        Raises
        ------
        StoreError
            If there is none.
        """
        rows = self._all("SELECT * FROM result WHERE id = ?", (id,)) if abs(id) < 2**63 else []
        if not rows:
            raise StoreError(f"store {self.path} has no measurement {id}; see: tilewright db list")
        return self._measured(rows[0])

    def query(
        self, *, newest_first: bool = False, limit: int | None = None, **filters: Unpack[Filters]
    ) -> Iterator[Measurement]:
        """Yield the measurements that meet every filter, in the order they were added.

        Memory stays constant.  What other processes add meanwhile may or may not
        be seen.

        Parameters
        ----------
        newest_first : bool
            Reverse the order.
        limit : int, optional
            Stop after so many.
        **filters
            See `Filters`.
        """
        where, values = condition(filters)
        order, beyond = ("DESC", "<") if newest_first else ("ASC", ">")
        last = 2**63 - 1 if newest_first else 0
        left = 2**63 - 1 if limit is None else limit
        while left > 0:
            sql = (
                f"SELECT * FROM result WHERE id {beyond} ? AND {where} "  # noqa: S608
                f"ORDER BY id {order} LIMIT ?"
            )
            rows = self._all(sql, (last, *values, min(left, _PAGE)))
            for row in rows:
                yield self._measured(row)
            if len(rows) < min(left, _PAGE):
                return
            left -= len(rows)
            last = rows[-1]["id"]

    def count(self, **filters: Unpack[Filters]) -> int:
        """Return how many measurements meet every filter."""
        where, values = condition(filters)
        return int(self._all(f"SELECT count(*) FROM result WHERE {where}", values)[0][0])  # noqa: S608

    def configs(self, prefix: str) -> list[Measurement]:
        """Return what was measured of configs whose id begins so, the newest of each variant."""
        sql = """
            SELECT * FROM result WHERE id IN (
                SELECT max(id) FROM result WHERE substr(config, 1, ?) = ?
                GROUP BY stencil, config, precision, trans_a, trans_b)
            ORDER BY id DESC"""
        return [self._measured(row) for row in self._all(sql, (len(prefix), prefix.lower()))]

    def devices(self) -> dict[str, str]:
        """Return the devices that were measured: their names by fingerprint."""
        rows = self._all("SELECT DISTINCT fingerprint, name FROM device ORDER BY name")
        return {row["fingerprint"]: row["name"] for row in rows}

    def stencils(self) -> set[str]:
        """Return the names of the stencils that were measured."""
        return {row[0] for row in self._all("SELECT DISTINCT stencil FROM config")}

    def summaries(self, **filters: Unpack[Filters]) -> list[Summary]:
        """Return one summary for each device and problem, the newest first."""
        where, values = condition(filters)
        rows = self._all(
            f"""SELECT *, max(created) AS newest, sum(status = 'ok') AS ok,
                       sum(status <> 'ok') AS failed
                FROM result WHERE {where} GROUP BY device_id, problem_id
                ORDER BY newest DESC, id DESC""",  # noqa: S608
            values,
        )
        return [self._summary(row) for row in rows]

    def _summary(self, row: sqlite3.Row) -> Summary:
        """Return the summary of a device and problem, with its winner looked up."""
        winner = self._all(
            """SELECT * FROM result WHERE device_id = ? AND problem_id = ?
               AND stage = 'winner' AND status = 'ok' ORDER BY median_ns, id LIMIT 1""",
            (row["device_id"], row["problem_id"]),
        )
        return Summary(
            device=row["device"],
            device_name=row["device_name"],
            backend=row["backend"],
            problem=self._read(problem_from_json, row),
            ok=row["ok"],
            failed=row["failed"],
            newest=row["newest"],
            winner=self._measured(winner[0]) if winner else None,
        )

    # --------------------------------------------------------------- removing

    def prune(
        self,
        *,
        older_than: datetime | None = None,
        current_versions: Mapping[str, int] | None = None,
        device: str | Collection[str] | None = None,
        failed: bool = False,
        winners: bool = False,
        dry_run: bool = False,
    ) -> Pruned:
        """Remove measurements that meet every criterion given.

        The fastest winner of each device and problem is kept unless `winners` is
        true: it is what ``gemm`` runs.

        Parameters
        ----------
        older_than : datetime, optional
            Taken before this moment.
        current_versions : Mapping, optional
            Current version of each stencil by name: meets results of an older one.
        device : str or collection of str, optional
            Fingerprints.
        failed : bool
            Of candidates that failed: they may be tried again.
        winners : bool
            Remove winners too.
        dry_run : bool
            Only say what would be removed.

        Raises
        ------
        ValueError
            If no criterion is given.
        """
        if older_than is None and current_versions is None and device is None and not failed:
            raise ValueError(
                "prune needs a criterion: an age, stale versions, failures or a device"
            )
        filters: Filters = {}
        if failed:
            filters["status"] = [one for one in Status if one is not Status.OK]
        if older_than is not None:
            filters["created_before"] = older_than
        if device is not None:
            filters["device"] = device
        where, values = condition(filters)
        if current_versions is not None:
            stale, more = _stale(current_versions)
            where, values = f"{where} AND {stale}", (*values, *more)
        with self._transaction() as connection:
            pruned = _prune(connection, where, values, winners=winners, dry_run=dry_run)
        if not dry_run:
            with self._lock, translated(self.path):
                self._connection.execute("PRAGMA incremental_vacuum").fetchall()
        return pruned


def _stale(versions: Mapping[str, int]) -> tuple[str, tuple[str | int, ...]]:
    """Return a condition that a row is of an older version of its stencil."""
    clauses = " OR ".join(["stencil = ? AND version < ?"] * len(versions)) or "0"
    return f"({clauses})", tuple(part for item in versions.items() for part in item)


def _prune(
    connection: sqlite3.Connection,
    where: str,
    values: Collection[Any],
    *,
    winners: bool,
    dry_run: bool,
) -> Pruned:
    """Remove the rows that meet a condition, inside the caller's transaction."""
    connection.execute("CREATE TEMP TABLE doomed (id INTEGER PRIMARY KEY)")
    met = connection.execute(
        f"INSERT INTO doomed SELECT id FROM result WHERE {where}",  # noqa: S608
        tuple(values),
    ).rowcount
    if not winners:
        connection.execute(
            f"DELETE FROM doomed WHERE id IN (SELECT id FROM ({_FASTEST_WINNERS}) WHERE place = 1)"  # noqa: S608
        )
    rows = connection.execute(
        """SELECT device_name, stencil, version, count(*) AS measurements FROM result
           WHERE id IN (SELECT id FROM doomed)
           GROUP BY device_name, stencil, version ORDER BY device_name, stencil, version"""
    ).fetchall()
    if not dry_run:
        connection.execute("DELETE FROM measurement WHERE id IN (SELECT id FROM doomed)")
        _drop_unused(connection)
    connection.execute("DROP TABLE doomed")
    groups = tuple(
        (row["device_name"], row["stencil"], row["version"], row["measurements"]) for row in rows
    )
    removed = sum(group[3] for group in groups)
    return Pruned(removed, met - removed, groups)


def _drop_unused(connection: sqlite3.Connection) -> None:
    """Remove shared rows that no measurement points at any more."""
    for table in ("device", "problem", "config", "environment"):
        connection.execute(
            f"DELETE FROM {table} WHERE id NOT IN (SELECT {table}_id FROM measurement)"  # noqa: S608
        )
