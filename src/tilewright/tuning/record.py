"""Records: a measurement as plain JSON values and back, nothing lost.

The store's identity, the T4 files and ``--json`` all use this one form.  What is
read may come from anybody: every value is checked for type here and for range by
`Measurement`.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

from tilewright.problem import Problem, Trans
from tilewright.space.aliases import oldest
from tilewright.stencil import Mode
from tilewright.stencil.stored import config_and_mode, stored_config
from tilewright.tuning.measurement import Measurement

__all__ = ["digest", "from_record", "problem_from_json", "problem_to_json", "to_record"]

_SIZES = ("m", "n", "k", "lda", "ldb", "ldc")
_PARAMETERS_LIMIT = 256


def problem_to_json(problem: Problem) -> dict[str, Any]:
    """Return a problem as JSON values."""
    return {
        **{name: getattr(problem, name) for name in _SIZES},
        "precision": problem.precision.letter,
        "trans_a": str(problem.trans_a),
        "trans_b": str(problem.trans_b),
    }


def problem_from_json(plain: Any) -> Problem:
    """Return the problem that JSON values, or a store's row, describe."""
    values = {name: plain[name] for name in (*_SIZES, "precision")}
    # Not Trans.parse: R is no caller's letter, but a stored problem may have it.
    return Problem(**values, trans_a=Trans(plain["trans_a"]), trans_b=Trans(plain["trans_b"]))


def to_record(measurement: Measurement) -> dict[str, Any]:
    """Return a measurement as JSON values, without its row number."""
    config = measurement.config
    return {
        "stencil": config.stencil,
        "stencil_version": measurement.stencil_version,
        "config": measurement.stored_config.id,
        "parameters": dict(config),
        "mode": str(measurement.mode),
        "problem": problem_to_json(measurement.problem),
        "device": measurement.device,
        "device_name": measurement.device_name,
        "backend": measurement.backend,
        "status": str(measurement.status),
        "stage": str(measurement.stage),
        "reason": measurement.reason,
        "detail": measurement.detail,
        "times_ns": list(measurement.times_ns),
        # JSON has no infinity.
        "error": "inf" if measurement.error == math.inf else measurement.error,
        "environment": dict(measurement.environment),
        "compile_seconds": measurement.compile_seconds,
        "created": measurement.created,
    }


def digest(measurement: Measurement) -> str:
    """Return a SHA-256 over everything a measurement says, in hexadecimal.

    As its record was when names were what they were first, and the mode among the parameters.
    """
    stored, record = measurement.stored_config, to_record(measurement)
    del record["mode"]
    record["parameters"] = oldest(stored.stencil, stored)
    canonical = json.dumps(record, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def from_record(record: Any) -> Measurement:
    """Return the measurement that a record describes.

    Raises
    ------
    ValueError
        If a field is missing, of the wrong type or out of range, or the config's
        identity is not that of its parameters; the message names the field.
    """
    if not isinstance(record, dict):
        raise ValueError("the record is not an object")
    config, mode = config_and_mode(_field(record, "stencil", str), _parameters(record))
    mode |= Mode.parse(_field({"mode": "plain", **record}, "mode", str))
    if stored_config(config, mode).id != _field(record, "config", str):
        raise ValueError("config is not the identity of these parameters")
    times = _field(record, "times_ns", list)
    if not all(_is_int(t) for t in times):
        raise ValueError("times_ns has an entry that is not an integer")
    error = record.get("error")
    return Measurement(
        config=config,
        mode=mode,
        problem=_problem(_field(record, "problem", dict)),
        device=_field(record, "device", str),
        device_name=_field(record, "device_name", str),
        backend=_field(record, "backend", str),
        stencil_version=_field(record, "stencil_version", int),
        status=_field(record, "status", str),
        stage=_field(record, "stage", str),
        reason=_field(record, "reason", str),
        detail=_field(record, "detail", str),
        times_ns=tuple(times),
        error=math.inf if error == "inf" else _number("error", error),
        environment=_field(record, "environment", dict),
        compile_seconds=_number("compile_seconds", record.get("compile_seconds")),
        created=_field(record, "created", str),
    )


def _is_int(value: object) -> bool:
    """Whether a JSON value is an integer; Python counts booleans as integers."""
    return isinstance(value, int) and not isinstance(value, bool)


def _field(record: dict[str, Any], name: str, kind: type) -> Any:
    """Return a field of a record, which must have this type."""
    if name not in record:
        raise ValueError(f"{name} is missing")
    value = record[name]
    if not isinstance(value, kind) or isinstance(value, bool):
        wanted = {str: "text", int: "an integer", list: "a list", dict: "an object"}[kind]
        raise ValueError(f"{name} is not {wanted}")
    return value


def _number(name: str, value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} is not a number")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name} is out of range") from None


def _parameters(record: dict[str, Any]) -> dict[str, int | str]:
    """Return a config's values."""
    values = _field(record, "parameters", dict)
    if len(values) > _PARAMETERS_LIMIT:
        raise ValueError(f"parameters has more than {_PARAMETERS_LIMIT} entries")
    for name, value in values.items():
        if not (_is_int(value) or isinstance(value, str)):
            raise ValueError(f"parameters: {name[:80]!r} is neither an integer nor text")
    return dict(values)


def _problem(record: dict[str, Any]) -> Problem:
    for name, kind in (*((size, int) for size in _SIZES), ("precision", str)):
        _field(record, name, kind)
    for name in ("trans_a", "trans_b"):
        letter = _field(record, name, str)
        if letter not in tuple(Trans):
            raise ValueError(f"{name}={letter[:80]!r} is not a transpose; use one of N, T, C, R")
    return problem_from_json(record)
