"""Rows: a measurement into the store's tables and out of them, and what can be asked.

Every value goes to SQLite as a parameter; only names written in this file become SQL.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any, TypedDict

from tilewright.precision import Precision, precision
from tilewright.problem import Problem, pair_of
from tilewright.space.aliases import oldest
from tilewright.stencil.stored import config_and_mode
from tilewright.tuning.measurement import Measurement, Stage, Status
from tilewright.tuning.record import digest, problem_from_json, problem_to_json

__all__ = ["Filters", "condition", "insert", "is_stored", "measurement_of"]


class Filters(TypedDict, total=False):
    """What a query may ask for; a collection means any of its members.

    ``device`` is a fingerprint, ``config`` a config's id, ``trans`` a letter pair
    such as ``"NT"``, ``problem`` must match in leading dimensions too.
    """

    device: str | Collection[str]
    backend: str
    precision: str | Precision
    trans: str
    problem: Problem
    stencil: str
    version: int
    config: str
    status: str | Collection[str]
    stage: str | Collection[str]
    created_before: datetime


def condition(filters: Filters) -> tuple[str, tuple[Any, ...]]:
    """Return a condition on the view ``result`` and the values for its marks.

    Raises
    ------
    ValueError
        If a letter names no precision or transpose, or `created_before` has no
        time zone.
    """
    given: Mapping[str, Any] = filters
    clauses: list[str] = ["1"]
    values: list[Any] = []
    for name in ("device", "status", "stage"):
        if name in given:
            wanted = given[name]
            members = [wanted] if isinstance(wanted, str) else list(wanted)
            clauses.append(f"{name} IN ({', '.join('?' * len(members))})")
            values += map(str, members)
    for name in ("backend", "stencil", "version", "config"):
        if name in given:
            clauses.append(f"{name} = ?")
            values.append(given[name])
    equal: dict[str, Any] = {}
    if "precision" in filters:
        equal["precision"] = precision(filters["precision"]).letter
    if "trans" in filters:
        equal |= _transposes(filters["trans"], equal.get("precision"))
    if "problem" in filters:
        equal |= problem_to_json(filters["problem"])
    for name, value in equal.items():
        clauses.append(f"{name} = ?")
        values.append(value)
    if "created_before" in filters:
        moment = filters["created_before"]
        if moment.tzinfo is None:
            raise ValueError("created_before needs a time zone")
        clauses.append("created < ?")
        values.append(moment.astimezone(UTC).isoformat(timespec="microseconds"))
    return " AND ".join(clauses), tuple(values)


def is_stored(connection: sqlite3.Connection, measurement: Measurement) -> bool:
    """Whether a measurement is there, to the last digit."""
    sql = "SELECT 1 FROM measurement WHERE digest = ?"
    return connection.execute(sql, (digest(measurement),)).fetchone() is not None


def insert(connection: sqlite3.Connection, measurement: Measurement) -> tuple[int, bool]:
    """Insert a measurement unless it is there; return its id and whether it is new.

    Raises
    ------
    ValueError
        If it is of status ok and was not timed.
    """
    if measurement.ok and not measurement.times_ns:
        raise ValueError("times_ns is empty; a result of status ok was timed")
    identity = digest(measurement)
    found = connection.execute(
        "SELECT id FROM measurement WHERE digest = ?", (identity,)
    ).fetchone()
    if found:
        return int(found["id"]), False
    config = measurement.stored_config
    values = {
        "digest": identity,
        "device_id": _shared(
            connection,
            "device",
            fingerprint=measurement.device,
            name=measurement.device_name,
            backend=measurement.backend,
        ),
        "problem_id": _shared(connection, "problem", **problem_to_json(measurement.problem)),
        "config_id": _shared(
            connection,
            "config",
            hash=config.id,
            stencil=config.stencil,
            parameters=_compact(oldest(config.stencil, config)),
        ),
        "environment_id": _shared(
            connection, "environment", facts=_compact(dict(measurement.environment))
        ),
        "version": measurement.stencil_version,
        "status": str(measurement.status),
        "stage": str(measurement.stage),
        "created": measurement.created,
        "median_ns": measurement.median_ns if measurement.times_ns else None,
        "error": measurement.error,
        "compile_seconds": measurement.compile_seconds,
        "reason": measurement.reason,
        "times_ns": _compact(list(measurement.times_ns)),
        "detail": measurement.detail,
    }
    cursor = connection.execute(_insertion("measurement", values), tuple(values.values()))
    return int(cursor.lastrowid or 0), True


def measurement_of(row: sqlite3.Row) -> Measurement:
    """Return the measurement in a row of the view ``result``."""
    config, mode = config_and_mode(row["stencil"], json.loads(row["parameters"]))
    return Measurement(
        config=config,
        mode=mode,
        problem=problem_from_json(row),
        device=row["device"],
        device_name=row["device_name"],
        backend=row["backend"],
        stencil_version=row["version"],
        status=Status(row["status"]),
        stage=Stage(row["stage"]),
        reason=row["reason"],
        detail=row["detail"],
        times_ns=tuple(json.loads(row["times_ns"])),
        error=row["error"],
        environment=json.loads(row["environment"]),
        compile_seconds=row["compile_seconds"],
        created=row["created"],
        id=row["id"],
    )


def _transposes(pair: str, letter: str | None) -> dict[str, str]:
    """Return both operations of a letter pair, as problems of a precision store them."""
    a, b = pair_of(str(pair), "NTCR")
    if letter is not None:
        a, b = a.on(precision(letter)), b.on(precision(letter))
    return {"trans_a": str(a), "trans_b": str(b)}


def _compact(value: object) -> str:
    """Return JSON text that is equal for equal values."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _insertion(table: str, columns: Collection[str]) -> str:
    """Return an INSERT statement that does nothing where the row is there."""
    marks = ", ".join("?" * len(columns))
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks}) "  # noqa: S608
        "ON CONFLICT DO NOTHING"
    )


def _shared(connection: sqlite3.Connection, table: str, **values: Any) -> int:
    """Return the id of a row that many measurements share, inserted if need be."""
    connection.execute(_insertion(table, values), tuple(values.values()))
    equal = " AND ".join(f"{name} = ?" for name in values)
    row = connection.execute(
        f"SELECT id FROM {table} WHERE {equal}",  # noqa: S608
        tuple(values.values()),
    ).fetchone()
    return int(row["id"])
