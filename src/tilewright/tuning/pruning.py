"""Pruning: which measurements may go, and what stands in for them."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Pruned", "prune", "stale_condition"]

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
    dry_run : bool
        Whether nothing was touched.
    """

    removed: int
    spared: int
    groups: tuple[tuple[str, str, int, int], ...]
    dry_run: bool


def stale_condition(versions: Mapping[str, int]) -> tuple[str, tuple[str | int, ...]]:
    """Return a condition that a row is of an older version of its stencil."""
    clauses = " OR ".join(["stencil = ? AND version < ?"] * len(versions)) or "0"
    return f"({clauses})", tuple(part for item in versions.items() for part in item)


def prune(
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
    return Pruned(removed, met - removed, groups, dry_run)


def _drop_unused(connection: sqlite3.Connection) -> None:
    """Remove shared rows that no measurement points at any more."""
    for table in ("device", "problem", "config", "environment"):
        connection.execute(
            f"DELETE FROM {table} WHERE id NOT IN (SELECT {table}_id FROM measurement)"  # noqa: S608
        )
